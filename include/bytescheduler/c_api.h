// C API: the one door into the engine for Python and for framework plug-ins.
//
// Functions return a bs code (0 is ok, else a bs::StatusCode) and fill `error` if it is not null.
// Nothing is thrown.  Handles are thread-safe; close a handle once, with no other call on it
// running.
#ifndef BYTESCHEDULER_C_API_H_
#define BYTESCHEDULER_C_API_H_

// NOLINTBEGIN(readability-identifier-naming): names as C has them.
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int code;            // bs::StatusCode
  char message[1024];  // for people; cut off at the end if longer
} bs_error;

// Settings that win over the environment.
typedef struct {
  const char* name;
  const char* value;
} bs_setting;

// Runs once, on the engine's thread, never inside the call that took it.  `message` is valid during
// the call.  Must return soon and must not call back into the engine except to start operations.
typedef void (*bs_done)(void* context, int code, const char* message);

// ---- worker ------------------------------------------------------------------------------------

typedef struct bs_worker bs_worker;

// Joins the job as worker and returns when every node is there.  Blocks, up to
// BYTESCHEDULER_TIMEOUT. wanted_rank >= 0 attaches beside the stock worker of that rank in this
// process; -1 takes the rank the scheduler node gives.
int bs_worker_open(const bs_setting* settings, size_t num_settings, int wanted_rank,
                   bs_worker** worker, bs_error* error);
// The two halves of bs_worker_open, for callers that must look up now and then: start returns at
// once; ready blocks up to `timeout_ms` and returns 1 once every node is there or joining failed
// (then `error` says why, code 0 if all is well), 0 before.  No other call but close until then.
int bs_worker_start(const bs_setting* settings, size_t num_settings, int wanted_rank,
                    bs_worker** worker, bs_error* error);
int bs_worker_ready(const bs_worker* worker, int timeout_ms, bs_error* error);
// A worker whose bytes a synchronous stock store carries, through functions of the caller.
// Operations on one store_key do not overlap.
typedef struct {
  int what;       // 0 push: the key's first value; 1 pull; 2 push-pull: adds to the round
  int store_key;  // below 2**31 / 9973; lies on server (store_key * 9973) mod num_servers
  int dtype;      // MXNet's code
  int priority;
  uint64_t size_bytes;
  const void* in;  // of a push; valid during the call only
  uint64_t token;
} bs_carry;
// Begins an operation; called on one thread of the engine.  Its end is told by bs_carried_done,
// once, also if it could not begin.
typedef void (*bs_carry_fn)(void* context, bs_worker* worker, const bs_carry* request);
// `value`: what was pulled, valid until the next operation on that key; null for a push or an
// error.  Any thread, also inside the carry function.
void bs_carried_done(bs_worker* worker, uint64_t token, int code, const char* message,
                     const void* value);
// As bs_worker_start.  Once ready, a barrier of the store must follow on every worker.  Workers
// must broadcast the same keys in the same order, rank 0 before the others (a barrier between).
// `blocks`: whether `carry` returns only when the operation is over; a thread of its own
// ("bs-carrier") then calls it for one operation after the other, and until one is over workers
// must not begin others that they might begin in different orders. If operations on the store have
// not ended, bs_worker_close returns kUnavailable and leaves the handle and its threads behind;
// `context` must then stay valid for ever.
int bs_worker_start_carried(const bs_setting* settings, size_t num_settings, int rank, int blocks,
                            bs_carry_fn carry, void* context, bs_worker** worker, bs_error* error);
int bs_worker_rank(const bs_worker* worker);
int bs_worker_num_workers(const bs_worker* worker);
int bs_worker_num_servers(const bs_worker* worker);

// bs::Worker::Broadcast for one key; memory is the caller's until `done`.
int bs_worker_broadcast(bs_worker* worker, uint64_t key, int dtype, void* value,
                        uint64_t size_bytes, bs_done done, void* context, bs_error* error);
// bs::Worker::PushPull.  Either callback may come first.
typedef struct {
  uint64_t key;
  int priority;
  const void* in;
  void* out;
  uint64_t size_bytes;
  bs_done pushed;
  bs_done pulled;
  void* context;
  float threshold;  // 0, or that of two-bit compression: greater than 0, float32 only
  // 0, or a number that grows with the calls of the framework's user, of whom this is one whose
  // tensor became ready: the difference tells the order of the gradients (BYTESCHEDULER_PRIORITY).
  // Not used by bs_worker_update.
  uint64_t called;
  int at_once;  // with `called`: `in` was there when it was called for, nobody knows since when
  int64_t waited_ns;  // since the user asked, until `in` was ready; for the timeline
} bs_push_pull;
int bs_worker_push_pull(bs_worker* worker, const bs_push_pull* request, bs_error* error);
// Asynchronous keys: bs::Worker::Broadcast with bs::Mode::kAsynchronous, Update, SetOptimizer.
int bs_worker_broadcast_async(bs_worker* worker, uint64_t key, int dtype, void* value,
                              uint64_t size_bytes, bs_done done, void* context, bs_error* error);
// A key that stays in one piece, so that the server's bs_server_updater can update it:
// bs::Worker::BroadcastWhole.
typedef struct {
  uint64_t key;
  int dtype;
  void* value;  // memory is the caller's until `done`
  uint64_t size_bytes;
  const char* about;  // what that updater is told; not empty; copied
  int hosted;         // 1: only that updater can update it
} bs_whole_key;
int bs_worker_broadcast_whole(bs_worker* worker, const bs_whole_key* key, bs_done done,
                              void* context, bs_error* error);
typedef struct {
  double learning_rate;
  double weight_decay;
  double rescale_grad;
} bs_rates;
// `pushed` null: only pulls; `pulled` null: only pushes; not both.  `rates`: read during the call;
// null takes the optimizer's own.
int bs_worker_update(bs_worker* worker, const bs_push_pull* request, const bs_rates* rates,
                     bs_error* error);
// How the servers update; all of it is copied.
typedef struct {
  const char* text;    // "hosted NAME" if only the servers' bs_server_updater can do it
  const void* pickle;  // for that updater; may be empty
  uint64_t pickle_bytes;
} bs_optimizer;
int bs_worker_set_optimizer(bs_worker* worker, const bs_optimizer* optimizer, bs_done done,
                            void* context, bs_error* error);
// bs::Worker::Retune: rank 0 changes partitions (4 KiB to 1 GiB) and credit (1 B to 64 GiB) of all
// workers while the job runs.
int bs_worker_retune(bs_worker* worker, uint64_t partition_bytes, uint64_t credit_bytes,
                     bs_done done, void* context, bs_error* error);
// Waits for all workers; blocks.
int bs_worker_barrier(bs_worker* worker, bs_error* error);
// As above, without blocking: `done` runs when all are there.
int bs_worker_barrier_start(bs_worker* worker, bs_done done, void* context, bs_error* error);
// The worker can not go on (a gradient that will never come): fails the whole job with `why`.
int bs_worker_fail(bs_worker* worker, const char* why);
// 0, or the code and message of what failed the worker.
int bs_worker_status(const bs_worker* worker, bs_error* error);
// Calls `row`, inside this call, for each figure of the worker: its name, the rank of the server it
// is of, or -1, and the number (docs/operate/metrics.md).  Blocks up to `timeout_ms`;
// kDeadlineExceeded if the engine's thread is busy for longer.
typedef void (*bs_figure_row)(void* context, const char* name, int of, double value);
int bs_worker_measure(const bs_worker* worker, int timeout_ms, bs_figure_row row, void* context,
                      bs_error* error);
// A timeline calls the key so from now on; copied.  REQUIRES: the worker is ready.
int bs_worker_name_key(bs_worker* worker, uint64_t key, const char* name, bs_error* error);
// As bs_worker_measure, `row` for each of the latest training steps, at most 64, the oldest first:
// its number, which counts from 1, and its length (rounds of the largest tensor).
typedef void (*bs_step_row)(void* context, uint64_t number, double seconds);
int bs_worker_steps(const bs_worker* worker, int timeout_ms, bs_step_row row, void* context,
                    bs_error* error);
// Waits up to `drain_ms` for pending operations, fails what is left, leaves the job, frees the
// handle.  Blocks.  In a forked child: frees nothing, does nothing.
int bs_worker_close(bs_worker* worker, int drain_ms, bs_error* error);

// ---- waiting for completions -------------------------------------------------------------------

// Counts `count` completions and keeps the first error among them, without taking any lock of the
// caller's language.  Pass bs_waiter_done as `done` and the waiter as `context`.
typedef struct bs_waiter bs_waiter;
bs_waiter* bs_waiter_new(size_t count);
void bs_waiter_done(void* waiter, int code, const char* message);
// Blocks up to `timeout_ms`.  Returns 1 if all came (then `error` is the first error, or code 0),
// 0 if not.
int bs_waiter_wait(const bs_waiter* waiter, int timeout_ms, bs_error* error);
// REQUIRES: all came, or none will.
void bs_waiter_free(bs_waiter* waiter);

// ---- scheduler node and servers ----------------------------------------------------------------

typedef struct bs_node bs_node;

// Starts the role of DMLC_ROLE (scheduler or server) on threads of its own and returns.
int bs_node_start(const bs_setting* settings, size_t num_settings, bs_node** node, bs_error* error);
// As above for a server that has weights updated by functions of the caller (bs::ServerUpdater),
// which run on a thread of their own, "bs-updater", one at a time, until bs_node_close has
// returned. They return a bs code and fill `error`, which is never null; the message goes to the
// worker.
typedef struct {
  uint64_t key;
  const char* about;  // what rank 0 said about the key, or ""
  int dtype;          // MXNet's code
  uint64_t size_bytes;
  const void* gradient;
  void* weights;  // changed in place
  // Null where the optimizer's own count.
  const double* learning_rate;
  const double* weight_decay;
  const double* rescale_grad;
} bs_server_update;
typedef struct {
  void* context;
  int (*set_optimizer)(void* context, const void* pickle, uint64_t size_bytes, bs_error* error);
  int (*update)(void* context, const bs_server_update* update, bs_error* error);
} bs_server_updater;
// `updater` is copied; null: none.  A scheduler node has no use for it.
int bs_node_start_updating(const bs_setting* settings, size_t num_settings,
                           const bs_server_updater* updater, bs_node** node, bs_error* error);
// Blocks until the job is over or `timeout_ms` passed.  Returns 1 if over (then `error` says how:
// code 0 for a job that ended well), 0 if not.
int bs_node_wait(bs_node* node, int timeout_ms, bs_error* error);
// The port this node listens on; 0 while it does not yet.
int bs_node_port(const bs_node* node);
// As bs_worker_measure; of a server by the rank of the worker, of a scheduler node by that of the
// node.
int bs_node_measure(const bs_node* node, int timeout_ms, bs_figure_row row, void* context,
                    bs_error* error);
// Ends the node: told to everyone else as `why` unless the job is over.  Blocks shortly; frees.
int bs_node_close(bs_node* node, const char* why);

// ---- predictions -------------------------------------------------------------------------------

// bs::predict::Layer, in the order of forward.
typedef struct {
  uint64_t size_bytes;
  double forward_s;
  double backward_s;
} bs_layer;
// bs::predict::Options.
typedef struct {
  const bs_layer* layers;
  size_t num_layers;
  int num_workers;
  int num_servers;
  int policy;  // 0 ours, 1 first come first served, 2 P3
  double bytes_per_second;
  double latency_s;
  uint64_t partition_bytes;
  uint64_t credit_bytes;
  int steps;
  int most_workers;
} bs_job_to_predict;
// bs::predict::Prediction. `context` is the caller's.
typedef struct {
  double step_s;
  int simulated_workers;
  uint64_t partitions;
  uint64_t messages;
  uint64_t most_waiting;
  uint64_t server_waiting;
  double worker_busy;
  double server_busy;
} bs_prediction;
// bs::predict::Predict.  Blocks for as long as the processor takes.
int bs_predict(const bs_job_to_predict* job, bs_prediction* prediction, bs_error* error);
// The partition and the credit that a job takes for links of that rate whose messages are answered
// after that time, where neither is set.  kInvalidArgument: no rate, no time of up to 100000 s, not
// 1 to 65536 servers.
int bs_pieces_for(double bytes_per_second, double round_trip_s, int num_servers,
                  uint64_t* partition_bytes, uint64_t* credit_bytes, bs_error* error);

// ---- settings ----------------------------------------------------------------------------------

// Calls `row` for every setting in the order of the table.
typedef void (*bs_setting_row)(void* context, const char* name, const char* kind, const char* unit,
                               const char* fallback, const char* scope, const char* sentence);
void bs_settings_all(bs_setting_row row, void* context);
// Calls `row` with name, value and origin of every setting as it stands.
typedef void (*bs_value_row)(void* context, const char* name, const char* value,
                             const char* origin);
void bs_settings_values(const bs_setting* settings, size_t num_settings, bs_value_row row,
                        void* context);
// Checks all settings without starting anything.
int bs_settings_check(const bs_setting* settings, size_t num_settings, bs_error* error);
// Calls `row` for what this host has, as the engine finds it; src/api/about_host.h lists the rows.
// Blocks while the scheduler node's name is looked up.
typedef void (*bs_host_row)(void* context, const char* what, const char* name, const char* value);
int bs_host_about(const bs_setting* settings, size_t num_settings, bs_host_row row, void* context,
                  bs_error* error);
const char* bs_version(void);
// From now on this process ends with 1 where it would end with 0: for an error found when it is too
// late to raise it.  What the C library has still to write is written; destructors of static
// objects do not run.
void bs_fail_exit(void);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming)
#endif  // BYTESCHEDULER_C_API_H_
