// Functions by which a test leads the library that plays NVIDIA's driver and NCCL.
#pragma once

#include <cstddef>

extern "C" {

// Memory from `begin` on belongs to this GPU from now on; -1: to the processor.
using FakeGpuOwnFn = void (*)(const void* begin, size_t size_bytes, int gpu);
// What goes wrong on a rank, at an operation that counts from 0; see FakeFault.
using FakeGpuFaultFn = void (*)(int rank, int fault, int operation);
// Group calls of all ranks of this process since the start.
using FakeGpuGroupsFn = int (*)();

enum FakeFault {
  kFakeNone = 0,
  kFakeRefusesToConnect = 1,
  kFakeFails = 2,     // an error comes while the operation is under way
  kFakeHangs = 3,     // the operation ends only by an abort
  kFakeConnects = 4,  // connecting ends only by an abort
  kFakeOtherSum = 5,  // the operation has an element less
  kFakeBlocks = 6,    // an abort takes a second
};

}  // extern "C"
