// TransportNode: a transport under test that records what happens and watches that callbacks obey.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/notification.h"
#include "ps/transport.h"

namespace ps::test {

// A message that carries `number` and can be told apart from others.
inline Message Numbered(int32_t peer, int32_t number, int32_t priority = 0) {
  Message message;
  message.peer = peer;
  message.meta.head = 0;
  message.meta.timestamp = number;
  message.meta.priority = priority;
  return message;
}

// A push of native nodes.
inline Message Native(int32_t peer, int32_t number, int32_t priority = 0) {
  Message message = Numbered(peer, number, priority);
  message.meta.extension.version = kExtensionVersion;
  message.meta.extension.op = Op::kPush;
  return message;
}

inline std::vector<int32_t> NumbersOf(const std::vector<Message>& messages) {
  std::vector<int32_t> numbers;
  numbers.reserve(messages.size());
  for (const Message& message : messages) numbers.push_back(message.meta.timestamp);
  return numbers;
}

inline std::vector<int32_t> Count(int32_t first, int32_t end) {
  std::vector<int32_t> numbers(static_cast<size_t>(end - first));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Executors, transports and a way to wait, which each kind of transport brings to the suite.
class TransportWorld {
 public:
  TransportWorld() = default;
  TransportWorld(const TransportWorld&) = delete;
  TransportWorld& operator=(const TransportWorld&) = delete;
  virtual ~TransportWorld() = default;

  // One more executor, which lives as long as the world.
  virtual bs::Executor* NewExecutor() = 0;
  virtual std::unique_ptr<Transport> NewTransport(bs::Executor* executor) = 0;
  // Waits until notified, generously; false if that did not happen.
  virtual bool WaitFor(const bs::Notification& notification) = 0;
  // Port 0 at a host where nodes can bind.
  virtual Address AnyAddress() = 0;
  // An address where no node receives yet, but a node of this world may later.
  virtual Address FreeAddress() = 0;
};

// Counts how often borrowed bytes were given back.
class ReleaseCount {
 public:
  explicit ReleaseCount(TransportWorld* world) : world_(world), state_(std::make_shared<State>()) {}

  // Keeps a copy of `bytes` and spoils it on release, so that a release before the bytes have left
  // is seen at the receiver.
  Frame Borrow(std::vector<std::byte> bytes) const {
    std::vector<std::byte>& kept = state_->kept.emplace_back(std::move(bytes));
    return Frame::Borrow(kept, [state = state_, &kept] {
      std::ranges::fill(kept, std::byte{0xdd});
      const int count = ++state->count;
      if (count == state->wanted) state->reached.Notify();
    });
  }
  int count() const { return state_->count; }
  // Waits for `wanted` releases.  REQUIRES: called once.
  bool Await(int wanted) const {
    state_->wanted = wanted;
    if (state_->count >= wanted) state_->reached.Notify();
    return world_->WaitFor(state_->reached);
  }

 private:
  // Shared with the frames, which may outlive the test's stack when a test fails.
  struct State {
    std::atomic<int> count = 0;
    std::atomic<int> wanted = -1;
    bs::Notification reached;
    std::list<std::vector<std::byte>> kept;
  };
  TransportWorld* const world_;
  const std::shared_ptr<State> state_;
};

class TransportNode {
 public:
  // `knows` as the transport's handler has it.
  explicit TransportNode(TransportWorld* world, std::function<bool(int32_t peer)> knows = {})
      : world_(world),
        executor_(world->NewExecutor()),
        transport_(world->NewTransport(executor_)),
        record_(std::make_shared<Record>()) {
    Transport::Handler handler = HandlerFor(record_, executor_);
    handler.knows = std::move(knows);
    Call([&] { transport_->Start(std::move(handler)); });
  }
  TransportNode(const TransportNode&) = delete;
  TransportNode& operator=(const TransportNode&) = delete;
  ~TransportNode() { End(); }

  bs::Result<int32_t> Bind(const Address& address) {
    const auto result = std::make_shared<bs::Result<int32_t>>(
        bs::Status::DeadlineExceeded("Bind was not answered"));
    const auto answered = std::make_shared<bs::Notification>();
    Call([&] {
      transport_->Bind(address, [=, executor = executor_](const bs::Result<int32_t>& port) {
        ExpectGoodCallback(executor);
        *result = port;
        answered->Notify();
      });
    });
    if (!world_->WaitFor(*answered)) return bs::Status::DeadlineExceeded("Bind was not answered");
    return *result;
  }
  void Connect(int32_t peer, const Address& address, int32_t own_id) {
    Call([&] { transport_->Connect(peer, address, own_id); });
  }
  void Disconnect(int32_t peer, bs::Duration linger) {
    Call([&] { transport_->Disconnect(peer, linger); });
  }
  void Send(Message message) {
    Call([&] { transport_->Send(std::move(message)); });
  }
  void Close(bs::Duration linger) {
    Call([&] { transport_->Close(linger); });
  }
  // Closes inside the callback of the message with this number, counted from 1.
  void CloseAtMessage(size_t number) {
    RunInside([this, number] {
      record_->close_at = number;
      record_->close = [this] { Close(bs::Duration::zero()); };
    });
  }
  // Closes and destroys the transport.
  void End(bs::Duration linger = bs::Duration::zero()) {
    if (!transport_) return;
    Close(linger);
    transport_.reset();
  }
  // Waits until everything posted so far has run.
  void Flush() {
    RunInside([] {});
  }

  bool AwaitMessages(size_t count) {
    return Await([count](const Record& record) { return record.messages.size() >= count; });
  }
  bool AwaitConnects(int32_t peer, int count) {
    return Await([=](const Record& record) { return CountOf(record.connects, peer) >= count; });
  }
  bool AwaitDisconnects(int32_t peer, int count) {
    return Await([=](const Record& record) { return CountOf(record.disconnects, peer) >= count; });
  }
  bool AwaitGarbage(size_t count) {
    return Await([count](const Record& record) { return record.garbage.size() >= count; });
  }

  std::vector<Message> TakeMessages() {
    std::vector<Message> messages;
    RunInside([&] { messages = std::exchange(record_->messages, {}); });
    return messages;
  }
  std::vector<std::pair<int32_t, bs::Status>> TakeGarbage() {
    std::vector<std::pair<int32_t, bs::Status>> garbage;
    RunInside([&] { garbage = std::exchange(record_->garbage, {}); });
    return garbage;
  }
  int connects(int32_t peer) {
    int count = 0;
    RunInside([&] { count = CountOf(record_->connects, peer); });
    return count;
  }
  // True if the node has learnt that this peer is no node of ours.
  bool is_foreign(int32_t peer) {
    bool foreign = false;
    RunInside([&] { foreign = record_->foreign.contains(peer); });
    return foreign;
  }
  bs::Carriers CarriersOf(int32_t peer) {
    bs::Carriers carriers;
    RunInside([&] { carriers = transport_->CarriersOf(peer); });
    return carriers;
  }
  int disconnects(int32_t peer) {
    int count = 0;
    RunInside([&] { count = CountOf(record_->disconnects, peer); });
    return count;
  }

 private:
  // Record of the callbacks; touched on the executor only.
  struct Record {
    std::vector<Message> messages;
    std::vector<std::pair<int32_t, bs::Status>> garbage;
    std::set<int32_t> foreign;
    std::map<int32_t, int> connects;
    std::map<int32_t, int> disconnects;
    size_t close_at = 0;
    std::function<void()> close;
    bool closed = false;
    struct Waiter {
      std::function<bool(const Record&)> condition;
      std::shared_ptr<bs::Notification> fulfilled;
    };
    std::vector<Waiter> waiters;

    void Add(Message message) {
      messages.push_back(std::move(message));
      if (messages.size() != close_at) return;
      closed = true;
      close();
    }
    void NotifyWaiters() {
      std::erase_if(waiters, [this](const Waiter& waiter) {
        if (!waiter.condition(*this)) return false;
        waiter.fulfilled->Notify();
        return true;
      });
    }
  };

  static int CountOf(const std::map<int32_t, int>& counts, int32_t peer) {
    const auto it = counts.find(peer);
    return it == counts.end() ? 0 : it->second;
  }

  // How many calls of a transport this thread is inside of.
  static int& CallDepth() {
    thread_local int depth = 0;
    return depth;
  }
  template <typename F>
  void Call(F call) {
    ++CallDepth();
    call();
    --CallDepth();
  }
  static void ExpectGoodCallback(bs::Executor* executor) {
    EXPECT_EQ(CallDepth(), 0) << "a callback inside a call";
    EXPECT_TRUE(executor->IsCurrent()) << "a callback on another executor";
  }

  static Transport::Handler HandlerFor(const std::shared_ptr<Record>& record,
                                       bs::Executor* executor) {
    const auto note = [record, executor](const auto& change) {
      ExpectGoodCallback(executor);
      EXPECT_FALSE(record->closed) << "a callback after Close";
      change();
      record->NotifyWaiters();
    };
    return {
        .on_message = [=](Message message) { note([&] { record->Add(std::move(message)); }); },
        .on_garbage =
            [=](int32_t peer, bs::Status what) {
              note([&] { record->garbage.emplace_back(peer, std::move(what)); });
            },
        .on_connected = [=](int32_t peer) { note([&] { ++record->connects[peer]; }); },
        .on_disconnected = [=](int32_t peer) { note([&] { ++record->disconnects[peer]; }); },
        .on_foreign =
            [=](int32_t peer) {
              note([&] {
                EXPECT_EQ(CountOf(record->connects, peer), CountOf(record->disconnects, peer))
                    << "after on_connected";
                record->foreign.insert(peer);
              });
            },
    };
  }

  void RunInside(const std::function<void()>& task) {
    bs::Notification done;
    executor_->Post([&] {
      task();
      done.Notify();
    });
    ASSERT_TRUE(world_->WaitFor(done)) << "the executor is stuck";
  }

  bool Await(std::function<bool(const Record&)> condition) {
    const auto fulfilled = std::make_shared<bs::Notification>();
    executor_->Post([record = record_, fulfilled, c = std::move(condition)] {
      record->waiters.push_back({c, fulfilled});
      record->NotifyWaiters();
    });
    return world_->WaitFor(*fulfilled);
  }

  TransportWorld* const world_;
  bs::Executor* const executor_;
  std::unique_ptr<Transport> transport_;
  const std::shared_ptr<Record> record_;  // also held by the transport's handler
};

// A node that receives at a free port of its own, and where that is.
inline std::pair<std::unique_ptr<TransportNode>, Address> BoundNode(TransportWorld* world) {
  auto node = std::make_unique<TransportNode>(world);
  Address address = world->AnyAddress();
  const auto port = node->Bind(address);
  EXPECT_TRUE(port.ok()) << port.status().ToString();
  if (port.ok()) address.port = port.value();
  return {std::move(node), address};
}

}  // namespace ps::test
