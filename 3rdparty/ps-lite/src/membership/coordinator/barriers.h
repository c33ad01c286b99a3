// Barriers: counts the arrivals of stock and native nodes at each group's barrier.
//
// Pure bookkeeping of the scheduler node: every call returns the responses to send.  Confined to
// its owner's executor.  Bounded by the number of nodes and kMostCustomers.
//
// Rules (PROTOCOL.md):
// - Requests of a group are counted up to the group's logical size.  The scheduler node counts
//   itself.  Sender and customer identify a request, so a repeat does not count twice.
// - Attached workers count only among themselves, in the group of the workers.
// - A node that left counts as arrived.  But a native node that waits for a worker that left gets
// an
//   error that names it, because the worker will never arrive.
// - The repeat of a native request that has a response gets the response again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "ps/message.h"

namespace ps {

struct BarrierRequest {
  int32_t id = kEmpty;    // the sender's
  bs::TimePoint since{};  // arrival of the first copy
  int32_t group = 0;
  bool native = false;
  bool last = false;      // a native server joins the final barrier
  uint64_t sequence = 0;  // native only
  int32_t app_id = 0;     // the two below: stock only
  int32_t customer_id = 0;
};

struct BarrierAnswer {
  BarrierRequest request;  // for a stock node: the latest request
  int32_t id = kEmpty;     // the receiver's
  bs::Status status;       // native only
};

class Barriers {
 public:
  using Answers = std::vector<BarrierAnswer>;

  // The bound of customers that a sender may have at a barrier; more are refused.
  static constexpr size_t kMostCustomers = 64;

  explicit Barriers(int32_t num_workers) : num_workers_(num_workers) {}

  // Sets the job's workers and servers, each kind in the order of its ranks.  A shared id appears
  // once for each customer.  REQUIRES: called before everything else.
  void SetNodes(std::vector<Node> nodes) { nodes_ = std::move(nodes); }

  // Ok if the sender may wait for this group; otherwise says why not.
  bs::Status Check(const BarrierRequest& request) const;
  // REQUIRES: Check(request) is ok.
  Answers Arrive(const BarrierRequest& request);
  // Leave: the node left in good order, perhaps early for a reason.  Join: an attached worker of
  // that id came, perhaps again.
  Answers Leave(int32_t id, const std::string& reason = {});
  void Join(int32_t id) { left_.erase(id); }
  // The worker was lost, and another will take its place and start from the beginning.  Its waiting
  // requests no longer count.  A native successor passes the barriers that the other workers have
  // passed.
  void Vacate(int32_t id);
  // The job failed: releases the stock nodes that wait.
  Answers ReleaseStock();

  // The start barrier of group 7, and the final barrier, in which stock nodes end.
  bool start_done() const { return start_done_; }
  bool final_done() const { return final_done_; }
  // True if a stock worker waits for other workers, or for their end.
  bool stock_waits() const;
  // True if the node waits at the final barrier.
  bool waits_at_end(int32_t id) const;
  // Names the nodes that a request waits for: "worker 1, server 0"; empty if there are none.
  std::string WaitsFor(const BarrierRequest& request) const;
  // Describes workers that wait at different barriers, each for the others, since before `limit`;
  // empty if there are none.  At least one of them is stock.
  std::string DescribeDeadlock(bs::TimePoint limit) const;
  // Finds a stock worker that has waited for other workers since before `limit`; null if there is
  // none.  Native workers have their own deadline.
  const BarrierRequest* FindStockBefore(bs::TimePoint limit) const;

 private:
  // Attached workers have a space of their own.
  struct Place {
    bool attached = false;
    int32_t group = 0;
    auto operator<=>(const Place&) const = default;
  };
  using Arrived = std::map<std::pair<int32_t, int32_t>, BarrierRequest>;  // by id and customer

  static Place PlaceOf(const BarrierRequest& request);
  // True if its sender already waits there with kMostCustomers.
  bool IsOneTooMany(const BarrierRequest& request) const;
  // Ids of the place's members in the order of answers, once for each logical member.
  std::vector<int32_t> MembersOf(const Place& place) const;
  std::vector<int32_t> AbsentFrom(const Place& place, const Arrived& arrived) const;
  // The group at whose other barrier the node waits since before `limit`; 0 if it does not.
  int32_t WaitsElsewhere(int32_t id, const Place& place, bs::TimePoint limit) const;
  // Names the workers that a place waits for, if each of them waits elsewhere; empty if not.
  std::string WhoWaitElsewhere(const Place& place, const Arrived& arrived,
                               bs::TimePoint limit) const;
  // The first worker of the place that left without having come; kEmpty if there is none.
  int32_t GoneFrom(const Place& place, const Arrived& arrived) const;
  Answers FailNatives(const Place& place);
  Answers ReleaseIfComplete(const Place& place);
  BarrierAnswer AnswerNative(const BarrierRequest& request, const bs::Status& status);
  Answers AnswerAll(const Place& place, const Arrived& arrived);

  const int32_t num_workers_;
  std::vector<Node> nodes_;

  std::map<Place, Arrived> waiting_;
  std::map<Place, BarrierRequest> last_stock_;
  std::map<int32_t, std::pair<uint64_t, bs::Status>> answered_;  // native nodes: latest, by id
  std::map<int32_t, std::string> left_;                          // with the reason, perhaps none
  std::map<Place, uint64_t> passed_;                             // how often it was complete
  std::map<int32_t, uint64_t> to_pass_;  // by id of a native that begins again: barriers to pass
  bool start_done_ = false;
  bool final_done_ = false;
};

}  // namespace ps
