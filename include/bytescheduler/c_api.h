// C API: the only entry to the engine for Python and for framework plug-ins.
//
// Functions return a bs_code and fill `error` if it is not null.  They throw nothing.  Handles are
// thread-safe.  Close a handle once, while no other call uses it.
#ifndef BYTESCHEDULER_C_API_H_
#define BYTESCHEDULER_C_API_H_

// NOLINTBEGIN(readability-identifier-naming): names as C has them.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

// How a call or an operation ended; the numbers never change.
typedef enum {
  BS_OK = 0,
  BS_INVALID_ARGUMENT = 1,     // the caller's value is wrong; nothing was done
  BS_DEADLINE_EXCEEDED = 2,    // a peer did not respond in time
  BS_CANCELLED = 3,            // the object was closed first
  BS_UNAVAILABLE = 4,          // a peer was lost or left the job
  BS_FAILED_PRECONDITION = 5,  // right call, wrong moment (a key never declared)
  BS_NOT_FOUND = 6,
  BS_ALREADY_EXISTS = 7,
  BS_PERMISSION_DENIED = 8,
  BS_RESOURCE_EXHAUSTED = 9,
  BS_INTERNAL = 10,  // a bug of this library
} bs_code;
typedef struct {
  int code;            // bs_code
  char message[1024];  // for people; truncated if longer
} bs_error;

// A name with a value: a setting that wins over the environment, or an option of a codec.
typedef struct {
  const char* name;
  const char* value;
} bs_setting;

// Runs once, on the engine's thread, never inside the call that took it.  `message` is valid during
// the call.  It must return soon, and may call the engine only to start operations.
typedef void (*bs_done)(void* context, int code, const char* message);

// ---- gradient compression ----------------------------------------------------------------------

// The codec of gradients and its parameters, how their sums travel, and what becomes of the rest
// that codes cannot express.  All bytes 0: not coded.
// Only the codec reads the parameters.  Equal codings have equal bytes.
#define BS_CODING_BYTES 24
typedef struct {
  uint32_t codec;  // its number on the wire
  uint16_t parameter_bytes;
  unsigned char pull;      // sums travel 0: as float32, 1: in the same codec, 2: in bf16
  unsigned char feedback;  // 1, 2, 3: the rest is kept for the next round, which `ef` asks for
  unsigned char parameters[BS_CODING_BYTES];  // 0 behind `parameter_bytes`
} bs_coding;
// Makes a coding from a codec's name ("2bit"; null if the user gave none) and its options as text
// ({"threshold", "0.5"}).  Every codec has the option "pull": "same", "plain" or "bf16"; some have
// "ef": "vanilla", "corrected" or "sparse".
// BS_INVALID_ARGUMENT, with a sentence for the user, if there is no such codec, or if it refuses
// the options.
int bs_coding_parse(const char* type, const bs_setting* options, size_t num_options,
                    bs_coding* coding, bs_error* error);
// Calls `text`, inside this call, with a description of the coding: "compressed to two bits with
// threshold 0.5", "not compressed".  Any coding.
typedef void (*bs_coding_text)(void* context, const char* text);
int bs_coding_describe(const bs_coding* coding, bs_coding_text text, void* context,
                       bs_error* error);
// Writes the bytes that travel for `size_bytes` of float32, to the servers and back.
// BS_INVALID_ARGUMENT, with the fault, for a coding that is not known here or makes no sense.
int bs_coding_sizes(const bs_coding* coding, uint64_t size_bytes, uint64_t* pushed_bytes,
                    uint64_t* pulled_bytes, bs_error* error);

// ---- worker ------------------------------------------------------------------------------------

typedef struct bs_worker bs_worker;

// Joins the job as worker and returns when every node is there.  Blocks, up to
// BYTESCHEDULER_TIMEOUT.  wanted_rank >= 0 attaches beside the stock worker of that rank in this
// process; -1 takes the rank that the scheduler node gives.
int bs_worker_open(const bs_setting* settings, size_t num_settings, int wanted_rank,
                   bs_worker** worker, bs_error* error);
// The two halves of bs_worker_open, for callers that check for signals in between.  start returns
// at once.  ready blocks up to `timeout_ms` and returns 0 while the worker joins.  It returns 1
// once every node is there or joining failed; then `error` has the code and the reason.  Until then
// only close may be called.
int bs_worker_start(const bs_setting* settings, size_t num_settings, int wanted_rank,
                    bs_worker** worker, bs_error* error);
int bs_worker_ready(const bs_worker* worker, int timeout_ms, bs_error* error);
// The kvstore back end: a worker that sends through a synchronous stock store, by functions of the
// caller.  The struct is an operation on that store; operations on the same store_key do not
// overlap.
typedef struct {
  int what;       // 0 push: the key's first value; 1 pull; 2 push-pull: adds to the round
  int store_key;  // below 2**31 / 9973; lies on server (store_key * 9973) mod num_servers
  int dtype;      // MXNet's code
  int priority;
  uint64_t size_bytes;
  const void* in;  // the bytes of a push, else null; valid during the call only
  uint64_t token;  // names the operation in bs_store_done
} bs_store_request;
// Begins an operation; called on one thread of the engine.  The caller reports its end by one call
// of bs_store_done, also if it could not begin.
typedef void (*bs_store_fn)(void* context, bs_worker* worker, const bs_store_request* request);
// `value`: the pulled bytes, valid until the next operation on that key; null for a push or an
// error.  Any thread, also inside the begin function.
void bs_store_done(bs_worker* worker, uint64_t token, int code, const char* message,
                   const void* value);
// bs_worker_start for the kvstore back end.  Once it is ready, a barrier of the store must follow
// on every worker.  Workers broadcast the same keys in the same order, rank 0 before the other
// workers, with a barrier between.  `blocks` is 1 if `begin` returns only when the operation is
// over.  Then the thread "bs-kvstore" calls it for each operation in turn.  While an operation
// runs, workers must not begin operations whose order may differ between workers.  If operations on
// the store have not ended, bs_worker_close returns BS_UNAVAILABLE and leaves the handle and its
// threads behind; `context` must then stay valid for ever.
int bs_worker_start_kvstore(const bs_setting* settings, size_t num_settings, int rank, int blocks,
                            bs_store_fn begin, void* context, bs_worker** worker, bs_error* error);
// The job as the worker sees it.
typedef struct {
  size_t size;     // sizeof(bs_view), which the caller sets: the struct may grow
  uint64_t epoch;  // counts the changes of membership; 0 today
  int rank;        // of the worker
  int num_workers;
  int num_servers;
} bs_view;
// Fills in `view`, and the host of each of the first `count` workers, from rank 0: equal numbers
// are the same host, and -1 is an unknown host.  Fields that the library does not know keep their
// values: set them to 0 first.  BS_INVALID_ARGUMENT if `view` has no size.  A forked child may call
// it too.
int bs_worker_view(const bs_worker* worker, bs_view* view, int* hosts, size_t count,
                   bs_error* error);
// Writes the worker's place in the job, for bs_leave_for in another process; empty on the kvstore
// back end.
void bs_worker_place(const bs_worker* worker, char* place, size_t size);
// Says goodbye for a worker whose process has ended without bs_worker_close.  With a `reason` that
// is not empty the worker gave up, and the job fails, also after bs_worker_close.  Blocks for a few
// seconds at most.
int bs_leave_for(const bs_setting* settings, size_t num_settings, const char* place,
                 const char* reason, bs_error* error);
// Tells the scheduler node that the processes of `workers` live which have not joined the job.
// While it hears that about all missing workers, more than every few seconds, it waits for them
// beyond its time-out.  Each launcher has a `token` of its own.  Blocks as bs_leave_for.
int bs_vouch_for(const bs_setting* settings, size_t num_settings, int workers, uint64_t token,
                 bs_error* error);

// Runs `visit` once on the engine's thread, soon, unless it returns an error; there a start of
// an operation wakes no thread.  REQUIRES: bs_worker_close comes after that.
int bs_worker_visit(bs_worker* worker, void (*visit)(void* context), void* context,
                    bs_error* error);
// Memory of a key that a network device (RDMA) uses without a copy.  Registration takes time that
// grows with the size, so the memory stays registered for the key's later operations.
typedef struct {
  uint64_t key;
  int filled;  // 0: operations send the memory; 1: they fill it
  void* memory;
  uint64_t size_bytes;
  // The whole that the memory is a part of: other values are other memory, even at the address.
  const void* storage;
  uint64_t storage_bytes;
  // Runs inside the call, if at all: returns an owner, which keeps the memory; null: none can.
  void* (*own)(void* context);
  // Ends an owner that the device has forgotten; any thread, at the latest in bs_worker_close, or
  // when a use ends that outlasts it.
  void (*disown)(void* owner);
  void* context;
} bs_kept_memory;
// Returns the least size of memory that a device of this worker may use; UINT64_MAX: none ever
// does.  Any thread.
uint64_t bs_worker_least_kept_bytes(const bs_worker* worker);
// Lets a device use the memory until bs_memory_use_end, for an operation during which the caller
// keeps the memory anyway.  Any thread but the engine's, whose messages would wait.  The first call
// for a memory may block for as long as the system locks its pages.  Sets `use` to null where no
// device helps or there is no room: the operation works as well, and copies.  Other memory that was
// kept for the key is released.  If the room is needed, so is the memory that was unused for the
// longest time.  REQUIRES: bs_worker_close comes after it returns.
typedef struct bs_memory_use bs_memory_use;
int bs_worker_use_memory(bs_worker* worker, const bs_kept_memory* memory, bs_memory_use** use,
                         bs_error* error);
// Call it once, from any thread, when the operation is out of the memory.  May be null.
void bs_memory_use_end(bs_memory_use* use);
// Waits until every worker has called it as often; blocks.
int bs_worker_barrier(bs_worker* worker, bs_error* error);
// The same without blocking: `done` runs when all workers have come.
int bs_worker_barrier_start(bs_worker* worker, bs_done done, void* context, bs_error* error);
// Fails the whole job with `why`, because this worker cannot go on (a gradient will never come).
int bs_worker_fail(bs_worker* worker, const char* why);
// Lets the goodbye of bs_worker_close say `reason`: why the worker leaves early.  Nothing fails by
// that, but calls of other workers that miss this worker.  At most 1024 bytes travel.  REQUIRES: on
// the thread that calls bs_worker_close.
int bs_worker_explain(bs_worker* worker, const char* reason);
// Returns 0, or the code and message of the worker's failure.
int bs_worker_status(const bs_worker* worker, bs_error* error);
// Calls `row`, inside this call, for each metric of the worker: its name, the rank of a server or
// -1, and the number (in the source tree: docs/operate/metrics.md).  Blocks up to `timeout_ms`;
// BS_DEADLINE_EXCEEDED if the engine's thread is busy for longer.
typedef void (*bs_metric_row)(void* context, const char* name, int of, double value);
int bs_worker_measure(const bs_worker* worker, int timeout_ms, bs_metric_row row, void* context,
                      bs_error* error);
// Names the key in the timeline from now on; copied.  REQUIRES: the worker is ready.
int bs_worker_name_key(bs_worker* worker, uint64_t key, const char* name, bs_error* error);
// Names the framework whose tensors travel ("torch") in the timeline; copied.  REQUIRES: the worker
// is ready.
int bs_worker_name_framework(bs_worker* worker, const char* name, bs_error* error);
// Calls `row`, with the rules of bs_worker_measure, for each of the latest training steps, at most
// 64, the oldest first: its number, which counts from 1, and its length.  A step is a round of the
// largest tensor.
typedef void (*bs_step_row)(void* context, uint64_t number, double seconds);
int bs_worker_steps(const bs_worker* worker, int timeout_ms, bs_step_row row, void* context,
                    bs_error* error);
// Waits up to `drain_ms` for pending operations, fails the rest, leaves the job and frees the
// handle.  Blocks.  In a forked child it does nothing and frees nothing.
int bs_worker_close(bs_worker* worker, int drain_ms, bs_error* error);

// ---- operations --------------------------------------------------------------------------------

// Keys from here on are no tensors of the training, but what workers agree on by themselves.
// Timelines set them apart, and no lost time counts from them.
#define BS_FIRST_BOOKKEEPING_KEY UINT64_C(0x8000000000000000)

// The kinds of bs_operation.  In brackets stand the fields that a kind takes besides `context`; all
// others stay 0.  Operations on a key take effect in the order of their starts.  Every worker
// starts the same sequence of operations for a key.
typedef enum {
  // Declares the key, for push-pulls in `coding`, and copies rank 0's `out` into `out` of every
  // worker.  [key, dtype, out, size_bytes, done, coding]
  BS_BROADCAST = 1,
  // The same for an asynchronous key: servers update its weights with every push as it comes.
  // [as BS_BROADCAST]
  BS_BROADCAST_ASYNCHRONOUS = 2,
  // The same for an asynchronous key that stays in one piece, so that the servers'
  // bs_server_updater can update it.  [key, dtype, out, size_bytes, done, about, hosted]
  BS_BROADCAST_WHOLE = 3,
  // Copies `out` of the worker `root` into `out` of every worker, any number of times, bit for bit.
  // No other kind uses the key.  [key, root, out, size_bytes, done]
  BS_BROADCAST_FROM = 4,
  // Sums `in` over all workers into `out` of every worker.  [key, in, out, size_bytes, pushed,
  // done, priority, coding, rates, called, at_once, waited_ns, factor, deferred]
  BS_PUSH_PULL = 5,
  // Sends `in`, a gradient of an asynchronous key, to the servers.  [key, in, size_bytes, done,
  // priority, coding, waited_ns, rates]
  BS_PUSH = 6,
  // Fills `out` with the weights of an asynchronous key.  [key, out, size_bytes, done, priority,
  // waited_ns]
  BS_PULL = 7,
  // Pushes `in`, then pulls into `out`.  [as BS_PUSH, out, pushed]
  BS_UPDATE = 8,
  // Sets the optimizer of all servers for asynchronous keys; every worker starts it equally often.
  // [optimizer, pickle, pickle_bytes, done]
  BS_SET_OPTIMIZER = 9,
  // Changes partitions and credit of all workers while the job runs; rank 0 alone may.
  // [partition_bytes, credit_bytes, done]
  BS_RETUNE = 10,
  // This worker does not need a synchronous key for now.  Workers do so at any time, each for
  // itself; once all have, the servers forget the key.  A later BS_PUSH_PULL, or BS_BROADCAST_FROM,
  // takes the key again, and its rounds go on.  Asynchronous keys, and those of stock servers,
  // stay.  `done` may be null.  [key, done]
  BS_REST = 11,
  // The same for a key that this worker never uses again, and so forgets too.  [as BS_REST]
  BS_GIVE_BACK = 12,
  // An exchange between some workers, without a declaration: its givers contribute `in`, and
  // its takers get the result in `out`.  All its workers state the same but for priority and
  // time-out.  Keys of tensors are apart.  `in` and `out` may be the same memory.  [key, in, out,
  // size_bytes, pushed, done, priority, dtype, exchange]
  BS_EXCHANGE = 13,
  // Ends an exchange that this worker has under way, on all its workers, with `about` as the
  // reason.  [key, about]
  BS_QUIT_EXCHANGE = 14,
  // Gives an exchange that this worker has under way another priority, for what it has not sent
  // yet; nothing happens if it is over.  [key, priority]
  BS_REPRIORITISE_EXCHANGE = 15,
} bs_operation_kind;
// How the contributions to an exchange become its result.
typedef enum { BS_SUM = 0, BS_MIN = 1, BS_MAX = 2, BS_PRODUCT = 3 } bs_reduction;
// The workers of an exchange, and how it goes.  `home` follows from the facts that the key is made
// of: calls that differ would not meet otherwise.
typedef struct {
  size_t struct_bytes;  // sizeof(bs_exchange) where the caller was compiled; it grows at its end
  const int* givers;    // ranks, in order; at least one, as below
  size_t num_givers;
  const int* takers;
  size_t num_takers;
  int reduction;       // bs_reduction; of no use with one giver
  int home;            // rank of the server that keeps it, modulo their number; -1: by the key
  const char* label;   // for people: at most 200 bytes
  int64_t timeout_ms;  // 0: none; more than a week is a week
} bs_exchange;
// Rates of one push: of an asynchronous key in place of the optimizer's own; of a push-pull for the
// residual, which follows their changes.
typedef struct {
  double learning_rate;
  double weight_decay;
  double rescale_grad;
} bs_rates;
// A push-pull that starts later.
typedef struct bs_deferred bs_deferred;
// An operation.  Begin with bs_operation_init, which sets all but the kind to 0, and set the fields
// of that kind.  `in` and `out` belong to the caller and do not overlap.  `in` stays valid until
// `pushed`, or `done` where a kind has no `pushed`, and `out` until `done`.
//
// The struct grows at its end only, in steps of 8 bytes.  A library takes a smaller one, where the
// missing fields are 0, and a larger one if what it does not know is 0.
typedef struct {
  size_t struct_bytes;  // sizeof(bs_operation) where the caller was compiled
  int kind;             // bs_operation_kind
  int priority;         // larger goes first
  uint64_t key;
  const void* in;
  void* out;
  uint64_t size_bytes;  // of `in` and of `out`
  bs_done pushed;       // `in` may change again; before or after `done`
  bs_done done;         // the operation is over, and `out` has its result
  void* context;        // of both callbacks
  // Not null: the operation starts with bs_deferred_start, for an `in` that is not ready yet, such
  // as a copy from a GPU that is under way.  `waited_ns` grows by the time until then.
  bs_deferred** deferred;
  bs_coding coding;  // of what is sent; only float32 can be coded
  // 0, or what each element of the sum is multiplied by as it arrives (1/n: the average), in
  // float32, or in float64 for that.  Integers are summed only.
  double factor;
  // 0, or a number that grows with the user's calls.  The start happens when the tensor is ready,
  // so the difference shows the order of the gradients (BYTESCHEDULER_PRIORITY).
  uint64_t called;
  int64_t waited_ns;  // from the user's call until `in` was ready; for the timeline
  int at_once;        // with `called`: `in` was ready at the user's call, for an unknown time
  int dtype;          // MXNet's code
  int root;           // a worker's rank
  int hosted;         // 1: only the servers' bs_server_updater can update the key
  const char* about;  // describes the key to that updater: 1 to 1024 bytes; rank 0's counts; copied
  const bs_rates* rates;  // null: the optimizer's own, or not known; copied
  const char* optimizer;  // "sgd momentum=0.9"; "hosted NAME" if only an updater has it; copied
  const void* pickle;     // of the optimizer, for that updater; may be null; copied
  uint64_t pickle_bytes;
  uint64_t partition_bytes;     // 4 KiB to 1 GiB
  uint64_t credit_bytes;        // 1 B to 64 GiB
  const bs_exchange* exchange;  // copied
} bs_operation;
// Returns an operation of a kind with all other fields 0.
static inline bs_operation bs_operation_init(int kind) {
  bs_operation operation;
  memset(&operation, 0, sizeof(operation));
  operation.struct_bytes = sizeof(operation);
  operation.kind = kind;
  return operation;
}
// Starts an operation and returns at once; the struct is read during the call only.  If this
// returns an error, no callback runs.  BS_INVALID_ARGUMENT names a field that is missing or that
// the kind does not take, and the cure.
//
// Later errors arrive through the callbacks.  BS_INVALID_ARGUMENT, BS_FAILED_PRECONDITION and
// BS_ALREADY_EXISTS concern that operation only.  After any other error the worker has failed for
// good.  A push-pull with codings that differ between workers, and an update without an optimizer,
// fail the job.
int bs_worker_start_operation(bs_worker* worker, const bs_operation* operation, bs_error* error);
// Starts a bs_deferred and frees it; call it once, from any thread.  It takes no lock of the
// caller's language.  An error of the start goes to both callbacks inside this call.
// bs_worker_close, if it comes first, cancels both inside its own; even then this has to be called,
// and only frees it.
void bs_deferred_start(void* deferred);

// ---- other shared objects ----------------------------------------------------------------------

// A gate to a worker, for operations of a shared object that knows nothing of the worker's end.  It
// stays valid until bs_gate_free, also after bs_worker_close.
typedef struct bs_gate bs_gate;
// Returns null if there is no memory.
bs_gate* bs_gate_new(bs_worker* worker);
// Does as bs_worker_start_operation while the gate is open, and counts the operation until
// bs_gate_leave.  BS_CANCELLED once the gate is shut.  Any thread.
int bs_gate_start(bs_gate* gate, const bs_operation* operation, bs_error* error);
// Call it once for each operation that bs_gate_start has taken, in the last of its callbacks.
void bs_gate_leave(bs_gate* gate);
// Refuses operations from now on.  When it returns, no bs_gate_start uses the worker any more.
// REQUIRES: bs_worker_close comes after it.
void bs_gate_shut(bs_gate* gate);
// Blocks up to `timeout_ms` until no operation is pending; returns how many are.
size_t bs_gate_wait(bs_gate* gate, int timeout_ms);
// REQUIRES: the gate is shut, no operation is pending, and no other call uses it.
void bs_gate_free(bs_gate* gate);

// Functions of this header, for a shared object that cannot link to this library.  Python has its
// address in the capsule `bytescheduler.c_api` that bytescheduler._core.c_api() returns.
#define BS_TABLE_VERSION 1
typedef struct {
  uint32_t version;  // BS_TABLE_VERSION of the library; changes with the order or a meaning
  uint32_t size;     // sizeof(bs_table) of the library; the struct grows at its end only
  const char* (*library_version)(void);
  int (*gate_start)(bs_gate* gate, const bs_operation* operation, bs_error* error);
  void (*gate_leave)(bs_gate* gate);
} bs_table;
// Returns the table of this library, which is valid for ever.
const bs_table* bs_table_get(void);
// Returns 0 if the table serves a caller that was compiled with this header.  Else it returns
// BS_FAILED_PRECONDITION, and the error names both versions or both sizes.
static inline int bs_table_check(const bs_table* table, bs_error* error) {
  if (table->version == BS_TABLE_VERSION && table->size >= sizeof(bs_table)) return 0;
  error->code = BS_FAILED_PRECONDITION;
  if (table->version != BS_TABLE_VERSION) {
    snprintf(error->message, sizeof(error->message),
             "the table of bytescheduler's functions has version %u, and this library wants "
             "version %u: compile it against the installed bytescheduler",
             (unsigned)table->version, (unsigned)BS_TABLE_VERSION);
  } else {
    snprintf(error->message, sizeof(error->message),
             "the table of bytescheduler's functions has %u bytes, and this library wants %u: "
             "compile it against the installed bytescheduler",
             (unsigned)table->size, (unsigned)sizeof(bs_table));
  }
  return error->code;
}

// ---- waiting for completions -------------------------------------------------------------------

// Counts `count` completions and keeps the first error among them.  It takes no lock of the
// caller's language.  Pass bs_waiter_done as `done` and the waiter as `context`.
typedef struct bs_waiter bs_waiter;
bs_waiter* bs_waiter_new(size_t count);
void bs_waiter_done(void* waiter, int code, const char* message);
// The same for the `pushed` of an operation whose `done` is bs_waiter_done.
void bs_waiter_pushed(void* waiter, int code, const char* message);
// Returns 1 if bs_waiter_pushed has been called; then `error` is the first error of any completion,
// or has code 0.  Returns 0 if not.
int bs_waiter_is_pushed(const bs_waiter* waiter, bs_error* error);
// Blocks up to `timeout_ms`.  Returns 1 if all have come; then `error` is the first error, or has
// code 0.  Returns 0 if not.
int bs_waiter_wait(const bs_waiter* waiter, int timeout_ms, bs_error* error);
// REQUIRES: all completions have come, or none will.
void bs_waiter_free(bs_waiter* waiter);

// The tokens of waiters whose completions have all come, in that order.  Thread-safe.
typedef struct bs_completions bs_completions;
bs_completions* bs_completions_new(void);
// `waiter` gives `token` when its last completion has come; null: it gives none.  REQUIRES: none
// has come.
void bs_waiter_report(bs_waiter* waiter, bs_completions* completions, uint64_t token);
// Blocks up to `timeout_ms` until there is a token.  Returns how many it has written, `most` at
// most; 0 also after bs_completions_wake.
size_t bs_completions_wait(bs_completions* completions, int timeout_ms, uint64_t* tokens,
                           size_t most);
// Ends a wait that is under way, or else the next one.
void bs_completions_wake(bs_completions* completions);
// REQUIRES: no thread waits.
void bs_completions_free(bs_completions* completions);

// ---- scheduler node and servers ----------------------------------------------------------------

typedef struct bs_node bs_node;

// Looks whether the host names that the settings give have addresses.  Returns 0 and sets `known`
// to 1 if a node can be started.  Sets it to 0, and logs that at first, if a name has no address
// yet, as that of a new pod: the caller repeats this a little later, with the time since its first
// call.  Fails once BYTESCHEDULER_TIMEOUT is over, naming the setting and the system's reason.
// Blocks while a name is looked up.
int bs_names_known(const bs_setting* settings, size_t num_settings, int waited_ms, int* known,
                   bs_error* error);
// Starts the role of DMLC_ROLE (scheduler or server) on threads of its own and returns.
int bs_node_start(const bs_setting* settings, size_t num_settings, bs_node** node, bs_error* error);
// Functions of the caller that update a server's weights.  They run on the
// thread "bs-updater", one at a time, until bs_node_close has returned.  They return a code and
// fill `error`, which is never null; the message goes to the worker.
typedef struct {
  uint64_t key;
  const char* about;  // rank 0's description of the key, or ""
  int dtype;          // MXNet's code
  uint64_t size_bytes;
  const void* gradient;
  void* weights;  // changed in place
  // Null: the optimizer's own rate.
  const double* learning_rate;
  const double* weight_decay;
  const double* rescale_grad;
} bs_server_update;
typedef struct {
  void* context;
  int (*set_optimizer)(void* context, const void* pickle, uint64_t size_bytes, bs_error* error);
  int (*update)(void* context, const bs_server_update* update, bs_error* error);
} bs_server_updater;
// bs_node_start with an updater, which is copied; null: none.  A scheduler node does not use it.
int bs_node_start_updating(const bs_setting* settings, size_t num_settings,
                           const bs_server_updater* updater, bs_node** node, bs_error* error);
// Blocks until the job is over or `timeout_ms` passed.  Returns 1 if it is over; then `error` says
// how, with code 0 for a job that ended well.  Returns 0 if not.
int bs_node_wait(bs_node* node, int timeout_ms, bs_error* error);
// Returns the port this node listens on, or 0 while it does not.
int bs_node_port(const bs_node* node);
// The same as bs_worker_measure.  The rank is that of a worker for a server's metrics, and that of
// a node for the scheduler node's.
int bs_node_measure(const bs_node* node, int timeout_ms, bs_metric_row row, void* context,
                    bs_error* error);
// Ends the node and frees the handle.  Unless the job is over, it fails for all nodes with `why`.
// Blocks for a short time.  In a forked child it does nothing and frees nothing.
int bs_node_close(bs_node* node, const char* why);

// ---- predictions -------------------------------------------------------------------------------

// A layer of a model; they stand in the order of forward.
typedef struct {
  uint64_t size_bytes;
  double forward_s;
  double backward_s;
} bs_layer;
// The host of a node, as any number; nodes with equal numbers share a link.
typedef struct {
  int host;
  double bytes_per_second;  // of its link, each way
} bs_place;
// A training job that is to be predicted.
typedef struct {
  const bs_layer* layers;
  size_t num_layers;
  int num_workers;
  int num_servers;
  int policy;  // 0 ours, 1 first come first served, 2 P3, 3 dist_sync
  double bytes_per_second;
  double latency_s;
  uint64_t partition_bytes;
  uint64_t credit_bytes;
  int steps;
  int most_workers;
  // Seconds for a byte that travels: encode it, add it, encode the sum (once), decode that.
  double coding_s[4];
  // A place for each worker and then for each server.  Null: each has a host of its own.
  const bs_place* places;
} bs_job_to_predict;
// How the job runs; docs/user/advise.md in the source tree explains the numbers.
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
// Predicts a job by simulation.  Blocks for as long as the processor takes.
int bs_predict(const bs_job_to_predict* job, bs_prediction* prediction, bs_error* error);
// The links of a job's workers.
typedef struct {
  double bytes_per_second;
  double round_trip_s;
  int num_servers;
  int adds_up;  // 1: the workers of a host add up first
} bs_links;
// Returns the partition and the credit that a job takes for such links, where neither is set.
// BS_INVALID_ARGUMENT: the rate is not positive, the time is not 0 to 100000 s, or there are not 1
// to 65536 servers.
int bs_partition_and_credit(const bs_links* links, uint64_t* partition_bytes,
                            uint64_t* credit_bytes, bs_error* error);

// ---- settings ----------------------------------------------------------------------------------

// Calls `row` for every setting in the order of the table.  `for_experts` is 1 if a setting serves
// only to debug or to tune by hand, else 0.
typedef void (*bs_setting_row)(void* context, const char* name, const char* kind, const char* unit,
                               const char* fallback, const char* scope, const char* sentence,
                               int for_experts);
void bs_settings_all(bs_setting_row row, void* context);
// Calls `row` with name, value and origin of every setting that is in force.
typedef void (*bs_value_row)(void* context, const char* name, const char* value,
                             const char* origin);
void bs_settings_values(const bs_setting* settings, size_t num_settings, bs_value_row row,
                        void* context);
// Checks all settings without starting anything.
int bs_settings_check(const bs_setting* settings, size_t num_settings, bs_error* error);
// Calls `row` for each fact about this host; src/host/about_host.h in the source tree lists
// them.  Blocks while the scheduler node's name is looked up.
typedef void (*bs_host_row)(void* context, const char* what, const char* name, const char* value);
int bs_host_about(const bs_setting* settings, size_t num_settings, bs_host_row row, void* context,
                  bs_error* error);
// One end of a measurement of READs by RDMA, with the device that a node here would use
// (in the source tree: 3rdparty/ps-lite/src/transport/rdma/rdma_probe.h).  One thread at a time.
typedef struct bs_rdma_probe bs_rdma_probe;
// Returns null, and an error with the reason and the remedy, if RDMA is not available.
bs_rdma_probe* bs_rdma_probe_open(const bs_setting* settings, size_t num_settings, bs_error* error);
void bs_rdma_probe_close(bs_rdma_probe* probe);
// The line for the other end; as long-lived as the probe.
const char* bs_rdma_probe_offer(const bs_rdma_probe* probe);
int bs_rdma_probe_join(bs_rdma_probe* probe, const char* offer, bs_error* error);
// READs that ended, and the median of their times.
typedef struct {
  uint32_t count;
  double median_s;
} bs_rdma_reads;
// Blocks for up to twice `limit_ms`.
int bs_rdma_probe_read(bs_rdma_probe* probe, uint32_t size_bytes, uint32_t most_reads, int limit_ms,
                       bs_rdma_reads* found, bs_error* error);
const char* bs_version(void);
// From now on this process exits with 1 where it would exit with 0, for an error found too late to
// raise.  The C library's streams are flushed; destructors of static objects do not run.
void bs_fail_exit(void);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming)
#endif  // BYTESCHEDULER_C_API_H_
