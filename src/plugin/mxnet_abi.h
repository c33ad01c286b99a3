// MXNet 1.9.1 behind its C API, mirrored: what its engine hands to an operation, and takes.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace dmlc {
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
}  // namespace dmlc

namespace bs::mxnet {

struct Context {
  int32_t dev_type, dev_id;
};
struct RunContext {
  Context context;
  void *stream, *aux_stream;
  bool is_bulk;
};
// Its address is good only inside the operation's function; a copy may be called later, from any
// thread, once.
struct OnComplete {
  void (*callback)(void* engine, void* param, const dmlc::Error* error);
  void *engine, *param;
};
static_assert(sizeof(Context) == 8 && sizeof(RunContext) == 32 && sizeof(OnComplete) == 24);

using PushAsyncNd = int (*)(void (*run)(void* run_context, void* on_complete, void* param),
                            void* param, void (*deleter)(void* param), const void* context,
                            void** const_nds, int num_const, void** mutable_nds, int num_mutable,
                            const void* property, int priority, const char* name, bool wait);
using GetData = int (*)(void* array, void** data);
using LastError = const char* (*)();

constexpr Context kCpu{1, 0};
// A pool of its own with a priority queue; kNormal would wait behind queued computation.
constexpr int kCpuPrioritized = 3;

}  // namespace bs::mxnet
