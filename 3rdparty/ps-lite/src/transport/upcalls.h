// Upcalls: the handler of a transport, called until the transport is muted.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "ps/transport.h"
#include "wire/wire.h"

namespace ps {

// Confined to the transport's executor, but Mute and muted are thread-safe.  Functions that the
// handler lacks are not called.
class Upcalls {
 public:
  void Start(Transport::Handler handler) { handler_ = std::move(handler); }
  // Drops every callback from now on; a callback that already runs on another thread ends.
  void Mute() { muted_ = true; }
  bool muted() const { return muted_; }

  void OnMessage(Message message) const {
    if (!muted_ && handler_.on_message) handler_.on_message(std::move(message));
  }
  void OnGarbage(int32_t peer, bs::Status what) const {
    if (!muted_ && handler_.on_garbage) handler_.on_garbage(peer, std::move(what));
  }
  void OnConnected(int32_t peer) const {
    if (!muted_ && handler_.on_connected) handler_.on_connected(peer);
  }
  void OnForeign(int32_t peer) const {
    if (!muted_ && handler_.on_foreign) handler_.on_foreign(peer);
  }
  void OnDisconnected(int32_t peer) const {
    if (!muted_ && handler_.on_disconnected) handler_.on_disconnected(peer);
  }
  void OnAttempt(int32_t peer, const std::string& what) const {
    if (!muted_ && handler_.on_attempt) handler_.on_attempt(peer, what);
  }
  void OnInbound(int32_t peer) const {
    if (!muted_ && handler_.on_inbound) handler_.on_inbound(peer);
  }
  void OnInboundEnded(int32_t peer, bool torn) const {
    if (!muted_ && handler_.on_inbound_ended) handler_.on_inbound_ended(peer, torn);
  }
  void OnOverflow(int32_t peer, const std::string& why) const {
    if (!muted_ && handler_.on_overflow) handler_.on_overflow(peer, why);
  }
  std::shared_ptr<Landing> Place(int32_t peer, const Meta& meta, uint64_t size_bytes) const {
    return muted_ || !handler_.place ? nullptr : handler_.place(peer, meta, size_bytes);
  }
  // Knows and MostBytes ask the handler; once muted they give the strictest answer.
  bool Knows(int32_t peer) const { return !muted_ && (!handler_.knows || handler_.knows(peer)); }
  uint64_t MostBytes(int32_t peer, const Meta& meta) const {
    if (!Knows(peer)) return kMaxStrangerBytes;
    return handler_.most_bytes ? handler_.most_bytes(peer, meta) : kMaxMessageBytes;
  }

 private:
  std::atomic<bool> muted_ = false;
  Transport::Handler handler_;
};

}  // namespace ps
