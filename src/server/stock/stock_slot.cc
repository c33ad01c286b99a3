// One key of stock MXNet workers: takes pushes, completes rounds, answers pulls.
#include "server/stock/stock_slot.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/count_of.h"
#include "protocol/describe.h"
#include "ps/text.h"
#include "server/optimizer/optimizer.h"

namespace bs::server {
namespace {

// Limit of a worker's requests for a key that wait; engines keep a few under way.
constexpr size_t kMostWaitingRequests = 4096;
// Answers say their length in 31 bits.
constexpr uint64_t kMaxValueBytes = std::numeric_limits<int32_t>::max();

}  // namespace

StockSlot::StockSlot(StockState* state, uint64_t key) : state_(state), key_(key) {}

void StockSlot::Handle(StockCall call) {
  if (call.push && call.layout == StockLayout::kTwoBit && !(state_->threshold > 0)) {
    return state_->fail(Status::FailedPrecondition(
        DescribeStockCall(call) +
        ": it is compressed, but set_gradient_compression has not been called on the worker of "
        "rank 0"));
  }
  if (!value_) return call.push ? Initialise(std::move(call)) : WaitForInit(std::move(call));
  const bool again = IsInitialAgain(call);
  const Status wrong = again ? CheckStockCall(shape_, call) : Check(call);
  if (!wrong.ok()) return state_->fail(wrong);
  if (again) return Answer(&call);
  if (call.push) return Push(std::move(call));
  // A worker's pull sees the pushes that it made before.
  Party* const party = FindParty(call.from);
  if (party == nullptr || party->calls.empty()) return Answer(&call);
  if (MayWaitIn(*party, call)) party->calls.push_back(Counted(std::move(call)));
}

bool StockSlot::MayWait(const StockCall& call, size_t waiting, const char* owners) {
  const bool fits = state_->queued_bytes + KeptBytes(call) <= state_->max_queued_bytes;
  if (waiting < kMostWaitingRequests && fits) return true;
  state_->fail(Status::ResourceExhausted(
      DescribeStockCall(call) + ": what waits for rounds to come, " + std::to_string(waiting) +
      " requests of " + owners + " for this key and " + CountOf(state_->queued_bytes, "byte") +
      " of all workers for any, does not fit into memory: wait for some of it "
      "(mx.nd.waitall) "
      "before asking for more"));
  return false;
}

bool StockSlot::IsInitialAgain(const StockCall& call) {
  const bool first = call.push && call.from.worker_id == ps::WorkerId(0);
  return first && std::exchange(initial_again_, false);
}

void StockSlot::OnWorkerVacant(int32_t worker_id) {
  std::erase_if(early_, [&](const WaitingCall& call) { return call->from.worker_id == worker_id; });
  std::erase_if(turns_, [&](const StockParty& who) { return who.worker_id == worker_id; });
  for (auto& [who, party] : parties_) {
    if (who.worker_id != worker_id) continue;
    party.calls.erase(party.calls.begin() + (party.in ? 1 : 0), party.calls.end());
    party.lost = party.in;
  }
  // MXNet's store gives the initial values again, and drops none of its own pushes.
  if (value_) replaced_.insert(ps::RankOf(worker_id));
  if (worker_id == ps::WorkerId(0)) initial_again_ = value_ != nullptr;
}

Status StockSlot::Check(const StockCall& call) const {
  if (const Status wrong = CheckStockCall(shape_, call); !wrong.ok()) return wrong;
  if (!call.push) return Status::Ok();
  if (state_->optimizer && !CanUpdate(shape_.dtype)) {
    return Status::InvalidArgument(
        DescribeStockCall(call) + ": " +
        protocol::DescribeArray(static_cast<uint32_t>(shape_.dtype), shape_.size_bytes) +
        " cannot be updated, only float32, float64 and float16 can");
  }
  if (state_->synchronous || state_->optimizer) return Status::Ok();
  return Status::FailedPrecondition(
      DescribeStockCall(call) +
      ": a dist_async store needs an optimizer on the servers: call set_optimizer before the first "
      "push");
}

Result<MemoryRoom::Promise> StockSlot::AskForMemory(const StockCall& call,
                                                    const StockShape& shape) const {
  if (shape.size_bytes > kMaxValueBytes) {
    return Status::InvalidArgument(DescribeStockCall(call) + ": " +
                                   CountOf(shape.size_bytes, "byte") + " are more than the " +
                                   std::to_string(kMaxValueBytes) + " that a key may have");
  }
  const uint64_t sum_bytes = SumBytes(shape, state_->wide);
  Result<MemoryRoom::Promise> memory = state_->AskForMemory(shape.size_bytes + sum_bytes);
  if (memory.ok()) return memory;
  return Status(memory.status().code(),
                DescribeStockCall(call) + ": value and sum: its " + memory.status().message());
}

Result<MemoryRoom::Promise> StockSlot::AskForUpdate() const {
  Result<MemoryRoom::Promise> memory =
      state_->AskForMemory(value_->UpdateBytes(gradient_.sum.dtype != shape_.dtype));
  if (memory.ok()) return memory;
  return Status(memory.status().code(),
                "key " + std::to_string(key_) +
                    ": the copy of it that the optimizer on the server changes: its " +
                    memory.status().message());
}

void StockSlot::Initialise(StockCall call) {
  const Result<StockShape> shape = ShapeOfInit(call);
  if (!shape.ok()) return state_->fail(shape.status());
  Result<MemoryRoom::Promise> memory = AskForMemory(call, shape.value());
  if (!memory.ok()) return state_->fail(memory.status());
  shape_ = shape.value();
  auto value = std::make_unique<StockValue>(
      StockValue::Place{state_->numa_node, state_->view.get()}, key_, shape_);
  value->Initialise(call, state_->threshold);
  value_ = std::move(value);
  sum_memory_ = std::move(memory.value());
  sum_memory_.Used(shape_.size_bytes);
  Answer(&call);
  for (WaitingCall& early : std::exchange(early_, {})) {
    early.EndWait();
    Handle(std::move(*early));
  }
}

void StockSlot::WaitForInit(StockCall call) {
  if (!MayWait(call, early_.size(), "all workers")) return;
  if (early_.empty()) {
    since_ = state_->executor->Now();
    state_->log.Warning(DescribeStockCall(call) +
                        ": no worker has initialised this key yet, so it waits");
  }
  early_.push_back(Counted(std::move(call)));
}

void StockSlot::Push(StockCall call) {
  Party* party = FindParty(call.from);
  if (party == nullptr && parties_.size() >= static_cast<size_t>(state_->view->num_workers())) {
    return state_->fail(Status::FailedPrecondition(
        DescribeStockCall(call) + ": this key is pushed by " +
        CountOf(state_->view->num_workers(), "other worker") + " already (DMLC_NUM_WORKER)"));
  }
  if (party == nullptr) party = &parties_[call.from];
  const bool waits = !party->calls.empty();
  if (waits && !MayWaitIn(*party, call)) return;
  if (!state_->synchronous) turns_.push_back(call.from);
  party->calls.push_back(Counted(std::move(call)));
  if (!waits) Advance();
}

std::optional<TimePoint> StockSlot::due() const {
  return waits() ? std::optional(since_ + state_->straggler_timeout) : std::nullopt;
}

Status StockSlot::Overdue() const {
  std::string text = "key " + std::to_string(key_) + ": after " +
                     ps::TextOf(state_->straggler_timeout) + " still waiting for " + WaitsFor() +
                     " (BYTESCHEDULER_STRAGGLER_TIMEOUT)";
  if (state_->synchronous && num_in_ > 0 && !updating_ && !replaced_.empty()) {
    text += "; another has the place of " +
            protocol::DescribeWorkers({replaced_.begin(), replaced_.end()}) +
            ", and has perhaps pushed this key once more or less than it had to after the lost "
            "one: start the job again from your last checkpoint";
  }
  return Status::DeadlineExceeded(text);
}

std::string StockSlot::WaitsFor() const {
  if (!value_) return "a worker to initialise it";
  if (updating_) return "the optimizer on the server to update it";
  // Each worker has one store as a rule; the second store of a process is named like a worker.
  std::vector<int32_t> missing;
  std::vector<bool> seen(static_cast<size_t>(state_->view->num_workers()), false);
  for (const auto& [who, party] : parties_) {
    seen[static_cast<size_t>(ps::RankOf(who.worker_id))] = true;
    if (!party.in) missing.push_back(ps::RankOf(who.worker_id));
  }
  size_t unknown = seen.size() - std::min(seen.size(), parties_.size());
  for (size_t rank = 0; rank < seen.size() && unknown > 0; ++rank) {
    if (seen[rank]) continue;
    missing.push_back(static_cast<int32_t>(rank));
    --unknown;
  }
  return protocol::DescribeWorkers(missing) + " to push it";
}

StockSlot::Party* StockSlot::FindParty(const StockParty& who) {
  const auto it = parties_.find(who);
  return it == parties_.end() ? nullptr : &it->second;
}

void StockSlot::Advance() {
  while (!updating_) {
    AdvanceParties();
    if (state_->synchronous ? num_in_ < state_->view->num_workers() : !TakeTurn()) return;
    Complete();
  }
}

void StockSlot::AdvanceParties() {
  for (auto& [who, party] : parties_) {
    if (party.in) continue;
    while (!party.calls.empty() && !party.calls.front()->push) {
      Answer(&*party.calls.front());
      party.calls.pop_front();
    }
    if (!party.calls.empty() && state_->synchronous) Contribute(&party);
  }
}

// Without kSyncMode: in the order of arrival.
bool StockSlot::TakeTurn() {
  if (turns_.empty()) return false;
  Party& party = parties_[turns_.front()];
  turns_.pop_front();
  value_->Prepare(state_->wide, &gradient_);
  party.calls.front().EndWait();
  party.in = true;
  Add(&party);
  return true;
}

// Contributions are summed in the order of the parties, as far as there is memory to hold
// contributions that come before their turn.  Two contributions need no order: a + b and b + a have
// the same bits.
void StockSlot::Contribute(Party* party) {
  if (gradient_.sum.empty) value_->Prepare(state_->wide, &gradient_);
  const uint64_t size_bytes = party->calls.front()->values.size();
  const bool fits = state_->deterministic || state_->early_bytes + size_bytes <= state_->hold_bytes;
  party->calls.front().EndWait();
  party->in = true;
  if (num_in_ == 0) since_ = state_->executor->Now();
  ++num_in_;
  if (state_->view->num_workers() > 2 && fits) {
    party->early = true;
    state_->early_bytes += size_bytes;
  } else {
    Add(party);
  }
  AddHeld();
}

void StockSlot::Add(Party* party) {
  StockCall& call = *party->calls.front();
  AddPush(shape_, call, state_->threshold, &gradient_.sum, &state_->scratch);
  call.values = ps::Frame();
  sum_memory_.Used(sum_memory_.size_bytes());
}

void StockSlot::AddHeld() {
  // The first of the order is unknown until every worker has pushed once.
  if (parties_.size() < static_cast<size_t>(state_->view->num_workers())) return;
  for (auto& [who, party] : parties_) {
    if (!party.in) return;
    if (!std::exchange(party.early, false)) continue;
    state_->early_bytes -= party.calls.front()->values.size();
    Add(&party);
  }
}

void StockSlot::Complete() {
  if (!state_->optimizer) {
    value_->Replace(&gradient_);
    return Finish();
  }
  updating_ = true;  // for good if it fails, which ends the job
  since_ = state_->executor->Now();
  Result<MemoryRoom::Promise> memory = AskForUpdate();
  if (!memory.ok()) return state_->fail(memory.status());
  update_memory_ = std::move(memory.value());
  value_->Update(state_->hosted.get(), state_->optimizer, gradient_, state_->executor,
                 [this](const Status& status) { EndUpdate(status); });
}

void StockSlot::EndUpdate(const Status& status) {
  if (!status.ok()) {
    return state_->fail(Status(
        status.code(),
        "key " + std::to_string(key_) + ": the optimizer on the server: " + status.message()));
  }
  update_memory_ = {};
  updating_ = false;
  Finish();
  Advance();
}

// Answers the parties whose pushes made the round.
void StockSlot::Finish() {
  num_in_ = 0;
  gradient_.sum.empty = true;
  std::vector<StockCall> done;  // most urgent first, equal priorities in the order of parties
  for (auto& [who, party] : parties_) {
    if (!std::exchange(party.in, false)) continue;
    if (std::exchange(party.lost, false)) {
      party.calls.pop_front();
      continue;
    }
    const auto behind = std::upper_bound(
        done.begin(), done.end(), *party.calls.front(),
        [](const StockCall& l, const StockCall& r) { return l.meta.priority > r.meta.priority; });
    done.insert(behind, std::move(*party.calls.front()));
    party.calls.pop_front();
  }
  for (StockCall& call : done) Answer(&call);
}

}  // namespace bs::server
