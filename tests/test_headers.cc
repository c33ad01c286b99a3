// Empty: CMake precompiles the headers of all tests for it (tests/CMakeLists.txt).
