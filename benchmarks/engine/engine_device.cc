// The device on a thread of its own, "bench-device".
#include "engine_device.h"

#include <exception>
#include <memory>

#include "base/loop_thread.h"
#include "device.h"

struct bs_device {
  explicit bs_device(const bs_mxnet_functions& functions)
      : loop(std::make_unique<bs::LoopThread>("bench-device")), device(loop.get(), functions) {}
  bs_device(const bs_device&) = delete;
  bs_device& operator=(const bs_device&) = delete;
  // The last completion may still be returning.
  ~bs_device() { loop.reset(); }

  std::unique_ptr<bs::LoopThread> loop;
  Device device;
};

bs_device* bs_device_open(void* push_async_nd, void* get_data, void* last_error) try {
  bs_mxnet_functions functions{};
  functions.push_async_nd = push_async_nd;
  functions.get_data = get_data;
  functions.last_error = last_error;
  return new bs_device(functions);
} catch (const std::exception&) {
  return nullptr;
}

int bs_device_run(bs_device* device, const bs_device_layer* layer) try {
  return device->device.Run(*layer);
} catch (const std::exception&) {
  return -1;
}

uint64_t bs_device_wrong(const bs_device* device) { return device->device.wrong(); }

void bs_device_close(bs_device* device) { delete device; }
