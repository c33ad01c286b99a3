// Coordinator::Impl: the state of the scheduler node.
//
// Phases: gathering (nodes register) -> running -> ending (all nodes are notified) -> finished.
// coordinator.cc runs the job; coordinator_rendezvous.cc registers nodes.  coordinator_refusal.cc
// notifies nodes that get no place; coordinator_rejoin.cc replaces lost workers; coordinator_end.cc
// ends the job.
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
#include "membership/coordinator/barriers.h"
#include "membership/coordinator/detector.h"
#include "membership/coordinator/peers.h"
#include "membership/coordinator/reliable_broadcast.h"
#include "membership/coordinator/roster.h"
#include "membership/reconnect_timer.h"
#include "membership/stock/resends.h"
#include "membership/task_scope.h"
#include "ps/membership.h"

namespace ps {

class Coordinator::Impl {
 public:
  Impl(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
       const bs::Logger& log, PeerTable table);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  void Start(Handler handler);
  void Abort(const bs::Status& why);
  void Measure(bs::Metrics* metrics) const;
  void Close(bs::Duration linger);

 private:
  enum class Phase { kGathering, kRunning, kEnding, kFinished };
  // A worker that registered while every place was taken: a loss may not be noticed yet.
  struct Late {
    Registrant early;
    bool native = false;
    int32_t attach_rank = -1;  // an attached worker's wanted rank
    int32_t wanted_rank = -1;  // another worker's; -1: any
  };
  // The one message to a node without a place; a stock node is ended.
  struct Word {
    Node node;
    std::optional<Meta> meta;  // for a native node
    std::string why{};         // for a stock node
  };
  // A node that waits for the others, and the transport's peer for it.
  struct Temporary {
    Node node;
    int32_t peer = kEmpty;
  };
  // coordinator.cc: messages
  Transport::Handler TransportHandler();
  void OnMessage(const Message& message);
  // False for a repeat or an acknowledgement, which needs nothing more.
  bool TakeStock(const Message& message);
  // A stock worker registers once more, for another store of its process.
  void OnSecondStore(const Peer& peer);
  void OnBarrier(int32_t id, const Message& message);
  void OnHeartbeat(int32_t id, const Message& message, const MemberBody& said);
  void OnPeerOp(int32_t id, const Message& message);
  void OnLeave(int32_t id, const Message& message);
  void AnnounceGoodbye(const Peer& peer, uint64_t sequence);
  // Responds to a goodbye.
  void Respond(int32_t id, uint64_t sequence);
  void CheckSilence();
  void EndForStragglers();
  // The body of what has none yet says which job this is.
  void Send(int32_t peer, Meta meta);
  void SendUnnumbered(int32_t peer, Meta meta);
  // Returns the body of a message that is about the node of `rank`.
  Body BodyAbout(Op op, int32_t rank, uint64_t incarnation) const {
    return Encode(op, SchedulerBody{.job = options_.job, .incarnation = incarnation, .rank = rank});
  }
  void SendAnswers(const Barriers::Answers& answers);
  void Drop(const Message& message, const std::string& why);
  // Drops a message that no correct node sends, and counts it.
  void DropViolation(const Message& message, const std::string& why);
  void OnViolation(int32_t id, const std::string& what);
  Peer* FindPeer(int32_t id) { return peers_.Find(id); }
  bool Holds(PeerCondition condition, const Peer& peer, const PeerDetails& details) const;
  void Act(PeerAction action, Peer* peer, const PeerDetails& details);
  // The same for the actions of joining; of leaving and losses.
  void ActOnJoining(PeerAction action, Peer* peer, const PeerDetails& details);
  void ActOnEnd(PeerAction action, Peer* peer, const PeerDetails& details);

  // coordinator_rendezvous.cc: registration
  void OnRegister(const Message& message);
  // `repeat`: the node has registered before, and waits.
  void Register(const Node& node, const Extension& extension, const MemberBody& said, bool repeat);
  void OnLateRegister(const Node& node, bool native, uint64_t sequence, int32_t wanted_rank,
                      bool repeat);
  // True if a registration at the address of a holder needs nothing more.  False if another process
  // has registered there and the holder is gone.
  bool IsOfHolder(int32_t id, const Node& node, uint64_t sequence, bool repeat);
  // `first`: the node that has the address already.
  void WarnOfSharedAddress(const Node& node, const std::string& first);
  void Report();
  // A server of MXNet's own that has registered; null if there is none.
  const Node* StockServer() const;
  static bs::Status ServersAreStock(const Node& worker, const Node& server);
  // Refuses the workers that leave their places where a server is MXNet's own.
  void RefuseYielding(const Node& server);
  // The node has its place no longer.
  void RemoveNode(const Node& node);
  // Not ok, with the reason, if the registered nodes cannot form a job.
  bs::Status CheckRing() const;
  void CompleteRendezvous();
  // From now on the node holds the place, and is connected to.
  void Connect(Peer* peer, const Node& node, bool native, uint64_t sequence, bs::Duration patience);
  void OnAttach(const Node& node, uint64_t sequence, int32_t rank, bool repeat);
  void OnEarlyAttach(const Node& node, uint64_t sequence, int32_t rank);
  void HoldAttached(const Registrant& newcomer, int32_t rank, const Node& holder);
  bs::Status CheckAttach(const Node& node, int32_t rank) const;
  void Introduce(Peer* peer, const Registrant& newcomer);
  // Every server must know the newcomer before it sends anything there.  Logs `text` then.
  void NotifyServers(const Peer& newcomer, const std::string& text);
  // Names each stock worker without an attached one, once: some time after the start, or when it
  // ends.  Not where a server is MXNet's own: there a wrapped store has no attached worker either.
  void WarnOfUnwrapped();
  void SendList(int32_t id);
  Node OwnEntry() const;
  // Connects soon to a node that waits for others, to notice if it dies.
  void WatchSoon(const Node& node, bool native);
  // Returns the peer of a connection to a node without an id, which shows if the node is there.
  int32_t TemporaryPeer(const Node& node, bool native);
  void Watch(int32_t peer, const Node& node, bool native);
  // Such a connection broke while nodes are missing: the next node that registers gets the place.
  void OnTemporaryLost(int32_t peer, const std::string& why);
  // Returns the addresses, "host:port", that connections reached.
  std::set<std::string> CloseTemporaryPeers();
  // A connection to a node that waits for others came up.
  void OnTemporaryConnected(int32_t peer);
  void SendStatus(int32_t peer, uint64_t sequence, const bs::Status& status,
                  const std::string& text);

  // coordinator_refusal.cc: nodes without a place
  // True, and the node is refused, if its settings differ from ours.
  bool SettingsDiffer(const Node& node, uint64_t sequence, const std::string& settings);
  // "; refused: ...; no connection to ...": the nodes without a place, and those that no connection
  // reaches, while others are missing; empty if there are none.
  std::string Refused() const;
  // True if a refused node may get the place of one that is gone.  The node registers again, or a
  // timer here repeats it for a stock node.  Opens missing connections to nodes of its role, which
  // show if they are alive.
  bool ComesAgain(const Node& node, bool native);
  void Refuse(const Node& node, bool native, uint64_t sequence, const bs::Status& why);
  // The status for nodes that register after the job has ended.
  bs::Status Over() const;
  void TellOnce(Word word);
  void TellWaiting();

  // coordinator_rejoin.cc: the place of a worker that was lost
  bool MayReplace(const Peer& peer) const;
  void Vacate(Peer* peer, const std::string& why);
  // Returns the id of the free place that suits the node best; kEmpty if there is none.
  int32_t FindPlace(const Node& node, bool native, int32_t wanted_rank) const;
  // True if the node gets the place of a lost worker, now or soon.
  bool TakePlace(const Node& node, bool native, uint64_t sequence, int32_t wanted_rank);
  // Refuses the worker with `why` unless a place becomes free soon.
  void Hold(Late late, const bs::Status& why);
  void TakeHeld(Peer* peer);
  // The job ends: refuses the workers that wait for a place.
  void RefuseWaiting();
  // True for a late repeat of a registration by a lost node.
  bool IsFormer(const Node& node, uint64_t sequence) const;
  void Fill(Peer* peer, const Registrant& next);
  void FailPlace(const Peer& peer, const std::string& why);
  // Notifies the sender of a message, an earlier holder of a place, that it has none.
  void Dismiss(const Peer& peer, const Message& message);
  // Notifies a node of another job that its job is over: we have its scheduler node's address.
  void DismissOfAnotherJob(const Meta& meta, uint64_t job);
  // True if a node of this job, or one that waits for it, has registered with that address.
  bool HasAddress(const Node& node) const;
  // A server reports a lost worker, or a worker a lost server.
  void OnUnreachable(int32_t id, const Meta& meta, uint32_t lost_incarnation);

  // coordinator_end.cc: how the job ends
  void OnLost(int32_t id, const std::string& why);
  void OnInboundEnded(int32_t id, bool torn);
  // A stock node fell silent, though it may be alive.
  void OnUnheard(int32_t id, const std::string& why);
  // True if a stock node has no attached worker, which would report a failure to its process.
  bool StandsAlone(int32_t id, const Peer& peer);
  void EndForLoss(const Peer& peer, const std::string& why);
  // The node left or is lost: no connection to it and no confirmation of it is missed.
  void Forget(int32_t id);
  // The node left: its barriers end, too.
  void EndBarriers(const Peer& peer);
  // True if `peer` is the stock worker of a process whose attached worker left.
  bool HasLeftBeside(const Peer& peer) const;
  // True if a stock worker left without the final barrier, and all others did or wait there.
  bool StockWorkersAreOver() const;
  // Ends the job in good order if no node has work left.
  void CheckEnd();
  void EndJob(const bs::Status& verdict);
  void TellGathered();
  void TellRunning();
  // Notifies nodes that may not know the job's number yet; they take only responses to their
  // registration.
  void TellRegistering();
  void MaybeFinish();
  // Ends the stock nodes without an attached worker: no other process notifies them.
  void EndStockNodes();
  // Ends the process of a stock node: its protocol has no message for a failure.
  void EndStockNode(const Node& node, int32_t peer, const std::string& why);
  void Finish();

  // Constant after Start.
  const MembershipOptions options_;
  Transport* const transport_;
  bs::Executor* const executor_;
  const bs::Logger log_;
  Handler handler_;

  // Time.
  TaskScope scope_;
  Attempts attempts_;
  Detector detector_;
  ReconnectTimer temporary_reconnect_timer_;
  ReliableBroadcast broadcast_;
  Repeater report_;     // gathering: logs missing nodes; ending: notifies registering ones
  Repeater heartbeat_;  // running: checks for silent nodes and for stragglers at barriers
  bs::LimitedLog limited_log_;

  // Gathering.
  Phase phase_ = Phase::kGathering;
  Address root_;  // with the real port
  Roster roster_;
  std::map<int32_t, Registrant> early_;         // by rank
  std::map<std::string, Temporary> temporary_;  // by "host:port"
  std::map<std::string, Registrant> yielding_;  // by "host:port": workers of MemberBody::yields
  int32_t next_temporary_;
  int32_t next_refused_;  // the next peer for a message to a node without a place
  int32_t coming_again_ = 0;
  std::deque<std::string> refused_;  // the latest reasons; while gathering
  // The sentences about nodes that register and cannot be reached, by their texts.
  std::map<std::string, std::string> unreached_;
  std::vector<Late> held_;                // while running
  std::map<int32_t, Registrant> former_;  // by place: the native node that was lost there last
  std::deque<Word> words_;                // not yet sent
  int32_t words_under_way_ = 0;           // each on a connection of its own
  uint64_t words_dropped_ = 0;            // since the last line about it

  // Running.
  Peers peers_;
  Barriers barriers_;
  Resends resends_;                                   // for stock peers
  int32_t timestamp_ = 0;                             // the protocol's count of control messages
  bool attached_ = false;                             // a worker was attached
  std::set<std::pair<int32_t, uint64_t>> unwrapped_;  // warned of: id and incarnation
  bool final_timer_ = false;
  std::optional<bs::TimePoint> stock_replaced_;  // when a stock worker was last replaced

  // Ending.
  bs::Status verdict_;
  std::vector<int32_t> alone_;  // stock nodes without an attached worker
  bool everyone_told_ = false;
  bool farewell_over_ = false;
  bool farewell_timer_ = false;
  bool closed_ = false;
};

}  // namespace ps
