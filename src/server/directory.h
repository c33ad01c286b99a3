// Directory: rank 0's declarations of the keys whose home is this server, and their lookups.
//
// Confined to the dispatcher's executor.  Every request is answered through `send`: a declaration
// at once, a lookup when the key is declared.  Keeps at most kMaxKeys keys (declared or asked for)
// and the servers of protocol::kMaxPartitions partitions in all; more is refused.  Never blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "base/types.h"
#include "protocol/call.h"
#include "server/state/pending_calls.h"

namespace bs::server {

class Directory {
 public:
  static constexpr size_t kMaxKeys = size_t{1} << 22U;

  // Tensors whose partitions are larger than `max_partition_bytes` are refused.
  Directory(uint64_t max_partition_bytes, SendFn send);

  // May throw std::bad_alloc; then the request is neither kept nor answered.
  void Declare(const protocol::Call& call);
  void Lookup(protocol::Call& call);
  // Without rank 0 nothing more is declared: lookups of undeclared keys are refused with `why`.
  void OnWorkerGone(int32_t rank, const Status& why);
  // `rank` was lost, and another worker takes its place.
  void OnWorkerVacant(int32_t rank);
  // A key that was declared synchronous, if there is such a key.
  std::optional<Key> FindSynchronous() const;
  // Refuses every pending lookup.  Later requests are the dispatcher's to refuse.
  void Fail(const Status& why);

 private:
  struct Declaration {
    uint64_t size_bytes = 0;
    uint64_t partition_bytes = 0;
    uint32_t dtype = 0;
    uint32_t mode = 0;
    // Two bytes a partition, little-endian, as they came.  A string keeps a short list without an
    // allocation.
    std::string servers;
    bool operator==(const Declaration&) const = default;
  };

  Status CheckDeclaration(const protocol::Call& call) const;
  // True if the key is known or may become so.
  bool HasRoom(Key key) const;
  void AnswerLookup(const protocol::Call& call, const Declaration& declaration);
  void Refuse(const protocol::Call& call, const Status& why);

  const uint64_t max_partition_bytes_;
  const SendFn send_;
  std::unordered_map<Key, Declaration> declared_;
  std::unordered_map<Key, PendingCalls> asked_;  // and not declared
  size_t num_partitions_ = 0;                    // of all declarations
  std::optional<Status> rank0_gone_;             // why nothing more will be declared
};

}  // namespace bs::server
