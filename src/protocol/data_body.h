// The bodies of data requests and their responses: what a worker and a server say beyond ps-lite's
// envelope (PROTOCOL.md, "Our extension of PBMeta").
//
// Pure functions, thread-safe.  Decoding never aborts whatever the bytes are; a missing field has
// its default, unknown fields are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bytescheduler/coding.h"
#include "bytescheduler/status.h"
#include "ps/kv_worker.h"
#include "ps/message.h"

namespace bs::protocol {

// Each op has the fields that PROTOCOL.md names; the others have their defaults.
struct DataRequest {
  uint64_t key = 0;              // of the tensor
  uint64_t round = 0;            // of the key; an asynchronous key's pushes of this worker, counted
  uint64_t optimizer_call = 0;   // kOptimizer: how often this worker has set one
  uint32_t partition = 0;        // its index in the tensor
  uint32_t num_partitions = 0;   // kRelease: of the layout that is released
  uint64_t offset_bytes = 0;     // of the partition in the tensor
  uint64_t size_bytes = 0;       // of what the request is about: the partition, or (kDeclare,
                                 // kLookup) the tensor
  uint64_t partition_bytes = 0;  // kDeclare: the partition size that the tensor is cut with
  uint32_t dtype = 0;            // a bs::DType
  uint32_t mode = 0;             // a bs::Mode, of the key
  Coding coding{};               // of the payload
  // For a push to an asynchronous key; absent if the optimizer's own rates apply.
  std::optional<double> learning_rate{};
  std::optional<double> weight_decay{};
  std::optional<double> rescale_grad{};
  // For a push of round 0, whose text says what the key is.  True if only the process that hosts
  // the server can update the key.
  bool hosted = false;
  // How often the key had been cut anew when its tensor was cut as in this request.
  uint32_t layout_version = 0;
  // How the key is cut from the next round on (next_cut.h); empty: nothing is said.
  std::string next_layout{};

  bool operator==(const DataRequest&) const = default;
};

// Tells a request from others of the same sequence: key, round or optimizer_call, partition or
// num_partitions.
struct RequestIdentity {
  uint64_t key = 0;
  uint64_t count = 0;
  uint32_t index = 0;

  bool operator==(const RequestIdentity&) const = default;
};
RequestIdentity IdentityOf(ps::Op op, const DataRequest& request);

struct DataResponse {
  RequestIdentity identity{};    // of the request
  uint64_t offset_bytes = 0;     // of the partition
  uint64_t size_bytes = 0;       // of what the payload is: of the partition; kLookup: of the tensor
  uint64_t partition_bytes = 0;  // kLookup: as declared
  uint32_t dtype = 0;            // a bs::DType
  std::string next_layout{};     // as the push of rank 0 to this round said

  bool operator==(const DataResponse&) const = default;
};

// `op` is the request's.
ps::Body Encode(ps::Op op, const DataRequest& request);
ps::Body Encode(const DataResponse& response);
// kInvalidArgument if the bytes are no protobuf fields.
Result<DataRequest> DecodeRequest(ps::Op op, const ps::Body& body);
Result<DataResponse> DecodeResponse(const ps::Body& body);

// The rules of these bodies for a KvWorker.
ps::BodyRules DataBodyRules();

}  // namespace bs::protocol
