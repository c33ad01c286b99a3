// Reports what is ready, and executes what is granted.
#include "backend/collective/collective_backend.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "codec/codec.h"
#include "protocol/data_body.h"
#include "protocol/next_layout.h"
#include "protocol/tensor.h"
#include "ps/text.h"

namespace bs::backend::collective {
namespace {

std::string Describe(const protocol::GrantedPiece& piece) {
  return "key=" + std::to_string(piece.key) + " round=" + std::to_string(piece.round) + " bytes " +
         std::to_string(piece.offset_bytes) + " to " +
         std::to_string(piece.offset_bytes + piece.size_bytes);
}

// A request that this rank waits for must not wait behind data.
constexpr Priority kMostUrgent = std::numeric_limits<Priority>::max();

}  // namespace

CollectiveBackend::CollectiveBackend(CollectiveOptions options, Executor* executor,
                                     std::unique_ptr<Backend> servers,
                                     std::unique_ptr<Collective> library, AskFn ask,
                                     const protocol::Rules& rules)
    : BackendBefore(std::move(servers)),
      options_(std::move(options)),
      plan_(options_.host ? &options_.host->plan : nullptr),
      in_order_(rules.grants_are_executed_in_order()),
      once_(rules.grants_are_executed_once()),
      adds_up_on_owners_(rules.library_adds_up_on_owners()),
      copies_wait_(rules.library_copies_wait_for_all()),
      gives_to_all_(rules.library_gives_sums_to_all()),
      executor_(executor),
      ask_(std::move(ask)),
      library_(std::move(library)) {
  if (!library_ || !options_.host || !options_.host->crosses) return;
  const auto stands_for = static_cast<uint32_t>(plan_->num_workers());
  copies_ = std::make_unique<HostCopies>(
      HostCopiesOptions{.stands_for = stands_for, .credit_bytes = options_.host->credit_bytes},
      behind(), library_.get(), executor_);
}

CollectiveBackend::~CollectiveBackend() { BS_CHECK(pending_.empty()); }

void CollectiveBackend::Prepare(Done done) {
  if (!options_.no_library.ok()) return done(options_.no_library);
  behind()->Prepare([this, done = std::move(done)](const Status& status) mutable {
    if (!status.ok() || !library_) return done(status);
    library_->Prepare(std::move(done));
  });
}

bool CollectiveBackend::IsSum(const protocol::Tensor& tensor, const Exchange& exchange) const {
  const bool sums = exchange.round > 0 && exchange.sent && exchange.summed;
  return sums && tensor.mode == Mode::kSynchronous && tensor.size_bytes > 0 && library_ &&
         library_->Sums(tensor.dtype);
}

Carriers CollectiveBackend::CarriersOf(const protocol::Tensor& tensor, const Coding& coding,
                                       const Partition& partition) const {
  if (!by_library_.contains(tensor.key)) return behind()->CarriersOf(tensor, coding, partition);
  return {};  // the servers have no part in it
}

void CollectiveBackend::Start(const protocol::Tensor& tensor, Exchange exchange) {
  if (!failure_.ok()) return RefuseLater(executor_, std::move(exchange), failure_);
  const bool sums = IsSum(tensor, exchange);
  // Servers count the rounds of a key that is to be coded from its first round on.
  if (sums && exchange.coder.coding.codec == 0) return Add(tensor, std::move(exchange));
  // Servers know nothing of the rounds that the library has summed.
  const bool changes = exchange.round > 0 && by_library_.contains(tensor.key);
  if (!changes) {
    if (sums && exchange.partition.index == 0) TellCoded(tensor, &exchange);
    return behind()->Start(tensor, std::move(exchange));
  }
  const std::string what =
      "key=" + std::to_string(tensor.key) + " round=" + std::to_string(exchange.round);
  RefuseLater(
      executor_, std::move(exchange),
      Status::FailedPrecondition(what + ": its sums began without compression, and cannot be "
                                        "compressed later where a library makes them; set gradient "
                                        "compression before the key's first round"));
}

void CollectiveBackend::TellCoded(const protocol::Tensor& tensor, Exchange* exchange) {
  ready_.push_back({.key = tensor.key,
                    .round = exchange->round,
                    .size_bytes = tensor.size_bytes,
                    .dtype = tensor.dtype,
                    .coded = codec::Builtin().Describe(exchange->coder.coding)});
  ++num_coded_;
  exchange->summed = [this, alive = std::weak_ptr<bool>(alive_),
                      summed = std::move(exchange->summed)](const Status& status,
                                                            const std::string& next_layout) {
    if (!alive.expired()) --num_coded_;
    summed(status, next_layout);
  };
  RequestReport();
}

void CollectiveBackend::Add(const protocol::Tensor& tensor, Exchange exchange) {
  Pending& pending = pending_[tensor.key];
  const Partition place = exchange.partition;
  if (pending.num_started == 0) {
    by_library_.insert(tensor.key);
    pending.round = exchange.round;
    pending.dtype = tensor.dtype;
    pending.size_bytes = tensor.size_bytes;
    if (options_.host) pending.tensor = protocol::WithoutPartitions(tensor);
    pending.in = exchange.in.data() - place.offset_bytes;
    pending.out = exchange.out.data() - place.offset_bytes;
    pending.parts.resize(tensor.partitions.size());
  }
  BS_CHECK(pending.round == exchange.round);
  BS_CHECK(pending.in + place.offset_bytes == exchange.in.data());
  BS_CHECK(pending.out + place.offset_bytes == exchange.out.data());
  if (place.index == 0) pending.next_layout = std::move(exchange.next_layout);
  const Priority priority = exchange.priority;
  released_.push_back(std::move(exchange.released));
  pending.parts.at(place.index) = {.exchange = std::move(exchange),
                                   .missing_bytes = place.size_bytes};
  if (++pending.num_started == pending.parts.size()) {
    ready_.push_back({.key = tensor.key,
                      .round = pending.round,
                      .size_bytes = pending.size_bytes,
                      .dtype = pending.dtype,
                      .priority = priority,
                      .next_layout = std::exchange(pending.next_layout, {})});
  }
  RequestReport();
}

void CollectiveBackend::RequestReport() {
  if (std::exchange(report_posted_, true)) return;
  executor_->Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    report_posted_ = false;
    Report();
  });
}

void CollectiveBackend::Report() {
  for (const auto& released : std::exchange(released_, {})) released(Status::Ok());
  if (!failure_.ok()) return;
  const bool finished = options_.rank == 0 && finished_ > reported_finished_;
  const auto waiting = [this] { return num_waiting_ + num_crossing_ + num_coded_ > 0; };
  const bool waits = waiting() && num_open_ < kOpenRequests;
  if (ready_.empty() && !finished && !waits) return;
  if (num_open_ >= kMostOpenRequests) return;  // a response is on its way
  reported_finished_ = finished_;
  num_waiting_ += static_cast<size_t>(
      std::ranges::count_if(ready_, [](const auto& tensor) { return tensor.coded.empty(); }));
  Send({.tensors = std::exchange(ready_, {}), .received = next_operation_, .finished = finished_});
  // The leader can grant at any time, so it always has a request to respond to.
  if (waiting() && num_open_ < kOpenRequests) RequestReport();
}

void CollectiveBackend::Send(protocol::Readiness readiness) {
  // Requests may overtake each other.
  if (options_.rank == 0 && !is_heard_) readiness.division = options_.division;
  protocol::DataRequest body;
  body.ready_number = next_ready_++;
  body.ready = protocol::Encode(readiness);
  ps::KvRequest request;
  request.server = 0;
  request.priority = kMostUrgent;
  request.extension.op = ps::Op::kReady;
  request.extension.body = protocol::Encode(ps::Op::kReady, body);
  ++num_open_;
  ask_(std::move(request), [this, alive = std::weak_ptr<bool>(alive_)](
                               const Status& status, const ps::Message& response) {
    if (!alive.expired()) OnResponse(status, response);
  });
}

void CollectiveBackend::OnResponse(const Status& status, const ps::Message& response) {
  --num_open_;
  if (!failure_.ok()) return;
  if (!status.ok()) return GiveUp(status);
  is_heard_ = true;
  Result<protocol::DataResponse> body =
      protocol::DecodeResponse(ps::Op::kReady, response.meta.extension.body);
  Result<protocol::Grants> grants = body.ok() ? protocol::DecodeGrants(body.value().grants)
                                              : Result<protocol::Grants>(body.status());
  if (!grants.ok()) {
    return GiveUp(Status::Internal("server 0 granted nonsense: " + grants.status().message()));
  }
  OnGrants(std::move(grants.value()));
  RequestReport();
}

void CollectiveBackend::OnGrants(protocol::Grants grants) {
  uint64_t number = grants.first;
  for (protocol::GrantedOperation& operation : grants.operations) {
    const bool repeats = number < next_operation_;  // its first copy came
    if (!in_order_ || (repeats && !once_)) {
      next_operation_ = std::max(next_operation_, number + 1);
      Execute(number, std::move(operation));
    } else if (!repeats) {
      early_.try_emplace(number, std::move(operation));
    }
    ++number;
  }
  while (!early_.empty() && early_.begin()->first == next_operation_) {
    auto next = early_.extract(early_.begin());
    Execute(next_operation_++, std::move(next.mapped()));
  }
}

void CollectiveBackend::Execute(uint64_t number, protocol::GrantedOperation operation) {
  if (!failure_.ok()) return;
  if (operation.empty()) return GiveUp(Status::Internal("server 0 granted an empty operation"));
  std::vector<Piece> pieces;
  pieces.reserve(operation.size());
  for (const protocol::GrantedPiece& granted : operation) {
    if (const Status wrong = AddPieces(granted, &pieces); !wrong.ok()) return GiveUp(wrong);
  }
  const auto dtype_of = [this](const auto& granted) { return pending_.at(granted.key).dtype; };
  const DType dtype = dtype_of(operation.front());
  if (std::ranges::any_of(operation, [&](const auto& p) { return dtype_of(p) != dtype; })) {
    return GiveUp(Status::Internal("server 0 granted arrays of several dtypes as one"));
  }
  for (const protocol::GrantedPiece& granted : operation) ++pending_.at(granted.key).in_library;
  if (under_way_.empty()) progress_ = executor_->Now();
  under_way_.emplace(number, operation.front());
  if (!watches_) Watch();
  if (!copies_wait_) AdvanceEarly(operation);
  library_->Begin(std::move(pieces), dtype, number,
                  [this, number, operation = std::move(operation)](const Status& status) {
                    OnSummed(number, operation, status);
                  });
}

Status CollectiveBackend::AddPieces(const protocol::GrantedPiece& granted,
                                    std::vector<Piece>* pieces) {
  const auto wrong = [&](const std::string& what) {
    return Status::Internal("worker " + std::to_string(options_.rank) + ": server 0 granted " +
                            Describe(granted) + ", " + what);
  };
  const auto found = pending_.find(granted.key);
  const bool is_ready = found != pending_.end() && found->second.round == granted.round &&
                        found->second.num_started == found->second.parts.size();
  if (!is_ready) return wrong("which is not ready here");
  Pending& pending = found->second;
  if (granted.part > 0) {
    const Part* const part = TakePart(granted, &pending);
    if (part == nullptr) return wrong("and its sum is not there");
    const Partition& place = part->exchange.partition;
    const std::span<std::byte> bytes(pending.out + place.offset_bytes + granted.offset_bytes,
                                     granted.size_bytes);
    pieces->push_back({.in = bytes,
                       .out = bytes,
                       .kind = PieceKind::kBroadcast,
                       .root = static_cast<int32_t>(plan_->OwnersPlace(granted.key, place.index))});
    return Status::Ok();
  }
  if (granted.offset_bytes != pending.granted_bytes || granted.size_bytes == 0 ||
      granted.size_bytes > pending.size_bytes - pending.granted_bytes ||
      granted.size_bytes % SizeOf(pending.dtype) != 0) {
    return wrong("of " + std::to_string(pending.size_bytes) + ", after " +
                 std::to_string(pending.granted_bytes));
  }
  pending.granted_bytes += granted.size_bytes;
  if (pending.granted_bytes == pending.size_bytes) --num_waiting_;
  if (granted.offset_bytes == 0) pending.next_layout = granted.next_layout;
  if (options_.host) {
    AddReductions(granted, pending, pieces);
  } else {
    pieces->push_back({.in = {pending.in + granted.offset_bytes, granted.size_bytes},
                       .out = {pending.out + granted.offset_bytes, granted.size_bytes}});
  }
  return Status::Ok();
}

void CollectiveBackend::AddReductions(const protocol::GrantedPiece& granted, const Pending& pending,
                                      std::vector<Piece>* pieces) const {
  const HostPlan& plan = *plan_;
  const uint64_t end_bytes = granted.offset_bytes + granted.size_bytes;
  for (const Part& part : pending.parts) {
    const Partition& place = part.exchange.partition;
    const uint64_t from = std::max(granted.offset_bytes, place.offset_bytes);
    const uint64_t to = std::min(end_bytes, place.offset_bytes + place.size_bytes);
    if (from >= to) continue;
    size_t root = plan.OwnersPlace(granted.key, place.index);
    if (!adds_up_on_owners_) root = (root + 1) % plan.num_workers();
    pieces->push_back({.in = {pending.in + from, to - from},
                       .out = {pending.out + from, to - from},
                       .kind = PieceKind::kReduce,
                       .root = static_cast<int32_t>(root)});
  }
}

const CollectiveBackend::Part* CollectiveBackend::TakePart(const protocol::GrantedPiece& granted,
                                                           Pending* pending) {
  if (granted.part > pending->parts.size()) return nullptr;
  Part& part = pending->parts[granted.part - 1];
  const uint64_t size_bytes = part.exchange.partition.size_bytes;
  if (!part.gives || granted.offset_bytes != part.granted_bytes || granted.size_bytes == 0 ||
      granted.size_bytes > size_bytes - part.granted_bytes ||
      granted.size_bytes % SizeOf(pending->dtype) != 0) {
    return nullptr;
  }
  part.granted_bytes += granted.size_bytes;
  if (part.granted_bytes == size_bytes) --num_waiting_;
  return &part;
}

void CollectiveBackend::AdvanceEarly(const protocol::GrantedOperation& operation) {
  Ends ends;
  for (const protocol::GrantedPiece& piece : operation) {
    if (piece.part == 0) Advance(piece, &pending_.at(piece.key), &ends);
  }
  for (const auto& sent : ends.sent) sent(Status::Ok());
}

void CollectiveBackend::OnSummed(uint64_t number, const protocol::GrantedOperation& operation,
                                 const Status& status) {
  if (!status.ok()) {
    GiveUp(Status(status.code(), "worker " + std::to_string(options_.rank) + ": sum " +
                                     std::to_string(number) + " (" + Describe(operation.front()) +
                                     "): " + status.message()));
  }
  under_way_.erase(number);
  progress_ = executor_->Now();
  finished_early_.insert(number);
  while (finished_early_.erase(finished_) > 0) ++finished_;
  Ends ends;
  for (const protocol::GrantedPiece& piece : operation) {
    const auto found = pending_.find(piece.key);
    if (found == pending_.end()) continue;
    Pending& pending = found->second;
    --pending.in_library;
    if (!failure_.ok()) {
      EndFailed(&pending);
      if (pending.in_library == 0) pending_.erase(found);
      continue;
    }
    if (copies_wait_ || piece.part > 0) Advance(piece, &pending, &ends);
    if (pending.num_ended == pending.parts.size()) pending_.erase(found);
  }
  RequestReport();
  for (const auto& sent : ends.sent) sent(Status::Ok());
  for (const auto& [summed, next_layout] : ends.summed) summed(Status::Ok(), next_layout);
}

void CollectiveBackend::Advance(const protocol::GrantedPiece& piece, Pending* pending, Ends* ends) {
  if (piece.part > 0) {
    Part& part = pending->parts[piece.part - 1];
    part.missing_bytes -= piece.size_bytes;
    if (part.missing_bytes == 0) EndPart(pending, piece.part - 1, ends);
    return;
  }
  summed_bytes_ += piece.size_bytes;
  for (const uint32_t index : Complete(pending, piece.offset_bytes, piece.size_bytes)) {
    ends->sent.push_back(std::exchange(pending->parts[index].exchange.sent, {}));
    options_.host ? OnAdded(pending, index) : EndPart(pending, index, ends);
  }
}

void CollectiveBackend::EndPart(Pending* pending, uint32_t index, Ends* ends) {
  Exchange ended = std::move(pending->parts[index].exchange);
  pending->parts[index].exchange = {.partition = ended.partition};
  ++pending->num_ended;
  std::string next_layout = index == 0 ? pending->next_layout : std::string();
  if (!next_layout.empty()) Hear(next_layout);
  ends->summed.push_back({std::move(ended.summed), std::move(next_layout)});
}

void CollectiveBackend::OnAdded(Pending* pending, uint32_t index) {
  const Key key = pending->tensor.key;
  if (!copies_ || plan_->OwnerOf(key, index) != options_.rank) return Give(pending, index);
  const Exchange& exchange = pending->parts[index].exchange;
  ++pending->in_library;
  ++num_crossing_;
  copies_->Cross({.tensor = pending->tensor,
                  .partition = exchange.partition,
                  .round = exchange.round,
                  .priority = exchange.priority,
                  .coding = exchange.coder.coding,
                  .memory = exchange.out},
                 [this, key, index](const Status& status) { OnCrossed(key, index, status); });
}

void CollectiveBackend::OnCrossed(Key key, uint32_t index, const Status& status) {
  --num_crossing_;
  if (!status.ok()) GiveUp(status);
  const auto found = pending_.find(key);
  Pending& pending = found->second;
  --pending.in_library;
  if (failure_.ok()) return Give(&pending, index);
  EndFailed(&pending);
  if (pending.in_library == 0) pending_.erase(found);
}

void CollectiveBackend::Give(Pending* pending, uint32_t index) {
  Part& part = pending->parts[index];
  part.gives = true;
  part.missing_bytes = part.exchange.partition.size_bytes;
  if (!gives_to_all_ && options_.rank == plan_->ranks().back()) return;
  ready_.push_back({.key = pending->tensor.key,
                    .round = pending->round,
                    .size_bytes = part.missing_bytes,
                    .dtype = pending->dtype,
                    .priority = part.exchange.priority,
                    .part = index + 1});
  RequestReport();
}

// Every worker hears all decisions, but not all in their order.
void CollectiveBackend::Hear(const std::string& next_layout) {
  const std::optional<protocol::Decision> decision = protocol::DecisionIn(next_layout);
  if (!copies_ || !decision || decision->number < decision_) return;
  decision_ = decision->number;
  copies_->SetCredit(decision->credit_bytes);
}

std::vector<uint32_t> CollectiveBackend::Complete(Pending* pending, uint64_t offset_bytes,
                                                  uint64_t size_bytes) {
  const uint64_t end_bytes = offset_bytes + size_bytes;
  std::vector<uint32_t> complete;
  const auto begins_behind = [](uint64_t offset, const Part& part) {
    return offset < part.exchange.partition.offset_bytes;
  };
  // The part that contains the first byte.
  auto part =
      std::upper_bound(pending->parts.begin(), pending->parts.end(), offset_bytes, begins_behind) -
      1;
  for (; part != pending->parts.end(); ++part) {
    const Partition& place = part->exchange.partition;
    if (place.offset_bytes >= end_bytes) break;
    const uint64_t end = std::min(end_bytes, place.offset_bytes + place.size_bytes);
    part->missing_bytes -= end - std::max(offset_bytes, place.offset_bytes);
    if (part->missing_bytes == 0) complete.push_back(place.index);
  }
  return complete;
}

void CollectiveBackend::EndFailed(Pending* pending) {
  if (pending->in_library > 0) return;
  for (Part& part : pending->parts) {
    if (part.exchange.summed) RefuseLater(executor_, std::move(part.exchange), failure_);
  }
}

void CollectiveBackend::Watch() {
  watches_ = true;
  executor_->PostAt(executor_->Now() + options_.deadline / 4,
                    [this, alive = std::weak_ptr<bool>(alive_)] {
                      if (alive.expired()) return;
                      watches_ = false;
                      if (failure_.ok()) LookForEnds();
                    });
}

void CollectiveBackend::LookForEnds() {
  // A rank that has nothing under way may have ended a sum that is late on its peers.
  if (under_way_.empty()) return Tell(finished_);
  if (executor_->Now() - progress_ >= options_.deadline) {
    // The leader knows which ranks have not joined.  If it does not say so, this rank goes alone.
    if (std::exchange(told_late_, true)) return GiveUp(Late());
    Send({.received = next_operation_,
          .finished = finished_,
          .joined = num_joined_,
          .failure = Late(),
          .late = true});
  } else {
    library_->TellBegun([this, alive = std::weak_ptr<bool>(alive_)](uint64_t num_begun) {
      if (!alive.expired() && failure_.ok()) Tell(std::max(num_begun, finished_));
    });
  }
  Watch();
}

void CollectiveBackend::Tell(uint64_t num_joined) {
  if (num_joined <= num_joined_) return;
  num_joined_ = num_joined;
  Send({.received = next_operation_, .finished = finished_, .joined = num_joined_});
}

Status CollectiveBackend::Late() const {
  const auto& [number, first] = *under_way_.begin();
  const std::string hint = library_->hint();
  return Status::DeadlineExceeded("sum " + std::to_string(number) + " (" + Describe(first) +
                                  ") has not ended for " + ps::TextOf(options_.deadline) +
                                  (hint.empty() ? "" : " (" + hint + ")"));
}

void CollectiveBackend::GiveUp(const Status& why) {
  if (!failure_.ok()) return;
  Send({.received = next_operation_, .finished = finished_, .failure = why});
  Fail(why);
}

void CollectiveBackend::Fail(const Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  behind()->Fail(status);
  if (library_) library_->Abort(status);
  if (copies_) copies_->Fail(status);
  ready_.clear();
  early_.clear();
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    EndFailed(&pending->second);
    pending = pending->second.in_library == 0 ? pending_.erase(pending) : std::next(pending);
  }
}

void CollectiveBackend::Release(const protocol::Tensor& retired, bool given_back, Done done) {
  if (given_back) by_library_.erase(retired.key);
  behind()->Release(retired, given_back, std::move(done));
}

void CollectiveBackend::Measure(Metrics* metrics) const {
  behind()->Measure(metrics);
  metrics->Add("library_operations_total", static_cast<double>(finished_));
  metrics->Add("library_bytes_total", static_cast<double>(summed_bytes_));
  const uint64_t copied_bytes = copies_ ? copies_->copied_bytes() : 0;
  metrics->Add("library_copied_bytes_total", static_cast<double>(copied_bytes));
}

}  // namespace bs::backend::collective
