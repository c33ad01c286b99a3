// Derives the keys with libsodium and hands them to libzmq.
#include "transport/zmq/zmq_curve.h"

#include <sodium.h>

#include <array>

#include "base/check.h"
#include "base/count_of.h"

namespace ps {
namespace {

// Keeps other uses of the same secret apart; a new way to derive gets a new number.
constexpr std::string_view kPurpose = "bytescheduler CURVE key, version 1";

const unsigned char* Raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

void SetKey(int option, const std::string& key, ZmqSocket* socket) {
  BS_CHECK(zmq_setsockopt(socket->get(), option, key.data(), key.size()) == 0);
}

}  // namespace

bs::Result<CurveKeys> DeriveCurveKeys(std::string_view secret) {
  if (zmq_has("curve") == 0 || sodium_init() < 0) {
    return bs::Status::FailedPrecondition("this libzmq was built without CURVE");
  }
  if (secret.size() < kMinSecretBytes) {
    return bs::Status::InvalidArgument("a secret of " + bs::CountOf(secret.size(), "byte") +
                                       ", want at least " + std::to_string(kMinSecretBytes));
  }
  // BLAKE2b of the secret, keyed with the purpose.
  std::array<unsigned char, crypto_scalarmult_SCALARBYTES> secret_key{};
  std::array<unsigned char, crypto_scalarmult_BYTES> public_key{};
  BS_CHECK(crypto_generichash(secret_key.data(), secret_key.size(), Raw(secret), secret.size(),
                              Raw(kPurpose), kPurpose.size()) == 0);
  BS_CHECK(crypto_scalarmult_base(public_key.data(), secret_key.data()) == 0);
  CurveKeys keys{{public_key.begin(), public_key.end()}, {secret_key.begin(), secret_key.end()}};
  sodium_memzero(secret_key.data(), secret_key.size());
  return keys;
}

void ListenWith(const CurveKeys& keys, ZmqSocket* socket) {
  socket->Set(ZMQ_CURVE_SERVER, 1);
  SetKey(ZMQ_CURVE_SECRETKEY, keys.secret_key, socket);
}

void ConnectWith(const CurveKeys& keys, ZmqSocket* socket) {
  SetKey(ZMQ_CURVE_SERVERKEY, keys.public_key, socket);
  SetKey(ZMQ_CURVE_PUBLICKEY, keys.public_key, socket);
  SetKey(ZMQ_CURVE_SECRETKEY, keys.secret_key, socket);
}

}  // namespace ps
