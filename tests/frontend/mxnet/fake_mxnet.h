// A stand-in for MXNet's engine: runs, skips and ends operations when the test says so.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "frontend/mxnet/mxnet.h"

// One at a time: the C functions have no argument that could tell several apart.
class FakeMxnet {
 public:
  struct Operation {
    std::function<void(void* on_complete)> run;
    std::function<void()> deleter;
    std::string name;
    int priority = 0;
    void* array = nullptr;
    bool writes = false;
    bool writes_what_it_reads = false;  // for which MXNet waits for ever
    int times_ended = 0;
    std::optional<std::string> error;
  };
  // An array whose address is asked for.
  struct Array {
    std::vector<float> values{};
    bool fails = false;
    bool is_plain = true;
    int num_shared = 0;   // handles of it besides its own, which share its memory
    Array* of = nullptr;  // what such a handle is one of
  };

  FakeMxnet();
  FakeMxnet(const FakeMxnet&) = delete;
  FakeMxnet& operator=(const FakeMxnet&) = delete;
  ~FakeMxnet();

  bs_mxnet_functions functions() const;
  // Runs the function of an operation, which may end inside the call.
  void Run(size_t index);
  // Skips an operation, as MXNet does when its input has an error.
  void Skip(size_t index);
  Operation& operator[](size_t index) { return operations[index]; }

  // NaiveEngine: an operation runs inside the call that pushes it; `wait` is called until it ended.
  std::function<void()> naive_wait;
  // Calls of push_async_nd that succeed before all others fail.
  size_t pushes_left = 1000;
  std::deque<Operation> operations;
};
