# Fails if the objects of the vector kernels define a function that other code could be linked to.
execute_process(COMMAND ${NM} -C --defined-only ${ARCHIVE}
  OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" lines "${listing}")

set(member "")
set(num_members 0)
set(unexpected "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+)\\.o(bj)?:$")
    set(member "${CMAKE_MATCH_1}")
    if(member MATCHES "^(kernels|casts|dithering|onebit|picks)_avx")
      math(EXPR num_members "${num_members} + 1")
    endif()
  elseif(member MATCHES "^(kernels|casts|dithering|onebit|picks)_avx" AND line MATCHES "^[0-9a-f]+ [TWi] "
      AND NOT line MATCHES " T bs::reduce::Avx(2Kernels|512Kernels|512Fp16Sum|2Casts|512Casts)\\(\\)$"
      AND NOT line MATCHES " T bs::codec::Avx(2|512)(Dithering|Onebit|Picks)\\(\\)$")
    string(APPEND unexpected "\n  ${member}: ${line}")
  endif()
endforeach()

if(NOT num_members EQUAL WANT)
  message(FATAL_ERROR "${ARCHIVE}: found ${num_members} objects of vector code, want ${WANT}")
endif()
if(unexpected)
  message(FATAL_ERROR "Compiled for CPUs that not every machine has, and visible:${unexpected}")
endif()
