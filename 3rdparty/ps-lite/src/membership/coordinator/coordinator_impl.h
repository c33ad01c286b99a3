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
#include "membership/coordinator/reliable_broadcast.h"
#include "membership/coordinator/roster.h"
#include "membership/pause_detector.h"
#include "membership/reconnect_timer.h"
#include "membership/stock/inbound_watch.h"
#include "membership/stock/resends.h"
#include "membership/task_scope.h"
#include "membership/violation_limiter.h"
#include "ps/membership.h"

namespace ps {

class Coordinator::Impl {
 public:
  Impl(const MembershipOptions& options, Transport* transport, bs::Executor* executor,
       const bs::Logger& log);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  void Start(Handler handler);
  void Abort(const bs::Status& why);
  void Measure(bs::Metrics* metrics) const;
  void Close(bs::Duration linger);

 private:
  enum class Phase { kGathering, kRunning, kEnding, kFinished };
  // A node that has registered and is not in the job yet.
  struct Early {
    Node node;
    uint64_t sequence = 0;
  };
  // A node of the running job; the key of peers_ is its id.
  struct Peer {
    Node node;
    bool native = false;
    uint64_t sequence = 0;  // that of its registration
    bs::TimePoint last_heard{};
    bool in_list = true;      // false: an attached worker that the servers do not know yet
    bool left = false;        // it said goodbye
    bool left_known = false;  // every server has confirmed that
    bool lost = false;        // its connection is gone, or it is silent
    bool connected = false;   // our connection is up, or was
    bool heard = false;       // a message has come from it with its id
    std::optional<bs::TimePoint> unreachable_since{};  // when it first reported a lost server
    int heartbeats_since_report = 0;                   // heartbeats since its latest report
    uint64_t incarnation = 0;                          // the present or next holder's
    bool vacant = false;                               // lost, and another may take the place
    bool named = false;                                // by WarnOfUnwrapped
    bool dismissed = false;  // sent too many violations: unknown from then on
    bool vacated = false;    // vacant, and every server knows
    std::optional<Early> successor{};
    std::optional<bs::TimePoint> broke{};  // when our connection to it last broke
    bool gone() const { return left || lost; }
  };
  // A worker that registered while every place was taken: a loss may not be noticed yet.
  struct Late {
    Early early;
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
  void OnLeave(int32_t id, const Extension& extension);
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
  Peer* FindPeer(int32_t id);
  // Ids of the native servers that neither left nor are lost.
  std::vector<int32_t> NativeServers() const;

  // coordinator_rendezvous.cc: registration
  void OnRegister(const Message& message);
  // `repeat`: the node has registered before, and waits.
  void Register(const Node& node, const Extension& extension, const MemberBody& said, bool repeat);
  void OnLateRegister(const Node& node, bool native, uint64_t sequence, int32_t wanted_rank,
                      bool repeat);
  // Several processes may register with one address, where one of them listens.  Until a message
  // comes from `peer`, each that goes on registering is sent the list; only the listener receives
  // it.  A process that took the list and is gone has broken the connection by then.
  static void Adopt(Peer* peer, uint64_t sequence, bool repeat);
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
  void AddPeer(const Node& node, bool native, uint64_t sequence);
  void OnAttach(const Node& node, uint64_t sequence, int32_t rank, bool repeat);
  bs::Status CheckAttach(const Node& node, int32_t rank) const;
  void Attach(int32_t rank, const Node& node, uint64_t sequence);
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
  bool MayReplace(int32_t id, const Peer& peer) const;
  void Vacate(Peer* peer, const std::string& why);
  void OnVacated(int32_t id, uint64_t incarnation);
  // True if the node gets the place of a lost worker, now or soon.
  bool TakePlace(const Node& node, bool native, uint64_t sequence, int32_t wanted_rank);
  void TakePlaceOf(Peer* peer, const Node& node, uint64_t sequence);
  // Refuses the worker with `why` unless a place becomes free soon.
  void Hold(Late late, const bs::Status& why);
  void TakeHeld(Peer* peer);
  // The job ends: refuses the workers that wait for a place.
  void RefuseWaiting();
  // True if a registration at a peer's address comes from another process.  The connection broke
  // and came back, as when a process is killed and started again at once.
  bool IsGone(const Peer& peer, uint64_t sequence) const;
  // True for a late repeat of a registration by a lost node.
  bool IsFormer(const Node& node, uint64_t sequence) const;
  void Fill(Peer* peer);
  // Notifies the sender of a message, an earlier holder of a place, that it has none.
  void Dismiss(const Peer& peer, const Message& message);
  // Notifies a node of another job that its job is over: we have its scheduler node's address.
  void DismissOfAnotherJob(const Meta& meta, uint64_t job);
  // True if a node of this job, or one that waits for it, has registered with that address.
  bool HasAddress(const Node& node) const;
  // A server reports a lost worker, or a worker a lost server.
  void OnUnreachable(int32_t id, const Meta& meta, uint32_t lost_incarnation);
  void OnUnreachableServer(int32_t id, const Peer& server, const std::string& why);
  // A worker has sent a heartbeat.  If its reports of a lost server have stopped, it has
  // reconnected.
  static void ForgetOldReport(Peer* peer);

  // coordinator_end.cc: how the job ends
  void OnLost(int32_t id, const std::string& why);
  // Our connection to the node did not come up in time, or not again.
  void OnUnconnected(int32_t id, const std::string& why);
  void OnInboundEnded(int32_t id, bool torn);
  // A stock node fell silent, though it may be alive.
  void OnUnheard(int32_t id, const std::string& why);
  // True if a stock node has no attached worker, which would report a failure to its process.
  bool StandsAlone(int32_t id, const Peer& peer);
  void MarkLeft(Peer* peer);
  // True if `peer` is the stock worker of a process whose attached worker left.
  bool HasLeftBeside(int32_t id, const Peer& peer);
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
  ReconnectTimer reconnect_timer_;
  InboundWatch inbound_;  // for stock nodes
  ReconnectTimer temporary_reconnect_timer_;
  ReliableBroadcast broadcast_;
  Repeater report_;     // gathering: logs missing nodes; ending: notifies registering ones
  Repeater heartbeat_;  // running: checks for silent nodes and for stragglers at barriers
  std::optional<PauseDetector> pause_detector_;  // while running
  bs::LimitedLog limited_log_;
  ViolationLimiter violations_;

  // Gathering.
  Phase phase_ = Phase::kGathering;
  Address root_;  // with the real port
  Roster roster_;
  std::map<int32_t, Early> early_;              // by rank
  std::map<std::string, Temporary> temporary_;  // by "host:port"
  std::map<std::string, Early> yielding_;       // by "host:port": workers of MemberBody::yields
  int32_t next_temporary_;
  int32_t next_refused_;  // the next peer for a message to a node without a place
  int32_t coming_again_ = 0;
  std::deque<std::string> refused_;  // the latest reasons; while gathering
  // The sentences about nodes that register and cannot be reached, by their texts.
  std::map<std::string, std::string> unreached_;
  std::vector<Late> held_;           // while running
  std::map<int32_t, Early> former_;  // by place: the native node that was lost there last
  std::deque<Word> words_;           // not yet sent
  int32_t words_under_way_ = 0;      // each on a connection of its own
  uint64_t words_dropped_ = 0;       // since the last line about it

  // Running.
  std::map<int32_t, Peer> peers_;
  Barriers barriers_;
  Resends resends_;        // for stock peers
  int32_t timestamp_ = 0;  // the protocol's count of control messages
  bool attached_ = false;  // a worker was attached
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
