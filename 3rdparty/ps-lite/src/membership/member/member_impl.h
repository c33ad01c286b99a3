// Member::Impl: the state of a worker or a server in the job.
//
// Its own state is one of member_table.h, that of each node of the other side one of neighbours.h.
// member.cc joins the job, member_job.cc takes part and leaves, member_stock.cc differs for a
// scheduler node that is MXNet's own.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/limited_log.h"
#include "membership/attempts.h"
#include "membership/control_body.h"
#include "membership/member/barrier_queue.h"
#include "membership/member/member_table.h"
#include "membership/member/neighbours.h"
#include "membership/pause_detector.h"
#include "membership/reconnect_timer.h"
#include "membership/stock/inbound_watch.h"
#include "membership/stock/resends.h"
#include "membership/stock/suspicion_timer.h"
#include "membership/task_scope.h"
#include "membership/violation_limiter.h"
#include "ps/membership.h"

namespace ps {

class Member::Impl {
 public:
  Impl(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
       const bs::Logger& log, const MemberTable& table, const NeighbourTable& neighbours);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  void Start(Handler handler);
  void Barrier(int32_t group, StatusCallback done);
  void JoinFinalBarrier();
  void Leave(const std::string& reason, StatusCallback done);
  void ReportFailure(const bs::Status& why);
  void OnViolation(int32_t peer, const std::string& what);
  void Send(Message message) { transport_->Send(std::move(message)); }
  void Close(bs::Duration linger);
  const View& view() const { return view_; }

 private:
  // The call of on_ready.
  enum class ReadyCall { kOwed, kPosted, kMade };
  struct Due {
    StatusCallback done;
    bs::Status status;
  };

  // Takes the row of the table for the member's state; false if there is none.
  bool Apply(MemberEvent event, const bs::Status& why = bs::Status::Ok());
  bool Holds(MemberCondition condition) const;
  void Act(MemberAction action, const bs::Status& why);
  bool Holds(NeighbourCondition condition, const Neighbour& neighbour) const;
  void Act(NeighbourAction action, Neighbour* neighbour, const NeighbourDetails& details);

  // member.cc: joining
  Transport::Handler TransportHandler();
  void OnConnected(int32_t peer);
  void OnDisconnected(int32_t peer);
  std::shared_ptr<Landing> Place(int32_t peer, const Meta& meta, uint64_t size_bytes);
  void OnMessage(Message message);
  void OnControlMessage(const Message& message);
  // Native, of this job.
  void OnControl(const Meta& meta, const SchedulerBody& said);
  // The same for the operations without a command.
  void OnOperation(const Meta& meta, const SchedulerBody& said);
  void OnNotice(const Meta& meta, const SchedulerBody& said);
  // True if native data comes from an earlier holder of the sender's place.
  bool IsOfFormer(const Message& message) const;
  // Registers with the scheduler node; a second call does nothing.
  void Register();
  void SendRegistration(Command command);
  void WatchRegistration();
  // Returns the result of connecting to the scheduler node, to stand behind a sentence; may be
  // empty.
  std::string AboutScheduler() const;
  // Logs that the scheduler node is silent, so that the wait is explained.
  void ReportSilence();
  void OnStatus(const Extension& extension);
  void OnAddNode(const Meta& meta, const SchedulerBody& said);
  bs::Result<View> CheckList(const Meta& meta) const;
  void Enter(View view);
  // Connects to the nodes of the list.
  void Connect();
  void JoinStartBarrier();
  void OnNewcomer(const Node& node, uint64_t incarnation);
  void OnWorkerVacant(const Node& node, const SchedulerBody& said);
  void OnWorkerLeft(const Node& node, const std::string& reason);
  // True the first time; notices may be repeated and overtake each other.
  bool IsNews(const Meta& meta);
  // False for a repeat or an acknowledgement, which needs nothing more.
  bool TakeStock(const Message& message);
  // Takes the job's number from a native message of the scheduler node.
  void LearnJob(const Meta& meta, uint64_t job);
  // Adds the job's number and this node's incarnation to the message.
  void SendControl(Meta meta, MemberBody body = {});
  void Drop(int32_t peer, const std::string& why);
  // Drops a message that no correct node sends, and counts it.
  void DropViolation(int32_t peer, const std::string& why);

  // member_stock.cc: a scheduler node that is MXNet's own
  // The scheduler node is MXNet's own, which a worker cannot join.
  void OnStockScheduler();
  void RegisterWithStock();
  void OnStockControl(const Message& message);
  void OnStockList(const Meta& meta);
  void OnStockBarrier();
  void SendStockBarrier(int32_t group);
  void SendStockHeartbeat();
  void SendStock(Meta meta);

  // member_job.cc: in the job, and leaving
  void SendHeartbeat();
  // Reports nodes that we have lost; the scheduler node may replace them.
  void SendUnreachable();
  void CheckScheduler();
  void SendBarrier(const BarrierQueue::Call& call, uint64_t sequence);
  void SendLeave();
  void EndLeave(const bs::Status& status);
  // For native data.
  bool OfAnotherJob(const Extension& data) const { return data.job != JobMark(job_.value_or(0)); }
  // True for nodes of the job, and for lost nodes until another node has the place; false if
  // dismissed.
  bool Knows(int32_t peer) const {
    const bool expected = peer == kSchedulerId || neighbours_.IsExpected(peer) || IsBeside(peer);
    return expected && !dismissed_.contains(peer);
  }
  // A worker of this host, with which this worker shares its sums.
  bool IsBeside(int32_t peer) const { return beside_.contains(peer); }
  // Data of a node that the owner may hear.
  void Deliver(Message message);
  void ConnectBeside();
  // Handles data of a node that is not in the job.
  void TurnAway(const Message& message);
  // The entry of a lost node whose place no other has; null if there is none.
  Neighbour* FindLost(int32_t id);
  // Disconnects from a node that is lost because of `why`.
  void DropLost(Neighbour* neighbour, const std::string& why);
  void NotifyOfVacant(int32_t id, bool native);
  void NotifyOfGoodbye(int32_t id, const std::string& reason);
  // Notifies a lost stock worker, every two seconds for a while, until another has its place.
  void TellTheEnd(int32_t id);
  void SetLimits(Transport::Handler* handler);
  void OnLost(int32_t id, const std::string& why);
  void OnSchedulerLost(const std::string& why);
  // Our connection to the node did not come up in time, or not again.
  void OnUnconnected(int32_t id, const std::string& why);
  // The same for a worker of this host.
  void OnUnconnectedBeside(int32_t id, const std::string& why);
  void OnInboundEnded(int32_t id, bool torn);
  // A connection with the node has ended, and a message that is sent once may be lost with it.
  void Suspect(int32_t id);
  // A stock node fell silent, though it may be alive.
  void OnUnheard(int32_t id, const std::string& why);
  // Orders a stock worker to end its process, and forgets it.
  void SendEnd(const Node& node, const std::string& why);
  void OnShutdown(const Extension& extension);
  // This node fails the job, and says so to the scheduler node.
  void FailJob(const bs::Status& why);
  // The job failed: notifies the owner, once.
  void Fail(const bs::Status& why) { Apply(MemberEvent::kFailure, why); }
  void NotifyOfFailure(const bs::Status& why);
  void NotifyOfEnd();
  // The job is over for this node because of `why`.
  void GoOver(const bs::Status& why);
  void SayGoodbye();
  void TellReady(bs::Result<View> view);
  void Complete(StatusCallback done, const bs::Status& status);
  void RunNextDue();
  uint64_t NextSequence() { return next_sequence_++; }

  // Constant after Start.
  const MembershipOptions options_;
  Transport* const transport_;
  bs::Executor* const executor_;
  const bs::Logger log_;
  Handler handler_;
  Node own_;        // with the id once known
  Node scheduler_;  // the entry of the scheduler node

  // Time.
  TaskScope scope_;
  Attempts attempts_;
  ReconnectTimer reconnect_timer_;
  InboundWatch inbound_;            // for stock peers
  SuspicionTimer suspicion_timer_;  // for stock workers, on servers
  Repeater retry_;                  // repeats the registration
  Repeater leave_retry_;
  Repeater heartbeat_;
  Repeater silence_;  // reports the scheduler node's silence while we register
  bs::LimitedLog limited_log_;
  ViolationLimiter violations_;
  std::set<int32_t> dismissed_;  // sent too many violations: unknown until another has the place

  // Joining.
  const MemberTable table_;
  MemberState state_ = MemberState::kRegistering;
  ReadyCall ready_call_ = ReadyCall::kOwed;
  uint64_t next_sequence_;
  uint64_t registration_ = 0;                    // the sequence of our registration
  std::optional<uint64_t> job_;                  // learnt from the response to it
  bs::TimePoint last_word_{};                    // the scheduler node's latest message
  std::optional<PauseDetector> pause_detector_;  // once we are in the job
  std::string last_text_;
  bool logs_status_ = true;           // the next text
  bool scheduler_connected_ = false;  // while we register
  bool registers_ = false;            // a registration was sent

  // In the job.
  View view_;
  Neighbours neighbours_;
  // The workers of this host, with joins_host.  The other side judges whether they are lost.
  std::map<int32_t, Node> beside_;
  std::vector<Message> early_;  // of these workers, before this worker is ready
  Resends resends_;             // for stock peers
  BarrierQueue barriers_;
  bool joined_final_ = false;
  bool stock_scheduler_ = false;
  int32_t stock_number_ = 1;  // of the next control message to it; the registration had the first

  // Leaving.
  bs::Status failure_;  // why the job failed
  bs::Status report_;   // the failure to report with each heartbeat
  bool ended_ = false;  // the scheduler node said that the job is over
  bool scheduler_lost_ = false;
  StatusCallback leave_done_;
  std::string leave_reason_;
  uint64_t leave_sequence_ = 0;
  std::deque<Due> due_;  // callbacks, each posted by itself
};

}  // namespace ps
