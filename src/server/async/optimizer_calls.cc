// Reads calls of set_optimizer, has pickles loaded, and lets one call of each number take effect.
#include "server/async/optimizer_calls.h"

#include <new>
#include <string_view>
#include <utility>

#include "base/count_of.h"
#include "protocol/describe.h"

namespace bs::server {
namespace {

// Before the name of an optimizer that comes only pickled.
constexpr std::string_view kHosted = "hosted ";

}  // namespace

OptimizerCalls::OptimizerCalls(Executor* dispatcher, HostedUpdates* hosted, SendFn send,
                               Adopt adopt)
    : dispatcher_(dispatcher), hosted_(hosted), send_(std::move(send)), adopt_(std::move(adopt)) {}

void OptimizerCalls::AddPending(protocol::Call call) {
  constexpr auto kWhom = [](const protocol::Call&) {
    return "the optimizer to be loaded on the server";
  };
  pending_.Add(std::move(call), kWhom, send_);
}

void OptimizerCalls::Handle(protocol::Call& call) {
  if (loading_) return AddPending(std::move(call));
  Result<Wanted> wanted = Read(call);
  if (!wanted.ok()) return Answer(call, wanted.status());
  const bool loads = wanted.value().number > number_ && !wanted.value().optimizer.native;
  loads ? Load(std::move(call), std::move(wanted.value())) : Judge(call, wanted.value());
}

Result<OptimizerCalls::Wanted> OptimizerCalls::Read(const protocol::Call& call) {
  const std::string& text = call.request.optimizer;
  Wanted wanted{.number = call.request.optimizer_call, .text = text, .optimizer = {}};
  if (call.payload.size() > kMaxPickleBytes) {
    return Status::InvalidArgument(protocol::DescribeCall(call) + ": a pickle of " +
                                   CountOf(call.payload.size(), "byte") + ", at most " +
                                   std::to_string(kMaxPickleBytes) + " are accepted");
  }
  if (call.payload.size() > 0) {
    wanted.optimizer.hosted =
        std::make_shared<const HostedOptimizer>(HostedOptimizer{std::string(call.payload.text())});
  }
  if (text.starts_with(kHosted) && text.size() <= kMaxOptimizerBytes) {
    if (wanted.optimizer.hosted) return wanted;
    return Status::InvalidArgument(protocol::DescribeCall(call) + ": '" + text +
                                   "' came without its pickle");
  }
  const Result<OptimizerSpec> parsed = ParseOptimizer(text);
  if (!parsed.ok()) return parsed.status();
  wanted.optimizer.native = std::make_shared<const OptimizerSpec>(parsed.value());
  return wanted;
}

void OptimizerCalls::Judge(const protocol::Call& call, const Wanted& wanted) {
  if (wanted.number > number_) Take(wanted);
  if (wanted.number == number_ && optimizer_.any() && !Agrees(wanted)) {
    return Answer(call, Status::InvalidArgument(protocol::DescribeCall(call) + ": '" + wanted.text +
                                                "' differs from '" + text_ +
                                                "', which another worker has set"));
  }
  Answer(call, Status::Ok());
}

// Pickles of one optimizer may differ in their bytes.
bool OptimizerCalls::Agrees(const Wanted& wanted) const {
  const auto& mine = optimizer_.native;
  const auto& yours = wanted.optimizer.native;
  return mine && yours ? SameRule(*mine, *yours) : !mine && !yours && text_ == wanted.text;
}

void OptimizerCalls::Take(const Wanted& wanted) {
  number_ = wanted.number;
  text_ = wanted.text;
  optimizer_ = wanted.optimizer;
  adopt_(optimizer_);
}

void OptimizerCalls::Load(protocol::Call call, Wanted wanted) {
  if (!hosted_->present()) {
    return Answer(call, Status::InvalidArgument(
                            protocol::DescribeCall(call) + ": '" + wanted.text +
                            "' needs Python on the server: start servers by bslaunch or python -m "
                            "bytescheduler.server"));
  }
  const HostedUpdates::Optimizer optimizer = wanted.optimizer.hosted;
  loading_ = {call.worker_id, call.extension.incarnation, call.extension.sequence};
  AddPending(std::move(call));
  hosted_->Load(optimizer, dispatcher_, [this, wanted = std::move(wanted)](const Status& status) {
    OnLoaded(wanted, status);
  });
}

void OptimizerCalls::OnLoaded(const Wanted& wanted, const Status& status) {
  const Loading loaded = loading_.value_or(Loading{});
  loading_.reset();
  if (status.ok()) Take(wanted);
  for (protocol::Call& call : pending_.TakeAll()) {
    const bool own =
        Loading{call.worker_id, call.extension.incarnation, call.extension.sequence} == loaded;
    if (own && !status.ok()) {
      Answer(call, Status(status.code(), protocol::DescribeCall(call) + ": " + status.message()));
      continue;
    }
    try {
      Handle(call);
    } catch (const std::bad_alloc&) {
      Answer(call, Status::ResourceExhausted(protocol::DescribeCall(call) + ": no memory"));
    }
  }
}

void OptimizerCalls::Answer(const protocol::Call& call, const Status& status) {
  send_(status.ok() ? protocol::MakeResponse(call, {}) : protocol::MakeErrorResponse(call, status));
}

}  // namespace bs::server
