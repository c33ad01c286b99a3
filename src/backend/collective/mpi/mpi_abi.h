// MpiAbi: the types and constants with which the functions of an MPI library are called.
//
// Headers of MPI fix these when a program is compiled; here they are rows of a table, so that the
// same binary calls every library.  A new kind of library is a new row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace bs::backend::collective {

// The type of MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request and MPI_Errhandler.
enum class MpiHandle : uint8_t { kInt, kPointer };

// A handle that mpi.h defines: the address of a symbol, or a number.
struct MpiConstant {
  const char* symbol = nullptr;  // null: the number counts
  intptr_t number = 0;
};

// A variable of the environment that MPI_Init reads.
struct MpiVariable {
  const char* name = nullptr;  // null: there is none
  const char* value = nullptr;
};

struct MpiAbi {
  std::string_view name;
  // The names under which systems have the library; an empty name ends them.
  std::array<std::string_view, 2> libraries;
  MpiHandle handle;
  // A library that has this symbol has another ABI, whatever its name says; null: there is none.
  const char* foreign_symbol;
  // Components that the library loads find its symbols only if they are global.
  bool global_symbols;

  MpiConstant comm_world;
  MpiConstant comm_self;
  MpiConstant errors_return;
  MpiConstant sum;
  MpiConstant float32;
  MpiConstant float64;
  intptr_t in_place;
  intptr_t status_ignore;  // of a status and of an array of them
  int undefined;
  int thread_multiple;
  MpiVariable tuning{};  // counts unless the user has set that variable
};

// The ABIs of the libraries of a launcher, the preferred ABI first.
std::span<const MpiAbi> OpenMpiAbis();
// Intel MPI is of this kind too.
std::span<const MpiAbi> MpichAbis();

}  // namespace bs::backend::collective
