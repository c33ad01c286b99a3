// Member::Impl: the state of a worker or a server in the job.
//
// Its own state is one of member_table.h.  Contacts has the nodes that it works with, BarrierQueue
// its barriers.  member.cc joins the job, member_job.cc takes part and leaves, member_stock.cc
// differs for a scheduler node that is MXNet's own.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "membership/member/barrier_queue.h"
#include "membership/member/contacts.h"
#include "membership/member/member_context.h"
#include "membership/member/member_table.h"
#include "membership/pause_detector.h"
#include "membership/task_scope.h"
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
  void OnViolation(int32_t peer, const std::string& what) { contacts_.OnViolation(peer, what); }
  void Send(Message message) { context_.transport->Send(std::move(message)); }
  void Close(bs::Duration linger);
  const View& view() const { return context_.view; }

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
  // Takes the job's number from a native message of the scheduler node.
  void LearnJob(const Meta& meta, uint64_t job);
  // Handles data of a worker of this host.
  void Deliver(Message message);

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
  void CheckScheduler();
  void SendBarrier(const BarrierQueue::Call& call, uint64_t sequence);
  void SendLeave();
  void EndLeave(const bs::Status& status);
  void SetLimits(Transport::Handler* handler);
  void OnSchedulerLost(const std::string& why);
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

  MemberContext context_;
  bs::Executor* const executor_;
  Node scheduler_;  // the entry of the scheduler node

  // Time.
  Repeater retry_;  // repeats the registration
  Repeater leave_retry_;
  Repeater heartbeat_;
  Repeater silence_;  // reports the scheduler node's silence while we register

  // Joining.
  const MemberTable table_;
  ReadyCall ready_call_ = ReadyCall::kOwed;
  uint64_t registration_ = 0;                    // the sequence of our registration
  bs::TimePoint last_word_{};                    // the scheduler node's latest message
  std::optional<PauseDetector> pause_detector_;  // once we are in the job
  std::string last_text_;
  bool logs_status_ = true;           // the next text
  bool scheduler_connected_ = false;  // while we register
  bool registers_ = false;            // a registration was sent

  // In the job.
  Contacts contacts_;
  std::vector<Message> early_;  // of workers of this host, before this worker is ready
  BarrierQueue barriers_;
  // The number of the next message to a stock scheduler node; the registration had the first.
  int32_t stock_number_ = 1;

  // Leaving.
  bs::Status failure_;  // why the job failed
  bs::Status report_;   // the failure to report with each heartbeat
  bool ended_ = false;  // the scheduler node said that the job is over
  StatusCallback leave_done_;
  std::string leave_reason_;
  uint64_t leave_sequence_ = 0;
  std::deque<Due> due_;  // callbacks, each posted by itself
};

}  // namespace ps
