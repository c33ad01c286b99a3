/* The MXNet plug-in's copier: plain arrays of the CPU copied by MXNet's engine, at the price of a
 * C call.
 *
 * MXNet's public copy is an operator, whose invocation costs more than everything else that a small
 * push-pull does.  The function that the operator and MXNet's stores call (copy_array) copies in
 * any memory layout, but has no C name.  Where MXNet does not show it, a `local` store copies: a
 * push without an updater makes the store's value an alias of the array, and a pull registers the
 * copy.
 */
#ifndef BYTESCHEDULER_PLUGIN_MXNET_COPY_H_
#define BYTESCHEDULER_PLUGIN_MXNET_COPY_H_

// NOLINTBEGIN(readability-identifier-naming): names as C has them.
#include "bytescheduler/c_api.h"
#include "frontend/mxnet/mxnet_functions.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bs_mxnet_copier bs_mxnet_copier;

/* Uses get_shape, get_dtype, get_storage_type and get_context, and copy_array; if that is null,
 * create_array, free_array, and all for stores but store_push_pull. */
int bs_mxnet_copier_open(const bs_mxnet_functions* functions, bs_mxnet_copier** copier,
                         bs_error* error);
/* Returns 1 if `array` and `other` (NDArray handles) are both dense, on the CPU, not empty, and of
 * one shape and dtype, as `copy` requires; else, or if MXNet cannot tell, 0. */
int bs_mxnet_copier_fits(const bs_mxnet_copier* copier, void* array, void* other);
/* Registers a copy in MXNet's engine and returns at once; larger priority first.  Without
 * copy_array the copier keeps the memory of `from` alive until the next copy.  One thread at a
 * time.
 * REQUIRES: bs_mxnet_copier_fits(copier, from, to). */
int bs_mxnet_copier_copy(bs_mxnet_copier* copier, void* from, void* to, int priority,
                         bs_error* error);
/* Copies that are under way go on. */
void bs_mxnet_copier_close(bs_mxnet_copier* copier);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming)
#endif
