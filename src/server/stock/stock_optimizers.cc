// Has the optimizers of stock workers loaded, and answers their commands then.
#include "server/stock/stock_optimizers.h"

#include <string>
#include <utility>

#include "ps/kv_server.h"
#include "ps/text.h"

namespace bs::server {
namespace {

// Workers wait for each answer, so at most one answer to each is pending.
constexpr size_t kMostWaitingAnswers = 1 << 16;

}  // namespace

StockOptimizers::StockOptimizers(Executor* dispatcher, std::shared_ptr<HostedUpdates> hosted,
                                 SendFn send, Adopt adopt, std::function<void(const Status&)> fail,
                                 Duration straggler_timeout)
    : dispatcher_(dispatcher),
      hosted_(std::move(hosted)),
      send_(std::move(send)),
      adopt_(std::move(adopt)),
      fail_(std::move(fail)),
      straggler_timeout_(straggler_timeout) {}

void StockOptimizers::Handle(const ps::Message& request) {
  if (waiting_.size() >= kMostWaitingAnswers || calls_.size() >= kMostWaitingAnswers) {
    return fail_(Status::ResourceExhausted("too many optimizers of stock workers, the latest of " +
                                           ps::DescribeId(request.peer)));
  }
  const uint64_t number = ++calls_[{request.peer, request.meta.customer_id}];
  // The call before may still be loading; then this call is late anyway.
  const bool first = number > number_ && !loading_;
  waiting_.push_back(ps::MakeCommandResponse(request, ""));
  if (first) {
    number_ = number;
    Load(request);
  } else if (!loading_) {
    send_(std::move(waiting_.back()));
    waiting_.pop_back();
  }
}

void StockOptimizers::Forget(int32_t worker_id) {
  std::erase_if(calls_, [&](const auto& entry) { return entry.first.worker_id == worker_id; });
  std::erase_if(waiting_, [&](const ps::Message& answer) { return answer.peer == worker_id; });
}

void StockOptimizers::Load(const ps::Message& request) {
  const int32_t worker_id = request.peer;
  if (!hosted_->present()) {
    return fail_(Status::FailedPrecondition("the optimizer of " + ps::DescribeId(worker_id) +
                                            ": this server is not run by Python, which optimizers "
                                            "need"));
  }
  loading_ = true;
  patience_ = dispatcher_->PostAt(dispatcher_->Now() + straggler_timeout_, [this, worker_id] {
    fail_(Status::DeadlineExceeded("the optimizer of " + ps::DescribeId(worker_id) + ": after " +
                                   ps::TextOf(straggler_timeout_) +
                                   " the server is still loading it "
                                   "(BYTESCHEDULER_STRAGGLER_TIMEOUT)"));
  });
  auto optimizer = std::make_shared<const HostedOptimizer>(HostedOptimizer{request.meta.body});
  hosted_->Load(optimizer, dispatcher_, [this, optimizer, worker_id](const Status& status) {
    OnLoaded(optimizer, worker_id, status);
  });
}

void StockOptimizers::OnLoaded(const HostedUpdates::Optimizer& optimizer, int32_t worker_id,
                               const Status& status) {
  loading_ = false;
  dispatcher_->Cancel(patience_);
  if (!status.ok()) {
    return fail_(Status(status.code(),
                        "the optimizer of " + ps::DescribeId(worker_id) + ": " + status.message()));
  }
  adopt_(optimizer);
  for (ps::Message& answer : std::exchange(waiting_, {})) send_(std::move(answer));
}

}  // namespace bs::server
