// Directory: rank 0's declarations of the keys whose home is this server, and their lookups.
//
// A worker gives a synchronous key back when it does not need the key for now, and takes it again
// before it uses the key again.  When all workers have given a key back, the directory forgets it.
// Rank 0 then declares the key afresh, under a larger layout version, if a worker uses it again.
//
// Confined to the dispatcher's executor.  Every request is answered through `send`: a declaration
// at once, a lookup when the key is declared.  Keeps at most kMaxKeys keys (declared or asked for)
// and the servers of protocol::kMaxPartitions partitions in all; more is refused.  Never blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "job/view.h"
#include "protocol/call.h"
#include "server/forgotten_keys.h"
#include "server/state/pending_calls.h"

namespace bs::server {

class Directory {
 public:
  static constexpr size_t kMaxKeys = size_t{1} << 22U;

  // Tensors whose partitions are larger than `max_partition_bytes` are refused.  A key goes when
  // all workers of `view` have given it back.
  Directory(job::SharedView view, uint64_t max_partition_bytes, SendFn send, bool needs_all = true);

  // May throw std::bad_alloc; then the request is neither kept nor answered.
  void Declare(const protocol::Call& call);
  void Lookup(protocol::Call& call);
  // The response says whether the key is forgotten.  Then the worker that gives the key back tells
  // the servers of its partitions, and a worker that takes it again declares it, or looks it up.
  void GiveBack(const protocol::Call& call);
  // Without rank 0 nothing more is declared: lookups of undeclared keys are refused with `why`.
  void OnWorkerGone(int32_t rank, const Status& why);
  // `rank` was lost, and another worker takes its place.
  void OnWorkerVacant(int32_t rank);
  // A key that was declared synchronous, if there is such a key; also one that was given back.
  std::optional<Key> FindSynchronous() const;
  // Refuses every pending lookup.  Later requests are the dispatcher's to refuse.
  void Fail(const Status& why);

 private:
  struct Declaration {
    uint64_t size_bytes = 0;
    uint64_t partition_bytes = 0;
    uint32_t dtype = 0;
    uint32_t mode = 0;
    uint32_t layout_version = 0;
    // Two bytes a partition, little-endian, as they came.  A string keeps a short list without an
    // allocation.
    std::string servers;
    bool operator==(const Declaration&) const = default;
  };
  // By rank: how often the worker has given the key back and taken it again.  Odd: given back.
  using Turns = std::vector<uint64_t>;

  Status CheckDeclaration(const protocol::Call& call) const;
  // True if the key is known or may become so.
  bool HasRoom(Key key) const;
  void AnswerLookup(const protocol::Call& call, const Declaration& declaration);
  // Why rank 0 cannot replace `known`; Ok if that is a late repeat of an earlier declaration.
  Status CheckReplaces(const protocol::Call& call, const Declaration& known,
                       const Declaration& fresh) const;
  Status CheckGiveBack(const protocol::Call& call, const Declaration& known) const;
  // True if this worker has given the key back, and has not taken it again.
  bool HasGivenBack(const protocol::Call& call) const;
  // Returns true if all workers have given the key back now.
  bool Note(const protocol::Call& call);
  void Forget(Key key);
  void Refuse(const protocol::Call& call, const Status& why);

  const job::SharedView view_;
  const bool needs_all_;  // protocol::Rules::keys_go_when_all_workers_give_them_back
  const uint64_t max_partition_bytes_;
  const SendFn send_;
  std::unordered_map<Key, Declaration> declared_;
  std::unordered_map<Key, Turns> turns_;         // of declared keys that a worker has given back
  std::unordered_map<Key, PendingCalls> asked_;  // and not declared
  std::optional<Key> given_back_;                // a synchronous key that was forgotten
  ForgottenKeys forgotten_;
  size_t num_partitions_ = 0;         // of all declarations
  std::optional<Status> rank0_gone_;  // why nothing more will be declared
};

}  // namespace bs::server
