// StockWorker: what a training process with MXNet's own dist_sync store does, by PROTOCOL.md.
//
// It initialises keys and then, of each key, pushes and pulls round after round: in one request or
// in two, waiting for the push's answer or not.  Every value that it pulls is checked.  With
// `resends` it does what PS_RESEND=1 makes of a node: it acknowledges everything, sends again what
// is not acknowledged, and drops what comes twice.
//
// Everything runs in the simulator's one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ps/message.h"
#include "ps/transport.h"
#include "sim/cluster_node.h"
#include "sim/stock_ledger.h"

namespace bs::sim {

enum class StockWay {
  kWhole,       // on one server
  kShared,      // cut over all servers
  kTwoBit,      // on one server, pushed as codes
  kRows,        // row_sparse, on one server; each push has some of the rows
  kSharedRows,  // the same, cut over all servers
};

struct StockKeyPlan {
  uint64_t key = 0;
  StockWay way = StockWay::kWhole;
  uint64_t count = 0;  // elements, or rows
  uint64_t rounds = 0;
};

struct StockPlan {
  std::vector<StockKeyPlan> keys;
  int32_t num_workers = 1;
  int32_t num_servers = 1;
  Duration longest_pause{};
  // A dist_async store: the servers add each push to the value.  Dense keys only.
  bool asynchronous = false;
  bool resends = false;
  Duration resend_timeout = std::chrono::seconds(1);
};

class StockWorker {
 public:
  // Everything must outlive the worker.
  StockWorker(Job* job, int32_t index, const StockPlan& plan);
  StockWorker(const StockWorker&) = delete;
  StockWorker& operator=(const StockWorker&) = delete;
  ~StockWorker();

  void Start(Duration delay);
  // The process vanishes.
  void Kill();

  const std::string& name() const { return name_; }
  int32_t rank() const { return rank_; }  // -1 before it is in the job
  // Past the initial values, and not done with its rounds.
  bool trains() const { return stage_ == 2 && keys_done_ < plan_.keys.size(); }
  // Its rounds so far, for those who come after it.
  StockLedger::Life life() const { return {answered_, pushed_}; }
  // It has pulled, after everyone's last round, what cannot be so if that was everyone's last.
  bool missed_some() const { return missed_some_; }
  bool ready() const { return ready_; }    // past the start barrier
  bool done() const { return done_; }      // past the final one
  bool ended() const { return ended_; }    // by a message at which a stock worker ends
  bool killed() const { return killed_; }  // by Kill()
  bool over() const { return done_ || ended_ || killed_; }
  uint64_t answers() const { return answers_; }
  // Repeats that were sent.
  uint64_t resent() const { return resent_; }

 private:
  // A request to some servers under one number.
  struct Request {
    size_t key = 0;  // index of the plan's
    uint64_t round = 0;
    bool push = false;
    bool pull = false;
    std::set<int32_t> unanswered;  // ids
    std::map<int32_t, std::vector<float>> parts;
    bool simple = false;
  };
  // Part of a key on a server: elements, or rows.
  struct Part {
    int32_t server = 0;  // rank
    uint64_t begin = 0;
    uint64_t count = 0;
  };
  struct Sent {
    int32_t peer = ps::kEmpty;
    ps::Meta meta;
    std::vector<std::string> data;
    TimePoint when{};
    int retries = 0;
  };

  void OnMessage(const ps::Message& message);
  void OnList(const std::vector<ps::Node>& nodes);
  void OnBarrier();
  void OnResponse(const ps::Message& message);
  void Answered(const Request& request);
  void Barrier(int32_t group);
  void Command(int32_t head, const std::string& body);
  void Initialise();
  void BeginRound(size_t index);
  void Ask(size_t index, uint64_t round, bool push, bool pull);
  void CheckValues(const Request& request);
  // Returns true if an element of a key may be `value` when `round` pushes of this worker are in
  // it, and if `all`, all those of the others.
  bool IsRight(const StockKeyPlan& plan, uint64_t round, uint64_t element, float value,
               bool all) const;
  // Who takes the place of a lost one does not join it.
  void InitBarrier();
  // Rounds of a synchronous key on the server that have a push of this worker or of who had its
  // place, if anybody had.
  uint64_t RoundsPaid(size_t index, int32_t server) const;
  // The same of all its servers: the least, and whether any has more.
  std::pair<uint64_t, bool> RoundsPaid(size_t index) const;
  void BeginEnd();
  void FinishKeys();
  void Vanish();

  std::vector<Part> PartsOf(const StockKeyPlan& plan) const;
  float ValueOf(const StockKeyPlan& plan, int32_t rank, uint64_t round, uint64_t element) const;
  float SumOf(const StockKeyPlan& plan, uint64_t round, uint64_t element) const;
  // Which rows of the part a push has.
  std::vector<uint64_t> RowsOf(const Part& part, uint64_t round) const;
  std::string Payload(const StockKeyPlan& plan, const Part& part, uint64_t round) const;

  void Send(int32_t peer, const ps::Meta& meta, std::vector<std::string> data = {});
  void Transmit(int32_t peer, const ps::Meta& meta, const std::vector<std::string>& data);
  static uint64_t Signature(const ps::Meta& meta, int32_t sender, int32_t receiver);
  // True if it is an acknowledgement or came before.
  bool TakeResend(const ps::Message& message);
  void Resend();
  // Ends as a stock process does after the last repeat.
  void GiveUp();

  Job* const job_;
  const StockPlan plan_;
  const ps::Address address_;
  std::string name_;
  SimExecutor io_;
  std::unique_ptr<ps::Transport> transport_;

  int32_t id_ = ps::kEmpty;
  int32_t rank_ = -1;
  int32_t num_control_ = 0;   // messages
  int32_t num_requests_ = 0;  // logical ones
  int stage_ = 0;             // barriers passed
  std::map<int32_t, Request> requests_;
  std::vector<int> open_;         // requests of the present round, by key
  std::vector<uint64_t> rounds_;  // completed, by key
  // The latest rounds whose push was answered or made, by key.
  std::vector<uint64_t> answered_;
  std::vector<uint64_t> pushed_;
  size_t keys_done_ = 0;
  bool replaces_ = false;  // a lost one
  bool missed_some_ = false;
  bool looks_last_ = false;  // asynchronous: everyone has pushed everything
  bool ready_ = false;
  bool done_ = false;
  bool ended_ = false;
  bool killed_ = false;
  uint64_t answers_ = 0;
  uint64_t resent_ = 0;
  std::map<uint64_t, Sent> unacknowledged_;  // by signature
  std::set<uint64_t> seen_;                  // signatures
};

}  // namespace bs::sim
