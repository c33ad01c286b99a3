// Connects two queue pairs, and takes the time of READs.
#include "transport/rdma/rdma_probe.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/guarded.h"
#include "transport/rdma/locked_memory.h"
#include "transport/rdma/rdma_choice.h"

namespace ps {
namespace {

// READs of a few bytes end within this, and the kernel need not wake the thread.
constexpr bs::Duration kPolls = std::chrono::microseconds(50);

// Byte `at` of the block of an end with this token.
std::byte ByteAt(const RdmaToken& token, size_t at) {
  return token.at(at % token.size()) ^ static_cast<std::byte>(at / token.size());
}

bool IsOf(const RdmaToken& token, std::span<const std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] != ByteAt(token, at)) return false;
  }
  return true;
}

// Takes the last word off `text`.
template <typename T>
bool TakeNumber(std::string_view* text, T* number) {
  const size_t blank = text->rfind(' ');
  if (blank == std::string_view::npos) return false;
  const std::string_view word = text->substr(blank + 1);
  text->remove_suffix(word.size() + 1);
  const auto [end, error] = std::from_chars(word.begin(), word.end(), *number);
  return error == std::errc() && end == word.end();
}

constexpr std::string_view kOtherDevices =
    ", or name other devices with BYTESCHEDULER_RDMA_DEVICE or BYTESCHEDULER_RDMA_GID";

std::string TextOfFailedRead(const Completion& completion) {
  const bool lost = completion.result == Completion::Result::kRetriesExceeded;
  return TextOfFailure(completion)
      .append(lost ? kOtherDevices
                   : ": run both ends again, with the same version of bytescheduler");
}

}  // namespace

RdmaProbe::RdmaProbe(std::shared_ptr<VerbsDevice> device, RdmaPort port, const bs::Executor* clock)
    : device_(std::move(device)), port_(std::move(port)), clock_(clock) {}

bs::Result<std::unique_ptr<RdmaProbe>> RdmaProbe::Open(const RdmaOptions& options,
                                                       const bs::Executor* clock) {
  BS_CHECK(options.verbs);
  auto device = options.verbs->Open(options.device, 2);
  if (!device.ok()) return device.status();
  const RdmaDevice& facts = device.value()->facts();
  bs::Status usable = CheckRdmaPort(facts, options.path.port);
  if (!usable.ok()) return usable;
  const RdmaPort port = *FindRdmaPort(facts, options.path.port);
  auto probe = std::make_unique<RdmaProbe>(std::move(device.value()), port, clock);
  bs::Status begun = probe->Begin(options.path, options.numa_node);
  if (!begun.ok()) return begun;
  return probe;
}

bs::Status RdmaProbe::Begin(const RdmaPath& path, int numa_node) {
  const bs::Result<RdmaToken> token = NewRdmaToken();
  if (!token.ok()) return token.status();
  token_ = token.value();
  bs::Result<Memory> block = Register(VerbsDevice::Access::kLend, numa_node);
  if (!block.ok()) return block.status();
  bs::Result<Memory> landing = Register(VerbsDevice::Access::kFill, numa_node);
  if (!landing.ok()) return landing.status();
  block_ = std::move(block.value());
  landing_ = std::move(landing.value());
  for (size_t at = 0; at < kBlockBytes; ++at) block_.span()[at] = ByteAt(token_, at);
  auto queue_pair = device_->Create(path, {.sends = 1, .receives = 1});
  if (!queue_pair.ok()) return queue_pair.status();
  queue_pair_ = std::move(queue_pair.value());
  const RdmaOffer offer{.address = queue_pair_->address(),
                        .mtu_bytes = port_.mtu_bytes,
                        .reads = 1,
                        .slots = kLeastRdmaSlots,
                        .slot_bytes = kLeastRdmaSlotBytes,
                        .token = token_};
  offer_ = TextOf(offer) + " " + std::to_string(reinterpret_cast<uintptr_t>(block_.bytes.data())) +
           " " + std::to_string(block_.region->remote_key());
  return bs::Status::Ok();
}

bs::Result<RdmaProbe::Memory> RdmaProbe::Register(VerbsDevice::Access access, int numa_node) const {
  Memory memory;
  bs::Status made = bs::Guarded([&] {
    memory.bytes = bs::NodeBuffer(kBlockBytes, numa_node);
    return bs::Status::Ok();
  });
  if (!made.ok()) return made;
  auto region = device_->Register(memory.span(), access);
  if (!region.ok()) return region.status();
  memory.region = std::move(region.value());
  return memory;
}

bs::Status RdmaProbe::Join(std::string_view offer) {
  const bool numbers = TakeNumber(&offer, &peer_key_) && TakeNumber(&offer, &peer_address_);
  const bs::Result<RdmaOffer> peer = ParseRdmaOffer(offer);
  if (!numbers || !peer.ok()) {
    return bs::Status::InvalidArgument(
        "what the other host says of its RDMA is no offer: run the same version of bytescheduler "
        "on both");
  }
  if (peer.value().address.layer != queue_pair_->address().layer) {
    return bs::Status::FailedPrecondition(
        "one host is on InfiniBand and the other on Ethernet: name devices of one network with "
        "BYTESCHEDULER_RDMA_DEVICE");
  }
  peer_token_ = peer.value().token;
  const QueuePairTerms terms{.mtu_bytes = std::min(peer.value().mtu_bytes, port_.mtu_bytes),
                             .reads = 1,
                             .answered_reads = 1};
  bs::Status joined = queue_pair_->Receive(peer.value().address, terms);
  return joined.ok() ? queue_pair_->Activate() : joined;
}

bs::Result<RdmaProbe::Times> RdmaProbe::Read(uint32_t size_bytes, uint32_t most_reads,
                                             bs::Duration limit) {
  BS_CHECK(size_bytes > 0 && size_bytes <= kBlockBytes);
  const bs::TimePoint deadline = clock_->Now() + limit;
  std::vector<bs::Duration> times;
  while (times.size() < most_reads && (times.empty() || clock_->Now() < deadline)) {
    std::memset(landing_.bytes.data(), 0, size_bytes);
    const bs::TimePoint begin = clock_->Now();
    bs::Status read = ReadOnce(size_bytes, limit);
    if (!read.ok()) return read;
    times.push_back(clock_->Now() - begin);
    if (!IsOf(peer_token_, landing_.span().first(size_bytes))) {
      return Wrong(bs::StatusCode::kInternal,
                   "a READ brought other bytes than the other host has: do not use this device, "
                   "and look for newer firmware");
    }
  }
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return Times{.reads = static_cast<uint32_t>(times.size()), .median = *middle};
}

bs::Status RdmaProbe::ReadOnce(uint32_t size_bytes, bs::Duration limit) {
  bs::Status posted = queue_pair_->PostRead(1,
                                            {.data = landing_.bytes.data(),
                                             .size_bytes = size_bytes,
                                             .local_key = landing_.region->local_key()},
                                            peer_address_, peer_key_);
  return posted.ok() ? AwaitOne(clock_->Now() + limit) : posted;
}

bs::Status RdmaProbe::AwaitOne(bs::TimePoint deadline) {
  const bs::TimePoint begin = clock_->Now();
  bool armed = false;
  while (true) {
    Completion completion;
    const bs::Result<size_t> polled = device_->Poll({&completion, 1});
    if (!polled.ok()) return polled.status();
    if (polled.value() > 0 && completion.ok()) return bs::Status::Ok();
    if (polled.value() > 0) {
      return Wrong(bs::StatusCode::kUnavailable, TextOfFailedRead(completion));
    }
    const bs::TimePoint now = clock_->Now();
    if (now >= deadline) {
      return Wrong(
          bs::StatusCode::kDeadlineExceeded,
          std::string("a READ has not ended in time: ").append(kLetRdmaPass).append(kOtherDevices));
    }
    if (now - begin < kPolls) continue;
    if (std::exchange(armed, !armed)) {
      pollfd waits{device_->completion_fd(), POLLIN, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
      ::poll(&waits, 1, static_cast<int>(left.count()));
      continue;
    }
    const bs::Status rearmed = device_->Rearm();  // and then it polls once more
    if (!rearmed.ok()) return rearmed;
  }
}

bs::Status RdmaProbe::Wrong(bs::StatusCode code, const std::string& what) const {
  return {code, device_->facts().name + ": " + what};
}

}  // namespace ps
