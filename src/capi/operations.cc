// A kind of operation is one row: its name, its fields, and the call of bs::Worker that starts it.
#include "capi/operations.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/count_of.h"
#include "capi/coding.h"
#include "capi/operation_fields.h"
#include "worker/worker.h"

namespace bs::capi {
namespace {

// The bounds of BYTESCHEDULER_PARTITION and BYTESCHEDULER_CREDIT.
constexpr uint64_t kLeastPartition = uint64_t{4} << 10U;
constexpr uint64_t kLargestPartition = uint64_t{1} << 30U;
constexpr uint64_t kLargestCredit = uint64_t{64} << 30U;

struct Row {
  bs_operation_kind kind;
  const char* name;
  Fields needs;     // `in` and `out` only if size_bytes is not 0
  Fields may_take;  // besides those
  // Null, or the words for an operation that not every back end has (Backend::CheckExtra).
  const char* extra;
  Status (*start)(const bs_operation& operation, node::OperationHost* host);
};

Worker::Done Calling(bs_done done, const bs_operation& operation, node::OperationHost* host) {
  host->ExpectCallback();
  return [host, done, context = operation.context](const Status& status) {
    done(context, static_cast<int>(status.code()), status.message().c_str());
    host->EndCallback();
  };
}

std::span<const std::byte> In(const bs_operation& operation) {
  return {static_cast<const std::byte*>(operation.in), operation.size_bytes};
}

std::span<std::byte> Out(const bs_operation& operation) {
  return {static_cast<std::byte*>(operation.out), operation.size_bytes};
}

PushRates RatesOf(const bs_operation& operation) {
  if (operation.rates == nullptr) return {};
  return {operation.rates->learning_rate, operation.rates->weight_decay,
          operation.rates->rescale_grad};
}

Result<DType> DTypeOf(const bs_operation& operation) {
  const auto known = DTypeFromCode(static_cast<uint32_t>(operation.dtype));
  if (known) return *known;
  return Status::InvalidArgument("key " + std::to_string(operation.key) + ": dtype code " +
                                 std::to_string(operation.dtype) + " cannot be summed");
}

Status StartBroadcast(const bs_operation& operation, node::OperationHost* host) {
  const Result<DType> dtype = DTypeOf(operation);
  if (!dtype.ok()) return dtype.status();
  const Result<Coding> coding = CodingOf(operation.coding);
  if (!coding.ok()) return coding.status();
  const Mode mode = operation.kind == BS_BROADCAST ? Mode::kSynchronous : Mode::kAsynchronous;
  host->worker()->Broadcast(operation.key,
                            {.dtype = dtype.value(), .mode = mode, .coding = coding.value()},
                            Out(operation), Calling(operation.done, operation, host));
  return Status::Ok();
}

Status StartBroadcastWhole(const bs_operation& operation, node::OperationHost* host) {
  const Result<DType> dtype = DTypeOf(operation);
  if (!dtype.ok()) return dtype.status();
  host->worker()->BroadcastWhole(operation.key,
                                 {dtype.value(), operation.about, operation.hosted != 0},
                                 Out(operation), Calling(operation.done, operation, host));
  return Status::Ok();
}

Status StartBroadcastFrom(const bs_operation& operation, node::OperationHost* host) {
  host->worker()->BroadcastFrom(operation.key, operation.root, Out(operation),
                                Calling(operation.done, operation, host));
  return Status::Ok();
}

Status StartPushPull(const bs_operation& operation, node::OperationHost* host) {
  const Result<Coding> coding = CodingOf(operation.coding);
  if (!coding.ok()) return coding.status();
  if (!coding.value().plain()) {
    if (Status lacks = host->CheckExtra("gradient compression"); !lacks.ok()) return lacks;
  }
  const PushPullOptions options = {.priority = operation.priority,
                                   .coding = coding.value(),
                                   .rates = RatesOf(operation),
                                   .called = operation.called,
                                   .at_once = operation.at_once != 0,
                                   .waited = std::chrono::nanoseconds(operation.waited_ns),
                                   .factor = operation.factor == 0 ? 1 : operation.factor};
  host->worker()->PushPull(operation.key, options, In(operation), Out(operation),
                           Calling(operation.pushed, operation, host),
                           Calling(operation.done, operation, host));
  return Status::Ok();
}

// Pushes, pulls or both.
Status StartUpdate(const bs_operation& operation, node::OperationHost* host) {
  const Result<Coding> coding = CodingOf(operation.coding);
  if (!coding.ok()) return coding.status();
  Worker::UpdateCall call{.priority = operation.priority,
                          .coding = coding.value(),
                          .waited = std::chrono::nanoseconds(operation.waited_ns),
                          .rates = RatesOf(operation),
                          .in = In(operation),
                          .out = Out(operation)};
  if (operation.kind != BS_PULL) {
    const bs_done pushed = operation.kind == BS_PUSH ? operation.done : operation.pushed;
    call.pushed = Calling(pushed, operation, host);
  }
  if (operation.kind != BS_PUSH) call.pulled = Calling(operation.done, operation, host);
  host->worker()->Update(operation.key, std::move(call));
  return Status::Ok();
}

Status StartSetOptimizer(const bs_operation& operation, node::OperationHost* host) {
  std::string pickle;
  if (operation.pickle_bytes > 0) {
    if (operation.pickle == nullptr) {
      return Status::InvalidArgument("set-optimizer: the field pickle_bytes is set without pickle");
    }
    pickle.assign(static_cast<const char*>(operation.pickle), operation.pickle_bytes);
  }
  host->worker()->SetOptimizer(operation.optimizer, std::move(pickle),
                               Calling(operation.done, operation, host));
  return Status::Ok();
}

Status StartRetune(const bs_operation& operation, node::OperationHost* host) {
  const uint64_t partition_bytes = operation.partition_bytes;
  const uint64_t credit_bytes = operation.credit_bytes;
  if (partition_bytes < kLeastPartition || partition_bytes > kLargestPartition ||
      credit_bytes == 0 || credit_bytes > kLargestCredit) {
    return Status::InvalidArgument("partitions of " + CountOf(partition_bytes, "byte") +
                                   " and a credit of " + std::to_string(credit_bytes) +
                                   ": want 4 KiB to 1 GiB, and 1 byte to 64 GiB");
  }
  host->worker()->Retune(partition_bytes, credit_bytes, Calling(operation.done, operation, host));
  return Status::Ok();
}

Status StartGiveBack(const bs_operation& operation, node::OperationHost* host) {
  Worker::Done done;
  if (operation.done != nullptr) done = Calling(operation.done, operation, host);
  host->worker()->GiveBack(operation.key, operation.kind == BS_GIVE_BACK, std::move(done));
  return Status::Ok();
}

// A week.
constexpr int64_t kLongestTimeoutMs = int64_t{168} * 3600 * 1000;

Status StartExchange(const bs_operation& operation, node::OperationHost* host) {
  const Result<DType> dtype = DTypeOf(operation);
  if (!dtype.ok()) return dtype.status();
  const bs_exchange& about = *operation.exchange;
  const std::string what = "exchange of key " + std::to_string(operation.key) + ": ";
  if (about.struct_bytes < sizeof(bs_exchange)) {
    return Status::InvalidArgument(what + "struct_bytes is " + std::to_string(about.struct_bytes) +
                                   ", less than the " + std::to_string(sizeof(bs_exchange)) +
                                   " of bs_exchange");
  }
  if (about.timeout_ms < 0) {
    return Status::InvalidArgument(what + "timeout_ms is " + std::to_string(about.timeout_ms) +
                                   ", which is no time");
  }
  const auto reduction = ReductionFromCode(static_cast<uint32_t>(about.reduction));
  if (!reduction) {
    return Status::InvalidArgument(what + "reduction " + std::to_string(about.reduction) +
                                   " is none of bs_reduction");
  }
  Worker::ExchangeCall call{
      .key = operation.key,
      .givers = {about.givers, about.givers + about.num_givers},
      .takers = {about.takers, about.takers + about.num_takers},
      .dtype = dtype.value(),
      .reduction = *reduction,
      .size_bytes = operation.size_bytes,
      .home = about.home,
      .label = about.label != nullptr ? about.label : "",
      .priority = operation.priority,
      .timeout = std::chrono::milliseconds(std::min(about.timeout_ms, kLongestTimeoutMs))};
  if (operation.in != nullptr) call.in = In(operation);
  if (operation.out != nullptr) call.out = Out(operation);
  call.given = Calling(operation.pushed, operation, host);
  call.done = Calling(operation.done, operation, host);
  host->worker()->Exchange(std::move(call));
  return Status::Ok();
}

Status StartQuitExchange(const bs_operation& operation, node::OperationHost* host) {
  host->worker()->QuitExchange(operation.key, operation.about);
  return Status::Ok();
}

Status StartReprioritiseExchange(const bs_operation& operation, node::OperationHost* host) {
  host->worker()->ReprioritiseExchange(operation.key, operation.priority);
  return Status::Ok();
}

constexpr Fields kFirstValue = {Field::kOut, Field::kDone};
constexpr Fields kMayDeclare = {Field::kKey, Field::kSizeBytes, Field::kDType};
constexpr Fields kMayDeclareCoded = kMayDeclare | Fields{Field::kCoding};
constexpr Fields kMayPush = {Field::kKey,    Field::kSizeBytes, Field::kPriority,
                             Field::kCoding, Field::kWaitedNs,  Field::kRates};
constexpr const char* kAsynchronous = "asynchronous keys";
constexpr const char* kExchanges = "exchanges between some workers";

constexpr auto kRows = std::to_array<Row>({
    {BS_BROADCAST, "broadcast", kFirstValue, kMayDeclareCoded, nullptr, StartBroadcast},
    {BS_BROADCAST_ASYNCHRONOUS, "asynchronous broadcast", kFirstValue, kMayDeclareCoded,
     kAsynchronous, StartBroadcast},
    {BS_BROADCAST_WHOLE, "whole broadcast", kFirstValue | Fields{Field::kAbout},
     kMayDeclare | Fields{Field::kHosted}, kAsynchronous, StartBroadcastWhole},
    {BS_BROADCAST_FROM,
     "root broadcast",
     kFirstValue,
     {Field::kKey, Field::kSizeBytes, Field::kRoot},
     "a broadcast of any root",
     StartBroadcastFrom},
    {BS_PUSH_PULL,
     "push-pull",
     {Field::kIn, Field::kOut, Field::kPushed, Field::kDone},
     {Field::kKey, Field::kSizeBytes, Field::kPriority, Field::kCoding, Field::kFactor,
      Field::kRates, Field::kCalled, Field::kWaitedNs, Field::kAtOnce, Field::kDeferred},
     nullptr,
     StartPushPull},
    {BS_PUSH, "push", {Field::kIn, Field::kDone}, kMayPush, kAsynchronous, StartUpdate},
    {BS_PULL,
     "pull",
     {Field::kOut, Field::kDone},
     {Field::kKey, Field::kSizeBytes, Field::kPriority, Field::kWaitedNs},
     kAsynchronous,
     StartUpdate},
    {BS_UPDATE,
     "update",
     {Field::kIn, Field::kOut, Field::kPushed, Field::kDone},
     kMayPush,
     kAsynchronous,
     StartUpdate},
    {BS_SET_OPTIMIZER,
     "set-optimizer",
     {Field::kOptimizer, Field::kDone},
     {Field::kPickle, Field::kPickleBytes},
     "optimizers on servers",
     StartSetOptimizer},
    {BS_RETUNE,
     "retune",
     {Field::kDone},
     {Field::kPartitionBytes, Field::kCreditBytes},
     "another partition size",
     StartRetune},
    {BS_REST, "rest", {}, {Field::kKey, Field::kDone}, nullptr, StartGiveBack},
    {BS_GIVE_BACK, "give-back", {}, {Field::kKey, Field::kDone}, nullptr, StartGiveBack},
    {BS_EXCHANGE,
     "exchange",
     {Field::kPushed, Field::kDone, Field::kExchange},
     {Field::kKey, Field::kIn, Field::kOut, Field::kSizeBytes, Field::kPriority, Field::kDType},
     kExchanges,
     StartExchange},
    {BS_QUIT_EXCHANGE,
     "quit-exchange",
     {Field::kAbout},
     {Field::kKey},
     kExchanges,
     StartQuitExchange},
    {BS_REPRIORITISE_EXCHANGE,
     "reprioritise-exchange",
     {},
     {Field::kKey, Field::kPriority},
     kExchanges,
     StartReprioritiseExchange},
});

// The kinds count from 1, in the order of the rows.
constexpr bool RowsAreInOrder() {
  int kind = 0;
  return std::ranges::all_of(kRows, [&kind](const Row& row) { return row.kind == ++kind; });
}
static_assert(RowsAreInOrder());

// Null if there is no such kind.
const Row* RowOf(int kind) {
  const auto at = static_cast<size_t>(kind) - 1;
  return at < kRows.size() ? &kRows[at] : nullptr;
}

std::string Named(const Row& row, const bs_operation& operation) {
  const bool has_key = row.may_take.Has(Field::kKey);
  return std::string(row.name) +
         (has_key ? " of key " + std::to_string(operation.key) : std::string());
}

}  // namespace

Status CheckOperation(const bs_operation& operation) {
  const Row* const row = RowOf(operation.kind);
  if (row == nullptr) {
    return Status::InvalidArgument("kind " + std::to_string(operation.kind) +
                                   " is no operation of this library: want one of "
                                   "bs_operation_kind, such as BS_PUSH_PULL");
  }
  const Fields set = Fields::SetIn(operation);
  const Fields empty_needs = operation.size_bytes == 0 ? Fields{Field::kIn, Field::kOut} : Fields{};
  const Fields missing = row->needs.Without(set).Without(empty_needs);
  if (!missing.empty()) {
    return Status::InvalidArgument(Named(*row, operation) + ": the field " + missing.first_name() +
                                   " is not set, and every " + row->name + " needs it");
  }
  const Fields extra = set.Without(row->needs).Without(row->may_take);
  if (extra.empty()) return Status::Ok();
  return Status::InvalidArgument(Named(*row, operation) + ": the field " + extra.first_name() +
                                 " is set, and no " + row->name + " takes it; leave it 0");
}

Status StartOperation(const bs_operation& operation, node::OperationHost* host) {
  const Row& row = *RowOf(operation.kind);
  if (row.extra != nullptr) {
    if (Status lacks = host->CheckExtra(row.extra); !lacks.ok()) return lacks;
  }
  return row.start(operation, host);
}

}  // namespace bs::capi
