// Coordinator::Impl: the state of the scheduler node.
//
// Phases: gathering (nodes register) -> running -> ending (everyone is told) -> finished.
// coordinator.cc holds what runs the job, coordinator_rendezvous.cc how nodes come in,
// coordinator_refusal.cc what those hear that get no place, coordinator_rejoin.cc how the place of
// a lost worker is taken, coordinator_end.cc how it ends.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/limited_log.h"
#include "membership/attention.h"
#include "membership/control_body.h"
#include "membership/coordinator/announcer.h"
#include "membership/coordinator/barriers.h"
#include "membership/coordinator/roster.h"
#include "membership/link_watch.h"
#include "membership/nonsense_count.h"
#include "membership/stock/inbound_watch.h"
#include "membership/stock/resends.h"
#include "membership/task_scope.h"
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
  void Measure(bs::Figures* figures) const;
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
    uint64_t sequence = 0;  // of its registration
    bs::TimePoint last_heard{};
    bool in_list = true;      // false: an attached worker that the servers do not know yet
    bool left = false;        // said goodbye
    bool left_known = false;  // and every server confirmed that it knows
    bool lost = false;        // its connection is gone, or it is silent
    bool connected = false;   // or was
    bool heard = false;       // as the node that has the place
    std::optional<bs::TimePoint> cut{};  // since it, a worker, has said that it lost a server
    int heartbeats_since_cut = 0;        // and has not said again
    uint64_t life = 0;                   // of who has the place, or will have it next
    bool vacant = false;                 // lost, and another may take the place
    bool dismissed = false;              // sent too much that makes no sense: a stranger now
    bool vacated = false;                // and every server knows
    std::optional<Early> successor{};
    std::optional<bs::TimePoint> broke{};  // when our connection to it did last
    bool gone() const { return left || lost; }
  };
  // A worker that has come though every place is taken: one of them may be lost and not noticed
  // yet.
  struct Late {
    Early early;
    bool native = false;
    int32_t attach_rank = -1;  // of an attached worker
  };
  // What a node without a place is told, once; a stock one is ended.
  struct Word {
    Node node;
    std::optional<Meta> meta;  // for a native node
    std::string why{};         // for a stock one, which is ended
  };
  // A node that waits for the others: who it is, and the transport's peer.
  struct Temporary {
    Node node;
    int32_t peer = kEmpty;
  };
  // coordinator.cc: messages
  Transport::Handler TransportHandler();
  void OnMessage(const Message& message);
  // False if there is nothing more to do with it: a repeat, or an acknowledgement.
  bool TakeStock(const Message& message);
  void OnBarrier(int32_t id, const Message& message);
  void OnHeartbeat(int32_t id, const Message& message, const MemberBody& said);
  void OnPeerOp(int32_t id, const Message& message);
  void OnLeave(int32_t id, const Extension& extension);
  void CheckSilence();
  void WarnOfStragglers();
  // The body of what has none yet says which job this is.
  void Send(int32_t peer, Meta meta);
  void SendUnnumbered(int32_t peer, Meta meta);
  // Of a message that is about the node of `rank`.
  Body BodyAbout(int32_t rank, uint64_t incarnation) const {
    return Encode(SchedulerBody{.job = options_.job, .incarnation = incarnation, .rank = rank});
  }
  void SendAnswers(const Barriers::Answers& answers);
  void Drop(const Message& message, const std::string& why);
  // The same of what no correct node sends.
  void DropNonsense(const Message& message, const std::string& why);
  void OnNonsense(int32_t id, const std::string& what);
  Peer* FindPeer(int32_t id);
  // Ids of native servers that are there.
  std::vector<int32_t> NativeServers() const;

  // coordinator_rendezvous.cc: registration
  void OnRegister(const Message& message);
  // `repeat`: it has registered before, and waits.
  void Register(const Node& node, const Extension& extension, const MemberBody& said, bool repeat);
  void OnLateRegister(const Node& node, bool native, uint64_t sequence, bool repeat);
  // Several processes may register with one address, which is that of one of them.  While nobody
  // has been heard as `peer`, who goes on registering is sent the list; only who listens there gets
  // it.  One that took the list and is gone has broken the connection by then.
  static void Adopt(Peer* peer, uint64_t sequence, bool repeat);
  // `first` has it already.
  void WarnOfSharedAddress(const Node& node, const std::string& first);
  void Report();
  // Why the nodes that have come can be no job.
  bs::Status CheckRing() const;
  void CompleteRendezvous();
  void AddPeer(const Node& node, bool native, uint64_t sequence);
  void OnAttach(const Node& node, uint64_t sequence, int32_t rank, bool repeat);
  bs::Status CheckAttach(const Node& node, int32_t rank) const;
  void Attach(int32_t rank, const Node& node, uint64_t sequence);
  // Some time after the first was attached: of stock workers beside whom there is none.
  void WarnOfUnwrapped();
  void SendList(int32_t id);
  Node OwnEntry() const;
  // It waits for others: so that we notice if it dies.
  void WatchSoon(const Node& node, bool native);
  // A connection to a node that has no id yet, which shows whether it is there.
  int32_t TemporaryPeer(const Node& node, bool native);
  void Watch(int32_t peer, const Node& node, bool native);
  // One that broke while others are still missing: the place is free for the next that registers.
  void OnTemporaryLost(int32_t peer, const std::string& why);
  void CloseTemporaryPeers();
  void SendStatus(int32_t peer, uint64_t sequence, const bs::Status& status,
                  const std::string& text);

  // coordinator_refusal.cc: nodes without a place
  // Whether its settings are other ones than ours; it is refused then.
  bool SettingsDiffer(const Node& node, uint64_t sequence, const std::string& settings);
  // "; refused: ...": who did not get a place while others are missing; empty if nobody.
  std::string Refused() const;
  // True if who is refused may have the place of one that is gone: it comes again, by itself or by
  // us.  Opens connections to those of its role that have none yet, which show whether they live.
  bool ComesAgain(const Node& node, bool native);
  void Refuse(const Node& node, bool native, uint64_t sequence, const bs::Status& why);
  // What those hear that come when the job has ended.
  bs::Status Over() const;
  void TellOnce(Word word);
  void TellWaiting();

  // coordinator_rejoin.cc: the place of a worker that was lost
  bool MayReplace(int32_t id, const Peer& peer) const;
  void Vacate(Peer* peer, const std::string& why);
  void OnVacated(int32_t id, uint64_t life);
  // True if the node may have the place of a worker that was lost, now or soon.
  bool TakePlace(const Node& node, bool native, uint64_t sequence);
  void TakePlaceOf(Peer* peer, const Node& node, uint64_t sequence);
  // Refuses it with `why` unless a place becomes free soon.
  void Hold(Late late, const bs::Status& why);
  void TakeHeld(Peer* peer);
  // The job ends: those that wait for a place get none.
  void RefuseWaiting();
  // Whether who registers at the address of a node of the job is another process: its connection
  // broke and came back, as it does when a process is killed and started again at once.
  bool IsGone(const Peer& peer, uint64_t sequence) const;
  // Whether it is a late repeat of one that was lost.
  bool IsFormer(const Node& node, uint64_t sequence) const;
  void Fill(Peer* peer);
  // Tells who sends as an earlier holder of a place that it has none.
  void Dismiss(const Peer& peer, const Message& message);
  // Tells a node of another job, which has lost its scheduler node to us, that its job is over.
  void DismissOfAnotherJob(const Meta& meta, uint64_t job);
  // Whether a node of this job, or one that waits to be, registered with that node's address.
  bool HasAddress(const Node& node) const;
  // A server has lost a worker, or a worker a server.
  void OnUnreachable(int32_t id, const Meta& meta, uint32_t lost_incarnation);
  void OnCutWorker(int32_t id, const Peer& server, const std::string& why);
  // A worker has sent a heartbeat: one that says nothing of a server any more has found it again.
  static void ForgetOldCut(Peer* peer);

  // coordinator_end.cc: how the job ends
  void OnLost(int32_t id, const std::string& why);
  void OnInboundEnded(int32_t id, bool torn);
  // A stock node, which lives, as far as we know.
  void OnUnheard(int32_t id, const std::string& why);
  // Whether no native worker stands beside a stock node, to tell its process what has failed.
  bool StandsAlone(int32_t id, const Peer& peer);
  void MarkLeft(Peer* peer);
  // Ends the job in good order if nobody has anything left to do.
  void CheckEnd();
  void EndJob(const bs::Status& verdict);
  void TellGathered();
  void TellRunning();
  // Those who may not know the number of the job yet: they take only what answers their
  // registration.
  void TellRegistering();
  void MaybeFinish();
  // Those that no native worker stands beside: nobody else tells them.
  void EndStockNodes();
  // Ends the process of a stock node, to which no message says that something failed.
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
  LinkWatch links_;
  InboundWatch inbound_;  // of stock nodes
  LinkWatch temporary_links_;
  Announcer announcer_;
  Repeater report_;     // while gathering: who is missing; while ending: to who registers
  Repeater heartbeat_;  // while running: who is silent, who does not come to a barrier
  std::optional<Attention> attention_;  // while running
  bs::LimitedLog strangers_;
  NonsenseCount nonsense_;

  // Gathering.
  Phase phase_ = Phase::kGathering;
  Address root_;  // the real port
  Roster roster_;
  std::map<int32_t, Early> early_;              // by rank
  std::map<std::string, Temporary> temporary_;  // by "host:port"
  int32_t next_temporary_;
  int32_t next_refused_;  // of those to whom words are sent
  int32_t coming_again_ = 0;
  std::deque<std::string> refused_;  // why, the latest; while gathering
  std::vector<Late> held_;           // while running
  std::map<int32_t, Early> former_;  // by place: the native that was lost there last
  std::deque<Word> words_;           // to be told
  int32_t words_under_way_ = 0;      // each on a connection of its own
  uint64_t words_dropped_ = 0;       // since that was logged

  // Running.
  std::map<int32_t, Peer> peers_;
  Barriers barriers_;
  Resends resends_;        // of stock peers
  int32_t timestamp_ = 0;  // the protocol's count of control messages
  bool attached_ = false;  // somebody was
  bool final_timer_ = false;
  bs::TimePoint next_straggler_warning_{};
  std::optional<bs::TimePoint> stock_replaced_;  // when it was last

  // Ending.
  bs::Status verdict_;
  std::vector<int32_t> alone_;  // stock nodes that no native worker stands beside
  bool everyone_told_ = false;
  bool farewell_over_ = false;
  bool farewell_timer_ = false;
  bool closed_ = false;
};

}  // namespace ps
