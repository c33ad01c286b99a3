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
// Bytes that this process has copied between GPUs and the host since the start.
using FakeGpuCopiedFn = size_t (*)();
// Bytes of the host's memory that are page-locked now.
using FakeGpuLockedFn = size_t (*)();
// The driver page-locks nothing from now on, or does so again.
using FakeGpuLocksFn = void (*)(bool locks);
// Communicators of this process that an abort has ended since the start.
using FakeGpuAbortsFn = int (*)();
// The driver forgets that it was initialised.
using FakeGpuForgetFn = void (*)();
// Copies that streams come to wait from now on, or go on.
using FakeGpuHoldFn = void (*)(bool holds);
// A thread captures a CUDA graph from now on, or no longer.
using FakeGpuCaptureFn = void (*)(bool captures);

enum FakeFault {
  kFakeNone = 0,
  kFakeRefusesToConnect = 1,
  kFakeFails = 2,     // an error comes while the operation is under way
  kFakeHangs = 3,     // the operation ends only by an abort
  kFakeConnects = 4,  // connecting ends only by an abort
  kFakeOtherSum = 5,  // the operation has an element less
  kFakeBlocks = 6,    // an abort returns once the fault is over
  kFakeKeeps = 7,     // the call that begins the operation returns once the fault is over
  kFakeFaults = 8,  // the operation ends only by an abort; from then on the driver only has errors
  kFakeStays = 9,   // a call that was begun stays in progress until the fault is over
};

}  // extern "C"
