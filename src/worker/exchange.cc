// Exchanges between some workers: their checks, deadlines and ends.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/count_of.h"
#include "protocol/exchange_terms.h"
#include "worker/worker_impl.h"

namespace bs {
namespace {

// From the deadline until the server has answered that it ended the exchange.  A server that does
// not is stopped or cut off, and may still write its answer into the caller's memory.
constexpr Duration kQuitPatience = std::chrono::seconds(5);

bool Contains(const std::vector<int32_t>& ranks, int32_t rank) {
  return std::ranges::binary_search(ranks, rank);
}

std::string TextOfTime(Duration time) {
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

}  // namespace

Status Worker::Impl::CheckExchange(const ExchangeCall& call,
                                   const protocol::ExchangeTerms& terms) const {
  if (!failure_.ok()) return failure_;
  const std::string what = "exchange '" + call.label + "': ";
  if (Status lacks = backend_->CheckExtra("an exchange between some workers"); !lacks.ok()) {
    return lacks;
  }
  if (const Status wrong = protocol::CheckTerms(terms); !wrong.ok()) {
    return Status::InvalidArgument(what + wrong.message());
  }
  const int32_t last = std::max(terms.givers.back(), terms.takers.back());
  if (!context_.view->has_worker(last)) {
    return Status::InvalidArgument(what + "rank " + std::to_string(last) + " of only " +
                                   CountOf(context_.view->num_workers(), "worker"));
  }
  const bool gives = Contains(terms.givers, context_.rank());
  const bool takes = Contains(terms.takers, context_.rank());
  if (!gives && !takes) {
    return Status::InvalidArgument(what + "worker " + std::to_string(context_.rank()) +
                                   " neither gives nor takes");
  }
  const uint64_t size_bytes = call.size_bytes;
  if ((gives && call.in.size() != size_bytes) || (takes && call.out.size() != size_bytes)) {
    return Status::InvalidArgument(what + "memory of " + CountOf(call.in.size(), "byte") +
                                   " in and " + std::to_string(call.out.size()) + " out, want " +
                                   std::to_string(size_bytes));
  }
  if (exchanges_.contains(call.key)) {
    return Status::InvalidArgument(what + "its key " + std::to_string(call.key) +
                                   " is in use already");
  }
  return Status::Ok();
}

uint32_t Worker::Impl::HomeOf(const ExchangeCall& call) const {
  if (call.home < 0) return backend_->DestinationOf(call.key);
  const int32_t home = goes_home_ ? call.home : call.home + context_.rank();
  return static_cast<uint32_t>(home) % backend_->num_destinations();
}

void Worker::Impl::BeginExchange(ExchangeCall call) {
  const protocol::ExchangeTerms terms{.size_bytes = call.size_bytes,
                                      .partition_bytes = protocol::ExchangePartitionBytes(
                                          call.size_bytes, options_.exchange_partition_bytes),
                                      .dtype = call.dtype,
                                      .reduction = call.reduction,
                                      .givers = call.givers,
                                      .takers = call.takers,
                                      .label = call.label};
  if (const Status wrong = CheckExchange(call, terms); !wrong.ok()) {
    if (call.given) call.given(wrong);
    return call.done(wrong);
  }
  const uint32_t server = HomeOf(call);
  std::vector<Partition> partitions(protocol::NumPartitions(terms));
  for (uint32_t index = 0; index < partitions.size(); ++index) {
    partitions[index] = protocol::PartitionOf(terms, index);
    partitions[index].server = server;
  }
  const Key key = call.key;
  ++num_open_;
  worker::ExchangeState& state = exchanges_[key];
  if (call.timeout > Duration(0)) {
    const std::string late = "exchange '" + call.label + "': worker " +
                             std::to_string(context_.rank()) + " has waited for " +
                             TextOfTime(call.timeout);
    state.deadline = executor_->PostAt(executor_->Now() + call.timeout, [this, key, late] {
      ExpireExchange(key, Status::DeadlineExceeded(late));
    });
  }
  state.task = std::make_unique<worker::ExchangeTask>(
      &context_,
      worker::ExchangeTask::Call{.key = key,
                                 .priority = call.priority,
                                 .terms = protocol::Encode(terms),
                                 .partitions = std::move(partitions),
                                 .gives = Contains(terms.givers, context_.rank()),
                                 .takes = Contains(terms.takers, context_.rank()),
                                 .in = call.in,
                                 .out = call.out,
                                 .given = std::move(call.given),
                                 .done = std::move(call.done)},
      [this, key] { EndExchange(key); });
  state.task->Begin();
}

void Worker::Impl::EndExchange(Key key) {
  const auto over = exchanges_.extract(key);
  if (over.mapped().deadline != 0) executor_->Cancel(over.mapped().deadline);
  FitExchanges();
  OperationEnded();
}

void Worker::Impl::ExpireExchange(Key key, const Status& why) {
  worker::ExchangeState& state = exchanges_.at(key);
  const std::string silent = why.message() + ", and server " +
                             std::to_string(state.task->server()) + " has not answered for " +
                             TextOfTime(kQuitPatience) +
                             " more: its process is stopped, or its host is cut off";
  state.deadline = executor_->PostAt(executor_->Now() + kQuitPatience, [this, silent] {
    static_cast<void>(FailForGood(Status::DeadlineExceeded(silent)));
  });
  QuitExchange(key, why);
}

void Worker::Impl::ReprioritiseExchange(Key key, Priority priority) {
  const auto at = exchanges_.find(key);
  if (at != exchanges_.end()) core_.Reprioritise(at->second.task.get(), priority);
}

void Worker::Impl::QuitExchange(Key key, const Status& why) {
  const auto at = exchanges_.find(key);
  if (at == exchanges_.end() || !failure_.ok()) return;
  ++num_open_;
  const worker::ExchangeTask& task = *at->second.task;
  backend_->Quit(key, task.terms(), task.server(), why, [this, key, why](const Status&) {
    // Its requests under way have been refused.  This ends partitions that have not begun.
    const auto left = exchanges_.find(key);
    if (left != exchanges_.end()) left->second.task->Abort(why);
    OperationEnded();
  });
}

}  // namespace bs
