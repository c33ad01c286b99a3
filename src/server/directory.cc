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

Directory::Directory(uint64_t max_partition_bytes, SendFn send)
    : max_partition_bytes_(max_partition_bytes), send_(std::move(send)) {}

void Directory::Declare(const protocol::Call& call) {
  if (const Status wrong = CheckDeclaration(call); !wrong.ok()) return Refuse(call, wrong);
  const protocol::DataRequest& about = call.request;
  const std::span<const std::byte> servers = call.payload.bytes();
  Declaration fresh{about.tensor_bytes,
                    about.partition_bytes,
                    about.dtype,
                    about.mode,
                    {reinterpret_cast<const char*>(servers.data()), servers.size()}};
  if (const auto found = declared_.find(about.key); found != declared_.end()) {
    const Declaration& known = found->second;
    if (known == fresh) return send_(protocol::MakeResponse(call, {}));
    return Refuse(
        call, Status::AlreadyExists(
                  "key " + std::to_string(about.key) + " is declared already as " +
                  protocol::DescribeArray(known.dtype, known.size_bytes) + " in partitions of " +
                  std::to_string(known.partition_bytes) + ", now as " +
                  protocol::DescribeArray(fresh.dtype, fresh.size_bytes) + " in partitions of " +
                  std::to_string(fresh.partition_bytes) +
                  (known.servers == fresh.servers ? " on the same servers" : " on other servers")));
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
  if (const auto found = declared_.find(key); found != declared_.end()) {
    return AnswerLookup(call, found->second);
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
  std::optional<Key> found;
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
                              .dtype = declaration.dtype},
                             ps::Frame::Copy(std::as_bytes(std::span(declaration.servers))));
  response.keeps_memory = true;  // a copy
  send_(std::move(response));
}

void Directory::Refuse(const protocol::Call& call, const Status& why) {
  send_(protocol::MakeErrorResponse(call, why));
}

}  // namespace bs::server
