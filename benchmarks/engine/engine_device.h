/* A device that computes nothing, in given times: benchmarks.jobs.replay trains on it.
 *
 * A layer is an operation in MXNet's engine that ends when the layer would have been computed.  It
 * takes no processor until then, as on a GPU.  Layers run in the order of the calls, each as soon
 * as the one before is over and its input is there.  Delays of timers and threads do not add up: a
 * layer begins when the one before was due.
 */
#ifndef BYTESCHEDULER_BENCHMARKS_ENGINE_DEVICE_H_
#define BYTESCHEDULER_BENCHMARKS_ENGINE_DEVICE_H_

// NOLINTBEGIN(readability-identifier-naming): names as C has them.
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BS_EXPORTED __attribute__((visibility("default")))

typedef struct bs_device bs_device;

typedef struct {
  void* reads;         /* null, or the NDArray handle that the layer waits for */
  void* writes;        /* null, or that of an array that waits for the layer */
  int64_t duration_ns; /* of the layer, reading and writing included */
  /* Elements of `reads`, float32, of which one in 256 and the last are compared with `expected` as
   * the layer begins; 0: none. */
  uint64_t reads_floats;
  /* Elements of `writes`, float32, that are set to `value` before the layer ends; 0: none. */
  uint64_t writes_floats;
  float expected;
  float value;
} bs_device_layer;

/* Addresses of MXEnginePushAsyncND, MXNDArrayGetData and MXGetLastError.  Null without memory. */
BS_EXPORTED bs_device* bs_device_open(void* push_async_nd, void* get_data, void* last_error);
/* Registers a layer and returns at once: 0, or what MXNet returned.  On one thread.  What MXNet
 * skips, because an array carries an error, takes no time. */
BS_EXPORTED int bs_device_run(bs_device* device, const bs_device_layer* layer);
/* Returns how many layers have read other values than they should; from any thread. */
BS_EXPORTED uint64_t bs_device_wrong(const bs_device* device);
/* REQUIRES: every layer is over (MXNDArrayWaitAll). */
BS_EXPORTED void bs_device_close(bs_device* device);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming)
#endif
