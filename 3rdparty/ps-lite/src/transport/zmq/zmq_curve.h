// CURVE: libzmq's encryption and authentication, from a secret that a job shares.
//
// Every node derives the same key pair and both listens and connects with it.  The public key never
// travels, so a peer that completes a handshake knows the secret.  ListenWith and ConnectWith
// belong to the socket's thread; DeriveCurveKeys is pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/zmq/zmq_socket.h"

namespace ps {

inline constexpr size_t kMinSecretBytes = 16;

struct CurveKeys {
  std::string public_key;  // 32 bytes
  std::string secret_key;  // 32 bytes
};

// kInvalidArgument if `secret` is shorter than kMinSecretBytes; kFailedPrecondition if this libzmq
// was built without CURVE.
bs::Result<CurveKeys> DeriveCurveKeys(std::string_view secret);

// REQUIRES: called before the socket binds or connects.
void ListenWith(const CurveKeys& keys, ZmqSocket* socket);
void ConnectWith(const CurveKeys& keys, ZmqSocket* socket);

}  // namespace ps
