// A shared library that plays MPI with a single rank, by the ABI that FAKE_ABI names: 40 is Open
// MPI's, 12 MPICH's and 5 that of MPI 5.  FAKE_LACKS leaves a function out.
#include "backend/collective/mpi/fake_mpi.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

#if FAKE_ABI == 12
using Handle = int;
#else
using Handle = void*;
#endif

Handle AsHandle(intptr_t number) { return (Handle)number; }

}  // namespace

// A variable's name is the same in C.
#if FAKE_ABI == 40
__attribute__((visibility("default"))) int ompi_mpi_comm_world = 0;
__attribute__((visibility("default"))) int ompi_mpi_comm_self = 0;
__attribute__((visibility("default"))) int ompi_mpi_errors_return = 0;
__attribute__((visibility("default"))) int ompi_mpi_op_sum = 0;
__attribute__((visibility("default"))) int ompi_mpi_float = 0;
__attribute__((visibility("default"))) int ompi_mpi_double = 0;
#endif

namespace {

#if FAKE_ABI == 40
const Handle kWorld = &ompi_mpi_comm_world;
const Handle kSelf = &ompi_mpi_comm_self;
const Handle kReturn = &ompi_mpi_errors_return;
const Handle kSum = &ompi_mpi_op_sum;
const Handle kFloat = &ompi_mpi_float;
const Handle kDouble = &ompi_mpi_double;
[[maybe_unused]] constexpr intptr_t kInPlace = 1;
constexpr intptr_t kIgnore = 0;
constexpr int kMultiple = 3;
#elif FAKE_ABI == 12
const Handle kWorld = AsHandle(0x44000000);
const Handle kSelf = AsHandle(0x44000001);
const Handle kReturn = AsHandle(0x54000001);
const Handle kSum = AsHandle(0x58000003);
const Handle kFloat = AsHandle(0x4c00040a);
const Handle kDouble = AsHandle(0x4c00080b);
[[maybe_unused]] constexpr intptr_t kInPlace = -1;
constexpr intptr_t kIgnore = 1;
constexpr int kMultiple = 3;
#else
const Handle kWorld = AsHandle(0x101);
const Handle kSelf = AsHandle(0x102);
const Handle kReturn = AsHandle(0x143);
const Handle kSum = AsHandle(0x21);
const Handle kFloat = AsHandle(0x210);
const Handle kDouble = AsHandle(0x214);
[[maybe_unused]] constexpr intptr_t kInPlace = 1;
constexpr intptr_t kIgnore = 0;
constexpr int kMultiple = 4096;
#endif
constexpr int kUndefined = -32766;
constexpr int kError = 77;
constexpr intptr_t kFirstDup = 0x700;
constexpr intptr_t kRequest = 0x900;
constexpr int kKeyval = 0x55;

using DeleteFn = int (*)(Handle, int, void*, void*);
DeleteFn delete_attribute = nullptr;

bs::backend::collective::FakeMpi* State() {
  static bs::backend::collective::FakeMpi state;
  return &state;
}

int Check(bool right) {
  if (!right) State()->wrong_call = true;
  return 0;
}

bool IsDup(Handle communicator) {
  return communicator == AsHandle(kFirstDup) || communicator == AsHandle(kFirstDup + 1);
}

}  // namespace

FAKE_EXPORT bs::backend::collective::FakeMpi* fake_mpi_state() { return State(); }

FAKE_EXPORT int MPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, "Fake\tVersion:   1.5, built today\nin a test");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}

FAKE_EXPORT int MPI_Error_string(int error, char* text, int* length) {
  std::strcpy(text, error == kError ? "a rank is gone" : "unknown");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}

FAKE_EXPORT int MPI_Initialized(int* flag) {
  *flag = State()->initialized;
  return 0;
}

FAKE_EXPORT int MPI_Finalized(int* flag) {
  *flag = State()->finalized;
  return 0;
}

FAKE_EXPORT int MPI_Init_thread(int* argc, char*** argv, int wanted, int* provided) {
  State()->initialized = 1;
  ++State()->init_calls;
  *provided = State()->level == 0 ? wanted : State()->level;
  return Check(argc == nullptr && argv == nullptr && wanted == kMultiple);
}

FAKE_EXPORT int MPI_Query_thread(int* provided) {
  *provided = State()->queried;
  return 0;
}

FAKE_EXPORT int MPI_Finalize() {
  ++State()->finalize_calls;
  while (State()->never_finalizes) ::pause();
  void* const attribute = std::exchange(State()->attribute, nullptr);
  if (attribute != nullptr) delete_attribute(kSelf, kKeyval, attribute, nullptr);
  State()->finalized = 1;
  return 0;
}

FAKE_EXPORT int MPI_Comm_create_keyval(int (*copy)(Handle, int, void*, void*, void*, int*),
                                       DeleteFn deletes, int* keyval, void* extra) {
  delete_attribute = deletes;
  *keyval = kKeyval;
  int copies = 1;
  copy(kSelf, kKeyval, extra, nullptr, nullptr, &copies);
  return Check(extra == nullptr && copies == 0);
}

FAKE_EXPORT int MPI_Comm_set_attr(Handle communicator, int keyval, void* attribute) {
  State()->attribute = attribute;
  return Check(communicator == kSelf && keyval == kKeyval);
}

FAKE_EXPORT int MPI_Iprobe(int source, int tag, Handle communicator, int* found, void* status) {
  ++State()->probe_calls;
  *found = 0;
  return Check(source == 0 && tag == 0 && communicator == AsHandle(kFirstDup + 1) &&
               status == reinterpret_cast<void*>(kIgnore) && State()->finalized == 0);
}

FAKE_EXPORT int MPI_Comm_size(Handle communicator, int* size) {
  *size = State()->size;
  return Check(communicator == kWorld);
}

FAKE_EXPORT int MPI_Comm_rank(Handle communicator, int* rank) {
  *rank = 0;
  return Check(communicator == kWorld);
}

FAKE_EXPORT int MPI_Comm_dup(Handle communicator, Handle* made) {
  *made = AsHandle(kFirstDup + State()->communicators++);
  return Check(communicator == kWorld);
}

FAKE_EXPORT int MPI_Comm_free(Handle* communicator) {
  --State()->communicators;
  return Check(IsDup(*communicator));
}

FAKE_EXPORT int MPI_Comm_set_errhandler(Handle communicator, Handle handler) {
  return Check((communicator == kWorld || IsDup(communicator)) && handler == kReturn);
}

#ifndef FAKE_LACKS
FAKE_EXPORT int MPI_Iallreduce(const void* in, void* out, int count, Handle type, Handle operation,
                               Handle communicator, Handle* request) {
  const size_t size = type == kDouble ? 8 : 4;
  if (in != reinterpret_cast<const void*>(kInPlace)) {
    std::memcpy(out, in, static_cast<size_t>(count) * size);
  }
  *request = AsHandle(kRequest);
  return Check((type == kFloat || type == kDouble) && operation == kSum && IsDup(communicator));
}
#endif

FAKE_EXPORT int MPI_Allreduce(const void* in, void* /*out*/, int /*count*/, Handle type,
                              Handle operation, Handle communicator) {
  return Check(in == reinterpret_cast<const void*>(kInPlace) && type == kDouble &&
               operation == kSum && IsDup(communicator));
}

FAKE_EXPORT int MPI_Testsome(int count, Handle* requests, int* ended, int* places, void* statuses) {
  *ended = kUndefined;
  if (State()->fails) return kError;
  if (!State()->ends) {
    *ended = 0;
    return Check(statuses == reinterpret_cast<void*>(kIgnore));
  }
  for (int i = 0; i < count; ++i) {
    Check(requests[i] == AsHandle(kRequest));
    places[i] = i;
  }
  *ended = count;
  return Check(statuses == reinterpret_cast<void*>(kIgnore));
}
