// A worker that stops in the middle of a push to a server while its heartbeats go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/run_on.h"
#include "capi/job.h"
#include "node/network.h"
#include "node/outcome.h"
#include "protocol/data_body.h"
#include "ps-lite/transport/raw_peer.h"
#include "transport/tcp/tcp_transport.h"
#include "wire/control.h"
#include "wire/wire.h"

namespace bs::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kKey = 7;
constexpr int32_t kServer = ps::ServerId(0);
constexpr std::chrono::seconds kPatience(60);
// Ranks go by host names, backwards: the one that stalls is the last.
constexpr const char* kHost = "127.0.0.1";
constexpr const char* kHostOfOthers = "127.8.0.1";

// A node's transport that takes the server for connected and sends nothing there.
class ApartFromServer final : public ps::Transport {
 public:
  explicit ApartFromServer(LoopThread* io)
      : io_(io), inner_(ps::MakeTcpTransport(io, {}, Logger())) {}
  void Start(Handler handler) override {
    on_connected_ = handler.on_connected;
    inner_->Start(std::move(handler));
  }
  void Bind(const ps::Address& address, BindDone done) override {
    inner_->Bind(address, std::move(done));
  }
  void Connect(int32_t peer, const ps::Address& address, int32_t own_id) override {
    if (peer != kServer) return inner_->Connect(peer, address, own_id);
    io_->Post([this] { on_connected_(kServer); });
  }
  void Disconnect(int32_t peer, Duration linger) override { inner_->Disconnect(peer, linger); }
  void Send(ps::Message message) override { inner_->Send(std::move(message)); }
  void Close(Duration linger) override { inner_->Close(linger); }

 private:
  LoopThread* const io_;
  const std::unique_ptr<ps::Transport> inner_;
  std::function<void(int32_t peer)> on_connected_;
};

// Registers, says its heartbeats and hears of the end; the test sends its pushes.
class Heart {
 public:
  explicit Heart(const Config& config)
      : io_("bs-io"), transport_(std::make_unique<ApartFromServer>(&io_)) {
    const auto options = node::MakeMembershipOptions(config, ps::Role::kWorker);
    EXPECT_TRUE(options.ok());
    member_ = std::make_unique<ps::Member>(options.value(), transport_.get(), &io_, Logger());
    ps::Member::Handler handler;
    handler.on_ready = [this](const Result<ps::View>& view) {
      if (view.ok()) view_ = view.value();
      joined_.Set(view.status());
    };
    handler.on_message = [](const ps::Message&) {};  // answers
    handler.on_failure = [this](Status why) { failure_.Set(std::move(why)); };
    RunOn(&io_, [&] { member_->Start(std::move(handler)); });
  }
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;
  ~Heart() {
    RunOn(&io_, [&] { member_->Close(Duration::zero()); });
    RunOn(&io_, [&] { member_.reset(); });
    transport_.reset();
  }

  void AwaitJoined() {
    ASSERT_TRUE(joined_.WaitFor(kPatience));
    ASSERT_TRUE(joined_.Get()->ok()) << joined_.Get()->ToString();
    ASSERT_EQ(view_.rank, view_.num_workers - 1);
  }
  void Leave() {
    node::Outcome left;
    RunOn(&io_, [&] { member_->Leave("", [&](Status status) { left.Set(std::move(status)); }); });
    ASSERT_TRUE(left.WaitFor(kPatience));
    EXPECT_TRUE(left.Get()->ok()) << left.Get()->ToString();
  }
  // REQUIRES, here and below: it has joined.
  const node::Outcome& failure() const { return failure_; }
  ps::Address server() const {
    for (const ps::Node& node : view_.nodes) {
      if (node.id == kServer) return ps::AddressOf(node);
    }
    return {};
  }
  std::string introduction() const {
    return ps::ZmtpGreeting() + ps::ZmtpReady("DEALER", ps::IdentityOf(view_.own_id));
  }
  // The frames of a push of the first round, meta and data.
  std::pair<std::string, std::string> Push(const Floats& in) const {
    const uint64_t size_bytes = in.size() * sizeof(float);
    ps::Meta meta;
    meta.head = meta.app_id = meta.customer_id = meta.timestamp = 0;
    meta.request = true;
    meta.extension = {
        .version = ps::kExtensionVersion,
        .op = ps::Op::kPush,
        .sequence = 1,
        .incarnation = static_cast<uint16_t>(view_.incarnation),
        .job = ps::JobMark(view_.job),
        .body = protocol::Encode(
            ps::Op::kPush, {.key = kKey, .round = 1, .size_bytes = size_bytes, .dtype = kFloat32})};
    ps::SetDirections(ps::Op::kPush, &meta);
    const std::string data(reinterpret_cast<const char*>(in.data()), size_bytes);
    return {ps::test::FrameOf(ps::EncodeMeta(meta), true), ps::test::FrameOf(data, false)};
  }

 private:
  LoopThread io_;
  std::unique_ptr<ApartFromServer> transport_;
  std::unique_ptr<ps::Member> member_;  // on io_
  ps::View view_;                       // written before joined_ is set
  node::Outcome joined_;
  node::Outcome failure_;
};

// By the server's transport, and whether it has the meta frame and half of the data, or half of
// the meta frame.
class StalledWorker : public ::testing::TestWithParam<std::tuple<const char*, bool>> {
 protected:
  StalledWorker()
      : job_(3, 1,
             {{"BYTESCHEDULER_STRAGGLER_TIMEOUT", "4s"},
              // A node without heartbeats is lost before that.
              {"BYTESCHEDULER_HEARTBEAT_INTERVAL", "200ms"},
              {"BYTESCHEDULER_HEARTBEAT_TIMEOUT", "3s"},
              {"BYTESCHEDULER_SERVER_THREADS", "1"},
              {"BYTESCHEDULER_LOG_LEVEL", "off"}},
             {{"server", {{"BYTESCHEDULER_TRANSPORT", std::get<0>(GetParam())}}},
              {"worker", {{"DMLC_NODE_HOST", kHostOfOthers}}}}) {}

  // The job with its key, and every worker but the one that stalls waits for the first sum.
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(job_.StartScheduler());
    job_.servers.push_back(job_.StartNode("server"));
    std::vector<WorkerPtr> started;
    for (int i = 0; i < 2; ++i) started.push_back(job_.StartWorker());
    std::map<std::string, std::string> settings;
    for (const bs_setting& row : job_.Rows("worker")) settings[row.name] = row.value;
    settings["DMLC_NODE_HOST"] = kHost;
    const Result<Config> config = ConfigFromProcess(settings);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    stalled_ = std::make_unique<Heart>(config.value());
    ASSERT_NO_FATAL_FAILURE(stalled_->AwaitJoined());
    job_.workers.resize(2);
    for (WorkerPtr& worker : started) {
      ASSERT_EQ(bs_worker_ready(worker.get(), kPatienceMs, nullptr), 1);
      const int rank = ViewOf(worker.get()).rank;
      ASSERT_TRUE(rank == 0 || rank == 1);
      job_.workers.at(static_cast<size_t>(rank)) = std::move(worker);
    }
    ASSERT_NO_FATAL_FAILURE(BroadcastAll(&job_, kKey, &out_));
    for (size_t i = 0; i < 2; ++i) {
      waiters_.emplace_back(bs_waiter_new(2));
      ASSERT_EQ(PushPull(job_.workers[i].get(), kKey, in_[i], &out_[i], waiters_[i].get()), 0);
    }
    const auto [meta, data] = stalled_->Push(in_[2]);
    push_ = meta + data;
    begun_bytes_ = std::get<1>(GetParam()) ? meta.size() + data.size() / 2 : meta.size() / 2;
    peer_ = std::make_unique<ps::test::RawPeer>(stalled_->server());
    peer_->Send(stalled_->introduction());
    ASSERT_TRUE(peer_->AwaitGreeting());
    peer_->Send(push_.substr(0, begun_bytes_));
  }

  const std::vector<Floats> in_ = {Floats(10'000, 1), Floats(10'000, 20), Floats(10'000, 300)};
  Job job_;
  std::vector<Floats> out_ = std::vector<Floats>(2, Floats(10'000));
  std::vector<WaiterPtr> waiters_;
  std::unique_ptr<Heart> stalled_;
  std::unique_ptr<ps::test::RawPeer> peer_;
  std::string push_;
  size_t begun_bytes_ = 0;
};

TEST_P(StalledWorker, IsNamedWithTheKeyByTheNodesThatWait) {
  const auto named = AllOf(HasSubstr("key=7 round=1 partition=0 to server 0: after 4 s still "),
                           HasSubstr("waiting for worker 2"));
  for (const WaiterPtr& waiter : waiters_) {
    const bs_error error = Await(waiter.get());
    ASSERT_NE(error.code, 0) << "it has a sum";
    EXPECT_THAT(std::string(error.message), named);
  }
  for (bs_node* node : {job_.servers.front().get(), job_.scheduler.get()}) {
    bs_error error{};
    ASSERT_EQ(bs_node_wait(node, kPatienceMs, &error), 1);
    EXPECT_THAT(std::string(error.message), named);
  }
  ASSERT_TRUE(stalled_->failure().WaitFor(kPatience)) << "it hears nothing of it";
  EXPECT_THAT(stalled_->failure().Get()->message(), named);
}

TEST_P(StalledWorker, IsWaitedForAndItsPushCountsWhenItGoesOn) {
  EXPECT_EQ(bs_waiter_wait(waiters_.front().get(), 500, nullptr), 0);
  peer_->Send(push_.substr(begun_bytes_));
  for (const WaiterPtr& waiter : waiters_) {
    const bs_error error = Await(waiter.get());
    ASSERT_EQ(error.code, 0) << error.message;
  }
  for (const Floats& sum : out_) EXPECT_EQ(sum, Floats(10'000, 321));
  stalled_->Leave();
  stalled_.reset();
  CloseWorkers(&job_);
  ExpectAllEndedWell(&job_);
}

INSTANTIATE_TEST_SUITE_P(Transports, StalledWorker,
                         ::testing::Combine(::testing::Values("tcp", "zmq"), ::testing::Bool()));

}  // namespace
}  // namespace bs::test
