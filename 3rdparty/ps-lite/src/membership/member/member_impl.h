// Member::Impl: the state of a worker or a server in the job.
//
// Phases: registering -> starting (workers wait in the start barrier) -> ready -> over (the job
// failed or ended; only the goodbye is left).  member.cc holds how the node comes in, member_job.cc
// what it does there and how it goes, member_stock.cc what is different where the scheduler node is
// MXNet's own.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/limited_log.h"
#include "membership/attention.h"
#include "membership/control_body.h"
#include "membership/link_watch.h"
#include "membership/nonsense_count.h"
#include "membership/stock/doubt_watch.h"
#include "membership/stock/inbound_watch.h"
#include "membership/stock/resends.h"
#include "membership/task_scope.h"
#include "ps/membership.h"

namespace ps {

class Member::Impl {
 public:
  Impl(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
       const bs::Logger& log);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  void Start(Handler handler);
  void Barrier(int32_t group, StatusCallback done);
  void JoinFinalBarrier();
  void Leave(StatusCallback done);
  void ReportFailure(const bs::Status& why);
  void OnNonsense(int32_t peer, const std::string& what);
  void Send(Message message) { transport_->Send(std::move(message)); }
  void Close(bs::Duration linger);
  const View& view() const { return view_; }

 private:
  enum class Phase { kRegistering, kStarting, kReady, kOver, kClosed };
  struct BarrierCall {
    int32_t group = 0;
    bool start = false;  // the start barrier: has the deadline of the start
    bool last = false;   // the final barrier: no deadline, ended by the job's shutdown
    StatusCallback done;
    uint64_t sequence = 0;
    std::string waits_for;  // the scheduler node's word
  };
  struct Due {
    StatusCallback done;
    bs::Status status;
  };

  // member.cc: coming in
  Transport::Handler TransportHandler();
  void OnMessage(Message message);
  void OnControlMessage(const Message& message);
  // Native, of this job.
  void OnControl(const Meta& meta, const SchedulerBody& said);
  void SendRegistration(Command command);
  void WatchRegistration();
  // Lets nobody wait without a word for a scheduler node that says none.
  void ReportSilence();
  void OnStatus(const Extension& extension);
  void OnAddNode(const Meta& meta, const SchedulerBody& said);
  bs::Result<View> CheckList(const Meta& meta) const;
  void Enter(View view);
  void BecomeReady();
  void OnNewcomer(const Node& node, uint64_t life);
  void OnWorkerVacant(const Node& node, const SchedulerBody& said);
  void OnWorkerLeft(const Node& node);
  // True the first time; announcements may be repeated and overtake each other.
  bool IsNews(const Meta& meta);
  // False if there is nothing more to do with it: a repeat, or an acknowledgement.
  bool TakeStock(const Message& message);
  // From the scheduler node's native word.
  void LearnJob(const Meta& meta, uint64_t job);
  // Fills in which job and which incarnation the message is of.
  void SendControl(Meta meta, MemberBody body = {});
  void Drop(int32_t peer, const std::string& why);
  // The same of what no correct node sends.
  void DropNonsense(int32_t peer, const std::string& why);

  // member_stock.cc: where the scheduler node is MXNet's own
  void OnStockControl(const Message& message);
  void OnStockList(const Meta& meta);
  void OnStockBarrier();
  void SendStockBarrier(int32_t group);
  void SendStockHeartbeat();
  void SendStock(Meta meta);

  // member_job.cc: being there and going
  void SendHeartbeat();
  // Of workers that we have lost and that the scheduler node may have another for.
  void SendUnreachable();
  void CheckScheduler();
  void QueueBarrier(BarrierCall call);
  void BeginBarrier();
  void SendBarrier();
  void EndBarrier(const bs::Status& status);
  void EndAllBarriers(const bs::Status& status);
  void SendLeave();
  void EndLeave(const bs::Status& status);
  // Of native data.
  bool OfAnotherJob(const Extension& data) const { return data.job != JobMark(job_.value_or(0)); }
  // What others may send us, and what may wait for them.
  bool Knows(int32_t peer) const {
    const bool there = peer == kSchedulerId || known_.contains(peer) || lost_.contains(peer);
    return there && !dismissed_.contains(peer);
  }
  // Of data of who is not in the job.
  void TurnAway(const Message& message);
  // Some more times, every two seconds, unless its place is another's by then.
  void TellTheEnd(int32_t id);
  void SetLimits(Transport::Handler* handler);
  void OnLost(int32_t id, const std::string& why);
  void OnInboundEnded(int32_t id, bool torn);
  // A connection with the node has ended, with which something may be lost that travels once.
  void Doubt(int32_t id);
  // It lives, as far as we know.
  void OnUnheard(int32_t id, const std::string& why);
  // Tells a stock worker to end its process, and forgets it.
  void SendEnd(const Node& node, const std::string& why);
  void OnShutdown(const Extension& extension);
  // The job failed: tells the owner, once.
  void Fail(const bs::Status& why);
  // The same without telling the owner.
  void GoOver(const bs::Status& why);
  void TellReady(bs::Result<View> view);
  void Complete(StatusCallback done, const bs::Status& status);
  void RunDue();
  uint64_t NextSequence() { return next_sequence_++; }

  // Constant after Start.
  const MembershipOptions options_;
  Transport* const transport_;
  bs::Executor* const executor_;
  const bs::Logger log_;
  Handler handler_;
  Node own_;        // id once known
  Node scheduler_;  // the entry of the scheduler node

  // Time.
  TaskScope scope_;
  LinkWatch links_;
  InboundWatch inbound_;  // of stock peers
  DoubtWatch doubts_;     // of stock workers, on servers
  Repeater retry_;        // the registration
  Repeater barrier_retry_;
  Repeater leave_retry_;
  Repeater heartbeat_;
  Repeater silence_;  // of the scheduler node while we register
  bs::LimitedLog strangers_;
  NonsenseCount nonsense_;
  std::set<int32_t> dismissed_;  // for too much of it; strangers until another has the place

  // Coming in.
  Phase phase_ = Phase::kRegistering;
  uint64_t next_sequence_;
  uint64_t registration_ = 0;           // its sequence
  std::optional<uint64_t> job_;         // whose scheduler node has answered that
  bs::TimePoint last_word_{};           // of the scheduler node
  std::optional<Attention> attention_;  // once we are in the job
  std::string last_text_;
  bool scheduler_connected_ = false;  // while we register
  bool ready_told_ = false;
  bool ready_due_ = false;  // on its way to the owner

  // In the job.
  View view_;
  std::map<int32_t, Node> known_;     // peers we talk to
  std::map<int32_t, uint64_t> news_;  // latest announcement about a node, by its id
  // Of workers whose place has become free: the life of who has it next, or has it.
  std::map<int32_t, uint64_t> lives_;
  std::map<int32_t, std::pair<Node, std::string>> unreachable_;  // who, and why
  // While nobody else has the place.
  struct Lost {
    Node node;
    std::string why{};
    int told = 0;  // how often that it has ended
  };
  std::map<int32_t, Lost> lost_;
  Resends resends_;                   // of stock peers
  std::deque<BarrierCall> barriers_;  // the first one is under way
  bs::TimerId barrier_timer_ = 0;
  bool joined_final_ = false;
  bool stock_scheduler_ = false;
  int32_t stock_number_ = 1;  // of the next control message to it; the registration had the first

  // Going.
  bs::Status failure_;  // why the job failed
  bs::Status report_;   // what the scheduler node still has to hear from us
  bool ended_ = false;  // the scheduler node said that the job is over
  bool scheduler_lost_ = false;
  bool left_ = false;     // Leave was called
  bool leaving_ = false;  // and is not answered yet
  StatusCallback leave_done_;
  uint64_t leave_sequence_ = 0;
  std::deque<Due> due_;  // callbacks on their way to the owner
};

}  // namespace ps
