// Refusals: messages to nodes that get no place, each over a connection of its own.
//
// Unknown nodes must not make us open connections without bound.  So messages wait their turn in a
// bounded queue, and messages that find no room there are only counted.
//
// Confined to the executor of the job.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "membership/coordinator/job_state.h"

namespace ps {

class Refusals {
 public:
  // `job` outlives it.
  explicit Refusals(JobState* job);
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;
  ~Refusals() = default;

  // Logs the refusal, and notifies the node.  A stock node is ended, as it would wait in vain; but
  // not if it is in the job.  `sequence`: of the native node's registration.
  void Refuse(const Node& node, bool native, uint64_t sequence, const bs::Status& why);
  // Sends one message to a native node.  A later one to the same address replaces one that waits.
  void Notify(const Node& node, Meta meta);
  // "; refused: ..." for each of the latest refusals while nodes register; empty if there are none.
  std::string Latest() const;
  // The job is over: sends what can be sent at once, and logs how many nodes are not notified.
  void Finish();

 private:
  struct Notice {
    Node node;
    std::optional<Meta> meta;  // for a native node
    std::string why{};         // for a stock node, which is ended
  };

  void Add(Notice notice);
  void SendWaiting();

  JobState* const job_;
  int32_t next_peer_;               // the peer for the next message
  std::deque<std::string> latest_;  // the latest reasons
  std::deque<Notice> waiting_;      // not yet sent
  int32_t under_way_ = 0;           // each on a connection of its own
  uint64_t dropped_ = 0;            // since the last line about it
};

}  // namespace ps
