// The parts of the scheduler node together, on simulated time, with a transport that keeps what is
// sent.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "membership/coordinator/inbox.h"
#include "membership/coordinator/rendezvous.h"
#include "membership/coordinator/shutdown.h"
#include "ps-lite/membership/kept_messages.h"
#include "sim/sim_executor.h"
#include "wire/control.h"

namespace ps::test {

// A job of two workers and a server.  The conditions that parts decide are theirs.
class Parts : public ::testing::Test {
 protected:
  explicit Parts(bs::Duration rejoin_timeout = bs::Duration(0)) : Parts(Options(rejoin_timeout)) {}
  explicit Parts(const MembershipOptions& options) : options_(options) {
    job_.end = [this](const bs::Status& verdict) { shutdown_.End(verdict); };
    rendezvous_.Start([this] { ++begun_; });
  }
  ~Parts() override { job_.scope.Close(); }

  static MembershipOptions Options(bs::Duration rejoin_timeout) {
    MembershipOptions options;
    options.num_workers = 2;
    options.root = {"10.0.0.1", 9091};
    options.settings = "num_workers=2\n";
    options.job = 5;
    options.rejoin_timeout = rejoin_timeout;
    return options;
  }
  static Node NodeAt(Role role, int32_t port) {
    Node node;
    node.role = role;
    node.hostname = "10.0.0.9";
    node.port = port;
    return node;
  }
  static Arrival ArrivalOf(Role role, int32_t port, bool native = true) {
    return {.registrant = {NodeAt(role, port), 1}, .native = native};
  }
  // The registration of a node, as its first message.
  static Message Registration(Role role, int32_t port, const std::string& settings,
                              Command command = Command::kAddNode) {
    Message message;
    message.peer = kEmpty;
    message.meta = NativeControl(command, Op::kRegister, 1);
    message.meta.control.nodes = {NodeAt(role, port)};
    message.meta.extension.body = Encode(MemberBody{.settings = settings});
    return message;
  }
  void Register(Role role, int32_t port, Command command = Command::kAddNode) {
    rendezvous_.OnMessage(Registration(role, port, options_.settings, command));
  }
  // All nodes register, and are heard.  The worker with the lower port has rank 0.
  void RunJob() {
    Register(Role::kServer, 4710);
    Register(Role::kWorker, 4711);
    Register(Role::kWorker, 4712);
    for (const int32_t id : {kServer, kWorker0, kWorker1}) {
      detector_.OnConnected(id);
      job_.peers.Apply(id, PeerEvent::kHeard);
    }
    job_.barriers.Arrive({.id = kServer, .group = kEveryone, .native = true, .sequence = 1});
    job_.barriers.Arrive({.id = kWorker0, .group = kEveryone, .native = true, .sequence = 1});
    job_.barriers.Arrive({.id = kWorker1, .group = kEveryone, .native = true, .sequence = 1});
    transport_.sent.clear();
  }
  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  // The node confirms all that it was sent.
  void Confirm(int32_t id) {
    std::vector<uint64_t> sequences;
    for (const Message& message : transport_.sent) {
      if (message.peer == id) sequences.push_back(message.meta.extension.sequence);
    }
    for (const uint64_t sequence : sequences) job_.broadcast.Confirm(id, sequence);
    Run(bs::Duration(0));
  }
  PeerState StateOf(int32_t id) const {
    const Peer* const peer = job_.peers.Find(id);
    return peer == nullptr ? PeerState::kFree : peer->state;
  }
  bool Logged(const std::string& part) const {
    return std::ranges::any_of(
        log_, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }
  bool Holds(PeerCondition condition, const Peer& peer, const PeerDetails& details) const {
    switch (condition) {
      case PeerCondition::kServersNeedNotKnow:
        return !job_.running() || peer.node.role == Role::kServer;
      case PeerCondition::kAttachedLeft:
        return shutdown_.HasLeftBeside(peer);
      case PeerCondition::kReplaceable:
        return places_.MayReplace(peer);
      case PeerCondition::kSuccessorRepeats:
        return AddressOf(peer.successor.node) == AddressOf(details.newcomer.node);
      case PeerCondition::kNeverBroken:
        return detector_.NeverBroke(peer.node.id);
      default:
        return condition == PeerCondition::kAlways || job_.running();
    }
  }

  static constexpr int32_t kServer = ServerId(0);
  static constexpr int32_t kWorker0 = WorkerId(0);
  static constexpr int32_t kWorker1 = WorkerId(1);

  const MembershipOptions options_;
  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  KeptMessages transport_;
  std::vector<std::string> log_;
  int begun_ = 0;
  int finished_ = 0;
  JobState job_{
      options_,
      &transport_,
      &executor_,
      {"", bs::LogLevel::kDebug,
       [this](bs::LogLevel, std::string_view line) { log_.emplace_back(line); }},
      PeerTable(),
      {.holds = [this](PeerCondition condition, const Peer& peer,
                       const PeerDetails& details) { return Holds(condition, peer, details); },
       .act =
           [this](PeerAction action, Peer* peer, const PeerDetails& details) {
             if (!places_.Act(action, peer, details)) {
               shutdown_.Act(action, peer, details);
             }
           }}};
  Refusals refusals_{&job_};
  UnwrappedStores stores_{&job_};
  Detector detector_{options_, &job_.scope,
                     [this](int32_t id, const std::string& why) { places_.Lose(id, why); },
                     [this](int32_t id, const std::string& why) { shutdown_.OnUnheard(id, why); }};
  Places places_{&job_, &refusals_, &detector_, &stores_};
  Rendezvous rendezvous_{&job_, &refusals_, &detector_, &places_};
  Shutdown shutdown_{
      &job_, {&refusals_, &detector_, &stores_, &places_, &rendezvous_}, [this] { ++finished_; }};
};

}  // namespace ps::test
