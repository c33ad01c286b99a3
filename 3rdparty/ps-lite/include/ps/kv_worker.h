// KvWorker: requests to servers, or to workers of this host, each answered exactly once, repeated
// while unanswered.
//
// Confined to one executor (the worker's); OnMessage and every call must come from there; every
// callback runs there, never inside Send.  Bounded by the owner's credit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"
#include "ps/message.h"
#include "ps/transport.h"

namespace ps {

// The questions of a KvWorker about bodies, which it does not read.  Pure functions.
struct BodyRules {
  // True if `response` answers `request`.  A sequence alone does not tell: all workers use the same
  // sequences.
  bool (*answers)(const Body& response, const Body& request) = nullptr;
  // The request for people: "key=7 round=12 partition=2".
  std::string (*describe)(Op op, const Body& request) = nullptr;
  // The body of the kPull that repeats a kPushPull.
  Body (*as_pull)(const Body& push_pull) = nullptr;
};

struct KvWorkerOptions {
  bs::Duration retry_interval = std::chrono::seconds(5);  // unanswered: send again
  bs::Duration timeout = std::chrono::seconds(60);        // nothing at all from the server: give up
  // The server answers but other workers do not come (kPending): give up after this long.
  bs::Duration straggler_timeout = std::chrono::seconds(1800);
  uint64_t incarnation = 0;     // View::incarnation
  uint64_t job = 0;             // View::job
  Role peers = Role::kServer;   // the requests go to nodes of this role
  uint64_t first_sequence = 1;  // of its requests
  BodyRules bodies{};           // all of them
};

struct KvRequest {
  int32_t server = 0;    // its rank, or the rank of a worker: KvWorkerOptions::peers
  Extension extension;   // op, text and body; the rest is filled in
  int32_t priority = 0;  // larger leaves first
  // It waits for other workers as long as the owner likes: straggler_timeout does not count.
  bool waits_for_ever = false;
  // Not copied; must stay valid and unchanged until `done` has run.  May be empty.
  std::span<const std::byte> payload;
  // Where the payload of an answer of that size may be written while `done` has not run; empty:
  // nowhere.
  std::span<std::byte> answer{};
  // Runs once, before `done`: when the first copy of the payload is out of use (the network has it)
  // or, if none was sent, with `done`.  May be empty.
  bs::UniqueFunction<void()> left{};
};

// Requests to one server that were answered with ok, bytes of their payloads, and how long the
// answers took, all together.  A kPushPull counts in both directions; as a push it took until the
// payload had left.
struct KvTraffic {
  struct Direction {
    uint64_t count = 0;
    uint64_t bytes = 0;
    bs::Duration time{};
  };
  Direction pushed;
  Direction pulled;
  uint64_t repeats = 0;  // of any request
};

class KvWorker {
 public:
  using SendFn = std::function<void(Message)>;
  // The final response, or why there is none: kDeadlineExceeded naming the request, the
  // server and the tries; the server's own refusal; kCancelled; kUnavailable.  By then no frame of
  // the payload is in use any more.
  using Done = bs::UniqueFunction<void(bs::Status status, Message response)>;

  // `send` must be callable from the executor.
  KvWorker(const KvWorkerOptions& options, bs::Executor* executor, SendFn send,
           const bs::Logger& log);
  // REQUIRES: FailAll was called, or nothing is pending.
  ~KvWorker();
  KvWorker(const KvWorker&) = delete;
  KvWorker& operator=(const KvWorker&) = delete;

  // Sends until answered.
  void Send(KvRequest request, Done done);
  // Where the payload of a message that is coming in from `peer` belongs; see Transport::Handler.
  std::shared_ptr<Landing> Place(int32_t peer, const Meta& meta, uint64_t size_bytes);
  // A message from a server.  Responses that match no pending request (late repeats) are dropped.
  void OnMessage(Message message);
  // Ends every pending request with `status` as soon as its payload is released; later Sends too.
  void FailAll(const bs::Status& status);
  // Ends the pending requests to one node alike.
  void FailTo(int32_t server, const bs::Status& status);

  size_t pending() const;
  // Every request of a lower sequence has ended.
  uint64_t first_open() const;
  // By the server's rank; servers to which nothing was sent yet may be missing at the end.
  const std::vector<KvTraffic>& traffic() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ps
