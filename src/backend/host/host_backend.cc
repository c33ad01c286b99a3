// Hands contributions to their owners, and messages to the part that they are for.
#include "backend/host/host_backend.h"

#include <algorithm>
#include <utility>

#include "backend/ps/exchange_body.h"
#include "base/check.h"
#include "codec/codec.h"
#include "protocol/next_layout.h"
#include "ps/text.h"

namespace bs::backend {
namespace {

// A worker that is gone does not answer a goodbye.
constexpr Duration kGoodbyeTimeout = std::chrono::seconds(10);

ps::KvWorkerOptions ToWorkers(ps::KvWorkerOptions options) {
  options.bodies = protocol::DataBodyRules();
  options.peers = ps::Role::kWorker;
  return options;
}

// So that an answer shows for which of the two it is.
constexpr uint64_t kFirstGoodbye = uint64_t{1} << 47U;

ps::KvWorkerOptions OfGoodbyes(ps::KvWorkerOptions options) {
  options.first_sequence = kFirstGoodbye;
  options.timeout = std::min(options.timeout, kGoodbyeTimeout);
  return ToWorkers(options);
}

HostSumsOptions OptionsOfSums(const HostBackendOptions& options) {
  return {.view = options.view,
          .codecs = options.codecs,
          .credit_bytes = options.credit_bytes,
          .deterministic = options.deterministic,
          .hold_bytes = options.hold_bytes,
          .straggler_timeout = options.requests.straggler_timeout,
          .available_bytes = options.available_bytes};
}

bool IsEqual(const Status& status, const Status& other) {
  return status.code() == other.code() && status.message() == other.message();
}

bool IsWorker(int32_t peer) { return peer == ps::WorkerId(ps::RankOf(peer)); }

}  // namespace

HostBackend::HostBackend(const HostBackendOptions& options, std::unique_ptr<PsBackend> link,
                         Executor* executor, SendFn send, const Logger& log,
                         const protocol::Rules& rules)
    : BackendBefore(std::move(link)),
      options_(options),
      plan_(*options.view),
      executor_(executor),
      send_(std::move(send)),
      log_(log),
      odd_requests_(executor, log),
      link_(static_cast<PsBackend*>(behind())),
      requests_(ToWorkers(options.requests), executor, send_, log),
      goodbyes_(OfGoodbyes(options.requests), executor, send_, log),
      sums_(OptionsOfSums(options), &plan_, link_, executor, send_, rules),
      neighbours_(plan_.num_workers()) {
  BS_CHECK(plan_.in_use());
}

HostBackend::~HostBackend() {
  lives_.reset();
  goodbyes_.FailAll(Status::Cancelled("this worker has left"));
}

void HostBackend::OnMessage(ps::Message message) {
  if (!IsWorker(message.peer)) return link_->OnMessage(std::move(message));
  executor_->Post([this, message = std::move(message)]() mutable { Handle(std::move(message)); });
}

std::shared_ptr<ps::Landing> HostBackend::LandingFor(int32_t peer, const ps::Meta& meta,
                                                     uint64_t size_bytes) {
  return IsWorker(peer) ? requests_.Place(peer, meta, size_bytes)
                        : link_->LandingFor(peer, meta, size_bytes);
}

// All workers decide alike: what they decide by is declared for the key, or the same on all.
bool HostBackend::AddsUp(const protocol::Tensor& tensor, const Coding& coding) const {
  return tensor.mode == Mode::kSynchronous && options_.codecs->AddsUpOnHosts(coding) &&
         tensor.size_bytes > options_.least_bytes;
}

Carriers HostBackend::CarriersOf(const protocol::Tensor& tensor, const Coding& coding,
                                 const Partition& partition) const {
  const int32_t owner = plan_.OwnerOf(tensor.key, partition.index);
  const bool stays = AddsUp(tensor, coding) && owner != options_.view->own.rank;
  if (!stays) return link_->CarriersOf(tensor, coding, partition);
  return options_.carriers ? options_.carriers(ps::WorkerId(owner)) : Carriers{};
}

void HostBackend::Start(const protocol::Tensor& tensor, Exchange exchange) {
  if (exchange.partition.index == 0 && exchange.summed) {
    exchange.summed = [this, summed = std::move(exchange.summed)](const Status& status,
                                                                  const std::string& next) {
      if (!next.empty()) Hear(next);
      summed(status, next);
    };
  }
  const bool sums = exchange.round > 0 && exchange.sent && exchange.summed && !exchange.in.empty();
  if (!sums || !AddsUp(tensor, exchange.coder.coding))
    return link_->Start(tensor, std::move(exchange));
  const int32_t owner = plan_.OwnerOf(tensor.key, exchange.partition.index);
  if (owner == options_.view->own.rank) return sums_.Add(tensor, std::move(exchange));
  SendTo(owner, tensor, std::move(exchange));
}

void HostBackend::SendTo(int32_t owner, const protocol::Tensor& tensor, Exchange exchange) {
  const size_t place = plan_.PlaceOnHost(owner);
  Neighbour& neighbour = neighbours_[place];
  if (neighbour.gone) {
    return RefuseLater(executor_, std::move(exchange), *neighbour.gone);
  }
  if (neighbour.leaves && !failed_) {
    executor_->Post([released = std::move(exchange.released)] { released(Status::Ok()); });
    neighbour.missed.push_back({std::move(exchange.sent), std::move(exchange.summed)});
    return;
  }
  protocol::DataRequest body = BodyOf(tensor, exchange);
  body.next_layout = exchange.next_layout;
  body.coding = exchange.coder.coding;
  body.ratio = exchange.coder.ratio;
  body.answered_below = requests_.first_open();
  PullOf pull = MakePull(tensor, exchange);
  pull.role = ps::Role::kWorker;
  pull.rank = static_cast<uint32_t>(owner);
  ps::KvRequest request;
  request.server = owner;
  request.extension.op = ps::Op::kPushPull;
  request.extension.body = protocol::Encode(ps::Op::kPushPull, body);
  request.priority = exchange.priority;
  request.payload = exchange.in;
  request.answer = exchange.out;
  request.left = [released = std::move(exchange.released)] { released(Status::Ok()); };
  ++neighbour.asked;
  Missed ends{std::move(exchange.sent), std::move(exchange.summed)};
  requests_.Send(std::move(request), [this, place, pull, ends = std::move(ends)](
                                         const Status& status,
                                         const ps::Message& response) mutable {
    const Result<std::string> next =
        status.ok() ? TakeSum(pull, response) : Result<std::string>(status);
    OnAnswer(place);
    EndExchange(place, std::move(ends), next.status(), next.ok() ? next.value() : std::string());
  });
}

void HostBackend::EndExchange(size_t place, Missed ends, const Status& status,
                              const std::string& next) {
  Neighbour& neighbour = neighbours_[place];
  // The worker that leaves refuses what it will not add up, before its goodbye.
  const bool left = IsEqual(status, ps::LeftStatus(ps::WorkerId(plan_.ranks()[place]), ""));
  if (left && !failed_) Part(place, "");
  if (left && !failed_ && !neighbour.gone) {
    neighbour.missed.push_back(std::move(ends));
    return;
  }
  ends.sent(status);
  ends.summed(status, next);
}

void HostBackend::OnAnswer(size_t place) {
  Neighbour& neighbour = neighbours_[place];
  if (--neighbour.asked == 0 && neighbour.goodbye) AnswerGoodbye(place);
}

void HostBackend::Handle(ps::Message message) {
  if (message.meta.request) return OnRequest(std::move(message));
  const bool goodbye = message.meta.extension.sequence >= kFirstGoodbye;
  (goodbye ? goodbyes_ : requests_).OnMessage(std::move(message));
}

void HostBackend::OnRequest(ps::Message message) {
  const ps::Op op = message.meta.extension.op;
  const std::optional<size_t> place = plan_.PlaceOf(ps::RankOf(message.peer));
  Result<protocol::Call> call = protocol::ParseCallOfHost(std::move(message), *options_.codecs);
  if (!call.ok()) return odd_requests_.Warning("dropped a request: " + call.status().message());
  if (!place) return;  // no worker of this host
  if (op == ps::Op::kLeave) return OnGoodbye(*place, std::move(call.value()));
  sums_.Handle(*place, std::move(call.value()));
}

void HostBackend::OnGoodbye(size_t place, protocol::Call call) {
  Neighbour& neighbour = neighbours_[place];
  Part(place, call.extension.text);
  neighbour.goodbye = std::move(call);
  if (neighbour.asked == 0) return AnswerGoodbye(place);
  send_(protocol::MakePendingResponse(*neighbour.goodbye, "answers that it still owes"));
}

void HostBackend::AnswerGoodbye(size_t place) {
  const std::optional<protocol::Call>& goodbye = neighbours_[place].goodbye;
  if (goodbye) send_(protocol::MakeResponse(*goodbye, {}));
}

void HostBackend::Part(size_t place, const std::string& reason) {
  Neighbour& neighbour = neighbours_[place];
  if (std::exchange(neighbour.leaves, true)) return;
  const Status why = ps::LeftStatus(ps::WorkerId(plan_.ranks()[place]), reason);
  if (!reason.empty() || options_.reason_patience == Duration(0)) {
    Miss(place, why);
  } else {
    executor_->PostAt(executor_->Now() + options_.reason_patience,
                      [this, place, why, lives = std::weak_ptr(lives_)] {
                        if (!lives.expired()) Miss(place, why);
                      });
  }
  // It needs nothing of this worker.
  Told(place);
}

void HostBackend::Miss(size_t place, const Status& why) {
  if (neighbours_[place].gone) return;
  neighbours_[place].gone = why;
  sums_.OnWorkerLeft(place, why);
  EndMissed(place, why);
}

void HostBackend::EndMissed(size_t place, const Status& why) {
  for (Missed& missed : std::exchange(neighbours_[place].missed, {})) {
    executor_->Post([ends = std::move(missed), why] {
      ends.sent(why);
      ends.summed(why, {});
    });
  }
}

void HostBackend::OnWorkerLeft(int32_t rank, const Status& why) {
  const std::optional<size_t> place = plan_.PlaceOf(rank);
  if (!place || rank == options_.view->own.rank) return;
  Neighbour& neighbour = neighbours_[*place];
  // Leave counts no worker that left before.
  const bool known = std::exchange(neighbour.leaves, true);
  Miss(*place, why);
  requests_.FailTo(rank, neighbour.gone.value_or(why));
  if (!known) Told(*place);
}

void HostBackend::Leave(const std::string& reason, Done done) {
  sums_.Leave(ps::LeftStatus(ps::WorkerId(options_.view->own.rank), reason));
  leave_done_ = std::move(done);
  not_told_ = 1;  // this call
  for (size_t place = 0; place < neighbours_.size(); ++place) {
    const int32_t rank = plan_.ranks()[place];
    if (rank == options_.view->own.rank || neighbours_[place].leaves) continue;
    ++not_told_;
    SayGoodbye(place, reason);
  }
  if (--not_told_ == 0) executor_->Post([done = std::move(leave_done_)] { done(Status::Ok()); });
}

void HostBackend::SayGoodbye(size_t place, const std::string& reason) {
  ps::KvRequest request;
  request.server = plan_.ranks()[place];
  request.extension.op = ps::Op::kLeave;
  request.extension.text = reason;
  request.extension.body = protocol::Encode(ps::Op::kLeave, protocol::DataRequest{});
  goodbyes_.Send(std::move(request), [this, place, lives = std::weak_ptr(lives_)](
                                         const Status& status, const ps::Message&) {
    if (lives.expired()) return;
    if (!status.ok()) log_.Debug([&] { return status.message(); });
    Told(place);
  });
}

void HostBackend::Told(size_t place) {
  if (!leave_done_ || std::exchange(neighbours_[place].told, true)) return;
  if (--not_told_ > 0) return;
  executor_->Post([done = std::move(leave_done_)] { done(Status::Ok()); });
}

void HostBackend::Fail(const Status& status) {
  link_->Fail(status);
  failed_ = true;
  requests_.FailAll(status);
  sums_.Fail(status);
  for (size_t place = 0; place < neighbours_.size(); ++place) EndMissed(place, status);
}

// Every worker hears all decisions, but not all in their order.
void HostBackend::Hear(const std::string& next_layout) {
  const std::optional<protocol::Decision> decision = protocol::DecisionIn(next_layout);
  if (!decision || decision->number < decision_) return;
  decision_ = decision->number;
  sums_.SetCredit(decision->credit_bytes);
}

}  // namespace bs::backend
