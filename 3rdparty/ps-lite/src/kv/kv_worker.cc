// KvWorker: pending requests, their repeats and their deadlines.
#include "ps/kv_worker.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/limited_log.h"
#include "wire/control.h"

namespace ps {
namespace {

std::string_view NameOf(Op op) {
  switch (op) {
    case Op::kDeclare:
      return "declare";
    case Op::kLookup:
      return "lookup";
    case Op::kPush:
      return "push";
    case Op::kPull:
      return "pull";
    case Op::kOptimizer:
      return "optimizer";
    case Op::kPushPull:
      return "push-pull";
    case Op::kRelease:
      return "release";
    case Op::kGiveBack:
      return "give-back";
    case Op::kReady:
      return "ready";
    case Op::kLeave:
      return "goodbye";
    case Op::kGive:
      return "give";
    case Op::kTake:
      return "take";
    case Op::kTaken:
      return "taken";
    case Op::kQuit:
      return "quit";
    default:
      return "request";
  }
}

// Shared by a KvWorker and the frames it lent out, which may be released after it is gone.
struct Pending {
  KvRequest request;
  KvWorker::Done done;
  bs::TimePoint first_sent{};
  bs::TimePoint last_sent{};
  bs::TimePoint left_at{};     // when the first copy was out of use
  bs::TimePoint last_heard{};  // the server's latest word about this request
  bs::TimePoint next_check{};
  uint32_t tries = 0;
  uint32_t frames_out = 0;  // copies that still refer to the payload
  std::string waits_for;    // the server's latest kPending
  bool taken = false;       // the server has the payload, and waits
  // The place of a response that is coming, or broke off: at most one response writes there.
  std::shared_ptr<Landing> landing{};
  bs::Status outcome;
  // Null: not ended.  Apart, as it is larger than all the rest, and most open requests wait.
  std::unique_ptr<Message> response{};
};

// A push-pull that was repeated as a pull may be answered as a pull.
bool Answers(Op answer, Op request) {
  return answer == request || (request == Op::kPushPull && answer == Op::kPull);
}

// A copy is out of use.
void TakeBack(Pending* pending, bs::TimePoint now) {
  if (--pending->frames_out; !pending->request.left) return;
  pending->left_at = now;
  std::exchange(pending->request.left, {})();
}

}  // namespace

class KvWorker::Impl {
 public:
  Impl(const KvWorkerOptions& options, bs::Executor* executor, SendFn send, const bs::Logger& log)
      : options_(options),
        executor_(executor),
        send_(std::move(send)),
        log_(log),
        strangers_(executor, log),
        next_sequence_(options.first_sequence) {
    BS_CHECK(options.bodies.answers && options.bodies.describe && options.bodies.as_pull);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  void Send(KvRequest request, Done done);
  std::shared_ptr<Landing> Place(int32_t peer, const Meta& meta, uint64_t size_bytes);
  void OnMessage(Message message);
  void FailAll(const bs::Status& status);
  void FailTo(int32_t server, const bs::Status& status);
  size_t pending() const { return *open_; }
  uint64_t first_open() const {
    return pending_.empty() ? next_sequence_ : pending_.begin()->first;
  }
  const std::vector<KvTraffic>& traffic() const { return traffic_; }

 private:
  // Shared with the frames lent out; see the struct.
  using PendingPtr = std::shared_ptr<Pending>;

  int32_t PeerOf(const KvRequest& request) const {
    return options_.peers == Role::kWorker ? WorkerId(request.server) : ServerId(request.server);
  }
  // The request that a native response names; null if there is none.
  const PendingPtr* Find(const Extension& response) const;
  void Transmit(const PendingPtr& pending);
  Frame Lend(const PendingPtr& pending);
  void End(const PendingPtr& pending, const bs::Status& outcome, Message response);
  KvTraffic& TrafficOf(const KvRequest& request);
  void CountAnswered(const Pending& pending);
  // Once nothing of the payload is in use any more.
  static void FinishIfReleased(Pending* pending, size_t* open);
  static void PostFinish(bs::Executor* executor, const PendingPtr& pending,
                         const std::shared_ptr<size_t>& open) {
    executor->Post([pending, open] { FinishIfReleased(pending.get(), open.get()); });
  }
  std::string Describe(const KvRequest& request) const;
  void CheckDue();
  void Check(const PendingPtr& pending);
  std::optional<bs::Status> Overdue(const Pending& pending) const;
  // The time from the latest copy of a request to the next copy: longer each time.
  bs::Duration RepeatAfter(const Pending& pending) const;
  void Schedule(const PendingPtr& pending);
  void ArmTimer();

  const KvWorkerOptions options_;
  bs::Executor* const executor_;
  const SendFn send_;
  const bs::Logger log_;
  bs::LimitedLog strangers_;

  uint64_t next_sequence_;
  std::map<uint64_t, PendingPtr> pending_;               // by sequence; not yet ended
  std::set<std::pair<bs::TimePoint, uint64_t>> checks_;  // when to look at which
  bs::TimerId timer_ = 0;
  bs::TimePoint timer_due_{};
  bs::Status failure_;
  std::vector<KvTraffic> traffic_;
  // Requests whose `done` has not run; shared with the frames lent out and posted completions.
  const std::shared_ptr<size_t> open_ = std::make_shared<size_t>(0);
};

KvWorker::Impl::~Impl() {
  BS_CHECK(pending_.empty());
  if (timer_ != 0) executor_->Cancel(timer_);
}

void KvWorker::Impl::Send(KvRequest request, Done done) {
  // Shared with the frames lent out; see Pending.
  const auto pending = std::make_shared<Pending>();
  pending->request = std::move(request);
  pending->done = std::move(done);
  ++*open_;
  if (!failure_.ok()) {
    End(pending, failure_, Message());
    return;
  }
  Extension& extension = pending->request.extension;
  extension.version = kExtensionVersion;
  extension.sequence = next_sequence_++;
  extension.incarnation = static_cast<uint16_t>(options_.incarnation);
  extension.job = JobMark(options_.job);
  pending->first_sent = executor_->Now();
  pending->last_heard = pending->first_sent;
  pending_.emplace(extension.sequence, pending);
  Transmit(pending);
  Schedule(pending);
}

const KvWorker::Impl::PendingPtr* KvWorker::Impl::Find(const Extension& response) const {
  const auto it = pending_.find(response.sequence);
  return it != pending_.end() && response.incarnation == options_.incarnation ? &it->second
                                                                              : nullptr;
}

void KvWorker::Impl::Transmit(const PendingPtr& pending) {
  const KvRequest& request = pending->request;
  Message message;
  message.peer = PeerOf(request);
  Meta& meta = message.meta;
  meta.head = 0;
  meta.request = true;
  meta.app_id = 0;
  meta.customer_id = 0;
  meta.timestamp = static_cast<int32_t>(request.extension.sequence & 0x3fffffffU);
  meta.priority = request.priority;
  meta.extension = request.extension;
  const bool pushes_and_pulls = request.extension.op == Op::kPushPull;
  const bool has_taken = pending->taken && (pushes_and_pulls || request.extension.op == Op::kTake);
  if (has_taken && pushes_and_pulls) {
    meta.extension.op = Op::kPull;
    meta.extension.body = options_.bodies.as_pull(request.extension.body);
  }
  SetDirections(meta.extension.op, &meta);
  if (!request.payload.empty() && !has_taken) message.data.push_back(Lend(pending));
  pending->last_sent = executor_->Now();
  if (++pending->tries > 1) ++TrafficOf(request).repeats;
  send_(std::move(message));
}

Frame KvWorker::Impl::Lend(const PendingPtr& pending) {
  ++pending->frames_out;
  // The last reference moves along, so that everything of the request ends on our executor.
  return Frame::Borrow(
      pending->request.payload,
      [executor = executor_, pending = PendingPtr(pending), open = open_]() mutable {
        executor->Post([executor, pending = std::move(pending), open = std::move(open)] {
          TakeBack(pending.get(), executor->Now());
          FinishIfReleased(pending.get(), open.get());
        });
      });
}

std::shared_ptr<Landing> KvWorker::Impl::Place(int32_t peer, const Meta& meta,
                                               uint64_t size_bytes) {
  const Extension& extension = meta.extension;
  if (!meta.native() || meta.request || extension.status != 0) return nullptr;
  const PendingPtr* const found = Find(extension);
  if (found == nullptr) return nullptr;
  Pending& pending = **found;
  const bool belongs = peer == PeerOf(pending.request) &&
                       Answers(extension.op, pending.request.extension.op) &&
                       options_.bodies.answers(extension.body, pending.request.extension.body) &&
                       size_bytes == pending.request.answer.size() && !pending.landing;
  if (!belongs) return nullptr;
  pending.landing = std::make_shared<Landing>(Landing{.bytes = pending.request.answer});
  return pending.landing;
}

void KvWorker::Impl::OnMessage(Message message) {
  const auto drop = [&](const char* why) {
    strangers_.Warning("dropped a message from " + DescribeSender(message.peer) + ": " + why);
  };
  const Extension& extension = message.meta.extension;
  const PendingPtr* const found = Find(extension);
  if (!message.meta.native() || message.meta.request || found == nullptr) {
    const bool stale = message.meta.native() && !message.meta.request &&
                       extension.sequence < next_sequence_;  // the answer to a repeat
    if (!stale) drop("it answers no request");
    return;
  }
  const PendingPtr pending = *found;
  const Extension& asked = pending->request.extension;
  if (message.peer != PeerOf(pending->request)) {
    return drop("it answers a request to another node");
  }
  const bool waits = extension.op == Op::kPending;
  if (!waits && !Answers(extension.op, asked.op)) return drop("it answers another operation");
  const bool about = options_.bodies.answers(extension.body, asked.body);
  if (!about) return drop("it answers another request");
  pending->last_heard = executor_->Now();
  if (waits) {
    pending->waits_for = extension.text;
    pending->taken = pending->taken || extension.status == 0;
    return;
  }
  const bs::Status outcome = StatusOf(extension);
  if (outcome.ok()) CountAnswered(*pending);
  End(pending, outcome, std::move(message));
}

std::string KvWorker::Impl::Describe(const KvRequest& request) const {
  const Extension& what = request.extension;
  return std::string(NameOf(what.op)) + " " + options_.bodies.describe(what.op, what.body) +
         (options_.peers == Role::kWorker ? " to worker " : " to server ") +
         std::to_string(request.server);
}

KvTraffic& KvWorker::Impl::TrafficOf(const KvRequest& request) {
  const auto server = static_cast<size_t>(request.server);
  if (traffic_.size() <= server) traffic_.resize(server + 1);
  return traffic_[server];
}

void KvWorker::Impl::CountAnswered(const Pending& pending) {
  const KvRequest& request = pending.request;
  const Op op = request.extension.op;
  const auto count = [&](KvTraffic::Direction* direction, uint64_t bytes, bs::TimePoint end) {
    ++direction->count;
    direction->bytes += bytes;
    direction->time += end - pending.first_sent;
  };
  KvTraffic& traffic = TrafficOf(request);
  if (op == Op::kPush || op == Op::kGive) {
    count(&traffic.pushed, request.payload.size(), pending.last_heard);
  }
  // The answer may come before we are told that the payload has left.
  const bool left = !pending.request.left;
  const bool gives_and_takes = op == Op::kTake && !request.payload.empty();
  if (op == Op::kPushPull || gives_and_takes) {
    count(&traffic.pushed, request.payload.size(), left ? pending.left_at : pending.last_heard);
  }
  if (op == Op::kPull || op == Op::kPushPull || op == Op::kTake) {
    count(&traffic.pulled, request.answer.size(), pending.last_heard);
  }
}

void KvWorker::Impl::FailAll(const bs::Status& status) {
  BS_CHECK(!status.ok());
  if (failure_.ok()) failure_ = status;
  for (auto& [sequence, pending] : std::exchange(pending_, {})) {
    End(pending, status, Message());
  }
}

void KvWorker::Impl::FailTo(int32_t server, const bs::Status& status) {
  BS_CHECK(!status.ok());
  for (auto next = pending_.begin(); next != pending_.end();) {
    const PendingPtr pending = (next++)->second;
    if (pending->request.server == server) End(pending, status, Message());
  }
}

void KvWorker::Impl::End(const PendingPtr& pending, const bs::Status& outcome, Message response) {
  const uint64_t sequence = pending->request.extension.sequence;
  pending_.erase(sequence);
  checks_.erase({pending->next_check, sequence});
  if (pending->landing) pending->landing->revoked = true;
  if (pending->landing && pending->landing->writes > 0) {
    pending->landing->on_written = [pending, executor = executor_, open = open_] {
      PostFinish(executor, pending, open);
    };
  }
  pending->outcome = outcome;
  pending->response = std::make_unique<Message>(std::move(response));
  PostFinish(executor_, pending, open_);
}

void KvWorker::Impl::FinishIfReleased(Pending* pending, size_t* open) {
  if (!pending->response || pending->frames_out > 0 || !pending->done) return;
  if (pending->landing && pending->landing->writes > 0) return;
  if (pending->request.left) std::exchange(pending->request.left, {})();
  const Done done = std::move(pending->done);
  --*open;
  done(pending->outcome, std::move(*pending->response));
}

void KvWorker::Impl::CheckDue() {
  timer_ = 0;
  while (!checks_.empty() && checks_.begin()->first <= executor_->Now()) {
    const auto it = pending_.find(checks_.begin()->second);
    checks_.erase(checks_.begin());
    if (it != pending_.end()) Check(PendingPtr(it->second));
  }
  ArmTimer();
}

void KvWorker::Impl::Check(const PendingPtr& pending) {
  if (const std::optional<bs::Status> overdue = Overdue(*pending)) {
    End(pending, *overdue, Message());
    return;
  }
  // An earlier copy that has not left yet waits in our own queue: another would only make it
  // longer.
  const bool due = executor_->Now() >= pending->last_sent + RepeatAfter(*pending);
  if (due && pending->frames_out == 0) {
    log_.Debug([&] {
      return "repeating " + Describe(pending->request) + " after " + TextOf(RepeatAfter(*pending)) +
             ", try " + std::to_string(pending->tries + 1) +
             (pending->waits_for.empty() ? "" : "; it waits for " + pending->waits_for);
    });
    Transmit(pending);
  }
  Schedule(pending);
}

std::optional<bs::Status> KvWorker::Impl::Overdue(const Pending& pending) const {
  const bs::TimePoint now = executor_->Now();
  const std::string what = Describe(pending.request);
  if (now >= pending.last_heard + options_.timeout) {
    return bs::Status::DeadlineExceeded(what + ": no response in " + TextOf(options_.timeout) +
                                        " (" + std::to_string(pending.tries) +
                                        (pending.tries == 1 ? " try)" : " tries)"));
  }
  if (!pending.request.waits_for_ever && now >= pending.first_sent + options_.straggler_timeout) {
    return bs::Status::DeadlineExceeded(
        what + ": after " + TextOf(options_.straggler_timeout) + " still waiting for " +
        (pending.waits_for.empty() ? "a response" : pending.waits_for));
  }
  return std::nullopt;
}

bs::Duration KvWorker::Impl::RepeatAfter(const Pending& pending) const {
  // A repeat of a pull may bring the whole sum again once the first has left its server.  So on a
  // slow link, repeats at a fixed interval would add to the backlog that they wait for.
  constexpr uint32_t kMaxDoublings = 3;
  const uint32_t doublings = std::min(pending.tries - 1, kMaxDoublings);
  // And once before giving up, as only a repeat makes the server name the cause of its wait.
  bs::Duration longest = std::max(options_.retry_interval, options_.timeout / 4);
  if (!pending.request.waits_for_ever) longest = std::min(longest, options_.straggler_timeout / 2);
  return std::min(options_.retry_interval * (1 << doublings), longest);
}

void KvWorker::Impl::Schedule(const PendingPtr& pending) {
  const bs::TimePoint now = executor_->Now();
  bs::TimePoint give_up = pending->last_heard + options_.timeout;
  if (!pending->request.waits_for_ever) {
    give_up = std::min(give_up, pending->first_sent + options_.straggler_timeout);
  }
  // A repeat that is held back by an earlier copy is looked at again one interval later.
  const bs::TimePoint held = now + options_.retry_interval;
  const bs::TimePoint repeat = pending->last_sent + RepeatAfter(*pending);
  pending->next_check = std::min(give_up, repeat > now ? repeat : held);
  checks_.emplace(pending->next_check, pending->request.extension.sequence);
  ArmTimer();
}

void KvWorker::Impl::ArmTimer() {
  if (checks_.empty()) return;
  const bs::TimePoint due = checks_.begin()->first;
  if (timer_ != 0 && timer_due_ <= due) return;
  if (timer_ != 0) executor_->Cancel(timer_);
  timer_ = executor_->PostAt(timer_due_ = due, [this] { CheckDue(); });
}

KvWorker::KvWorker(const KvWorkerOptions& options, bs::Executor* executor, SendFn send,
                   const bs::Logger& log)
    : impl_(std::make_unique<Impl>(options, executor, std::move(send), log)) {}
KvWorker::~KvWorker() = default;
void KvWorker::Send(KvRequest request, Done done) {
  impl_->Send(std::move(request), std::move(done));
}
std::shared_ptr<Landing> KvWorker::Place(int32_t peer, const Meta& meta, uint64_t size_bytes) {
  return impl_->Place(peer, meta, size_bytes);
}
void KvWorker::OnMessage(Message message) { impl_->OnMessage(std::move(message)); }
void KvWorker::FailAll(const bs::Status& status) { impl_->FailAll(status); }
void KvWorker::FailTo(int32_t server, const bs::Status& status) { impl_->FailTo(server, status); }
size_t KvWorker::pending() const { return impl_->pending(); }
uint64_t KvWorker::first_open() const { return impl_->first_open(); }
const std::vector<KvTraffic>& KvWorker::traffic() const { return impl_->traffic(); }

}  // namespace ps
