// FakeMpi: state of the shared library that plays MPI, for the test that has loaded it.
#pragma once

namespace bs::backend::collective {

struct FakeMpi {
  int size = 1;
  int level = 0;    // of threads, that it provides; 0: the level that is asked for
  int queried = 0;  // the level of a process that has initialised MPI
  int initialized = 0;
  int finalized = 0;
  int init_calls = 0;
  int finalize_calls = 0;
  int communicators = 0;  // that are not freed
  int probe_calls = 0;
  void* attribute = nullptr;  // of MPI_COMM_SELF
  bool ends = true;           // sums end
  bool fails = false;         // MPI_Testsome does
  bool never_finalizes = false;
  bool wrong_call = false;
};

// The library's own functions.
using FakeMpiFinalize = int (*)();
inline constexpr char kFakeMpiFinalize[] = "MPI_Finalize";
using FakeMpiState = FakeMpi* (*)();
inline constexpr char kFakeMpiState[] = "fake_mpi_state";

}  // namespace bs::backend::collective
