// Posts calls of the hosting process to its executor and their outcomes back.
#include "server/optimizer/hosted_updates.h"

#include <new>
#include <utility>

#include "reduce/reduce.h"

namespace bs::server {
namespace {

void Return(Executor* back, HostedUpdates::Done done, Status status) {
  back->Post([done = std::move(done), status = std::move(status)] { done(status); });
}

// The worker must be able to tell an error that concerns its call only.
Status As(StatusCode code, const Status& status) {
  return status.ok() ? status : Status(code, status.message());
}

}  // namespace

HostedUpdates::HostedUpdates(ServerUpdater updater) : updater_(std::move(updater)) {}

template <typename F>
Status HostedUpdates::Try(F call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Status::ResourceExhausted("no memory");
  }
}

Status HostedUpdates::Ensure(const Optimizer& optimizer) {
  if (loaded_ == optimizer) return Status::Ok();
  const Status refused = Try([&] { return updater_.set_optimizer(optimizer->pickle); });
  if (refused.ok()) loaded_ = optimizer;
  return As(StatusCode::kInvalidArgument, refused);
}

void HostedUpdates::Load(Optimizer optimizer, Executor* back, Done done) {
  updater_.executor->Post(
      [this, optimizer = std::move(optimizer), back, done = std::move(done)]() mutable {
        Return(back, std::move(done), Ensure(optimizer));
      });
}

Status HostedUpdates::Run(const Optimizer& optimizer, const ServerUpdate& update,
                          std::span<const std::byte> before) {
  if (Status refused = Ensure(optimizer); !refused.ok()) return refused;
  if (!before.empty()) reduce::Copy(update.weights.data(), before.data(), before.size());
  return Try([&] { return updater_.update(update); });
}

void HostedUpdates::Update(Optimizer optimizer, const ServerUpdate& update,
                           std::span<const std::byte> before, Executor* back, Done done) {
  updater_.executor->Post([this, optimizer = std::move(optimizer), update, before, back,
                           done = std::move(done)]() mutable {
    const Status status = Run(optimizer, update, before);
    Return(back, std::move(done), As(StatusCode::kFailedPrecondition, status));
  });
}

}  // namespace bs::server
