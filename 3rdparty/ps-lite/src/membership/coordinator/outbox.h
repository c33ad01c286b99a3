// Outbox: the control messages that the scheduler node sends.
//
// Confined to the transport's executor; never blocks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "membership/control_body.h"
#include "membership/coordinator/barriers.h"
#include "membership/coordinator/peers.h"
#include "ps/message.h"
#include "ps/transport.h"

namespace ps {

class Outbox {
 public:
  // `job`: the number of the job; `root`: the scheduler node's address.
  Outbox(uint64_t job, const Address& root, Transport* transport);
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;
  ~Outbox() = default;

  // The scheduler node's own entry in lists, with the port that was bound.
  const Node& own() const { return own_; }
  void SetPort(int32_t port) { own_.port = port; }

  // Sends with the next number of the control protocol.  A body that is empty says which job this
  // is.
  void Send(int32_t peer, Meta meta);
  void SendUnnumbered(int32_t peer, Meta meta);
  // Responds to the registration `sequence`.
  void SendStatus(int32_t peer, uint64_t sequence, const bs::Status& status,
                  const std::string& text);
  // Sends the answers of barriers to those receivers that have a place.
  void SendAnswers(const Peers& peers, const Barriers::Answers& answers);
  // Ends the process of a stock node: its protocol has no message for a failure.
  void EndStockNode(const Node& node, int32_t peer, const std::string& why);
  // Returns the body of a message that is about the node of `rank`.
  Body BodyAbout(Op op, int32_t rank, uint64_t incarnation, bool all_native = false) const {
    return Encode(
        op,
        SchedulerBody{.job = job_, .incarnation = incarnation, .native = all_native, .rank = rank});
  }

 private:
  const uint64_t job_;
  Transport* const transport_;
  Node own_;
  int32_t timestamp_ = 0;  // the protocol's count of control messages
};

}  // namespace ps
