// CudaDriver: the functions of NVIDIA's driver that sums on a GPU need, found at run time.
//
// Nothing links the driver or includes its header, so that a machine without it runs the same
// build.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"

namespace bs::backend::collective {

// An error of the driver is a Status with the driver's own text.
//
// Thread-safe, but for the GPU in use, which each thread has of its own.
class CudaDriver {
 public:
  using Stream = void*;
  using Event = void*;

  // The name by which systems have it.
  static constexpr const char* kFile = "libcuda.so.1";
  static constexpr size_t kUuidBytes = 16;

  // kUnavailable: there is no driver, or it is too old.  The process may still fork, and choose the
  // GPUs that it sees.
  static Result<std::unique_ptr<CudaDriver>> Load(const std::string& file = kFile);
  // Comes before all methods below.  kFailedPrecondition: the driver finds no GPU.
  Status Init() const;

  // Returns the number of the GPU that has `memory`.  kInvalidArgument: the processor has it.
  Result<int> GpuOf(const void* memory) const;
  // Returns kUuidBytes that no other GPU has.
  Result<std::string> UuidOf(int gpu) const;
  // Lets the calling thread use the GPU from now on, by the context that PyTorch has too, which
  // then stays until the process ends.  A CUDA graph that another thread captures stays whole.
  Status Use(int gpu) const;

  // REQUIRES, here and below: the thread uses a GPU.
  // The new stream goes before streams of usual priority, and waits for none of them.  It stays
  // until the process ends.
  Result<Stream> NewStream() const;
  // Page-locks memory of the host, so that a copy takes no time of the thread; Unlock ends that.
  // Neither touches its bytes.
  Status Lock(void* memory, size_t size_bytes) const;
  Status Unlock(void* memory) const;
  // Puts a copy on `stream`, between memory of the GPU and of the host.
  Status Copy(const void* from, void* to, size_t size_bytes, Stream stream) const;
  // Returns the end of the work that is on `stream`.
  Result<Event> Record(Stream stream) const;
  Result<bool> IsOver(Event event) const;
  void Free(Event event) const;

 private:
  // Pointers to functions of cuda.h; each returns 0 if it succeeds.
  struct Functions {
    int (*init)(unsigned int);
    int (*get_error_string)(int, const char**);
    int (*pointer_get_attribute)(void*, int, unsigned long long);
    int (*device_get)(int*, int);
    int (*device_get_uuid)(char*, int);
    int (*primary_retain)(void**, int);
    int (*set_current)(void*);
    int (*exchange_capture_mode)(int*);
    int (*priority_range)(int*, int*);
    int (*stream_create)(Stream*, unsigned int, int);
    int (*host_register)(void*, size_t, unsigned int);
    int (*host_unregister)(void*);
    int (*copy)(unsigned long long, unsigned long long, size_t, Stream);
    int (*event_create)(Event*, unsigned int);
    int (*event_record)(Event, Stream);
    int (*event_query)(Event);
    int (*event_destroy)(Event);
  };

  explicit CudaDriver(const Functions& functions) : cuda_(functions) {}
  // Fills the table.  Returns the name of a function that `library` lacks; null: it has all.
  static const char* Bind(void* library, Functions* functions);
  Status Check(const char* function, int error) const;

  const Functions cuda_;
};

}  // namespace bs::backend::collective
