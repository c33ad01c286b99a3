// Applies pushes as they come, each once, and answers pulls with the weights of the moment.
#include "server/async/async_slot.h"

#include <cmath>
#include <new>
#include <utility>

#include "base/count_of.h"
#include "codec/codec.h"
#include "protocol/describe.h"
#include "protocol/limits.h"
#include "reduce/reduce.h"

namespace bs::server {
namespace {

bool IsFinite(const std::optional<double>& value) { return !value || std::isfinite(*value); }

// The gradient that the codes of `call` stand for.
ps::Frame Decode(const protocol::Call& call, const codec::Table& codecs, uint64_t job) {
  const protocol::DataRequest& about = call.request;
  const size_t count = about.size_bytes / sizeof(float);
  auto values = std::make_unique_for_overwrite<float[]>(count);
  const codec::Place place{.job = job,
                           .key = about.key,
                           .round = about.push_count,
                           .first_element = about.offset_bytes / sizeof(float),
                           .rank = static_cast<uint32_t>(call.worker_rank)};
  codecs.Get(about.coding)
      .decode(about.coding.parameters, place, call.payload.bytes().data(), values.get(), count);
  const auto bytes = std::as_bytes(std::span(values.get(), count));
  return ps::Frame::Borrow(bytes, [kept = std::move(values)] {});
}

// Bytes of a push as it came.
uint64_t SentBytes(const protocol::Call& call, const codec::Table& codecs) {
  return codecs.SentBytes(call.request.coding, call.request.size_bytes);
}

}  // namespace

AsyncSlot::AsyncSlot(ShardState* shard, SlotId id)
    : shard_(shard), id_(id), parties_(static_cast<size_t>(shard->view->num_workers())) {
  shard->counters.Expect(shard->view->num_workers());
}

void AsyncSlot::Push(protocol::Call& call) {
  if (const Status wrong = CheckPush(call); !wrong.ok()) return Refuse(call, wrong);
  const Round count = call.request.push_count;
  const bool duplicate = count == 0 ? initialised() : count <= party_of(call).pushes;
  if (duplicate) return shard_->send(protocol::MakeResponse(call, {}));
  if (count > 0) {
    if (const Status wrong = CheckUpdate(call); !wrong.ok()) return Refuse(call, wrong);
    if (updating_rank_) return Queue(call);
  }
  // Held until the memory is used; it does not cover memory that the hosting process uses later.
  const Result<MemoryRoom::Promise> memory = AskForMemory(call);
  if (!memory.ok()) return Refuse(call, memory.status());
  if (count == 0) {
    Initialise(call);
  } else {
    if (!call.request.coding.plain()) {
      const TimePoint began = shard_->Now();
      call.payload = Decode(call, *shard_->codecs, shard_->view->job);
      shard_->counters.Coded(shard_->Now() - began);
    }
    if (IsHosted()) return BeginHosted(call);
    Update(call);
  }
  shard_->send(protocol::MakeResponse(call, {}));
  AnswerReady();
}

void AsyncSlot::Pull(protocol::Call& call) {
  if (const Status wrong = CheckPull(call); !wrong.ok()) return Refuse(call, wrong);
  if (Ready(call)) return Answer(call);
  AddPending(call);
}

void AsyncSlot::OnWorkerGone(int32_t rank) {
  pending_.Forget(rank);
  // AnswerReady refuses calls that wait for the initial value of a worker 0 that is gone.
  AnswerReady();
}

void AsyncSlot::OnWorkerVacant(int32_t rank) {
  pending_.Forget(rank);
  queue_.Forget(rank);
  Party& party = parties_[static_cast<size_t>(rank)];
  party = {.incarnation = party.incarnation + 1};
  AnswerReady();
}

void AsyncSlot::Fail(const Status& why) {
  pending_.RefuseAll(why, shard_->send);
  queue_.RefuseAll(why, shard_->send);
}

Status AsyncSlot::CheckPush(const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  if (const Status wrong = protocol::CheckArray(call, about.size_bytes); !wrong.ok()) return wrong;
  if (const Status wrong = protocol::CheckPayload(call, *shard_->codecs); !wrong.ok()) return wrong;
  if (!initialised() && (about.push_count != 0 || call.worker_rank != 0)) {
    return Status::FailedPrecondition(protocol::DescribeCall(call) +
                                      ": worker 0 has not initialised this partition");
  }
  if (about.push_count == 0 && about.about.size() > protocol::kMaxAboutBytes) {
    return Status::InvalidArgument(
        protocol::DescribeCall(call) + ": " + CountOf(about.about.size(), "byte") +
        " about the key, at most " + std::to_string(protocol::kMaxAboutBytes) + " are kept");
  }
  if (!initialised()) return Status::Ok();
  if (about.push_count == 0 && call.worker_rank != 0) {
    return Status::FailedPrecondition(protocol::DescribeCall(call) + ": only worker 0 initialises");
  }
  return protocol::CheckShape(call, shape_);
}

Status AsyncSlot::CheckPull(const protocol::Call& call) {
  const protocol::DataRequest& about = call.request;
  const Round pushed = party_of(call).pushes;
  if (about.push_count > pushed + (initialised() ? 1 : 0)) {
    return Status::FailedPrecondition(protocol::DescribeCall(call) + ": this worker has pushed " +
                                      CountOf(pushed, "time"));
  }
  // A worker has one request for a partition under way: older requests were answered.
  if (about.push_count < pushed || call.extension.sequence < party_of(call).answered) {
    return Status::Cancelled(protocol::DescribeCall(call) + ": superseded by a newer request");
  }
  if (!initialised()) {
    if (shard_->gone.empty()) return Status::Ok();
    return shard_->gone.front().value_or(Status::Ok());
  }
  return protocol::CheckPullSize(call, shape_);
}

Result<MemoryRoom::Promise> AsyncSlot::AskForMemory(const protocol::Call& call) const {
  const uint64_t size_bytes = call.request.size_bytes;
  uint64_t more_bytes = 0;
  if (!initialised()) {
    more_bytes = size_bytes;
  } else {
    if (!spare_ && (IsHosted() || weights_->InFlight())) more_bytes += size_bytes;
    if (!IsHosted() && !state_) {
      more_bytes += StateBytes(*shard_->optimizer.native, static_cast<DType>(shape_.dtype),
                               size_bytes / SizeOf(static_cast<DType>(shape_.dtype)));
    }
  }
  Result<MemoryRoom::Promise> memory = shard_->AskForMemory(more_bytes);
  if (memory.ok()) return memory;
  return Status(memory.status().code(),
                protocol::DescribeCall(call) + ": its " + memory.status().message());
}

void AsyncSlot::Initialise(const protocol::Call& call) {
  const protocol::DataRequest& about = call.request;
  auto weights = std::make_shared<SumBuffer>(about.size_bytes, shard_->numa_node,
                                             shard_->view->num_workers(), shard_->lend);
  if (about.size_bytes > 0) {
    reduce::Copy(weights->data(), call.payload.bytes().data(), about.size_bytes);
  }
  shape_ = protocol::ShapeOf(call);
  about_ = about.about;
  needs_host_ = about.hosted;
  weights_ = std::move(weights);
  shard_->counters.Pushed(call.worker_rank, SentBytes(call, *shard_->codecs));
  shard_->counters.Kept(about.size_bytes);
}

Status AsyncSlot::CheckUpdate(const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  const Round pushed = parties_[static_cast<size_t>(call.worker_rank)].pushes;
  if (about.push_count > pushed + 1) {
    return Status::FailedPrecondition(protocol::DescribeCall(call) + ": expected push " +
                                      std::to_string(pushed + 1) + " of this worker");
  }
  if (!shard_->optimizer.any()) {
    return Status::FailedPrecondition(
        protocol::DescribeCall(call) +
        ": no optimizer is set, so the servers cannot update: call set_optimizer before the first "
        "push");
  }
  if (!CanUpdate(static_cast<DType>(about.dtype))) {
    return Status::InvalidArgument(protocol::DescribeCall(call) + ": " +
                                   protocol::DescribeArray(about.dtype, about.size_bytes) +
                                   " cannot be updated, only float32, float64 and float16 can");
  }
  if (!IsFinite(about.learning_rate) || !IsFinite(about.weight_decay) ||
      !IsFinite(about.rescale_grad)) {
    return Status::InvalidArgument(protocol::DescribeCall(call) +
                                   ": learning_rate, wd and rescale_grad must be finite");
  }
  return IsHosted() ? CheckHosted(call) : Status::Ok();
}

Status AsyncSlot::CheckHosted(const protocol::Call& call) const {
  if (!shard_->optimizer.hosted || !shard_->hosted || !shard_->hosted->present()) {
    return Status::FailedPrecondition(
        protocol::DescribeCall(call) +
        ": only Python can update this key, but the optimizer came without its pickle, or the "
        "server is not run by Python");
  }
  if (!about_.empty()) return Status::Ok();
  return Status::FailedPrecondition(
      protocol::DescribeCall(call) +
      ": the key is cut into partitions, but the optimizer updates whole arrays: call "
      "set_optimizer before the key is initialised");
}

Rates AsyncSlot::RatesOf(const protocol::Call& call) const {
  const Rates& usual = shard_->optimizer.native->rates;
  const protocol::DataRequest& about = call.request;
  return {.learning_rate = about.learning_rate.value_or(usual.learning_rate),
          .weight_decay = about.weight_decay.value_or(usual.weight_decay),
          .rescale_grad = about.rescale_grad.value_or(usual.rescale_grad)};
}

void AsyncSlot::Update(const protocol::Call& call) {
  PrepareWeights();
  const std::span<std::byte> weights(weights_->data(), shape_.size_bytes);
  if (!state_ || &state_->spec() != shard_->optimizer.native.get()) {
    state_.emplace(shard_->optimizer.native, static_cast<DType>(shape_.dtype), weights);
  }
  state_->Apply(RatesOf(call), call.payload.bytes(), weights);
  Count(call);
}

void AsyncSlot::Count(const protocol::Call& call) {
  Party& party = party_of(call);
  if (party.incarnation > 0 && party.pushes == 0) {
    std::optional<Round> least;
    for (size_t rank = 0; rank < parties_.size(); ++rank) {
      const Party& other = parties_[rank];
      if (!IsAwaited(rank)) continue;
      least = std::min(other.ahead + other.pushes, least.value_or(other.ahead + other.pushes));
    }
    party.ahead = least.value_or(0);
  }
  ++party.pushes;
  shard_->counters.Pushed(call.worker_rank, SentBytes(call, *shard_->codecs));
}

bool AsyncSlot::IsAwaited(size_t rank) const {
  const bool gone = rank < shard_->gone.size() && shard_->gone[rank];
  const Party& party = parties_[rank];
  return !gone && (party.incarnation == 0 || party.pushes > 0);
}

void AsyncSlot::PrepareSpare() {
  if (spare_ && !spare_->InFlight()) return;
  if (!spare_) shard_->counters.Kept(shape_.size_bytes);
  spare_ = std::make_shared<SumBuffer>(shape_.size_bytes, shard_->numa_node,
                                       shard_->view->num_workers(), shard_->lend);
}

void AsyncSlot::PrepareWeights() {
  if (!weights_->InFlight()) return;
  PrepareSpare();
  if (shape_.size_bytes > 0) {
    reduce::Copy(spare_->data(), weights_->data(), shape_.size_bytes);
  }
  std::swap(weights_, spare_);
}

void AsyncSlot::BeginHosted(protocol::Call& call) {
  PrepareSpare();
  state_.reset();  // a native optimizer that comes later starts afresh
  // All that the update uses: the slot may take other memory meanwhile.
  auto job =
      std::make_unique<Hosted>(Hosted{{}, about_, weights_, spare_, party_of(call).incarnation});
  const int32_t rank = call.worker_rank;
  job->call = std::move(call);
  const protocol::DataRequest& said = job->call.request;
  const ServerUpdate update{.key = id_.key,
                            .about = job->about,
                            .dtype = static_cast<DType>(shape_.dtype),
                            .gradient = job->call.payload.bytes(),
                            .weights = {spare_->data(), shape_.size_bytes},
                            .rates = {said.learning_rate, said.weight_decay, said.rescale_grad}};
  shard_->hosted->Update(
      shard_->optimizer.hosted, update, {weights_->data(), shape_.size_bytes}, shard_->executor,
      [this, job = std::move(job)](const Status& status) { EndHosted(*job, status); });
  updating_rank_ = rank;  // its end comes through the executor
}

void AsyncSlot::EndHosted(const Hosted& job, const Status& status) {
  updating_rank_.reset();
  if (status.ok()) {
    spare_ = std::exchange(weights_, job.after);
    if (party_of(job.call).incarnation ==
        job.incarnation) {  // else of a worker that was lost meanwhile
      Count(job.call);
      shard_->send(protocol::MakeResponse(job.call, {}));
    }
    AnswerReady();
  } else {
    Refuse(job.call,
           Status(status.code(), protocol::DescribeCall(job.call) +
                                     ": the optimizer on the server: " + status.message()));
  }
  for (protocol::Call& next : queue_.TakeAll()) {
    try {
      Push(next);
    } catch (const std::bad_alloc&) {
      Refuse(next, Status::ResourceExhausted(protocol::DescribeCall(next) + ": no memory"));
    }
  }
}

void AsyncSlot::Queue(protocol::Call& call) {
  const auto whom = [this](const protocol::Call&) {
    return "the server to finish an earlier update of key " + std::to_string(id_.key);
  };
  // A worker pushes again only after an acknowledgement, so this push is a repeat.
  if (updating_rank_ == call.worker_rank) {
    return shard_->send(protocol::MakePendingResponse(call, whom(call)));
  }
  queue_.Add(std::move(call), whom, shard_->send);
}

std::vector<int32_t> AsyncSlot::Behind(Round count) const {
  std::vector<int32_t> ranks;
  const int64_t bound = shard_->max_staleness;
  if (bound < 0) return ranks;
  for (size_t rank = 0; rank < parties_.size(); ++rank) {
    const Party& party = parties_[rank];
    if (IsAwaited(rank) && party.ahead + party.pushes + static_cast<Round>(bound) < count) {
      ranks.push_back(static_cast<int32_t>(rank));
    }
  }
  return ranks;
}

bool AsyncSlot::Ready(const protocol::Call& call) {
  const Round count = call.request.push_count;
  return initialised() && party_of(call).pushes >= count && Behind(count).empty();
}

void AsyncSlot::AddPending(protocol::Call& call) {
  pending_.Add(
      std::move(call), [this](const protocol::Call& pending) { return WhomFor(pending); },
      shard_->send);
}

std::string AsyncSlot::WhomFor(const protocol::Call& call) {
  const std::string key = " key " + std::to_string(id_.key);
  const Round count = call.request.push_count;
  if (!initialised()) return "worker 0 to initialise" + key;
  if (party_of(call).pushes < count) return "its own push " + std::to_string(count) + " of" + key;
  return protocol::DescribeWorkers(Behind(count)) + " to push" + key + " " +
         CountOf(count - static_cast<Round>(shard_->max_staleness), "time") +
         " (BYTESCHEDULER_MAX_STALENESS=" + std::to_string(shard_->max_staleness) + ")";
}

void AsyncSlot::AnswerReady() {
  if (pending_.empty()) return;
  for (protocol::Call& call : pending_.TakeAll()) {
    const Status wrong = CheckPull(call);
    if (!wrong.ok()) {
      Refuse(call, wrong);
    } else if (Ready(call)) {
      Answer(call);
    } else {
      AddPending(call);
    }
  }
}

void AsyncSlot::Answer(const protocol::Call& call) {
  Party& party = party_of(call);
  const bool leaving =
      weights_->InFlightTo(call.worker_rank) || (spare_ && spare_->InFlightTo(call.worker_rank));
  // A repeat that overtook its answer on a slow link: the same bytes again would only make the
  // backlog longer.
  if (call.extension.sequence == party.answered && leaving) {
    return shard_->send(
        protocol::MakePendingResponse(call, "the answer, which waits for the network"));
  }
  ps::Message response =
      protocol::MakeValuesResponse(call, shape_, SumBuffer::MakeFrame(weights_, call.worker_rank));
  // An update is written to other memory while an answer is in flight.  So a worker that asks for
  // newer weights before it has read older weights has both.
  const std::shared_ptr<SumBuffer> before = party.shown.lock();
  response.keeps_memory = before && before != weights_ && before->InFlightTo(call.worker_rank);
  party.shown = weights_;
  party.answered = call.extension.sequence;
  shard_->counters.Pulled(call.worker_rank, shape_.size_bytes);
  shard_->send(std::move(response));
}

void AsyncSlot::Refuse(const protocol::Call& call, const Status& why) {
  shard_->counters.Refused();
  shard_->send(protocol::MakeErrorResponse(call, why));
}

}  // namespace bs::server
