// A peer over RDMA that sends anything: headers, ids, credits, adverts of memory that it lends and
// that it does not.  Whatever comes, the link goes on or breaks, and the NIC sees no misuse.
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

void Steps(ps::testing::RdmaPair* pair, int count) {
  for (int i = 0; i < count && pair->Step(); ++i) {
  }
}

// One SEND by the peer.
void SendOne(Input* input, ps::testing::RawLink* raw, const ps::RdmaMemory::Block& lent) {
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input({data, size});
  const uint64_t flags = input.Take(1);
  ps::testing::RdmaPair::Options options;
  options.seed = flags;
  options.rdma.slots = 8;
  options.rdma.slot_bytes = 1024;
  ps::testing::RdmaPair pair(options);
  const auto blocks = std::make_shared<ps::BlockPool>();
  ps::testing::RawLink raw(&pair);
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
  for (int sends = 0; sends < 64 && inbound && !input.empty(); ++sends) {
    SendOne(&input, &raw, lent);
    Steps(&pair, 20);
  }
  Steps(&pair, 2000);
  inbound.reset();
  if (!pair.fabric().Violations().empty()) std::abort();
  return 0;
}
