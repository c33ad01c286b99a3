// One key of stock MXNet workers: takes pushes, completes rounds, answers pulls.
#include "server/stock_slot.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "reduce/reduce.h"
#include "server/describe.h"

namespace bs::server {
namespace {

// Requests of one worker for one key that may wait; engines keep a few under way.
constexpr size_t kMostWaiting = 4096;
// Answers say their length in 31 bits.
constexpr uint64_t kMaxValueBytes = std::numeric_limits<int32_t>::max();

}  // namespace

StockSlot::StockSlot(StockState* state, uint64_t key) : state_(state), key_(key) {}

void StockSlot::Handle(StockCall call) {
  if (call.push && call.layout == StockLayout::kTwoBit && !(state_->threshold > 0)) {
    return state_->fail(Status::FailedPrecondition(
        DescribeStockCall(call) +
        ": it is compressed, but set_gradient_compression has not been called "
        "on the worker of rank 0"));
  }
  if (!initialised()) {
    return call.push ? Initialise(std::move(call)) : WaitForInit(std::move(call));
  }
  if (const Status wrong = Check(call); !wrong.ok()) return state_->fail(wrong);
  if (call.push) return Push(std::move(call));
  // A worker's pull sees the pushes that it made before.
  Party* const party = FindParty(call.from);
  if (party == nullptr || party->calls.empty()) return Answer(&call);
  party->calls.push_back(std::move(call));
}

Status StockSlot::Check(const StockCall& call) const {
  if (const Status wrong = CheckStockCall(shape_, call); !wrong.ok()) return wrong;
  if (!call.push) return Status::Ok();
  if (state_->has_optimizer) {
    return Status::FailedPrecondition(
        DescribeStockCall(call) +
        ": set_optimizer was called, but these servers do not run MXNet's optimizers: update on "
        "the workers (MXNET_UPDATE_ON_KVSTORE=0, or update_on_kvstore=False), or wrap the store, "
        "kvs = ScheduledKVS(kvs)");
  }
  if (state_->synchronous) return Status::Ok();
  return Status::FailedPrecondition(
      DescribeStockCall(call) +
      ": a dist_async store needs an optimizer on the servers: call set_optimizer before the first "
      "push");
}

void StockSlot::Initialise(StockCall call) {
  const Result<StockShape> shape = ShapeOfInit(call);
  if (!shape.ok()) return state_->fail(shape.status());
  if (shape.value().size_bytes > kMaxValueBytes) {
    return state_->fail(Status::InvalidArgument(
        DescribeStockCall(call) + ": " + std::to_string(shape.value().size_bytes) +
        " bytes are more than the " + std::to_string(kMaxValueBytes) + " that a key may have"));
  }
  auto value =
      std::make_shared<SumBuffer>(shape.value().size_bytes, state_->numa_node, state_->num_workers);
  TakeInit(shape.value(), call, state_->threshold, value->data());
  shape_ = shape.value();
  value_ = std::move(value);
  Answer(&call);
  for (StockCall& early : std::exchange(early_, {})) Handle(std::move(early));
}

void StockSlot::WaitForInit(StockCall call) {
  if (early_.size() >= kMostWaiting) {
    return state_->fail(Status::ResourceExhausted(DescribeStockCall(call) +
                                                  ": too many pulls wait for its first push"));
  }
  if (early_.empty()) {
    state_->log.Warning(DescribeStockCall(call) +
                        ": no worker has initialised this key yet, so it waits");
  }
  early_.push_back(std::move(call));
}

void StockSlot::Push(StockCall call) {
  Party* party = FindParty(call.from);
  if (party == nullptr && parties_.size() >= static_cast<size_t>(state_->num_workers)) {
    return state_->fail(Status::FailedPrecondition(
        DescribeStockCall(call) + ": " + std::to_string(state_->num_workers) +
        " other workers push this key already (DMLC_NUM_WORKER)"));
  }
  if (party == nullptr) party = &parties_[call.from];
  const bool waits = !party->calls.empty();
  if (waits && (party->calls.size() >= kMostWaiting ||
                state_->queued_bytes + call.values.size() > state_->max_queued_bytes)) {
    return state_->fail(
        Status::ResourceExhausted(DescribeStockCall(call) +
                                  ": the pushes of rounds to come do not fit into memory: wait for "
                                  "some of them (mx.nd.waitall) before pushing again"));
  }
  state_->queued_bytes += call.values.size();
  party->calls.push_back(std::move(call));
  if (!waits) Advance();
}

StockSlot::Party* StockSlot::FindParty(const StockParty& who) {
  const auto it = parties_.find(who);
  return it == parties_.end() ? nullptr : &it->second;
}

void StockSlot::Advance() {
  for (;;) {
    for (auto& [who, party] : parties_) {
      if (party.in) continue;
      while (!party.calls.empty() && !party.calls.front().push) {
        Answer(&party.calls.front());
        party.calls.pop_front();
      }
      if (!party.calls.empty()) Contribute(&party);
    }
    if (num_in_ < state_->num_workers) return;
    Complete();
  }
}

// Contributions are summed in the order of the parties, as far as there is memory to hold those
// that come before their turn.  Two need no order: a + b and b + a have the same bits.
void StockSlot::Contribute(Party* party) {
  if (sum_state_.empty) PrepareSum();
  const uint64_t size_bytes = party->calls.front().values.size();
  const bool fits = state_->deterministic || state_->held_bytes + size_bytes <= state_->hold_bytes;
  state_->queued_bytes -= size_bytes;
  party->in = true;
  ++num_in_;
  if (state_->num_workers > 2 && fits) {
    party->held = true;
    state_->held_bytes += size_bytes;
  } else {
    Add(party);
  }
  AddHeld();
}

void StockSlot::Add(Party* party) {
  StockCall& call = party->calls.front();
  AddPush(shape_, call, state_->threshold, &sum_state_, &state_->scratch);
  call.values = ps::Frame();
}

void StockSlot::AddHeld() {
  // Before everybody has pushed once, nobody knows who is first.
  if (parties_.size() < static_cast<size_t>(state_->num_workers)) return;
  for (auto& [who, party] : parties_) {
    if (!party.in) return;
    if (!std::exchange(party.held, false)) continue;
    state_->held_bytes -= party.calls.front().values.size();
    Add(&party);
  }
}

void StockSlot::Complete() {
  Publish();
  num_in_ = 0;
  sum_state_.empty = true;
  std::vector<StockCall> done;
  for (auto& [who, party] : parties_) {
    done.push_back(std::move(party.calls.front()));
    party.calls.pop_front();
    party.in = false;
  }
  std::stable_sort(done.begin(), done.end(), [](const StockCall& a, const StockCall& b) {
    return a.meta.priority > b.meta.priority;
  });
  for (StockCall& call : done) Answer(&call);
}

// value := sum.
void StockSlot::Publish() {
  if (sum_state_.dtype == shape_.dtype) return std::swap(value_, sum_);
  if (value_->InFlight()) {
    value_ = std::make_shared<SumBuffer>(shape_.size_bytes, state_->numa_node, state_->num_workers);
  }
  const auto* const sum = reinterpret_cast<const float*>(sum_->data());
  reduce::Narrow({value_->data(), shape_.size_bytes}, {sum, shape_.num_elements()});
}

// Memory for the open round that no answer shows.
void StockSlot::PrepareSum() {
  const bool wide = state_->wide && shape_.dtype == DType::kFloat16;
  const DType dtype = wide ? DType::kFloat32 : shape_.dtype;
  if (!sum_ || dtype != sum_state_.dtype || sum_->InFlight()) {
    sum_ = std::make_shared<SumBuffer>(shape_.num_elements() * SizeOf(dtype), state_->numa_node,
                                       state_->num_workers);
  }
  sum_state_ = {.dtype = dtype, .data = sum_->data(), .empty = true};
}

void StockSlot::Answer(StockCall* call) {
  if (!call->pull || call->layout != StockLayout::kRows) {
    ps::Frame value = call->pull ? value_->MakeFrame(call->worker_rank) : ps::Frame();
    return state_->send(MakeStockAnswer(call, std::move(value)));
  }
  const uint64_t row_length = shape_.row_bytes / SizeOf(shape_.dtype);
  ps::Frame rows = GatherRows(*call);
  state_->send(MakeStockRowsAnswer(call, std::move(rows), static_cast<uint32_t>(row_length)));
}

ps::Frame StockSlot::GatherRows(const StockCall& call) const {
  const uint64_t row_bytes = shape_.row_bytes;
  auto rows = std::make_unique<std::vector<std::byte>>(call.num_rows() * row_bytes);
  for (size_t i = 0; i < call.num_rows() && row_bytes > 0; ++i) {
    std::memcpy(rows->data() + i * row_bytes, value_->data() + call.row(i) * row_bytes, row_bytes);
  }
  const std::span<const std::byte> bytes(*rows);
  return ps::Frame::Borrow(bytes, [rows = std::move(rows)] {});
}

}  // namespace bs::server
