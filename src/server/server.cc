// The server's front: takes requests apart, refuses what makes no sense, spreads keys over shards.
#include "bytescheduler/server.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/limited_log.h"
#include "protocol/describe.h"
#include "server/answers.h"
#include "server/async/optimizer_calls.h"
#include "server/directory.h"
#include "server/nonsense.h"
#include "server/optimizer/hosted_updates.h"
#include "server/shard.h"
#include "server/state/lane.h"
#include "server/state/shard_state.h"
#include "server/stock/mxnet_protocol.h"
#include "server/sync/slot.h"

namespace bs {
namespace {

using server::DescribeCall;

// Keeps of a request what a refusal needs when the request cannot be parsed.
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

bool IsWorkerId(int32_t id, int32_t num_workers) {
  const int32_t rank = ps::RankOf(id);
  return rank >= 0 && rank < num_workers &&
         (id == ps::WorkerId(rank) || id == ps::AttachedId(rank));
}

// Options::on_round as the shard of this index calls it.
std::function<void(const RoundTimes&)> ToldBy(const ServerOptions& options, size_t shard) {
  if (!options.on_round) return {};
  return [tell = options.on_round, shard](const RoundTimes& times) { tell(shard, times); };
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, Executor* front, const std::vector<ServerShard>& shards,
       SendFn send, Handler handler, const Logger& log);

  void OnMessage(ps::Message message);
  void OnWorkerGone(int32_t rank, const Status& why);
  Status OnWorkerVacant(int32_t id, bool native);
  void Fail(const Status& why);
  void Measure(UniqueFunction<void(const Metrics&)> done);

 private:
  using Lane = server::Lane<server::Shard>;
  // Which lane a partition went to when it was first seen, and with how many bytes.
  struct Place {
    uint64_t size_bytes;
    uint32_t lane;
    bool asynchronous;
  };

  // Runs `task` where the lane's shard lives: now, or soon.
  template <typename F>
  void RunOn(const Lane& lane, F task);
  // Hands it to the shard of that lane, if it may wait there.
  void HandIn(const Lane& lane, protocol::Call& call);
  uint32_t LaneFor(uint64_t size_bytes);
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
  Executor* const front_;
  const server::Tell tell_nonsense_;
  const SendFn send_;
  // Owners: the front and the shards.
  const std::shared_ptr<server::HostedUpdates> hosted_;
  const server::Bounds bounds_;
  server::MxnetProtocol stock_;
  server::Directory directory_;
  server::OptimizerCalls optimizer_;
  std::vector<Lane> lanes_;  // of the shards, then the front's own
  // By partition that was seen and not released.
  std::unordered_map<server::SlotId, Place, server::SlotIdHash> lane_of_;
  std::unordered_map<Key, uint32_t> first_cut_;  // of keys whose earlier cuts were released
  uint64_t refused_ = 0;                         // by the front itself
  LimitedLog put_off_;  // names whose requests come faster than sums are made
  std::optional<Status> failure_;
};

Server::Impl::Impl(const ServerOptions& options, Executor* front,
                   const std::vector<ServerShard>& shards, SendFn send, Handler handler,
                   const Logger& log)
    : options_(options),
      codecs_(options.codecs != nullptr ? *options.codecs : codec::Builtin()),
      front_(front),
      tell_nonsense_(server::ToldOn(front, std::move(handler.on_nonsense))),
      send_(server::SendAndTell(std::move(send), tell_nonsense_)),
      hosted_(std::make_shared<server::HostedUpdates>(options.updater)),
      bounds_(server::MakeBounds(options)),
      stock_(options, front, shards, {send_, std::move(handler.on_failure), hosted_, bounds_},
             std::move(handler.on_stop), log),
      directory_(options.max_partition_bytes, send_),
      optimizer_(front, hosted_.get(), send_,
                 [this](const server::OptimizerInForce& optimizer) { Adopt(optimizer); }),
      put_off_(front, log, std::chrono::minutes(1)) {
  BS_CHECK(!shards.empty());
  BS_CHECK(options.num_workers > 0);
  std::vector<ServerShard> all = shards;
  all.push_back({.executor = front, .numa_node = shards.front().numa_node});
  for (const ServerShard& shard : all) {
    server::ShardState state{server::MakeShardBase(options, shard, send_, hosted_, bounds_)};
    state.num_buffers = options.test_num_buffers;
    state.max_staleness = options.max_staleness;
    state.on_round = ToldBy(options, lanes_.size());
    state.timed = options.timed;
    state.codecs = &codecs_;
    lanes_.push_back({shard.executor, std::make_shared<server::Shard>(std::move(state)), 0});
  }
}

void Server::Impl::OnMessage(ps::Message message) {
  stock_.Note(message);
  if (!message.meta.native()) return stock_.OnMessage(std::move(message));
  // Responses are not answered, or two confused nodes would talk for ever.
  if (message.meta.is_control || message.peer == ps::kEmpty) return;
  if (!message.meta.request) return tell_nonsense_(message.peer, "an answer to a server");
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
  if (!IsWorkerId(call.worker_id, options_.num_workers)) {
    return Status::InvalidArgument(DescribeCall(call) + ": only workers 0 to " +
                                   std::to_string(options_.num_workers - 1) + " are served");
  }
  const ps::Op op = call.extension.op;
  const bool partition = op == ps::Op::kPush || op == ps::Op::kPull || op == ps::Op::kPushPull;
  const uint64_t largest = std::max<uint64_t>(call.request.size_bytes, call.payload.size());
  if (partition && largest > options_.max_partition_bytes) {
    return Status::InvalidArgument(
        DescribeCall(call) + ": " + std::to_string(largest) + " bytes are more than the " +
        std::to_string(options_.max_partition_bytes) + " that a partition may have");
  }
  const bool cut_anew = call.request.layout_version > 0 || call.request.oldest_layout > 0;
  if (cut_anew && call.request.mode != 0) {
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
    case ps::Op::kPush:
    case ps::Op::kPull:
    case ps::Op::kPushPull:
      return ToShard(call);
    case ps::Op::kRelease:
      return Release(call);
    case ps::Op::kOptimizer:
      return optimizer_.Handle(call);
    default:
      return Refuse(call,
                    Status::InvalidArgument(DescribeCall(call) + ": a server does not do that"));
  }
}

void Server::Impl::ToShard(protocol::Call& call) {
  const server::SlotId id{call.request.key, call.request.partition, call.request.layout_version};
  auto known = lane_of_.find(id);
  if (known == lane_of_.end()) {
    if (const Status wrong = CheckNewSlot(call); !wrong.ok()) return Refuse(call, wrong);
    const uint64_t size_bytes = call.request.size_bytes;
    const bool asynchronous = call.request.mode == static_cast<uint32_t>(Mode::kAsynchronous);
    known = lane_of_.emplace(id, Place{size_bytes, LaneFor(size_bytes), asynchronous}).first;
    lanes_[known->second.lane].load_bytes += size_bytes;
  }
  HandIn(lanes_[known->second.lane], call);
}

void Server::Impl::HandIn(const Lane& lane, protocol::Call& call) {
  if (lane.executor == front_) return lane.shard->Handle(std::move(call));
  if (server::PostCall(lane, bounds_.backlog.get(), call.worker_rank, &call)) return;
  ++refused_;
  const std::string why = bounds_.backlog->Why(call.worker_rank);
  put_off_.Warning(DescribeCall(call) + " is put off, it will be sent again: " + why);
  send_(protocol::MakeBusyResponse(call, why));
}

// A repeat that comes late finds nothing left to forget.
void Server::Impl::Release(const protocol::Call& call) {
  const protocol::DataRequest& about = call.request;
  if (call.worker_rank != 0) {
    return Refuse(call, Status::PermissionDenied(DescribeCall(call) + ": only worker 0 does that"));
  }
  if (about.oldest_layout == 0) {
    return Refuse(call, Status::InvalidArgument(DescribeCall(call) + ": there is no earlier one"));
  }
  if (first_cut_.size() >= kMaxPartitions && !first_cut_.contains(about.key)) {
    return Refuse(call, Status::ResourceExhausted(DescribeCall(call) + ": too many keys are cut"));
  }
  if (about.num_partitions <= lane_of_.size()) {
    for (uint32_t part = 0; part < about.num_partitions; ++part) {
      const auto known = lane_of_.find({about.key, part, about.oldest_layout - 1});
      if (known != lane_of_.end() && Retire(*known)) lane_of_.erase(known);
    }
  } else {  // more than there are
    std::erase_if(lane_of_, [&](const auto& entry) {
      const server::SlotId& id = entry.first;
      return id.key == about.key && id.cut == about.oldest_layout - 1 &&
             id.part < about.num_partitions && Retire(entry);
    });
  }
  send_(protocol::MakeResponse(call, {}));
}

bool Server::Impl::Retire(const std::pair<const server::SlotId, Place>& entry) {
  const auto& [id, place] = entry;
  if (place.asynchronous) return false;  // stays as it is cut
  uint32_t& first = first_cut_[id.key];
  first = std::max(first, id.cut + 1);
  Lane& lane = lanes_[place.lane];
  lane.load_bytes -= place.size_bytes;
  RunOn(lane, [shard = lane.shard, id = id] { shard->Forget(id); });
  return true;
}

template <typename F>
void Server::Impl::RunOn(const Lane& lane, F task) {
  if (lane.executor == front_) return task();
  lane.executor->Post(std::move(task));
}

uint32_t Server::Impl::LaneFor(uint64_t size_bytes) {
  const size_t num_shards = lanes_.size() - 1;
  const bool own = size_bytes <= options_.front_bytes;
  return static_cast<uint32_t>(own ? num_shards : server::LeastLoaded(lanes_, num_shards));
}

void Server::Impl::Adopt(const server::OptimizerInForce& optimizer) {
  for (const Lane& lane : lanes_) {
    RunOn(lane, [shard = lane.shard, optimizer] { shard->SetOptimizer(optimizer); });
  }
}

// A partition's life begins with round 0 at whichever worker, or with a later round when its key is
// cut anew; anything else would only fill tables.
Status Server::Impl::CheckNewSlot(const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  const auto first = first_cut_.find(about.key);
  if (first != first_cut_.end() && about.layout_version < first->second) {
    return Status::FailedPrecondition(DescribeCall(call) + ": worker 0 has released this cut");
  }
  if (about.layout_version > 0 && protocol::IsInitial(about)) {
    return Status::FailedPrecondition(DescribeCall(call) + ": initial values have cut 0");
  }
  const bool initialises = call.extension.op == ps::Op::kPull || call.worker_rank == 0;
  if (about.layout_version == 0 && (!protocol::IsInitial(about) || !initialises)) {
    return Status::FailedPrecondition(DescribeCall(call) +
                                      ": worker 0 has not initialised this partition");
  }
  if (lane_of_.size() >= kMaxPartitions) {
    return Status::ResourceExhausted(DescribeCall(call) + ": there are " +
                                     std::to_string(kMaxPartitions) +
                                     " partitions already, and no room for more");
  }
  return Status::Ok();
}

void Server::Impl::OnWorkerGone(int32_t rank, const Status& why) {
  if (rank < 0 || rank >= options_.num_workers) return;
  directory_.OnWorkerGone(rank, why);
  optimizer_.OnWorkerGone(rank);
  for (const Lane& lane : lanes_) {
    RunOn(lane, [shard = lane.shard, rank, why] { shard->OnWorkerGone(rank, why); });
  }
}

Status Server::Impl::OnWorkerVacant(int32_t id, bool native) {
  if (!IsWorkerId(id, options_.num_workers)) return Status::Ok();
  if (!native) {
    stock_.OnWorkerVacant(id);
    return Status::Ok();
  }
  std::optional<Key> synchronous = directory_.FindSynchronous();
  for (const auto& [slot, place] : lane_of_) {
    if (!place.asynchronous) synchronous = std::min(slot.key, synchronous.value_or(slot.key));
  }
  if (synchronous) {
    return Status::FailedPrecondition(
        "lost " + ps::DescribeId(id) + ", and nobody can take its place: key " +
        std::to_string(*synchronous) +
        " is synchronous, so its value is on the workers and not on the servers; start the job "
        "again from your last checkpoint");
  }
  const int32_t rank = ps::RankOf(id);
  directory_.OnWorkerVacant(rank);
  optimizer_.OnWorkerGone(rank);
  for (const Lane& lane : lanes_) {
    RunOn(lane, [shard = lane.shard, rank] { shard->OnWorkerVacant(rank); });
  }
  return Status::Ok();
}

void Server::Impl::Fail(const Status& why) {
  if (failure_) return;
  failure_ = why;
  directory_.Fail(why);
  stock_.Fail(why);
  optimizer_.Fail(why);
  for (const Lane& lane : lanes_) {
    RunOn(lane, [shard = lane.shard, why] { shard->Fail(why); });
  }
}

void Server::Impl::Measure(UniqueFunction<void(const Metrics&)> done) {
  // Owners: the tasks; touched on the front only.
  const auto answers = std::make_shared<server::Answers>(
      server::Answers{.sum = {}, .missing = lanes_.size(), .done = std::move(done)});
  answers->sum.Add("partitions", static_cast<double>(lane_of_.size()));
  answers->sum.Add("refused_total", static_cast<double>(refused_));
  for (const Lane& lane : lanes_) {
    RunOn(lane,
          [shard = lane.shard, front = front_, answers] { server::Ask(*shard, front, answers); });
  }
}

void Server::Impl::Refuse(const protocol::Call& call, const Status& why) {
  ++refused_;
  send_(protocol::MakeErrorResponse(call, why));
}

Server::Server(const ServerOptions& options, Executor* front,
               const std::vector<ServerShard>& shards, SendFn send, Handler handler,
               const Logger& log)
    : impl_(std::make_unique<Impl>(options, front, shards, std::move(send), std::move(handler),
                                   log)) {}

Server::~Server() = default;

void Server::OnMessage(ps::Message message) { impl_->OnMessage(std::move(message)); }

void Server::OnWorkerGone(int32_t rank, const Status& why) { impl_->OnWorkerGone(rank, why); }

Status Server::OnWorkerVacant(int32_t id, bool native) { return impl_->OnWorkerVacant(id, native); }

void Server::Fail(const Status& why) { impl_->Fail(why); }

void Server::Measure(UniqueFunction<void(const Metrics&)> done) { impl_->Measure(std::move(done)); }

}  // namespace bs
