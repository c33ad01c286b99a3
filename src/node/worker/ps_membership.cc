// PsMembership ends in this order:
//  1. the member closes: nothing more is received;
//  2. a task later it is destroyed on bs-io, behind everything it has posted there;
//  3. registrations of the framework's memory end, but for memory that the network still uses;
//  4. the transport comes to rest: every frame of the caller's memory is released;
//  5. the thread ends with this object.
#include "node/worker/ps_membership.h"

#include <utility>

#include "base/run_on.h"
#include "host/rdma.h"
#include "membership/goodbye.h"
#include "node/ps_view.h"

namespace bs::node {
namespace {

// A scheduler node that does not answer a goodbye is not worth a longer wait.
constexpr Duration kLeaveWait = std::chrono::seconds(5);

}  // namespace

PsMembership::PsMembership(const Config& config, const ps::MembershipOptions& options,
                           ps::RdmaOptions rdma, Logger log)
    : log_(std::move(log)),
      network_(std::make_unique<Network>(config, log_, std::move(rdma))),
      kept_memory_([this](std::span<std::byte> memory, ps::Lending use) {
        return network_->Register(memory, use);
      }),
      member_(std::make_unique<ps::Member>(options, network_->transport(), network_->io(), log_)) {}

void PsMembership::Join(Handler handler) {
  handler_ = std::move(handler);
  member_->Start(MakeHandler());
}

ps::Member::Handler PsMembership::MakeHandler() {
  ps::Member::Handler handler;
  handler.on_ready = [this](Result<ps::View> listed) { OnReady(std::move(listed)); };
  handler.on_message = [this](ps::Message message) {
    if (receiver_.on_message) receiver_.on_message(std::move(message));
  };
  handler.place = [this](int32_t peer, const ps::Meta& meta, uint64_t size_bytes) {
    return receiver_.place ? receiver_.place(peer, meta, size_bytes) : nullptr;
  };
  handler.on_worker_left = [this](int32_t rank, const Status& why) {
    if (receiver_.on_worker_left) receiver_.on_worker_left(rank, why);
  };
  handler.on_failure = [this](const Status& why) { handler_.on_failure(why); };
  handler.on_shutdown = [this] {
    handler_.on_failure(Status::Unavailable("the scheduler node has ended the job"));
  };
  return handler;
}

void PsMembership::OnReady(Result<ps::View> listed) {
  if (!listed.ok()) return handler_.on_failure(listed.status());
  place_ = ps::PlaceOf(listed.value());
  all_native_ = listed.value().all_native;
  view_ = std::make_shared<const job::View>(ViewOf(listed.value(), job::Role::kWorker));
  handler_.on_view(view_);
}

void PsMembership::Barrier(Done done) {
  member_->Barrier(ps::kWorkerGroup,
                   [done = std::move(done)](const Status& status) { done(status); });
}

void PsMembership::Fail(const Status& why) {
  if (member_) member_->ReportFailure(why);
}

void PsMembership::Leave(const Goodbye& goodbye, Done done) {
  // Owners: the response and the deadline.
  const auto waiting = std::make_shared<Done>(std::move(done));
  const auto end = [waiting](const Status& status) {
    if (const Done first = std::exchange(*waiting, {})) first(status);
  };
  const TimerId deadline = network_->io()->PostAt(network_->io()->Now() + kLeaveWait, [end] {
    end(Status::DeadlineExceeded("the scheduler node does not answer the goodbye"));
  });
  member_->Leave(goodbye.reason, [this, end, deadline](const Status& status) {
    network_->io()->Cancel(deadline);
    end(status);
  });
}

Status PsMembership::Close() {
  LoopThread* const io = network_->io();
  RunOn(io, [this] { member_->Close(view_ ? kLinger : kLingerUnjoined); });
  RunOn(io, [this] { member_.reset(); });
  kept_memory_.DropAll();
  network_->EndTransport();
  return Status::Ok();
}

}  // namespace bs::node
