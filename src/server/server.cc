// The server's dispatcher: takes requests apart, refuses invalid requests, spreads keys over
// shards.
#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/count_of.h"
#include "base/limited_log.h"
#include "protocol/describe.h"
#include "server/answers.h"
#include "server/async/optimizer_calls.h"
#include "server/directory.h"
#include "server/exchange/exchanges.h"
#include "server/forgotten_keys.h"
#include "server/grants/leader.h"
#include "server/optimizer/hosted_updates.h"
#include "server/protocol_violation.h"
#include "server/shard.h"
#include "server/state/shard_handle.h"
#include "server/state/shard_state.h"
#include "server/stock/mxnet_protocol.h"
#include "server/sync/slot.h"

namespace bs {
namespace {

using protocol::DescribeCall;

// Returns the fields of a request that its refusal needs when the request cannot be parsed.
ps::KvCall EnvelopeOf(const ps::Message& message) {
  ps::KvCall call;
  call.worker_id = message.peer;
  call.worker_rank = ps::RankOf(message.peer);
  call.customer_id = message.meta.customer_id;
  call.timestamp = message.meta.timestamp;
  call.priority = message.meta.priority;
  call.extension = message.meta.extension;
  return call;
}

bool IsWorkerId(int32_t id, const job::View& view) {
  const int32_t rank = ps::RankOf(id);
  return view.has_worker(rank) && (id == ps::WorkerId(rank) || id == ps::AttachedId(rank));
}

// Returns Options::on_round for the shard of this index.
std::function<void(const RoundTimes&)> RoundReporter(const ServerOptions& options, size_t shard) {
  if (!options.on_round) return {};
  return [report = options.on_round, shard](const RoundTimes& times) { report(shard, times); };
}

// The state of a shard; the rules and reports of synchronous keys are to be filled in.
server::ShardState MakeShardState(const ServerOptions& options, const ServerShard& shard,
                                  const server::SendFn& send,
                                  const std::shared_ptr<server::HostedUpdates>& hosted,
                                  const server::Bounds& bounds) {
  server::ShardState state{server::MakeShardBase(options, shard, send, hosted, bounds)};
  state.adopted_bytes = options.adopted_bytes;
  return state;
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, Executor* dispatcher, const std::vector<ServerShard>& shards,
       Handler handler, const Logger& log, const protocol::Rules& rules);

  void OnMessage(ps::Message message);
  void OnWorkerGone(int32_t rank, const Status& why);
  Status OnWorkerVacant(int32_t id, bool native);
  void Fail(const Status& why);
  void Measure(UniqueFunction<void(const Metrics&)> done);

 private:
  using ShardHandle = server::ShardHandle<server::Shard>;
  // The shard that a partition went to when it was first seen, and the bytes it counted there.
  struct Place {
    uint64_t size_bytes;
    uint32_t handle;
    bool asynchronous;
  };

  // Runs `task` on the shard's executor: now, or soon.
  template <typename F>
  void RunOn(const ShardHandle& handle, F task);
  // Hands the call to that shard, or refuses it as busy if the backlog has no room.
  void HandIn(const ShardHandle& handle, protocol::Call& call);
  uint32_t HandleFor(uint64_t size_bytes);
  void OnRequest(ps::Message message);
  // Why `call` is refused before anything is looked up.
  Status Check(const protocol::Call& call) const;
  void Dispatch(protocol::Call& call);
  void ToShard(protocol::Call& call);
  void Release(const protocol::Call& call);
  // False if it stays.
  bool Retire(const std::pair<const server::SlotId, Place>& entry);
  void Adopt(const server::OptimizerInForce& optimizer);
  Status CheckNewSlot(const protocol::Call& call) const;
  void Refuse(const protocol::Call& call, const Status& why);

  const ServerOptions options_;
  const codec::Table& codecs_;
  Executor* const dispatcher_;
  const server::ViolationFn report_violation_;
  const server::SendFn send_;
  // Owners: the dispatcher and the shards.
  const std::shared_ptr<server::HostedUpdates> hosted_;
  const server::Bounds bounds_;
  server::MxnetProtocol stock_;
  server::Directory directory_;
  server::OptimizerCalls optimizer_;
  server::Leader leader_;  // of collective operations; used in server 0
  server::Exchanges exchanges_;
  std::vector<ShardHandle> handles_;  // of the shards, then the dispatcher's own
  // By partition that was seen and not released.
  std::unordered_map<server::SlotId, Place, server::SlotIdHash> handle_of_;
  std::unordered_map<Key, uint32_t> first_layout_;  // of keys whose earlier layouts were released
  server::ForgottenKeys forgotten_;                 // of which no layout is left
  uint64_t refused_ = 0;                            // by the dispatcher itself
  LimitedLog deferred_;  // names workers whose requests come faster than sums are made
  std::optional<Status> failure_;
};

Server::Impl::Impl(const ServerOptions& options, Executor* dispatcher,
                   const std::vector<ServerShard>& shards, Handler handler, const Logger& log,
                   const protocol::Rules& rules)
    : options_(options),
      codecs_(options.codecs != nullptr ? *options.codecs : codec::Builtin()),
      dispatcher_(dispatcher),
      report_violation_(server::ReportOn(dispatcher, std::move(handler.on_violation))),
      send_(server::SendAndReport(handler.send, report_violation_)),
      hosted_(std::make_shared<server::HostedUpdates>(options.updater)),
      bounds_(server::MakeBounds(options)),
      stock_(options, dispatcher, shards, {send_, std::move(handler.on_failure), hosted_, bounds_},
             std::move(handler.on_stop), log),
      directory_(options.view, options.max_partition_bytes, send_,
                 rules.keys_go_when_all_workers_give_them_back()),
      optimizer_(dispatcher, hosted_.get(), send_,
                 [this](const server::OptimizerInForce& optimizer) { Adopt(optimizer); }),
      leader_(options.grants, options.view->num_workers(), dispatcher, send_, rules),
      exchanges_(
          MakeShardState(options, {.executor = dispatcher, .numa_node = shards.front().numa_node},
                         send_, hosted_, bounds_),
          std::move(handler.send), rules),
      deferred_(dispatcher, log, std::chrono::minutes(1)) {
  BS_CHECK(!shards.empty());
  BS_CHECK(options.view->num_workers() > 0);
  std::vector<ServerShard> all = shards;
  all.push_back({.executor = dispatcher, .numa_node = shards.front().numa_node});
  for (const ServerShard& shard : all) {
    server::ShardState state = MakeShardState(options, shard, send_, hosted_, bounds_);
    state.num_buffers = rules.num_buffers();
    state.max_staleness = options.max_staleness;
    state.on_round = RoundReporter(options, handles_.size());
    state.timed = options.timed;
    state.codecs = &codecs_;
    handles_.push_back({shard.executor, std::make_shared<server::Shard>(std::move(state)), 0});
  }
}

void Server::Impl::OnMessage(ps::Message message) {
  stock_.Note(message);
  if (!message.meta.native()) return stock_.OnMessage(std::move(message));
  // Responses are not answered, or two confused nodes would talk for ever.
  if (message.meta.is_control || message.peer == ps::kEmpty) return;
  if (!message.meta.request) return report_violation_(message.peer, "an answer to a server");
  OnRequest(std::move(message));
}

void Server::Impl::OnRequest(ps::Message message) {
  ps::KvCall envelope = EnvelopeOf(message);
  try {
    Result<protocol::Call> call = protocol::ParseCall(std::move(message), codecs_);
    if (!call.ok()) return Refuse(protocol::Unchecked(std::move(envelope)), call.status());
    if (failure_) return Refuse(call.value(), *failure_);
    if (const Status wrong = Check(call.value()); !wrong.ok()) return Refuse(call.value(), wrong);
    Dispatch(call.value());
  } catch (const std::bad_alloc&) {
    const protocol::Call call = protocol::Unchecked(std::move(envelope));
    Refuse(call, Status::ResourceExhausted(DescribeCall(call) + ": no memory"));
  }
}

Status Server::Impl::Check(const protocol::Call& call) const {
  if (!IsWorkerId(call.worker_id, *options_.view)) {
    return Status::InvalidArgument(DescribeCall(call) + ": only workers 0 to " +
                                   std::to_string(options_.view->num_workers() - 1) +
                                   " are served");
  }
  const ps::Op op = call.extension.op;
  const bool partition = op == ps::Op::kPush || op == ps::Op::kPull || op == ps::Op::kPushPull ||
                         op == ps::Op::kGive || op == ps::Op::kTake;
  const uint64_t largest = std::max<uint64_t>(call.request.size_bytes, call.payload.size());
  if (partition && largest > options_.max_partition_bytes) {
    return Status::InvalidArgument(
        DescribeCall(call) + ": " + CountOf(largest, "byte") + " are more than the " +
        std::to_string(options_.max_partition_bytes) + " that a partition may have");
  }
  const bool changes_layout = call.request.layout_version > 0 || call.request.oldest_layout > 0;
  if (changes_layout && call.request.mode != 0) {
    return Status::InvalidArgument(DescribeCall(call) + ": asynchronous keys stay as they are cut");
  }
  if (call.request.mode > static_cast<uint32_t>(Mode::kAsynchronous)) {
    return Status::InvalidArgument(DescribeCall(call) + ": mode " +
                                   std::to_string(call.request.mode) + " is unknown");
  }
  return Status::Ok();
}

void Server::Impl::Dispatch(protocol::Call& call) {
  switch (call.extension.op) {
    case ps::Op::kDeclare:
      return directory_.Declare(call);
    case ps::Op::kLookup:
      return directory_.Lookup(call);
    case ps::Op::kGiveBack:
      return directory_.GiveBack(call);
    case ps::Op::kPush:
    case ps::Op::kPull:
    case ps::Op::kPushPull:
      return ToShard(call);
    case ps::Op::kRelease:
      return Release(call);
    case ps::Op::kOptimizer:
      return optimizer_.Handle(call);
    case ps::Op::kReady:
      return leader_.Ready(std::move(call));
    case ps::Op::kGive:
    case ps::Op::kTake:
      return exchanges_.Handle(call);
    case ps::Op::kTaken:
      return exchanges_.Taken(call);
    case ps::Op::kQuit:
      return exchanges_.Quit(call);
    default:
      return Refuse(call,
                    Status::InvalidArgument(DescribeCall(call) + ": a server does not do that"));
  }
}

void Server::Impl::ToShard(protocol::Call& call) {
  const server::SlotId id{call.request.key, call.request.partition, call.request.layout_version};
  auto known = handle_of_.find(id);
  if (known == handle_of_.end()) {
    if (const Status wrong = CheckNewSlot(call); !wrong.ok()) return Refuse(call, wrong);
    const uint64_t size_bytes = call.request.size_bytes;
    const bool asynchronous = call.request.mode == static_cast<uint32_t>(Mode::kAsynchronous);
    known = handle_of_.emplace(id, Place{size_bytes, HandleFor(size_bytes), asynchronous}).first;
    handles_[known->second.handle].load_bytes += size_bytes;
  }
  HandIn(handles_[known->second.handle], call);
}

void Server::Impl::HandIn(const ShardHandle& handle, protocol::Call& call) {
  if (handle.executor == dispatcher_) return handle.shard->Handle(std::move(call));
  if (server::PostCall(handle, bounds_.backlog.get(), call.worker_rank, &call)) return;
  ++refused_;
  const std::string why = bounds_.backlog->Why(call.worker_rank);
  deferred_.Warning(DescribeCall(call) + " is deferred; the worker sends it again: " + why);
  send_(protocol::MakeBusyResponse(call, why));
}

// A late repeat finds nothing left to forget.
void Server::Impl::Release(const protocol::Call& call) {
  const protocol::DataRequest& about = call.request;
  if (call.worker_rank != 0 && !about.given_back) {
    return Refuse(call, Status::PermissionDenied(DescribeCall(call) + ": only worker 0 does that"));
  }
  if (about.oldest_layout == 0) {
    return Refuse(call,
                  Status::InvalidArgument(DescribeCall(call) + ": there is no earlier layout"));
  }
  if (first_layout_.size() >= kMaxPartitions && !first_layout_.contains(about.key)) {
    return Refuse(
        call, Status::ResourceExhausted(DescribeCall(call) + ": too many keys have a new layout"));
  }
  if (about.num_partitions <= handle_of_.size()) {
    for (uint32_t partition = 0; partition < about.num_partitions; ++partition) {
      const auto known = handle_of_.find({about.key, partition, about.oldest_layout - 1});
      if (known != handle_of_.end() && Retire(*known)) handle_of_.erase(known);
    }
  } else {  // more than there are
    std::erase_if(handle_of_, [&](const auto& entry) {
      const server::SlotId& id = entry.first;
      return id.key == about.key && id.layout_version == about.oldest_layout - 1 &&
             id.partition < about.num_partitions && Retire(entry);
    });
  }
  if (about.given_back) {
    forgotten_.Add(about.key, about.oldest_layout);
    first_layout_.erase(about.key);
  }
  send_(protocol::MakeResponse(call, {}));
}

bool Server::Impl::Retire(const std::pair<const server::SlotId, Place>& entry) {
  const auto& [id, place] = entry;
  if (place.asynchronous) return false;  // stays as it is cut
  uint32_t& first = first_layout_[id.key];
  first = std::max(first, id.layout_version + 1);
  ShardHandle& handle = handles_[place.handle];
  handle.load_bytes -= place.size_bytes;
  RunOn(handle, [shard = handle.shard, id = id] { shard->Forget(id); });
  return true;
}

template <typename F>
void Server::Impl::RunOn(const ShardHandle& handle, F task) {
  if (handle.executor == dispatcher_) return task();
  handle.executor->Post(std::move(task));
}

uint32_t Server::Impl::HandleFor(uint64_t size_bytes) {
  const size_t num_shards = handles_.size() - 1;
  const bool own = size_bytes <= options_.dispatcher_bytes;
  return static_cast<uint32_t>(own ? num_shards : server::LeastLoaded(handles_, num_shards));
}

void Server::Impl::Adopt(const server::OptimizerInForce& optimizer) {
  for (const ShardHandle& handle : handles_) {
    RunOn(handle, [shard = handle.shard, optimizer] { shard->SetOptimizer(optimizer); });
  }
}

// A partition begins with round 0, or with a later round when its key gets a new layout.  Requests
// that begin otherwise would only fill tables.
Status Server::Impl::CheckNewSlot(const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  const auto first = first_layout_.find(about.key);
  const bool is_over = first != first_layout_.end() && about.layout_version < first->second;
  if (is_over || forgotten_.IsOver(about.key, about.layout_version)) {
    return Status::FailedPrecondition(DescribeCall(call) + ": worker 0 has released this layout");
  }
  if (about.layout_version > 0 && protocol::IsInitial(about)) {
    return Status::FailedPrecondition(DescribeCall(call) + ": initial values have layout 0");
  }
  const bool initialises = call.extension.op == ps::Op::kPull || call.worker_rank == 0;
  if (about.layout_version == 0 && (!protocol::IsInitial(about) || !initialises)) {
    return Status::FailedPrecondition(DescribeCall(call) +
                                      ": worker 0 has not initialised this partition");
  }
  if (handle_of_.size() >= kMaxPartitions) {
    return Status::ResourceExhausted(DescribeCall(call) + ": there are " +
                                     std::to_string(kMaxPartitions) +
                                     " partitions already, and no room for more");
  }
  return Status::Ok();
}

void Server::Impl::OnWorkerGone(int32_t rank, const Status& why) {
  if (!options_.view->has_worker(rank)) return;
  directory_.OnWorkerGone(rank, why);
  optimizer_.OnWorkerGone(rank);
  leader_.OnWorkerGone(rank, why);
  exchanges_.OnWorkerGone(rank, why);
  for (const ShardHandle& handle : handles_) {
    RunOn(handle, [shard = handle.shard, rank, why] { shard->OnWorkerGone(rank, why); });
  }
}

Status Server::Impl::OnWorkerVacant(int32_t id, bool native) {
  if (!IsWorkerId(id, *options_.view)) return Status::Ok();
  if (!native) {
    stock_.OnWorkerVacant(id);
    return Status::Ok();
  }
  std::optional<Key> synchronous = directory_.FindSynchronous();
  for (const auto& [slot, place] : handle_of_) {
    if (!place.asynchronous) synchronous = std::min(slot.key, synchronous.value_or(slot.key));
  }
  if (synchronous) {
    return Status::FailedPrecondition(
        "lost " + ps::DescribeId(id) + ", and no worker can take its place: key " +
        std::to_string(*synchronous) +
        " is synchronous, so its value is on the workers and not on the servers; start the job "
        "again from your last checkpoint");
  }
  if (exchanges_.used()) {
    return Status::FailedPrecondition(
        "lost " + ps::DescribeId(id) +
        ", and no worker can take its place: the workers exchange values without a declaration, "
        "which a newcomer cannot catch up with; start the job again from your last checkpoint");
  }
  const int32_t rank = ps::RankOf(id);
  directory_.OnWorkerVacant(rank);
  optimizer_.OnWorkerGone(rank);
  for (const ShardHandle& handle : handles_) {
    RunOn(handle, [shard = handle.shard, rank] { shard->OnWorkerVacant(rank); });
  }
  return Status::Ok();
}

void Server::Impl::Fail(const Status& why) {
  if (failure_) return;
  failure_ = why;
  directory_.Fail(why);
  stock_.Fail(why);
  optimizer_.Fail(why);
  leader_.Fail(why);
  exchanges_.Fail(why);
  for (const ShardHandle& handle : handles_) {
    RunOn(handle, [shard = handle.shard, why] { shard->Fail(why); });
  }
}

void Server::Impl::Measure(UniqueFunction<void(const Metrics&)> done) {
  // Owners: the tasks; touched on the dispatcher only.
  const auto answers = std::make_shared<server::Answers>(
      server::Answers{.sum = {}, .missing = handles_.size(), .done = std::move(done)});
  answers->sum.Add("partitions", static_cast<double>(handle_of_.size()));
  answers->sum.Add("refused_total", static_cast<double>(refused_));
  exchanges_.Measure(&answers->sum);
  for (const ShardHandle& handle : handles_) {
    RunOn(handle, [shard = handle.shard, dispatcher = dispatcher_, answers] {
      server::Ask(*shard, dispatcher, answers);
    });
  }
}

void Server::Impl::Refuse(const protocol::Call& call, const Status& why) {
  ++refused_;
  send_(protocol::MakeErrorResponse(call, why));
}

Server::Server(const ServerOptions& options, Executor* dispatcher,
               const std::vector<ServerShard>& shards, Handler handler, const Logger& log,
               const protocol::Rules& rules)
    : impl_(std::make_unique<Impl>(options, dispatcher, shards, std::move(handler), log, rules)) {}

Server::~Server() = default;

void Server::OnMessage(ps::Message message) { impl_->OnMessage(std::move(message)); }

void Server::OnWorkerGone(int32_t rank, const Status& why) { impl_->OnWorkerGone(rank, why); }

Status Server::OnWorkerVacant(int32_t id, bool native) { return impl_->OnWorkerVacant(id, native); }

void Server::Fail(const Status& why) { impl_->Fail(why); }

void Server::Measure(UniqueFunction<void(const Metrics&)> done) { impl_->Measure(std::move(done)); }

}  // namespace bs
