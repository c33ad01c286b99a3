// A stand-in for MXNet: runs, skips and ends operations of its engine when the test says so, has
// arrays of any form, and records calls of its stores.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/mxnet/mxnet.h"

// One at a time: the C functions have no argument that could tell several apart.
class FakeMxnet {
 public:
  struct Operation {
    std::function<void(void* on_complete)> run;
    bool async = false;  // kAsync, not kCPUPrioritized
    std::function<void()> deleter;
    std::string name;
    int priority = 0;
    void* array = nullptr;
    bool reads = false, writes = false;
    bool writes_what_it_reads = false;  // for which MXNet waits for ever
    int times_ended = 0;
    std::optional<std::string> error;
  };
  struct Array;
  // The memory of an array.
  struct Memory {
    void* data;  // first, before the size: as MXNet's
    uint64_t size_bytes;
    Array* array;
  };
  // MXNet's facts about an array.
  struct Form {
    std::vector<int64_t> shape{2, 3};
    int dtype = 0, kind = 0, dev_type = 1;
    bool is_shown = true;  // MXNet returns the shape
  };
  // An array whose address is asked for.
  struct Array {
    // NOLINTNEXTLINE(google-explicit-constructor): as values in braces
    Array(std::vector<float> its = {}, bool broken = false, bool plain = true)
        : values(std::move(its)), fails(broken), is_plain(plain) {}
    explicit Array(Form its) : Array() { form = std::move(its); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    ~Array() = default;

    Memory* memory = &own_memory;  // first: MXNet's arrays begin with theirs
    std::vector<float> values;
    Memory own_memory{values.data(), values.size() * sizeof(float), this};
    bool fails;
    bool is_plain;
    int num_shared = 0;          // handles of it besides its own, which share its memory
    Array* of = nullptr;         // what such a handle is one of
    bool is_plain_copy = false;  // has values of its own
    Form form;
    bool is_listed = false;  // in `created`
  };

  // A call of a store, or of the function that copies an array.
  struct Call {
    std::string name;  // push, pull, push_pull, init, copy, or "create" with the type of the store
    int key = 0;
    int priority = 0;
    const void* array = nullptr;     // that is read, or filled
    std::vector<float> values = {};  // of the array, at the time of the call
  };

  FakeMxnet();
  FakeMxnet(const FakeMxnet&) = delete;
  FakeMxnet& operator=(const FakeMxnet&) = delete;
  ~FakeMxnet();

  bs_mxnet_functions functions() const;
  // With those that copied rounds need.
  bs_mxnet_functions functions_for_copies() const;
  // With those of stores and of copies between arrays, but for copy_array.
  bs_mxnet_functions functions_for_stores() const;
  // The same with copy_array, which throws if the call is refused.
  bs_mxnet_functions functions_that_copy() const;
  // Runs the function of an operation, which may end inside the call.
  void Run(size_t index);
  // Skips an operation, as MXNet does when its input has an error.
  void Skip(size_t index);
  Operation& operator[](size_t index) { return operations[index]; }

  // NaiveEngine: an operation runs inside the call that pushes it; `wait` is called until it ended.
  std::function<void()> naive_wait;
  // An operation that is kAsync runs inside the call that pushes it: nothing is pending.
  bool all_ready = false;
  // Calls of push_async_nd that succeed before all others fail.
  size_t pushes_left = 1000;
  std::deque<Operation> operations;

  std::vector<Array*> created;  // by create_array of the stores, and not freed
  int num_stores = 0;           // that are not freed
  std::vector<Call> calls;
  std::set<std::string> refused;    // names of calls that fail, once they are recorded
  std::vector<int64_t> last_shape;  // where MXNet keeps the shape that it returns
};
