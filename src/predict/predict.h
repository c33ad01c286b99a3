// Predict: how long a training step will take on a cluster that need not be there.
//
// Real workers and servers replay a profile of a model's layers on simulated time (sim/): the
// Worker, Server, Core and KvWorker of a job, and messages that are encoded and parsed.  Simulated
// are the network (SimHostOptions), and compute, which is a pause of the profile's length.
//
// The model is coarser than a real job:
//  - Payloads are moved at up to 1/256 of their size and take the time of the whole; a tensor's
//    size is rounded to as many bytes.
//  - At most `most_workers` workers are simulated, since all do the same.  With more workers, the
//    servers' interfaces and threads are slower in proportion.
//  - The interface of a host sends one message at a time; there is no loss, no switch that is too
//    slow, no other traffic.  Sums take no time; of codes the time that the options say.
//  - The thread that serves a node's interface codes as well, a message at a time.
//  - P3 and dist_sync are our own worker with MXNet's slices, requests and queues, not MXNet's
//    code.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace bs::predict {

// In the order of forward.
struct Layer {
  uint64_t size_bytes = 0;  // of its gradient
  Duration forward{};
  Duration backward{};
};

enum class Policy : uint8_t {
  kOurs,  // most urgent first
  kFifo,  // partitions, but first ready, first sent
  kP3,    // MXNet's: slices of 40,000 floats, no credit, a water mark of ten messages
  // MXNet's dist_sync: whole tensors, first ready, first sent; a tensor of a million floats or more
  // goes in equal parts to all servers.
  kDistSync,
};

// The time that coding takes a node, in nanoseconds for each byte that travels.
struct CodingCosts {
  double encode_ns = 0;      // gradients, by workers
  double add_ns = 0;         // gradients, by servers
  double encode_sum_ns = 0;  // by servers, once for all workers
  double decode_ns = 0;      // sums, by workers
};

struct Options {
  std::vector<Layer> layers;
  int32_t num_workers = 2;
  int32_t num_servers = 2;
  Policy policy = Policy::kOurs;
  double bytes_per_second = 0;                       // payload and headers, each way, of each host
  Duration latency = std::chrono::microseconds(50);  // one way
  uint64_t partition_bytes = kFirstPartitionBytes;   // of MXNet's policies their own
  uint64_t credit_bytes = kFirstCreditBytes;         // of MXNet's policies none
  uint32_t steps = 6;                                // measured, behind two steps that are not
  int32_t most_workers = 8;                          // that are simulated
  // The hosts of workers and servers, by rank: any numbers, and equal numbers share a link; then
  // all workers are simulated.  Empty: each node has a host of its own.
  std::vector<int32_t> worker_hosts{};
  std::vector<int32_t> server_hosts{};
  std::map<int32_t, double> host_rates{};  // of hosts with another bytes_per_second
  CodingCosts coding{};                    // layers have the sizes of codes
};

struct Prediction {
  Duration step{};  // the median
  std::vector<Duration> steps;
  int32_t simulated_workers = 0;
  uint64_t partitions = 0;      // of the model
  uint64_t messages = 0;        // of a worker, sent, from the first step on
  uint64_t most_waiting = 0;    // messages of a worker that were not committed to the network yet
  uint64_t server_waiting = 0;  // the same of a server
  double worker_busy = 0;       // the share of the time in which its network thread is busy
  double server_busy = 0;
};

// Blocks, without a thread, a socket or a file: it takes as long as the processor takes.  The same
// options give the same prediction.  kInvalidArgument, with the fault, for options that are no job
// or a model of more than 2^20 partitions.
Result<Prediction> Predict(const Options& options);

}  // namespace bs::predict
