// Keys from a secret, and the peers that they admit.
#include "transport/zmq/zmq_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "ps-lite/transport/transport_node.h"
#include "ps-lite/wire/golden.h"
#include "transport/zmq/zmq_transport.h"

namespace ps::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr std::string_view kSecret = "correct horse battery staple";

TEST(CurveKeys, AreTheSameForAllNodesThatKnowTheSecret) {
  const CurveKeys keys = DeriveCurveKeys(kSecret).value();
  // A change of the derivation shuts out the nodes of the version before.
  EXPECT_EQ(ToHex(keys.public_key),
            "0faa1ede0ca0c8972519b61d0cf19d73d90a53571bc48c39b612330055a8d664");
  EXPECT_EQ(keys.secret_key.size(), 32u);
  EXPECT_NE(DeriveCurveKeys("correct horse battery stable").value().secret_key, keys.secret_key);
}

TEST(CurveKeys, ShortSecretsAreRefused) {
  EXPECT_EQ(DeriveCurveKeys("0123456789abcde").status().code(), bs::StatusCode::kInvalidArgument);
  EXPECT_TRUE(DeriveCurveKeys("0123456789abcdef").ok());
}

// A node on a loop of its own.
class Station {
 public:
  explicit Station(std::optional<CurveKeys> keys)
      : transport_(MakeZmqTransport(&loop_, {.curve = std::move(keys)},
                                    bs::Logger("station", bs::LogLevel::kWarning))) {
    Transport::Handler handler;
    handler.on_message = [this](Message message) {
      meta_ = std::move(message.meta);
      came_.Notify();
    };
    handler.on_connected = [this](int32_t) { connected_.Notify(); };
    transport_->Start(std::move(handler));
  }
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;
  ~Station() { transport_->Close(bs::Duration::zero()); }

  Address Bind() {
    bs::Notification bound;
    Address address{"127.0.0.1", 0};
    transport_->Bind(address, [&](const bs::Result<int32_t>& port) {
      address.port = port.value();
      bound.Notify();
    });
    bound.Wait();
    return address;
  }
  void SendTo(const Address& address) {
    transport_->Connect(8, address, 9);
    Message message{.peer = 8};
    message.meta.body = "gradients";
    transport_->Send(std::move(message));
  }
  bool Heard(bs::Duration patience) { return came_.WaitFor(patience); }
  bool Connected(bs::Duration patience) { return connected_.WaitFor(patience); }

 private:
  bs::LoopThread loop_{"bs-io"};
  Meta meta_;
  bs::Notification came_;
  bs::Notification connected_;
  std::unique_ptr<Transport> transport_;
};

// Captures stderr while it exists; may be read while others still write.
class StderrLog {
 public:
  StderrLog() { BS_CHECK(file_ != nullptr && dup2(fileno(file_), STDERR_FILENO) >= 0); }
  StderrLog(const StderrLog&) = delete;
  StderrLog& operator=(const StderrLog&) = delete;
  ~StderrLog() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    std::fclose(file_);
  }

  // Everything so far; waits up to a minute for `text` to be there.
  std::string Until(const std::string& text) {
    std::string log;
    for (int i = 0; i < 6000 && log.find(text) == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      log.resize(1U << 16U);
      const ssize_t size = pread(fileno(file_), log.data(), log.size(), 0);
      log.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
    }
    return log;
  }

 private:
  const int before_ = dup(STDERR_FILENO);
  std::FILE* const file_ = std::tmpfile();
};

TEST(Curve, ANodeThatKnowsTheSecretIsHeard) {
  Station receiver(DeriveCurveKeys(kSecret).value());
  Station sender(DeriveCurveKeys(kSecret).value());
  sender.SendTo(receiver.Bind());
  EXPECT_TRUE(receiver.Heard(std::chrono::seconds(60)));
}

TEST(Curve, ANodeWithAnotherSecretOrNoneIsRefusedAndLogged) {
  const std::vector<std::optional<CurveKeys>> strangers = {
      std::nullopt, DeriveCurveKeys("another secret, long enough").value()};
  for (const std::optional<CurveKeys>& keys : strangers) {
    StderrLog log;
    Station receiver(DeriveCurveKeys(kSecret).value());
    Station stranger(keys);
    stranger.SendTo(receiver.Bind());
    // Whichever end sees first that the other has another mechanism hangs up and says so.  The
    // address is known only until the peer hangs up.
    EXPECT_THAT(log.Until("handshake"),
                ContainsRegex("the latest caller was (127\\.0\\.0\\.1:[0-9]+|gone already)\\)|"
                              "refused the handshake"));
    EXPECT_FALSE(stranger.Connected(bs::Duration::zero()));
    EXPECT_FALSE(receiver.Heard(bs::Duration::zero()));
  }
}

TEST(Curve, ANodeWithASecretTellsNothingToANodeWithout) {
  StderrLog log;
  Station receiver(std::nullopt);
  Station sender(DeriveCurveKeys(kSecret).value());
  sender.SendTo(receiver.Bind());
  EXPECT_THAT(log.Until("refused the handshake"), HasSubstr("same BYTESCHEDULER_SECRET_FILE"));
  EXPECT_FALSE(receiver.Heard(bs::Duration::zero()));
}

}  // namespace
}  // namespace ps::test
