/* MXNet's C functions as the plug-in is given them: addresses, so that it needs no MXNet header. */
#ifndef BYTESCHEDULER_PLUGIN_MXNET_FUNCTIONS_H_
#define BYTESCHEDULER_PLUGIN_MXNET_FUNCTIONS_H_

// NOLINTBEGIN(readability-identifier-naming): names as C has them.

/* Copied by each object that is opened with it, which uses only some of them, and the last. */
typedef struct {
  void* push_async_nd;    /* MXEnginePushAsyncND */
  void* create_array;     /* MXNDArrayCreateEx */
  void* free_array;       /* MXNDArrayFree */
  void* share_array;      /* MXShallowCopyNDArray */
  void* get_data;         /* MXNDArrayGetData */
  void* get_shape;        /* MXNDArrayGetShapeEx64 */
  void* get_dtype;        /* MXNDArrayGetDType */
  void* get_storage_type; /* MXNDArrayGetStorageType */
  void* get_context;      /* MXNDArrayGetContext */
  void* store_create;     /* MXKVStoreCreate */
  void* store_init;       /* MXKVStoreInit */
  void* store_push;       /* MXKVStorePush */
  void* store_pull;       /* MXKVStorePull */
  void* store_push_pull;  /* MXKVStorePushPull */
  void* store_free;       /* MXKVStoreFree */
  /* mxnet::NDArray::Reorder2DefaultAsync() const, which has no C name: registers an operation that
   * brings the array's memory into the plain layout.  Null where MXNet has no other layout, or
   * does not show the function. */
  void* make_plain;
  /* mxnet::NDArray::Reorder2Default() const, which has no C name: returns an array in the plain
   * layout, the same array if it is plain; for operations that may read the array.  Null where
   * MXNet does not show it. */
  void* plain_copy;
  /* mxnet::NDArray::Chunk::IsMKLDNN() const tells whether memory is in another layout, for
   * operations that may read it.  mxnet::NDArray::Chunk::Reorder2Default() brings it into the plain
   * layout, for operations that may write it.  Null where MXNet does not show them. */
  void* is_blocked;
  void* make_default;
  /* mxnet::CopyFromTo(const NDArray&, const NDArray&, int, bool), which has no C name either:
   * registers a copy, whatever the layouts, and keeps both arrays' memory until it is over.  Null
   * where MXNet does not show it. */
  void* copy_array;
  void* last_error; /* MXGetLastError */
} bs_mxnet_functions;

// NOLINTEND(readability-identifier-naming)
#endif
