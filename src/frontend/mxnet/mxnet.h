/* The MXNet plug-in: one tensor's push-pull as one or two operations in MXNet's engine.
 *
 * Needs no MXNet header: the engine is reached through addresses of its C API, which Python passes
 * once, and through three mirrored structs (see mxnet_abi.h).  No call blocks, and no completion
 * needs Python or its lock.
 */
#ifndef BYTESCHEDULER_PLUGIN_MXNET_H_
#define BYTESCHEDULER_PLUGIN_MXNET_H_

// NOLINTBEGIN(readability-identifier-naming): names as C has them.
#include <stdint.h>

#include "bytescheduler/c_api.h"
#include "frontend/mxnet/mxnet_functions.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bs_mxnet bs_mxnet;

/* `worker` must outlive the plug-in handle.  Uses push_async_nd and get_data; for rounds with a
 * value share_array, free_array and make_plain.
 *
 * Where a network device (RDMA) uses arrays, also create_array.  Then the worker keeps handles of
 * the arrays that the latest round of each key has sent and filled (bs_kept_memory). */
int bs_mxnet_open(bs_worker* worker, const bs_mxnet_functions* functions, bs_mxnet** plugin,
                  bs_error* error);

/* A round of a key. */
typedef struct {
  uint64_t key;
  const char* name; /* the key's name in errors; copied; null: its number */
  int priority;
  void* send_stage;
  void* recv_stage;
  uint64_t size_bytes; /* of each stage */
  bs_coding coding;    /* of the bytes sent; see bs_operation */
  int joined;          /* one proxy for both directions, if both are wanted */
  /* Null, or the array that is sent in place of send_stage: the caller's, dense and on the CPU, of
   * size_bytes, in any layout.  Operations that are registered later do not change it until the
   * proxy that reads it ends.  Its memory is kept until the round ends, even if the caller frees
   * its handle.  REQUIRES: make_plain is there; null in an update. */
  void* value;
  /* The value is copied as soon as it can be read, so that it is in use no longer, and send_stage
   * is not used.  If it can be read at once, it is, on the calling thread.
   * REQUIRES: a value, not joined; bs_mxnet_copies; one thread at a time. */
  int copied;
  /* Null, or in a copied round an array of the caller's, dense and on the CPU, of size_bytes, in
   * any layout, which gets the sum too: a third proxy writes it. */
  void* out;
  const bs_rates* rates; /* see bs_operation; copied */
} bs_mxnet_round;

/* Returns 1 if rounds can be copied: MXNet shows the functions for it, and its arrays have the
 * layout that we expect.  It does not know that rounds cannot be copied with NaiveEngine. */
int bs_mxnet_copies(const bs_mxnet* plugin);

/* Registers the two dependency proxies of a round of `key`:
 *   push: reads send_stage or value, ends when its bytes have been taken by the servers;
 *   pull: writes recv_stage, ends when the sum stands in it.
 * Both are NDArray handles of dense CPU arrays of size_bytes that were never given to an operator.
 * A joined round has one proxy, which reads send_stage or value, writes recv_stage and ends with
 * the later of the two: half the price for MXNet's engine, but the array that it reads is in use
 * until the sum is there.  Call it on the thread that pushed the operations these depend on.
 * Returns at once; errors of the round arrive in MXNet as exceptions on recv_stage.  If MXNet skips
 * a proxy because an input carries an error, the whole job fails with a message that says so.
 *
 * With MXNet's NaiveEngine, which runs operations inside the call that pushes them, it returns when
 * the round is over, and with the round's error, which that engine would lose. */
int bs_mxnet_push_pull(bs_mxnet* plugin, const bs_mxnet_round* round, bs_error* error);

/* The same for an asynchronous key, with only the wanted halves of the round.  A push
 * without a pull also holds recv_stage until it ends, so that operations of a key keep their order.
 */
typedef struct {
  bs_mxnet_round round;
  int pushes;
  int pulls;
} bs_mxnet_update_request;
int bs_mxnet_update(bs_mxnet* plugin, const bs_mxnet_update_request* request, bs_error* error);

/* Operations registered and not ended. */
int64_t bs_mxnet_pending(const bs_mxnet* plugin);
/* Takes no more push-pulls (kCancelled) and waits up to `timeout_ms` until none is pending; returns
 * 1 then, else 0.  Blocks.  May be called again.  Operations that wait for the network end soon
 * after the worker has failed (bs_worker_fail). */
int bs_mxnet_drain(bs_mxnet* plugin, int timeout_ms);
/* REQUIRES: no operation is pending. */
int bs_mxnet_close(bs_mxnet* plugin);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming)
#endif
