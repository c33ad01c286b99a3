// The bodies of data requests and their responses: the fields of workers and servers beyond
// ps-lite's envelope (PROTOCOL.md, "Our extension of PBMeta").
//
// Pure functions, thread-safe.  Decoding never aborts whatever the bytes are; a missing field has
// its default, unknown fields are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "codec/coding.h"
#include "ps/kv_worker.h"
#include "ps/message.h"

namespace bs::protocol {

// Each op has the fields that PROTOCOL.md names; the other fields have their defaults.
struct DataRequest {
  uint64_t key = 0;             // of the tensor
  uint64_t round = 0;           // of a synchronous key
  uint64_t push_count = 0;      // of an asynchronous key: how often this worker has pushed it
  uint64_t optimizer_call = 0;  // kOptimizer: how often this worker has set the optimizer
  // kGiveBack: how often this worker has given the key back and taken it again since it was
  // declared.  Odd: it gives the key back.
  uint64_t turn = 0;
  uint64_t ready_number = 0;     // kReady: how many this worker has sent before
  uint32_t partition = 0;        // its index in the tensor
  uint32_t num_partitions = 0;   // kRelease: of the layout that is released
  uint64_t offset_bytes = 0;     // of the partition in the tensor
  uint64_t size_bytes = 0;       // of the partition
  uint64_t tensor_bytes = 0;     // kDeclare, kLookup: of the tensor
  uint64_t partition_bytes = 0;  // kDeclare: the largest partition of the tensor
  uint32_t dtype = 0;            // a bs::DType
  uint32_t mode = 0;             // a bs::Mode, of the key
  Coding coding{};               // of gradients
  // Of gradients with Feedback: the factor of the residual in this round.  Rank 0's is the
  // server's.
  float ratio = 1;
  // For a push to an asynchronous key; absent if the optimizer's own rates apply.
  std::optional<double> learning_rate{};
  std::optional<double> weight_decay{};
  std::optional<double> rescale_grad{};
  // For the first push of an asynchronous key.  True if only the process that hosts the server can
  // update the key.
  bool hosted = false;
  // Counts the layouts of the key: 0 for the first.  kDeclare, kLookup, kGiveBack: that of the
  // declared layout, which is 0 unless the key was given back before.
  uint32_t layout_version = 0;
  uint32_t oldest_layout = 0;  // kRelease: the version of the first layout that is kept
  // The layout of the key from the next round on (next_layout.h); empty: no change.
  std::string next_layout{};
  // kPush, the first of an asynchronous key: a description of the key for the process that hosts
  // the server.
  std::string about{};
  std::string optimizer{};  // kOptimizer: its name and options
  bool given_back = false;  // kRelease: all workers have given the key back
  std::string ready{};      // kReady: a Readiness (grants.h)
  // kPush and kPushPull of a synchronous key: number of workers, all of the sender's host, whose
  // sum the payload is.  0: it is the sender's.
  uint32_t stands_for = 0;
  // kPushPull between workers of a host, kGive, kTake, kTaken: the sender has the answers to all
  // its requests of a lower sequence.
  uint64_t answered_below = 0;
  std::string terms{};  // kGive, kTake, kQuit: ExchangeTerms (exchange_terms.h)
  std::string taken{};  // kTaken: TakenPartitions (exchange_terms.h)

  bool operator==(const DataRequest&) const = default;
};

// True for the push of an initial value and for a pull of it.
inline bool IsInitial(const DataRequest& request) {
  return request.round == 0 && request.push_count == 0;
}

// Distinguishes a request from other requests of the same sequence.  It is only compared: the
// meaning of the numbers depends on the op and the mode of the request.
struct RequestIdentity {
  uint64_t key = 0;
  uint64_t count = 0;  // round, push_count, optimizer_call, turn or ready_number
  uint32_t index = 0;  // partition or num_partitions

  bool operator==(const RequestIdentity&) const = default;
};
RequestIdentity IdentityOf(ps::Op op, const DataRequest& request);
// "round=3", of an asynchronous key "push_count=3".
std::string DescribeCount(const DataRequest& request);

struct DataResponse {
  RequestIdentity identity{};    // of the request
  uint64_t offset_bytes = 0;     // of the partition
  uint64_t size_bytes = 0;       // of the partition
  uint64_t tensor_bytes = 0;     // kLookup: as declared
  uint64_t partition_bytes = 0;  // kLookup: as declared
  uint32_t dtype = 0;            // a bs::DType
  Coding coding{};               // kPull: of the sum in the payload
  uint32_t layout_version = 0;   // kLookup: as declared
  std::string next_layout{};     // as the push of rank 0 to this round said
  bool given_back = false;       // kGiveBack: all workers have given the key back
  std::string grants{};          // kReady: Grants (grants.h); empty: none

  bool operator==(const DataResponse&) const = default;
};

// `op` is the request's.  Fields of other ops, and the count of the other mode, are neither written
// nor read.
ps::Body Encode(ps::Op op, const DataRequest& request);
ps::Body Encode(ps::Op op, const DataResponse& response);
// kInvalidArgument if the bytes are no protobuf fields.
Result<DataRequest> DecodeRequest(ps::Op op, const ps::Body& body);
Result<DataResponse> DecodeResponse(ps::Op op, const ps::Body& body);

// The rules of these bodies for a KvWorker.
ps::BodyRules DataBodyRules();

}  // namespace bs::protocol
