// Device: computes nothing, in given times, as operations of MXNet's engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "base/executor.h"
#include "engine_device.h"
#include "frontend/mxnet/mxnet_abi.h"

// The device of engine_device.h.  One thread calls Run; everything else happens on `executor`,
// which must have run its last task before the device is destroyed.
//
// REQUIRES: every layer is over when the device is destroyed.
class Device {
 public:
  Device(bs::Executor* executor, const bs_mxnet_functions& functions)
      : executor_(executor), mxnet_(functions) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // 0, or what MXNet returned.
  int Run(const bs_device_layer& layer);
  // Layers that have read something else than they should.  Thread-safe.
  uint64_t wrong() const { return wrong_; }

 private:
  struct Operation;

  static void Begin(void* run_context, void* on_complete, void* operation);
  static void Delete(void* operation);

  // Null: MXNet has skipped what stood at this place.
  void Come(uint64_t place, Operation* operation);
  void Next();
  // Compares and writes what the layer says; returns a problem with its arrays, if there is one.
  std::string Touch(const bs_device_layer& layer);
  void End(const Operation* operation, const std::string& problem);

  bs::Executor* const executor_;
  const bs::mxnet::Functions mxnet_;
  std::atomic<uint64_t> wrong_{0};
  uint64_t places_ = 0;  // the caller's; below: the executor's
  std::map<uint64_t, Operation*> waiting_;
  uint64_t next_ = 0;
  bool busy_ = false;
  bs::TimePoint until_{};  // when the layer that runs, or ran last, was due
};
