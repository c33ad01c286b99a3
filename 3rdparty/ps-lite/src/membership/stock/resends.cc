// Resends: windows of message numbers, and the signatures of acknowledgements.
#include "membership/stock/resends.h"

#include <algorithm>

namespace ps {
namespace {

// Computes the key under which a stock node keeps a message until it is acknowledged.
uint64_t SignatureOf(const Message& message, int32_t own_id) {
  const Meta& meta = message.meta;
  const auto bits = [](int32_t value, uint64_t mask) {
    return static_cast<uint64_t>(value) & mask;
  };
  const int64_t number = int64_t{meta.timestamp} * 2 + (meta.request ? 1 : 0);
  return bits(meta.app_id, 0xffff) << 48U | bits(message.peer, 0xff) << 40U |
         bits(own_id, 0xff) << 32U | static_cast<uint64_t>(int64_t{static_cast<int32_t>(number)});
}

Meta MakeAck(uint64_t signature) {
  Meta ack;
  ack.is_control = true;
  ack.control.command = Command::kAck;
  ack.control.signature = signature;
  return ack;
}

}  // namespace

Resends::Verdict Resends::Take(const Message& message, int32_t own_id) {
  Peer& peer = peers_[message.peer];
  const Meta& meta = message.meta;
  if (meta.is_control && meta.control.command == Command::kAck) {
    peer.resends = true;
    return {.fresh = false};
  }
  const Counter counter = {meta.is_control, meta.is_control ? 0 : meta.customer_id};
  Verdict verdict;
  if (peer.windows.contains(counter) || peer.windows.size() < kMostCounters) {
    verdict.fresh = peer.windows[counter].Take(meta.timestamp);
  }
  peer.resends = peer.resends || !verdict.fresh;
  if (peer.resends) verdict.ack = MakeAck(SignatureOf(message, own_id));
  return verdict;
}

bool Resends::Window::Take(int32_t number) {
  if (number < 0 || number == kEmpty || number < next_ - kWindow) return true;
  const auto at = [](int64_t n) { return static_cast<size_t>(n % kWindow); };
  for (next_ = std::max(next_, number - kWindow + 1); next_ <= number; ++next_) {
    seen_[at(next_)] = false;
  }
  if (seen_[at(number)]) return false;
  seen_[at(number)] = true;
  return true;
}

}  // namespace ps
