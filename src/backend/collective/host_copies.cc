// Copies a partition down when its turn comes, sends it, and copies the sum up.
#include "backend/collective/host_copies.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"

namespace bs::backend::collective {
namespace {

constexpr std::align_val_t kPage{4096};

Status NoMemory(const protocol::Tensor& tensor, Round round, size_t size_bytes) {
  return Status::ResourceExhausted(
      "key=" + std::to_string(tensor.key) + " round=" + std::to_string(round) + ": " +
      std::to_string(size_bytes) +
      " bytes for a copy in this host's memory are not free; set BYTESCHEDULER_PARTITION and "
      "BYTESCHEDULER_CREDIT to less, or give the host more memory");
}

}  // namespace

HostCopies::HostCopies(const HostCopiesOptions& options, Backend* link, Collective* library,
                       Executor* executor)
    : options_(options),
      link_(link),
      library_(library),
      executor_(executor),
      queues_(link->num_destinations(), options.credit_bytes, link->shares()) {}

HostCopies::~HostCopies() { BS_CHECK(copies_.empty()); }

HostCopies::Memory HostCopies::Take(size_t size_bytes) {
  // Whole pages: what is page-locked has no page with other memory.
  const size_t rounded = std::max(static_cast<size_t>(kPage), std::bit_ceil(size_bytes));
  if (const auto spare = spares_.find(rounded); spare != spares_.end()) {
    return spares_.extract(spare).mapped();
  }
  auto* const pages = static_cast<std::byte*>(::operator new[](rounded, kPage, std::nothrow));
  if (pages == nullptr) return {};
  const bool lasts = lasting_bytes_ + rounded <= kMostLastingBytes;
  if (lasts) lasting_bytes_ += rounded;
  return {.bytes = {pages, [](std::byte* memory) { ::operator delete[](memory, kPage); }},
          .size_bytes = rounded,
          .lasts = lasts};
}

void HostCopies::Keep(Memory memory) {
  if (memory.lasts) spares_.emplace(memory.size_bytes, std::move(memory));
}

void HostCopies::Cross(Owned owned, Done done) {
  auto made = std::make_unique<Copy>(Copy{.owned = std::move(owned), .done = std::move(done)});
  Copy* const copy = made.get();
  copies_.emplace(copy, std::move(made));
  const Partition& partition = copy->owned.partition;
  copy->waits = true;
  queues_.Submit(partition.server, {.priority = copy->owned.priority,
                                    .size_bytes = partition.size_bytes,
                                    .token = copy,
                                    .index = partition.index});
  StartCopies();
}

void HostCopies::StartCopies() {
  bool started = true;
  while (std::exchange(started, false)) {
    for (uint32_t server = 0; server < queues_.num_servers(); ++server) {
      const std::optional<core::Item> item = queues_.Next(server);
      if (!item) continue;
      started = true;
      CopyDown(static_cast<Copy*>(item->token));
    }
  }
}

void HostCopies::CopyDown(Copy* copy) {
  const std::span<std::byte> memory = copy->owned.memory;
  copy->waits = false;
  copy->down = Take(memory.size());
  if (!copy->down.bytes) {
    const std::unique_ptr<Copy> ended = std::move(copies_.extract(copy).mapped());
    return executor_->Post(
        [done = std::move(ended->done), status = NoMemory(ended->owned.tensor, ended->owned.round,
                                                          memory.size())] { done(status); });
  }
  copied_bytes_ += memory.size();
  library_->Copy({.in = memory, .out = {copy->down.bytes.get(), memory.size()}}, copy->down.lent(),
                 [this, copy](const Status& status) {
                   if (!status.ok()) return End(copy, status);
                   if (failure_) return End(copy, Status(*failure_));
                   Send(copy);
                 });
}

void HostCopies::Send(Copy* copy) {
  const Owned& owned = copy->owned;
  const size_t size_bytes = owned.memory.size();
  copy->up = Take(size_bytes);
  if (!copy->up.bytes) return End(copy, NoMemory(owned.tensor, owned.round, size_bytes));
  copy->ends_missing = 2;
  Exchange exchange;
  exchange.round = owned.round;
  exchange.partition = owned.partition;
  exchange.priority = owned.priority;
  exchange.coder.coding = owned.coding;
  exchange.stands_for = options_.stands_for;
  exchange.in = {copy->down.bytes.get(), size_bytes};
  exchange.out = {copy->up.bytes.get(), size_bytes};
  exchange.released = [this, server = owned.partition.server, size_bytes](const Status&) {
    queues_.Return(server, size_bytes);
    if (!failure_) StartCopies();
  };
  exchange.sent = [this, copy](const Status& status) { OnEnd(copy, status); };
  exchange.summed = [this, copy](const Status& status, const std::string& /*next_layout*/) {
    OnEnd(copy, status);
  };
  link_->Start(owned.tensor, std::move(exchange));
}

void HostCopies::OnEnd(Copy* copy, const Status& status) {
  if (copy->crossed.ok()) copy->crossed = status;
  if (--copy->ends_missing > 0) return;
  if (!copy->crossed.ok()) return End(copy, Status(copy->crossed));
  CopyUp(copy);
}

void HostCopies::CopyUp(Copy* copy) {
  const std::span<std::byte> memory = copy->owned.memory;
  copied_bytes_ += memory.size();
  library_->Copy({.in = {copy->up.bytes.get(), memory.size()}, .out = memory}, copy->up.lent(),
                 [this, copy](const Status& status) { End(copy, status); });
}

void HostCopies::End(Copy* copy, const Status& status) {
  const std::unique_ptr<Copy> ended = std::move(copies_.extract(copy).mapped());
  if (status.ok()) {
    Keep(std::move(ended->down));
    Keep(std::move(ended->up));
  }
  ended->done(status);
}

void HostCopies::SetCredit(uint64_t credit_bytes) {
  queues_.SetCredit(credit_bytes);
  if (!failure_) StartCopies();
}

void HostCopies::Fail(const Status& status) {
  if (failure_) return;
  failure_ = status;
  queues_.Clear();
  for (auto next = copies_.begin(); next != copies_.end();) {
    Copy* const copy = (next++)->second.get();
    if (!copy->waits) continue;
    std::unique_ptr<Copy> waiting = std::move(copies_.extract(copy).mapped());
    executor_->Post([done = std::move(waiting->done), status] { done(status); });
  }
}

}  // namespace bs::backend::collective
