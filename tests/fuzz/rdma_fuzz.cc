// A peer over RDMA that sends anything, as either end of a link: headers, ids, credits, releases,
// adverts of memory that it lends and that it does not.  Whatever comes, the link goes on or
// breaks, and the NIC sees no misuse.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/transport/rdma/links/raw_link.h"
#include "ps-lite/transport/rdma/links/rdma_pair.h"
#include "ps-lite/transport/transport_node.h"

namespace {

using ps::RdmaHeader;

// Takes numbers from the front of the input.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint64_t Take(size_t size) {
    uint64_t value = 0;
    for (const uint8_t byte : TakeBytes(size)) value = value << 8U | byte;
    return value;
  }
  std::span<const uint8_t> TakeBytes(size_t size) {
    const auto taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const uint8_t> bytes_;
};

void Steps(ps::test::RdmaPair* pair, int count) {
  for (int i = 0; i < count && pair->Step(); ++i) {
  }
}

// One SEND by the peer.
void SendOne(Input* input, ps::test::RawLink* raw, const ps::RdmaMemory::Block& lent) {
  const uint64_t what = input->Take(1);
  if (what % 8 == 0) {
    const auto bytes = input->TakeBytes(input->Take(1));
    raw->Send(std::as_bytes(bytes));
    return;
  }
  RdmaHeader header{.kind = static_cast<RdmaHeader::Kind>(what % 8)};
  header.credits = static_cast<uint16_t>(input->Take(1));
  header.id = static_cast<uint32_t>(input->Take(1));
  header.count = static_cast<uint32_t>(input->Take(1));
  std::vector<ps::RdmaFrame> frames(what >> 6U);
  for (ps::RdmaFrame& frame : frames) {
    frame.size_bytes = input->Take(3);
    frame.address = reinterpret_cast<uintptr_t>(lent.bytes().data()) + input->Take(2);
    frame.key = lent.remote_key() ^ static_cast<uint32_t>(input->Take(1) / 128);
  }
  header.frames = static_cast<uint8_t>(frames.size());
  const auto rest = input->TakeBytes(input->Take(1));
  header.meta_bytes = static_cast<uint32_t>(rest.size() + input->Take(1) / 64);
  raw->Send(header, frames, {reinterpret_cast<const char*>(rest.data()), rest.size()});
}

ps::test::RdmaPair::Options OptionsOf(uint64_t flags) {
  ps::test::RdmaPair::Options options;
  options.seed = flags;
  options.rdma.slots = 8;
  options.rdma.slot_bytes = 1024;
  options.rdma.bounce_bytes = 64U << 10U;
  return options;
}

// One SEND by a peer that got messages.
void AnswerOne(Input* input, ps::test::RawLink* raw) {
  const uint64_t what = input->Take(1);
  if (what % 8 == 0) {
    raw->Send(std::as_bytes(input->TakeBytes(input->Take(1))));
    return;
  }
  RdmaHeader header{.kind = RdmaHeader::Kind::kControl};
  if (what % 8 == 1) header.kind = static_cast<RdmaHeader::Kind>(input->Take(1) % 8);
  header.credits = static_cast<uint16_t>(input->Take(1) % 8);
  const uint64_t ids = what >> 5U;
  header.count = static_cast<uint32_t>(ids + input->Take(1) / 240);
  std::string rest(ids * ps::kRdmaIdBytes, '\0');
  for (size_t i = 0; i < ids; ++i) {
    ps::WriteRdmaId(static_cast<uint32_t>(input->Take(1) % 32),
                    std::as_writable_bytes(std::span(rest)).subspan(i * ps::kRdmaIdBytes));
  }
  raw->Send(header, {}, rest);
}

// The peer is the receiver.
void FuzzSender(Input* input, uint64_t flags) {
  ps::test::RdmaPair pair(OptionsOf(flags));
  ps::test::RawLink raw(pair.receiver_nic());
  const std::vector<std::byte> bytes(20'000);
  int held = 0;
  ps::SendQueue queue;
  std::unique_ptr<ps::RdmaLink> link;
  const auto pump = [&] {
    if (link && link->proved() && !link->Pump(&queue).ok()) link.reset();
  };
  auto made = ps::RdmaLink::Create(
      pair.sender_nic(), {.fusion_bytes = flags % 2 * 512},
      {.on_turn = pump, .on_broken = [&](const bs::Status&) { link.reset(); }});
  if (!made.ok()) std::abort();
  link = std::move(made.value());
  raw.Join(link->offer());
  if (!link->OnTaken(TextOf(raw.offer())).ok()) std::abort();
  if (flags % 8 != 2) raw.SendProof(ps::ParseRdmaOffer(link->offer()).value().token);
  Steps(&pair, 100);
  for (int sends = 0; sends < 64 && link && !input->empty(); ++sends) {
    const uint64_t size_bytes = input->Take(2) % bytes.size();
    ps::Message message = ps::test::Native(8, sends);
    ++held;
    message.data.push_back(
        ps::Frame::Borrow(std::span(bytes).first(size_bytes), [&held] { --held; }));
    queue.Add(std::move(message));
    pump();
    Steps(&pair, 20);
    AnswerOne(input, &raw);
    Steps(&pair, 20);
  }
  Steps(&pair, 2000);
  link.reset();
  while (!queue.empty()) queue.Take();
  if (held != 0 || !pair.fabric().Violations().empty()) std::abort();
}

// The peer is the sender.
void FuzzReceiver(Input* input, uint64_t flags) {
  ps::test::RdmaPair pair(OptionsOf(flags));
  const auto blocks = std::make_shared<ps::BlockPool>();
  ps::test::RawLink raw(pair.sender_nic());
  const ps::RdmaMemory::Block lent = pair.sender_nic()->memory()->Take(20'000);
  std::unique_ptr<ps::RdmaInbound> inbound;
  auto taken = ps::RdmaInbound::Take(
      pair.receiver_nic(), TextOf(raw.offer()),
      [&](size_t bytes, std::span<std::byte>* memory) { return blocks->New(bytes, memory); },
      {.on_message = [](const bs::Result<ps::Message>&) {},
       .place = {},
       .known = [&] { return flags % 4 != 1; },
       .most_bytes = [](const ps::Meta&) { return uint64_t{1} << 20U; },
       .on_broken = [&](const bs::Status&) { inbound.reset(); }});
  if (!taken.ok()) std::abort();
  inbound = std::move(taken.value());
  raw.Join(inbound->answer());
  if (flags % 8 != 2) raw.SendProof();
  Steps(&pair, 100);
  for (int sends = 0; sends < 64 && inbound && !input->empty(); ++sends) {
    SendOne(input, &raw, lent);
    Steps(&pair, 20);
  }
  Steps(&pair, 2000);
  inbound.reset();
  if (!pair.fabric().Violations().empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input({data, size});
  const uint64_t flags = input.Take(1);
  flags < 128 ? FuzzReceiver(&input, flags) : FuzzSender(&input, flags);
  return 0;
}
