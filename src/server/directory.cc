// Keeps declarations of keys and answers lookups.
#include "server/directory.h"

#include <algorithm>
#include <utility>

#include "base/count_of.h"
#include "protocol/describe.h"
#include "protocol/limits.h"

namespace bs::server {
namespace {

constexpr size_t kBytesPerServer = 2;

}  // namespace

Directory::Directory(job::SharedView view, uint64_t max_partition_bytes, SendFn send,
                     bool needs_all)
    : view_(std::move(view)),
      needs_all_(needs_all),
      max_partition_bytes_(max_partition_bytes),
      send_(std::move(send)) {}

void Directory::Declare(const protocol::Call& call) {
  if (const Status wrong = CheckDeclaration(call); !wrong.ok()) return Refuse(call, wrong);
  const protocol::DataRequest& about = call.request;
  const std::span<const std::byte> servers = call.payload.bytes();
  Declaration fresh{
      about.tensor_bytes,   about.partition_bytes,
      about.dtype,          about.mode,
      about.layout_version, {reinterpret_cast<const char*>(servers.data()), servers.size()}};
  if (const auto found = declared_.find(about.key); found != declared_.end()) {
    const Declaration& known = found->second;
    if (const Status wrong = CheckReplaces(call, known, fresh); !wrong.ok()) {
      return Refuse(call, wrong);
    }
    if (known == fresh) return send_(protocol::MakeResponse(call, {}));
    Forget(about.key);
  }
  if (forgotten_.IsOver(about.key, about.layout_version)) {
    return Refuse(call, Status::FailedPrecondition(protocol::DescribeCall(call) +
                                                   ": all workers have given this key back"));
  }
  const size_t partitions = servers.size() / kBytesPerServer;
  if (!HasRoom(about.key) || partitions > protocol::kMaxPartitions - num_partitions_) {
    return Refuse(call, Status::ResourceExhausted(protocol::DescribeCall(call) +
                                                  ": too many keys or partitions are declared"));
  }
  const Declaration& declaration = declared_.emplace(about.key, std::move(fresh)).first->second;
  num_partitions_ += partitions;
  send_(protocol::MakeResponse(call, {}));
  auto asked = asked_.extract(about.key);
  if (asked.empty()) return;
  for (const protocol::Call& lookup : asked.mapped().TakeAll()) AnswerLookup(lookup, declaration);
}

void Directory::Lookup(protocol::Call& call) {
  const Key key = call.request.key;
  const auto found = declared_.find(key);
  if (found != declared_.end() && found->second.layout_version >= call.request.layout_version) {
    if (!HasGivenBack(call)) return AnswerLookup(call, found->second);
    return Refuse(call, Status::FailedPrecondition(protocol::DescribeCall(call) +
                                                   ": this worker has given the key back"));
  }
  if (forgotten_.IsOver(key, call.request.layout_version)) {
    return Refuse(call, Status::FailedPrecondition(protocol::DescribeCall(call) +
                                                   ": all workers have given this key back"));
  }
  if (!HasRoom(key)) {
    return Refuse(call, Status::ResourceExhausted(protocol::DescribeCall(call) +
                                                  ": too many keys are in use"));
  }
  if (rank0_gone_) return Refuse(call, *rank0_gone_);
  const auto whom = [](const protocol::Call& lookup) {
    return "worker 0 to initialise key " + std::to_string(lookup.request.key);
  };
  asked_[key].Add(std::move(call), whom, send_);
}

void Directory::GiveBack(const protocol::Call& call) {
  const auto found = declared_.find(call.request.key);
  const uint32_t version = call.request.layout_version;
  // An earlier declaration of the key is forgotten already, and so this request is a late repeat.
  const bool is_known = found != declared_.end() && found->second.layout_version == version;
  if (is_known) {
    const Status wrong = CheckGiveBack(call, found->second);
    if (!wrong.ok()) return Refuse(call, wrong);
  }
  const bool is_last = is_known && Note(call);
  if (is_last) {
    given_back_ = call.request.key;
    forgotten_.Add(call.request.key, version + 1);
    Forget(call.request.key);
  }
  send_(protocol::MakeResponse(call, {.given_back = is_last || !is_known}, {}));
}

bool Directory::HasGivenBack(const protocol::Call& call) const {
  const auto turns = turns_.find(call.request.key);
  return turns != turns_.end() && turns->second[static_cast<size_t>(call.worker_rank)] % 2 == 1;
}

bool Directory::Note(const protocol::Call& call) {
  Turns& turns = turns_[call.request.key];
  turns.resize(static_cast<size_t>(view_->num_workers()));
  uint64_t& turn = turns[static_cast<size_t>(call.worker_rank)];
  turn = std::max(turn, call.request.turn);  // a late repeat changes nothing
  if (!needs_all_) return turn % 2 == 1;
  return std::ranges::all_of(turns, [](uint64_t count) { return count % 2 == 1; });
}

void Directory::Forget(Key key) {
  const auto found = declared_.find(key);
  num_partitions_ -= found->second.servers.size() / kBytesPerServer;
  declared_.erase(found);
  turns_.erase(key);
}

void Directory::OnWorkerGone(int32_t rank, const Status& why) {
  if (rank == 0 && !rank0_gone_) rank0_gone_ = why;
  for (auto& [key, lookups] : asked_) {
    lookups.Forget(rank);
    if (rank0_gone_) lookups.RefuseAll(*rank0_gone_, send_);
  }
}

void Directory::OnWorkerVacant(int32_t rank) {
  for (auto& [key, lookups] : asked_) lookups.Forget(rank);
}

std::optional<Key> Directory::FindSynchronous() const {
  std::optional<Key> found = given_back_;
  for (const auto& [key, declaration] : declared_) {
    const bool synchronous = declaration.mode == static_cast<uint32_t>(Mode::kSynchronous);
    if (synchronous) found = std::min(key, found.value_or(key));
  }
  return found;
}

void Directory::Fail(const Status& why) {
  for (auto& [key, lookups] : asked_) lookups.RefuseAll(why, send_);
}

Status Directory::CheckDeclaration(const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  if (call.worker_rank != 0) {
    return Status::PermissionDenied(protocol::DescribeCall(call) + ": only worker 0 declares keys");
  }
  if (const Status wrong = protocol::CheckArray(call, about.tensor_bytes); !wrong.ok())
    return wrong;
  if (about.partition_bytes == 0 ||
      std::min(about.partition_bytes, about.tensor_bytes) > max_partition_bytes_) {
    return Status::InvalidArgument(protocol::DescribeCall(call) + ": partitions of " +
                                   CountOf(about.partition_bytes, "byte") + "; 1 to " +
                                   std::to_string(max_partition_bytes_) + " are accepted");
  }
  // Partitions may be smaller than partition_bytes (alignment), never larger.
  const uint64_t fewest = about.tensor_bytes / about.partition_bytes +
                          (about.tensor_bytes % about.partition_bytes != 0 ? 1 : 0);
  const size_t partitions = call.payload.size() / kBytesPerServer;
  if (call.payload.size() % kBytesPerServer != 0 || partitions == 0 || partitions < fewest ||
      partitions > protocol::kMaxPartitions) {
    return Status::InvalidArgument(protocol::DescribeCall(call) + ": " +
                                   CountOf(call.payload.size(), "byte") +
                                   " of servers do not fit " + CountOf(about.tensor_bytes, "byte") +
                                   " in partitions of " + std::to_string(about.partition_bytes));
  }
  return Status::Ok();
}

Status Directory::CheckReplaces(const protocol::Call& call, const Declaration& known,
                                const Declaration& fresh) const {
  const std::string key = "key " + std::to_string(call.request.key);
  if (known == fresh && HasGivenBack(call)) {
    return Status::FailedPrecondition(key +
                                      ": worker 0 has given it back, and other workers have not; "
                                      "close it on every worker, or take another name");
  }
  if (known == fresh) return Status::Ok();
  // Rank 0 declares another layout version only after all workers have given the key back.
  if (fresh.layout_version > known.layout_version) return Status::Ok();
  if (fresh.layout_version < known.layout_version) {
    return Status::FailedPrecondition(key + ": all workers have given back what is declared here");
  }
  return Status::AlreadyExists(
      key + " is declared already as " + protocol::DescribeArray(known.dtype, known.size_bytes) +
      " in partitions of " + std::to_string(known.partition_bytes) + ", now as " +
      protocol::DescribeArray(fresh.dtype, fresh.size_bytes) + " in partitions of " +
      std::to_string(fresh.partition_bytes) +
      (known.servers == fresh.servers ? " on the same servers" : " on other servers"));
}

Status Directory::CheckGiveBack(const protocol::Call& call, const Declaration& known) const {
  if (known.mode == static_cast<uint32_t>(Mode::kSynchronous)) return Status::Ok();
  return Status::InvalidArgument(protocol::DescribeCall(call) +
                                 ": the values of an asynchronous key stay");
}

bool Directory::HasRoom(Key key) const {
  return declared_.contains(key) || asked_.contains(key) ||
         declared_.size() + asked_.size() < kMaxKeys;
}

void Directory::AnswerLookup(const protocol::Call& call, const Declaration& declaration) {
  const protocol::DataRequest& about = call.request;
  if (about.tensor_bytes != declaration.size_bytes || about.dtype != declaration.dtype) {
    return Refuse(
        call,
        Status::InvalidArgument(
            "key " + std::to_string(about.key) + ": " + ps::DescribeId(call.worker_id) + " has " +
            protocol::DescribeArray(about.dtype, about.tensor_bytes) + ", worker 0 declared " +
            protocol::DescribeArray(declaration.dtype, declaration.size_bytes)));
  }
  if (about.mode != declaration.mode) {
    return Refuse(call, Status::InvalidArgument(
                            protocol::DescribeCall(call) +
                            ": worker 0 declared the key in another mode (synchronous or "
                            "asynchronous); create the store with the same name everywhere"));
  }
  ps::Message response =
      protocol::MakeResponse(call,
                             {.tensor_bytes = declaration.size_bytes,
                              .partition_bytes = declaration.partition_bytes,
                              .dtype = declaration.dtype,
                              .layout_version = declaration.layout_version},
                             ps::Frame::Copy(std::as_bytes(std::span(declaration.servers))));
  response.keeps_memory = true;  // a copy
  send_(std::move(response));
}

void Directory::Refuse(const protocol::Call& call, const Status& why) {
  send_(protocol::MakeErrorResponse(call, why));
}

}  // namespace bs::server
