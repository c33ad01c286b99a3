// MemberParts: a member's context on simulated time, with a transport that keeps the messages.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "membership/member/member_context.h"
#include "ps-lite/membership/kept_messages.h"
#include "sim/sim_executor.h"

namespace ps::test {

// A node that is ready, in a job of two workers and a server.
class MemberParts : public ::testing::Test {
 protected:
  static constexpr int32_t kServer = ServerId(0);
  static constexpr int32_t kWorker0 = WorkerId(0);
  static constexpr int32_t kWorker1 = WorkerId(1);

  MemberParts() : MemberParts(Options(Role::kServer), kServer) {}
  MemberParts(const MembershipOptions& options, int32_t own_id)
      : context_(options, &transport_, &executor_,
                 {"", bs::LogLevel::kDebug,
                  [this](bs::LogLevel, std::string_view line) { log_.emplace_back(line); }}) {
    context_.own = NodeOf(own_id);
    context_.state = MemberState::kReady;
    context_.job = 5;
    context_.view.own_id = own_id;
    context_.view.nodes = {NodeOf(kServer), NodeOf(kWorker0), NodeOf(kWorker1)};
  }
  ~MemberParts() override { context_.scope.Close(); }

  static MembershipOptions Options(Role role) {
    MembershipOptions options;
    options.role = role;
    options.num_workers = 2;
    options.root = {"10.0.0.1", 9091};
    return options;
  }
  // The hosts are 10.0.0.8, 10.0.0.9 and 10.0.0.11.
  static Node NodeOf(int32_t id) {
    Node node;
    node.role = id == kServer ? Role::kServer : Role::kWorker;
    node.id = id;
    node.hostname = "10.0.0." + std::to_string(id);
    node.port = 4711;
    return node;
  }
  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  bool Logged(const std::string& part) const {
    return std::ranges::any_of(
        log_, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }

  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  KeptMessages transport_;
  std::vector<std::string> log_;
  MemberContext context_;
};

}  // namespace ps::test
