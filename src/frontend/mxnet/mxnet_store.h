/* The MXNet plug-in's part of the kvstore back end: partitions as keys of a stock MXNet store.
 *
 * Reaches the store through addresses of MXNet's C API, as frontend/mxnet/mxnet.h does, and needs
 * no Python once it is open.
 */
#ifndef BYTESCHEDULER_PLUGIN_MXNET_STORE_H_
#define BYTESCHEDULER_PLUGIN_MXNET_STORE_H_

// NOLINTBEGIN(readability-identifier-naming): names as C has them.
#include "bytescheduler/c_api.h"
#include "frontend/mxnet/mxnet_functions.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bs_mxnet_store bs_mxnet_store;

/* `handle`: a KVStoreHandle, which must outlive the last operation.  Uses push_async_nd,
 * create_array, free_array, get_data, store_push, store_pull and store_push_pull. */
int bs_mxnet_store_open(void* handle, const bs_mxnet_functions* functions, bs_mxnet_store** store,
                        bs_error* error);
/* A bs_store_fn whose context is the store; called on one thread.  Each store_key has an array of
 * its own that no other operator ever sees.  An operation has ended when MXNet's engine has run
 * the work that it queued for that array; MXNet's errors arrive as kInternal with its text.  With
 * MXNet's NaiveEngine it blocks until then, and bs_worker_start_kvstore must be told so (`blocks`).
 */
void bs_mxnet_store_begin(void* store, bs_worker* worker, const bs_store_request* request);
/* Gives the handle up; memory goes with the last operation.  REQUIRES: bs_mxnet_store_begin is
 * called no more. */
void bs_mxnet_store_close(bs_mxnet_store* store);
/* From now on the process ends without waiting for MXNet's engine, whose operations on a store that
 * has lost a peer never end: exit() then stops at once, with its status, after the handlers that
 * were registered later and with its streams flushed. */
int bs_mxnet_store_exit_at_once(void);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming)
#endif
