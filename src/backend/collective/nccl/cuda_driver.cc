// Calls the driver by the types and numbers of its ABI.
#include "backend/collective/nccl/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <type_traits>

namespace bs::backend::collective {
namespace {

// Numbers of cuda.h.
constexpr int kInvalidValue = 1;
constexpr int kNotReady = 600;
constexpr int kMemoryType = 2;     // an attribute of a pointer
constexpr int kDeviceOrdinal = 9;  // another one
constexpr unsigned int kMemoryOfDevice = 2;
constexpr unsigned int kNonBlocking = 1;    // of a stream
constexpr int kRelaxed = 2;                 // of a thread: graphs of other threads bar no call
constexpr unsigned int kDisableTiming = 2;  // of an event

// One of them is "nccl".
constexpr const char* kWithoutNccl = "unset BYTESCHEDULER_COMM and BYTESCHEDULER_LOCAL_SUMS";

std::string NoDriver(const std::string& why) {
  return "NVIDIA's driver library cannot be used (" + why + "): install the driver, or " +
         kWithoutNccl;
}

}  // namespace

const char* CudaDriver::Bind(void* library, Functions* functions) {
  const char* missing = nullptr;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(library, name));
    if (*function == nullptr && missing == nullptr) missing = name;
  };
  find(&functions->init, "cuInit");
  find(&functions->get_error_string, "cuGetErrorString");
  find(&functions->pointer_get_attribute, "cuPointerGetAttribute");
  find(&functions->device_get, "cuDeviceGet");
  find(&functions->device_get_uuid, "cuDeviceGetUuid");
  find(&functions->primary_retain, "cuDevicePrimaryCtxRetain");
  find(&functions->set_current, "cuCtxSetCurrent");
  find(&functions->exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(&functions->priority_range, "cuCtxGetStreamPriorityRange");
  find(&functions->stream_create, "cuStreamCreateWithPriority");
  find(&functions->host_register, "cuMemHostRegister_v2");
  find(&functions->host_unregister, "cuMemHostUnregister");
  find(&functions->copy, "cuMemcpyAsync");
  find(&functions->event_create, "cuEventCreate");
  find(&functions->event_record, "cuEventRecord");
  find(&functions->event_query, "cuEventQuery");
  find(&functions->event_destroy, "cuEventDestroy_v2");
  return missing;
}

Result<std::unique_ptr<CudaDriver>> CudaDriver::Load(const std::string& file) {
  const auto unusable = [](const std::string& why) { return Status::Unavailable(NoDriver(why)); };
  // It stays: it has threads of its own.
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc has a text for each thread.
  if (library == nullptr) return unusable(::dlerror());
  Functions functions{};
  if (const char* const missing = Bind(library, &functions); missing != nullptr) {
    return unusable(file + " lacks " + missing);
  }
  return std::unique_ptr<CudaDriver>(new CudaDriver(functions));
}

Status CudaDriver::Init() const {
  const Status status = Check("cuInit", cuda_.init(0));
  return status.ok() ? status : Status::FailedPrecondition(NoDriver(status.message()));
}

Status CudaDriver::Check(const char* function, int error) const {
  if (error == 0) return Status::Ok();
  const char* text = nullptr;
  cuda_.get_error_string(error, &text);
  return Status::Unavailable(std::string(function) + ": " +
                             (text != nullptr ? text : "error " + std::to_string(error)));
}

Result<int> CudaDriver::GpuOf(const void* memory) const {
  const auto address = reinterpret_cast<unsigned long long>(memory);
  unsigned int type = 0;
  int gpu = 0;
  int error = cuda_.pointer_get_attribute(&type, kMemoryType, address);
  if (error == kInvalidValue || (error == 0 && type != kMemoryOfDevice)) {
    return Status::InvalidArgument(
        "NCCL sums tensors of GPUs, and this tensor is on the CPU: move it to the worker's GPU, "
        "or " +
        std::string(kWithoutNccl));
  }
  if (error == 0) error = cuda_.pointer_get_attribute(&gpu, kDeviceOrdinal, address);
  const Status status = Check("cuPointerGetAttribute", error);
  if (!status.ok()) return status;
  return gpu;
}

Result<std::string> CudaDriver::UuidOf(int gpu) const {
  int device = 0;
  std::array<char, kUuidBytes> uuid{};
  Status status = Check("cuDeviceGet", cuda_.device_get(&device, gpu));
  if (status.ok()) status = Check("cuDeviceGetUuid", cuda_.device_get_uuid(uuid.data(), device));
  if (!status.ok()) return status;
  return std::string(uuid.data(), uuid.size());
}

Status CudaDriver::Use(int gpu) const {
  int device = 0;
  void* context = nullptr;
  Status status = Check("cuDeviceGet", cuda_.device_get(&device, gpu));
  if (!status.ok()) return status;
  status = Check("cuDevicePrimaryCtxRetain", cuda_.primary_retain(&context, device));
  if (!status.ok()) return status;
  status = Check("cuCtxSetCurrent", cuda_.set_current(context));
  if (!status.ok()) return status;
  int mode = kRelaxed;
  return Check("cuThreadExchangeStreamCaptureMode", cuda_.exchange_capture_mode(&mode));
}

Result<CudaDriver::Stream> CudaDriver::NewStream() const {
  int least = 0;
  int greatest = 0;
  Stream stream = nullptr;
  Status status = Check("cuCtxGetStreamPriorityRange", cuda_.priority_range(&least, &greatest));
  if (!status.ok()) return status;
  status =
      Check("cuStreamCreateWithPriority", cuda_.stream_create(&stream, kNonBlocking, greatest));
  if (!status.ok()) return status;
  return stream;
}

Status CudaDriver::Lock(void* memory, size_t size_bytes) const {
  return Check("cuMemHostRegister", cuda_.host_register(memory, size_bytes, 0));
}

Status CudaDriver::Unlock(void* memory) const {
  return Check("cuMemHostUnregister", cuda_.host_unregister(memory));
}

Status CudaDriver::Copy(const void* from, void* to, size_t size_bytes, Stream stream) const {
  return Check("cuMemcpyAsync",
               cuda_.copy(reinterpret_cast<unsigned long long>(to),
                          reinterpret_cast<unsigned long long>(from), size_bytes, stream));
}

Result<CudaDriver::Event> CudaDriver::Record(Stream stream) const {
  Event event = nullptr;
  Status status = Check("cuEventCreate", cuda_.event_create(&event, kDisableTiming));
  if (!status.ok()) return status;
  status = Check("cuEventRecord", cuda_.event_record(event, stream));
  if (!status.ok()) {
    Free(event);
    return status;
  }
  return event;
}

Result<bool> CudaDriver::IsOver(Event event) const {
  const int error = cuda_.event_query(event);
  if (error == kNotReady) return false;
  const Status status = Check("cuEventQuery", error);
  if (!status.ok()) return status;
  return true;
}

void CudaDriver::Free(Event event) const { cuda_.event_destroy(event); }

}  // namespace bs::backend::collective
