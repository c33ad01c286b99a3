// Counts what one core sends and receives through the code of a link by RDMA, with cards that cost
// nothing: both ends, in one thread.
//
// Small: messages of 64 bytes, each alone.  Fused: the same, as many in a slot as fit.  Adverts:
// messages of 16 KiB, each an advert, a READ and a release.  Goals: 1,000,000 small messages and
// 300,000 adverts a second.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "instant_cards.h"
#include "transport/rdma/rdma_inbound.h"
#include "transport/rdma/rdma_link.h"
#include "transport/rdma/rdma_nic.h"
#include "transport/send_queue.h"
#include "transport/tcp/block_pool.h"

namespace {

// Runs nothing by itself: the benchmark looks for completions.
class IdleExecutor final : public bs::Executor {
 public:
  bs::TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  void Post(bs::Task) override {}
  bs::TimerId PostAt(bs::TimePoint, bs::Task) override { return 1; }
  void Cancel(bs::TimerId) override {}
  bool IsCurrent() const override { return true; }
};

template <typename T>
T Take(bs::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().message().c_str());
    std::exit(1);
  }
  return std::move(result.value());
}

class Link {
 public:
  explicit Link(uint64_t fusion_bytes) : sender_(Open()), receiver_(Open()) {
    const auto broken = [](const bs::Status& why) { Take<int>(why); };
    link_ = Take(ps::RdmaLink::Create(sender_.get(), {.fusion_bytes = fusion_bytes},
                                      {.on_turn = [this] { Pump(); }, .on_broken = broken}));
    ps::RdmaInbound::Listener listener;
    listener.on_message = [this](bs::Result<ps::Message> message) {
      Take(std::move(message));
      ++received_;
    };
    listener.known = [] { return true; };
    listener.place = [](const ps::Meta&, uint64_t) { return nullptr; };
    listener.most_bytes = [](const ps::Meta&) { return uint64_t{1} << 30U; };
    listener.on_broken = broken;
    const auto pool = std::make_shared<ps::BlockPool>();
    const auto new_frame = [pool](size_t size_bytes, std::span<std::byte>* memory) {
      return pool->New(size_bytes, memory);
    };
    inbound_ = Take(
        ps::RdmaInbound::Take(receiver_.get(), link_->offer(), new_frame, std::move(listener)));
    const bs::Status taken = link_->OnTaken(inbound_->answer());
    if (!taken.ok()) broken(taken);
    while (!link_->proved()) Settle();
  }

  ps::RdmaNic* sender() { return sender_.get(); }
  // Sends so many messages that show `bytes`, and waits until they are there.
  void Run(int count, std::span<const std::byte> bytes) {
    const uint64_t wanted = received_ + static_cast<uint64_t>(count);
    for (int i = 0; i < count; ++i) {
      ps::Message message;
      message.meta.extension.version = ps::kExtensionVersion;
      message.meta.extension.op = ps::Op::kPush;
      message.data.push_back(ps::Frame::Borrow(bytes, {}));
      queue_.Add(std::move(message));
    }
    Pump();
    while (received_ < wanted || !link_->idle()) Settle();
  }

 private:
  std::shared_ptr<ps::RdmaNic> Open() {
    ps::RdmaOptions options{.verbs = std::make_shared<InstantVerbs>(&network_),
                            .device = "instant0",
                            .path = {.port = 1, .gid_index = 0}};
    const ps::RdmaNic::Loop loop{.executor = &executor_,
                                 .watch = [](int, const std::function<void()>&) {}};
    return Take(ps::RdmaNic::Open(loop, options, bs::Logger()));
  }
  void Pump() {
    if (!link_ || !link_->proved()) return;
    const bs::Status pumped = link_->Pump(&queue_);
    if (!pumped.ok()) Take<int>(pumped);
  }
  void Settle() {
    receiver_->Settle();
    sender_->Settle();
  }

  using InstantVerbs = bench::InstantVerbs;
  IdleExecutor executor_;
  bench::InstantNetwork network_;
  std::shared_ptr<ps::RdmaNic> sender_;
  std::shared_ptr<ps::RdmaNic> receiver_;
  ps::SendQueue queue_;
  std::unique_ptr<ps::RdmaLink> link_;
  std::unique_ptr<ps::RdmaInbound> inbound_;
  uint64_t received_ = 0;
};

constexpr int kBatch = 64;

void Run(benchmark::State& state, uint64_t fusion_bytes, size_t size_bytes) {
  // Whole pages, so that they can be lent.
  std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, 16U << 10U)), &std::free);
  const std::span<std::byte> whole(memory.get(), 16U << 10U);
  std::fill(whole.begin(), whole.end(), std::byte{1});
  Link link(fusion_bytes);
  const auto loan = Take(link.sender()->memory()->Lend(whole, ps::VerbsDevice::Access::kLend));
  for (auto _ : state) link.Run(kBatch, whole.first(size_bytes));
  state.SetItemsProcessed(state.iterations() * kBatch);
}

void Small(benchmark::State& state) { Run(state, 0, 64); }
void Fused(benchmark::State& state) { Run(state, 16U << 10U, 64); }
void Adverts(benchmark::State& state) { Run(state, 0, 16U << 10U); }

BENCHMARK(Small);
BENCHMARK(Fused);
BENCHMARK(Adverts);

}  // namespace
