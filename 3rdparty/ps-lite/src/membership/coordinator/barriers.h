// Barriers: who waits for whom, counted by group, for stock and native nodes.
//
// Pure bookkeeping of the scheduler node; sends nothing: every call returns the answers to send.
// Confined to its owner's executor.  Bounded by the number of nodes and kMostCustomers.
//
// Rules (PROTOCOL.md):
// - Requests of a group are counted up to the group's logical size.  The scheduler node counts
//   itself.  Requests are told apart by sender and customer, so a repeat does not count twice.
// - Attached workers count only among themselves, in the group of the workers.
// - A node that left counts as arrived; but a native node that waits for workers of which one has
//   left gets an error that names it, because what it waits for will never happen.
// - A native request that was answered is answered again when it is repeated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bytescheduler/status.h"
#include "bytescheduler/types.h"
#include "ps/message.h"

namespace ps {

struct BarrierRequest {
  int32_t id = kEmpty;    // of the sender
  bs::TimePoint since{};  // when the first of its repeats came
  int32_t group = 0;
  bool native = false;
  bool last = false;      // a native server's way into the final barrier
  uint64_t sequence = 0;  // native only
  int32_t app_id = 0;     // the two below: stock only
  int32_t customer_id = 0;
};

struct BarrierAnswer {
  BarrierRequest request;  // for a stock node: of whoever came last
  int32_t id = kEmpty;     // the receiver
  bs::Status status;       // native only
};

class Barriers {
 public:
  using Answers = std::vector<BarrierAnswer>;

  // Of one sender at a barrier: who would be more is refused.
  static constexpr size_t kMostCustomers = 64;

  explicit Barriers(int32_t num_workers) : num_workers_(num_workers) {}

  // The job's workers and servers, each kind in the order of its ranks; shared ids appear once for
  // each customer.  REQUIRES: called before everything else.
  void SetNodes(std::vector<Node> nodes) { nodes_ = std::move(nodes); }

  // Ok if the sender may wait for this group.
  bs::Status Check(const BarrierRequest& request) const;
  // REQUIRES: Check(request) is ok.
  Answers Arrive(const BarrierRequest& request);
  // The node left in good order; or an attached worker of that id came (back).
  Answers Leave(int32_t id);
  void Join(int32_t id) { left_.erase(id); }
  // The worker was lost, and another will take its place and start from the beginning: what waits
  // does not count, and barriers of the workers that others have passed do not hold a native one.
  void Vacate(int32_t id);
  // The job failed: stock nodes that wait may go.
  Answers ReleaseStock();

  // The start barrier of group 7, and the one in which stock nodes end.
  bool start_done() const { return start_done_; }
  bool final_done() const { return final_done_; }
  // Whether a stock worker waits for other workers, also for their end.
  bool stock_waits() const;
  // Whom a request waits for: "worker 1, server 0"; empty if it waits for nobody.
  std::string WaitsFor(const BarrierRequest& request) const;
  // Of the stock workers that wait for other workers, one that came before `limit`; null if there
  // is none.  Natives have a deadline of their own.
  const BarrierRequest* FindStockBefore(bs::TimePoint limit) const;

 private:
  // One space for everyone, one for attached workers.
  struct Place {
    bool attached = false;
    int32_t group = 0;
    auto operator<=>(const Place&) const = default;
  };
  using Arrived = std::map<std::pair<int32_t, int32_t>, BarrierRequest>;  // by id and customer

  static Place PlaceOf(const BarrierRequest& request);
  // Whether its sender waits there as many others already.
  bool IsOneTooMany(const BarrierRequest& request) const;
  // Ids of the place's members in the order of answers, once for each logical member.
  std::vector<int32_t> MembersOf(const Place& place) const;
  std::vector<int32_t> AbsentFrom(const Place& place, const Arrived& arrived) const;
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
  std::map<int32_t, std::pair<uint64_t, bs::Status>> answered_;  // natives: latest, by id
  std::set<int32_t> left_;
  std::map<Place, uint64_t> passed_;     // how often it was complete
  std::map<int32_t, uint64_t> to_pass_;  // of a native that begins again, by id
  bool start_done_ = false;
  bool final_done_ = false;
};

}  // namespace ps
