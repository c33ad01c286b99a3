"""The C API and the MXNet plug-in as Cython sees them."""  # no-cython-lint
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

cdef extern from "bytescheduler/c_api.h" nogil:
    ctypedef struct bs_error:
        int code
        char[1024] message

    ctypedef struct bs_setting:
        const char* name
        const char* value

    enum: BS_CODING_BYTES
    uint64_t BS_FIRST_BOOKKEEPING_KEY

    ctypedef struct bs_coding:
        uint32_t codec
        uint16_t parameter_bytes
        unsigned char pull
        unsigned char feedback
        unsigned char[24] parameters

    int bs_coding_parse(const char* type, const bs_setting* options, size_t num_options,
                        bs_coding* coding, bs_error* error)

    ctypedef void (*bs_done)(void* context, int code, const char* message) noexcept nogil

    ctypedef struct bs_worker:
        pass

    int bs_names_known(const bs_setting* settings, size_t num_settings, int waited_ms, int* known,
                       bs_error* error)
    int bs_worker_start(const bs_setting* settings, size_t num_settings, int wanted_rank,
                        bs_worker** worker, bs_error* error)
    ctypedef struct bs_store_request:
        pass

    ctypedef void (*bs_store_fn)(void* context, bs_worker* worker,
                                 const bs_store_request* request) noexcept nogil

    int bs_worker_start_kvstore(const bs_setting* settings, size_t num_settings, int rank,
                                int blocks, bs_store_fn begin, void* context, bs_worker** worker,
                                bs_error* error)
    int bs_worker_ready(const bs_worker* worker, int timeout_ms, bs_error* error)
    ctypedef struct bs_view:
        size_t size
        uint64_t epoch
        int rank
        int num_workers
        int num_servers

    int bs_worker_view(const bs_worker* worker, bs_view* view, int* hosts, size_t count,
                       bs_error* error)
    void bs_worker_place(const bs_worker* worker, char* place, size_t size)
    int bs_leave_for(const bs_setting* settings, size_t num_settings, const char* place,
                     const char* reason, bs_error* error)
    int bs_vouch_for(const bs_setting* settings, size_t num_settings, int workers, uint64_t token,
                     bs_error* error)
    ctypedef struct bs_deferred:
        pass

    ctypedef struct bs_rates:
        double learning_rate
        double weight_decay
        double rescale_grad

    ctypedef enum bs_operation_kind:
        BS_BROADCAST
        BS_BROADCAST_ASYNCHRONOUS
        BS_BROADCAST_WHOLE
        BS_BROADCAST_FROM
        BS_PUSH_PULL
        BS_SET_OPTIMIZER
        BS_RETUNE
        BS_REST
        BS_GIVE_BACK
        BS_EXCHANGE
        BS_QUIT_EXCHANGE
        BS_REPRIORITISE_EXCHANGE

    ctypedef struct bs_exchange:
        size_t struct_bytes
        const int* givers
        size_t num_givers
        const int* takers
        size_t num_takers
        int reduction
        int home
        const char* label
        int64_t timeout_ms

    ctypedef struct bs_operation:
        size_t struct_bytes
        int kind
        int priority
        uint64_t key
        const void* sent "in"
        void* received "out"
        uint64_t size_bytes
        bs_done pushed
        bs_done done
        void* context
        bs_deferred** deferred
        bs_coding coding
        double factor
        uint64_t called
        int64_t waited_ns
        int at_once
        int dtype
        int root
        int hosted
        const char* about
        const bs_rates* rates
        const char* optimizer
        const void* pickle
        uint64_t pickle_bytes
        uint64_t partition_bytes
        uint64_t credit_bytes
        const bs_exchange* exchange

    bs_operation bs_operation_init(int kind)
    int bs_worker_start_operation(bs_worker* worker, const bs_operation* operation,
                                  bs_error* error)
    void bs_deferred_start(void* deferred)
    int bs_worker_barrier_start(bs_worker* worker, bs_done done, void* context, bs_error* error)
    int bs_worker_fail(bs_worker* worker, const char* why)
    int bs_worker_explain(bs_worker* worker, const char* reason)
    int bs_worker_status(const bs_worker* worker, bs_error* error)
    ctypedef void (*bs_metric_row)(void* context, const char* name, int of,
                                   double value) noexcept nogil
    int bs_worker_measure(const bs_worker* worker, int timeout_ms, bs_metric_row row,
                          void* context, bs_error* error)
    int bs_worker_name_key(bs_worker* worker, uint64_t key, const char* name, bs_error* error)
    int bs_worker_name_framework(bs_worker* worker, const char* name, bs_error* error)
    ctypedef void (*bs_step_row)(void* context, uint64_t number, double seconds) noexcept nogil
    int bs_worker_steps(const bs_worker* worker, int timeout_ms, bs_step_row row, void* context,
                        bs_error* error)
    int bs_worker_close(bs_worker* worker, int drain_ms, bs_error* error)

    ctypedef struct bs_gate:
        pass

    ctypedef struct bs_table:
        pass

    bs_gate* bs_gate_new(bs_worker* worker)
    void bs_gate_shut(bs_gate* gate)
    size_t bs_gate_wait(bs_gate* gate, int timeout_ms)
    void bs_gate_free(bs_gate* gate)
    const bs_table* bs_table_get()

    ctypedef struct bs_waiter:
        pass

    bs_waiter* bs_waiter_new(size_t count)
    void bs_waiter_done(void* waiter, int code, const char* message) noexcept
    void bs_waiter_pushed(void* waiter, int code, const char* message) noexcept
    int bs_waiter_is_pushed(const bs_waiter* waiter, bs_error* error)
    int bs_waiter_wait(const bs_waiter* waiter, int timeout_ms, bs_error* error)
    void bs_waiter_free(bs_waiter* waiter)

    ctypedef struct bs_completions:
        pass

    void bs_waiter_report(bs_waiter* waiter, bs_completions* completions, uint64_t token)
    bs_completions* bs_completions_new()
    size_t bs_completions_wait(bs_completions* completions, int timeout_ms, uint64_t* tokens,
                               size_t most)
    void bs_completions_wake(bs_completions* completions)
    void bs_completions_free(bs_completions* completions)

    ctypedef struct bs_node:
        pass

    ctypedef struct bs_server_update:
        uint64_t key
        const char* about
        int dtype
        uint64_t size_bytes
        const void* gradient
        void* weights
        const double* learning_rate
        const double* weight_decay
        const double* rescale_grad

    ctypedef struct bs_server_updater:
        void* context
        int (*set_optimizer)(void* context, const void* pickle, uint64_t size_bytes,
                             bs_error* error) noexcept nogil
        int (*update)(void* context, const bs_server_update* update, bs_error* error) noexcept nogil

    int bs_node_start_updating(const bs_setting* settings, size_t num_settings,
                               const bs_server_updater* updater, bs_node** node, bs_error* error)
    int bs_node_wait(bs_node* node, int timeout_ms, bs_error* error)
    int bs_node_port(const bs_node* node)
    int bs_node_measure(const bs_node* node, int timeout_ms, bs_metric_row row, void* context,
                        bs_error* error)
    int bs_node_close(bs_node* node, const char* why)

    ctypedef struct bs_layer:
        uint64_t size_bytes
        double forward_s
        double backward_s

    ctypedef struct bs_place:
        int host
        double bytes_per_second

    ctypedef struct bs_job_to_predict:
        const bs_layer* layers
        size_t num_layers
        int num_workers
        int num_servers
        int policy
        double bytes_per_second
        double latency_s
        uint64_t partition_bytes
        uint64_t credit_bytes
        int steps
        int most_workers
        double[4] coding_s
        const bs_place* places

    ctypedef struct bs_prediction:
        double step_s
        int simulated_workers
        uint64_t partitions
        uint64_t messages
        uint64_t most_waiting
        uint64_t server_waiting
        double worker_busy
        double server_busy

    int bs_predict(const bs_job_to_predict* job, bs_prediction* prediction, bs_error* error)
    ctypedef struct bs_links:
        double bytes_per_second
        double round_trip_s
        int num_servers
        int adds_up
    int bs_partition_and_credit(const bs_links* links, uint64_t* partition_bytes,
                                uint64_t* credit_bytes, bs_error* error)
    int bs_settings_check(const bs_setting* settings, size_t num_settings, bs_error* error)
    const char* bs_version()
    void bs_fail_exit()
    ctypedef struct bs_rdma_probe:
        pass
    ctypedef struct bs_rdma_reads:
        uint32_t count
        double median_s
    bs_rdma_probe* bs_rdma_probe_open(const bs_setting* settings, size_t num_settings,
                                      bs_error* error)
    void bs_rdma_probe_close(bs_rdma_probe* probe)
    const char* bs_rdma_probe_offer(const bs_rdma_probe* probe)
    int bs_rdma_probe_join(bs_rdma_probe* probe, const char* offer, bs_error* error)
    int bs_rdma_probe_read(bs_rdma_probe* probe, uint32_t size_bytes, uint32_t most_reads,
                           int limit_ms, bs_rdma_reads* found, bs_error* error)

cdef extern from "bytescheduler/c_api.h":
    # With the GIL: these call back inside the call.
    ctypedef void (*bs_coding_text)(void* context, const char* text) noexcept
    int bs_coding_describe(const bs_coding* coding, bs_coding_text text, void* context,
                           bs_error* error)
    int bs_coding_sizes(const bs_coding* coding, uint64_t size_bytes, uint64_t* pushed_bytes,
                        uint64_t* pulled_bytes, bs_error* error)
    ctypedef void (*bs_setting_row)(void* context, const char* name, const char* kind,
                                    const char* unit, const char* fallback, const char* scope,
                                    const char* sentence, int for_experts) noexcept
    void bs_settings_all(bs_setting_row row, void* context)
    ctypedef void (*bs_value_row)(void* context, const char* name, const char* value,
                                  const char* origin) noexcept
    void bs_settings_values(const bs_setting* settings, size_t num_settings, bs_value_row row,
                            void* context)
    ctypedef void (*bs_host_row)(void* context, const char* what, const char* name,
                                 const char* value) noexcept
    int bs_host_about(const bs_setting* settings, size_t num_settings, bs_host_row row,
                      void* context, bs_error* error)

cdef extern from "frontend/mxnet/mxnet_functions.h" nogil:
    ctypedef struct bs_mxnet_functions:
        void* push_async_nd
        void* create_array
        void* free_array
        void* share_array
        void* get_data
        void* get_shape
        void* get_dtype
        void* get_storage_type
        void* get_context
        void* store_create
        void* store_init
        void* store_push
        void* store_pull
        void* store_push_pull
        void* store_free
        void* make_plain
        void* plain_copy
        void* is_blocked
        void* make_default
        void* copy_array
        void* last_error

cdef extern from "frontend/mxnet/mxnet.h" nogil:
    ctypedef struct bs_mxnet:
        pass

    ctypedef struct bs_mxnet_round:
        uint64_t key
        const char* name
        int priority
        void* send_stage
        void* recv_stage
        uint64_t size_bytes
        bs_coding coding
        int joined
        void* value
        int copied
        void* out
        const bs_rates* rates

    int bs_mxnet_open(bs_worker* worker, const bs_mxnet_functions* functions, bs_mxnet** plugin,
                      bs_error* error)
    int bs_mxnet_copies(const bs_mxnet* plugin)
    int bs_mxnet_push_pull(bs_mxnet* plugin, const bs_mxnet_round* round, bs_error* error)
    ctypedef struct bs_mxnet_update_request:
        bs_mxnet_round round
        int pushes
        int pulls

    int bs_mxnet_update(bs_mxnet* plugin, const bs_mxnet_update_request* request, bs_error* error)
    int64_t bs_mxnet_pending(const bs_mxnet* plugin)
    int bs_mxnet_drain(bs_mxnet* plugin, int timeout_ms)
    int bs_mxnet_close(bs_mxnet* plugin)

cdef extern from "frontend/mxnet/mxnet_store.h" nogil:
    ctypedef struct bs_mxnet_store:
        pass

    int bs_mxnet_store_open(void* handle, const bs_mxnet_functions* functions,
                            bs_mxnet_store** store, bs_error* error)
    void bs_mxnet_store_begin(void* store, bs_worker* worker,
                              const bs_store_request* request) noexcept
    void bs_mxnet_store_close(bs_mxnet_store* store)
    int bs_mxnet_store_exit_at_once()

cdef extern from "frontend/mxnet/mxnet_copy.h" nogil:
    ctypedef struct bs_mxnet_copier:
        pass

    int bs_mxnet_copier_open(const bs_mxnet_functions* functions, bs_mxnet_copier** copier,
                             bs_error* error)
    int bs_mxnet_copier_fits(const bs_mxnet_copier* copier, void* array, void* other)
    int bs_mxnet_copier_copy(bs_mxnet_copier* copier, void* src, void* dst, int priority,
                             bs_error* error)
    void bs_mxnet_copier_close(bs_mxnet_copier* copier)
