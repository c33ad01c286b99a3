// SimNetwork::Impl: the nodes, the links between them, and the messages under way.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "sim/sim_network.h"

namespace bs::sim {

using ps::Address;
using ps::Frame;
using ps::Message;
using ps::Transport;

struct SimNode;

// A message as it is on the wire.
struct SimPacket {
  int32_t from = ps::kEmpty;
  std::string meta;
  std::vector<std::vector<std::byte>> data;
};

// When an interface is free; shared by the nodes of its machine.
struct SimInterface {
  TimePoint out_free{};
  TimePoint in_free{};
};

// A node's part of its machine.
struct SimHost {
  // On its way out.
  struct Leaving {
    SimPacket packet;
    std::shared_ptr<SimNode> target;  // shared with its transport, which may be gone before
    uint64_t link = 0;
    uint64_t size_bytes = 0;
    TimePoint ready{};  // the thread is done with it
  };

  SimHostOptions options;
  std::shared_ptr<SimInterface> interface;
  TimePoint thread_free{};
  uint64_t out_bytes = 0;             // committed and not sent
  uint64_t unacknowledged_bytes = 0;  // committed
  uint64_t in_bytes = 0;              // sent by other hosts and not received
  bool sends = false;                 // something is going out
  std::deque<Leaving> leaving;
  // Numbers of links with waiting messages: links that take turns, and links that wait for room.
  std::deque<uint64_t> turns;
  std::deque<uint64_t> held_up;
  // Senders of which something waits for room here.
  std::map<uint64_t, std::weak_ptr<SimNode>> stopped;
  uint64_t waiting = 0;  // messages
  SimHostCounters counters;

  // When the thread is done with a message that comes now, which takes it `more_ns` besides.
  TimePoint Serve(TimePoint now, uint64_t size_bytes, double more_ns);
  Duration TimeOf(uint64_t size_bytes) const;
  bool has_room() const { return in_bytes < options.queued_bytes; }
};

// State that both the transport and tasks on its executor hold: tasks may run after the transport
// is destroyed.
struct SimNode {
  uint64_t number = 0;
  Executor* executor = nullptr;
  Transport::Handler handler;
  std::string bound;                  // "host:port", empty while unbound
  std::map<int32_t, uint64_t> links;  // by peer
  std::vector<uint64_t> lingering;    // forgotten links, also links that are over
  bool closed = false;                // by itself, or killed
  bool cut_off = false;
  bool muted = false;
  bool foreign = false;           // peers see that it is no node of ours
  std::unique_ptr<SimHost> host;  // null: links of its own
};

// A connection from one sender to one receiver.
struct SimLink {
  uint64_t number = 0;
  std::shared_ptr<SimNode> owner;  // shared with the transport, which may be gone before the link
  int32_t peer = ps::kEmpty;
  int32_t own_id = ps::kEmpty;
  std::string to;
  std::shared_ptr<SimNode> target;  // null while there is no connection; shared with its transport
  bool breaking = false;            // the owner does not know yet that the connection broke
  bool closing = false;             // forgotten by the owner, lingers
  std::map<int32_t, std::deque<Message>, std::greater<>> waiting;  // by priority
  bool sending = false;
  // With hosts:
  bool in_turn = false;                       // in `turns` or `held_up`
  uint64_t unacknowledged_bytes = 0;          // committed
  Message current;                            // being sent
  std::map<int32_t, TimePoint> last_arrival;  // by priority

  bool idle() const { return waiting.empty() && !sending; }
};

class SimNetwork::Impl {
 public:
  Impl(SimClock* clock, const SimNetworkOptions& options)
      : clock_(clock), options_(options), wires_(clock) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    BS_CHECK(nodes_.empty());
    ForgetHosts();
  }

  std::unique_ptr<Transport> MakeEndpoint(Executor* executor);
  static const std::shared_ptr<SimNode>& NodeOf(Transport* transport);
  std::shared_ptr<SimNode> AddNode(Executor* executor);
  void RemoveNode(const std::shared_ptr<SimNode>& node);
  void Bind(const std::shared_ptr<SimNode>& node, const Address& address, Transport::BindDone done);
  void Connect(const std::shared_ptr<SimNode>& node, int32_t peer, const Address& address,
               int32_t own_id);
  void Disconnect(const std::shared_ptr<SimNode>& node, int32_t peer, Duration linger);
  void Send(const std::shared_ptr<SimNode>& node, Message message);
  void Close(const std::shared_ptr<SimNode>& node, Duration linger);
  void Kill(const std::shared_ptr<SimNode>& node);
  void CutOff(const std::shared_ptr<SimNode>& node, Duration duration);
  void Part(const SimNode* from, const SimNode* to, bool for_good);
  void Overflow(const std::shared_ptr<SimNode>& node, int32_t peer);
  void PutOnHost(const std::shared_ptr<SimNode>& node, const SimHostOptions& options,
                 const SimNode* beside);

  uint64_t delivered = 0;
  uint64_t lost = 0;
  uint64_t repeated = 0;

 private:
  class Endpoint;

  SimLink* Find(uint64_t number);
  void Erase(uint64_t number);
  TimePoint AfterDelay();
  TimePoint ArrivalOf(SimLink* link, int32_t priority);
  void TryConnectLater(uint64_t number);
  void TryConnect(uint64_t number);
  void ConnectAllTo(const std::string& address);
  void Unbind(SimNode* node);
  // Links for which `pick` is true lose their connection.
  void Break(const std::function<bool(const SimLink&)>& pick, bool torn = false);
  void Break(const std::vector<uint64_t>& broken, bool torn);
  void Tell(const std::shared_ptr<SimNode>& node, std::function<void(SimNode*)> what);
  // Tells its target that the link's connection came up, or ended.
  void TellInbound(const SimLink& link, bool up, bool torn) {
    if (link.own_id == ps::kEmpty) return;
    Tell(link.target, [peer = link.own_id, up, torn](SimNode* target) {
      const Transport::Handler& handler = target->handler;
      if (up && handler.on_inbound) handler.on_inbound(peer);
      if (!up && handler.on_inbound_ended) handler.on_inbound_ended(peer, torn);
    });
  }
  void NoticeBreak(uint64_t number);
  void Travel(SimLink* link, const Message& message);
  void Pump(SimLink* link);
  void Transmitted(uint64_t number);
  static SimPacket Pack(const SimLink& link, const Message& message);
  // That take the time of the packet's payload.
  double PayloadBytes(const SimPacket& packet) const;

  // sim_hosts.cc
  static Message TakeUrgent(SimLink* link);
  void ForgetHosts();
  // Gives a link that has something to send its turn.
  static void Queue(SimLink* link);
  void TakeTurns(const std::shared_ptr<SimNode>& node);
  void Commit(SimLink* link);
  void Pass(TimePoint served, SimHost::Leaving leaving);
  void Acknowledge(const std::shared_ptr<SimNode>& owner, uint64_t number, uint64_t size_bytes);
  void Leave(const std::shared_ptr<SimNode>& node);
  void Left(const std::shared_ptr<SimNode>& node, uint64_t size_bytes);
  void Reach(const std::shared_ptr<SimNode>& target, SimPacket packet, uint64_t size_bytes);
  void Arrive(const std::shared_ptr<SimNode>& target, const SimPacket& packet);
  static void Deliver(const std::shared_ptr<SimNode>& target, const SimPacket& packet);

  SimClock* const clock_;
  const SimNetworkOptions options_;
  std::map<uint64_t, std::shared_ptr<SimNode>> nodes_;  // shared with the transports
  std::map<std::string, std::shared_ptr<SimNode>> bound_;
  std::map<uint64_t, std::unique_ptr<SimLink>> links_;
  std::map<std::string, std::set<uint64_t>> links_to_;  // their numbers, by address
  std::set<std::pair<uint64_t, uint64_t>> parted_;      // from, to
  std::vector<std::weak_ptr<SimNode>> hosts_;           // nodes with a host
  uint64_t next_number_ = 1;
  int32_t next_port_ = 20000;
  SimExecutor wires_;  // last: its tasks refer to the above
};

}  // namespace bs::sim
