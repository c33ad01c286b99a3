// Barriers: arrivals, departures, and the responses they cause.
#include "membership/coordinator/barriers.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "wire/control.h"

namespace ps {
namespace {

// Groups are bit sets.
bool IsIn(const Node& node, int32_t group) {
  const int32_t own = node.role == Role::kWorker ? kWorkerGroup : kServerGroup;
  return (static_cast<uint32_t>(own) & static_cast<uint32_t>(group)) != 0;
}

}  // namespace

bs::Status Barriers::Check(const BarrierRequest& request) const {
  const std::string who = DescribeId(request.id);
  if (request.group < 1 || request.group > kEveryone) {
    return bs::Status::InvalidArgument(who + " asks for a barrier of group " +
                                       std::to_string(request.group));
  }
  const Place place = PlaceOf(request);
  const std::vector<int32_t> members = MembersOf(place);
  const bool member = std::find(members.begin(), members.end(), request.id) != members.end();
  if (!member || (place.attached && place.group != kWorkerGroup)) {
    return bs::Status::InvalidArgument(who + " asks for a barrier of " +
                                       DescribeGroup(request.group) +
                                       ", to which it does not belong");
  }
  if (IsOneTooMany(request)) {
    return bs::Status::ResourceExhausted(
        who + " waits at a barrier of " + DescribeGroup(request.group) + " for " +
        std::to_string(kMostCustomers) + " customers already, and no more may");
  }
  return bs::Status::Ok();
}

bool Barriers::IsOneTooMany(const BarrierRequest& request) const {
  const auto place = waiting_.find(PlaceOf(request));
  if (place == waiting_.end()) return false;
  const Arrived& arrived = place->second;
  if (arrived.contains({request.id, request.customer_id})) return false;
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  const auto begin = arrived.lower_bound({request.id, kLeast});
  const auto end = arrived.lower_bound({request.id + 1, kLeast});
  return static_cast<size_t>(std::distance(begin, end)) >= kMostCustomers;
}

Barriers::Answers Barriers::Arrive(const BarrierRequest& request) {
  const Place place = PlaceOf(request);
  Arrived& arrived = waiting_[place];
  if (request.native) {
    const auto answered = answered_.find(request.id);
    if (answered != answered_.end() && request.sequence <= answered->second.first) {
      const bool latest = request.sequence == answered->second.first;
      return {{request, request.id, latest ? answered->second.second : bs::Status::Ok()}};
    }
    uint64_t& to_pass = to_pass_[request.id];
    if (place.group == kWorkerGroup && to_pass > 0) {
      --to_pass;
      return {AnswerNative(request, bs::Status::Ok())};
    }
    BarrierRequest& slot = arrived[{request.id, kEmpty}];
    if (slot.sequence < request.sequence) slot = request;
    if (place.group == kWorkerGroup && GoneFrom(place, arrived) != kEmpty) {
      return FailNatives(place);
    }
  } else {
    arrived.try_emplace({request.id, request.customer_id}, request);
    last_stock_[place] = request;
  }
  return ReleaseIfComplete(place);
}

Barriers::Answers Barriers::Leave(int32_t id, const std::string& reason) {
  left_.try_emplace(id, reason);
  Answers answers;
  std::vector<Place> places;
  for (const auto& [place, arrived] : waiting_) {
    if (!arrived.empty()) places.push_back(place);
  }
  for (const Place& place : places) {
    const bool hopeless = place.group == kWorkerGroup && GoneFrom(place, waiting_[place]) != kEmpty;
    const Answers failed = hopeless ? FailNatives(place) : Answers();
    const Answers released = ReleaseIfComplete(place);
    answers.insert(answers.end(), failed.begin(), failed.end());
    answers.insert(answers.end(), released.begin(), released.end());
  }
  return answers;
}

void Barriers::Vacate(int32_t id) {
  for (auto& [place, arrived] : waiting_) {
    std::erase_if(arrived, [id](const auto& entry) { return entry.second.id == id; });
  }
  answered_.erase(id);
  to_pass_[id] = passed_[{IsAttachedId(id), kWorkerGroup}];
}

bool Barriers::stock_waits() const {
  return std::any_of(waiting_.begin(), waiting_.end(), [](const auto& entry) {
    const auto& [place, arrived] = entry;
    return (place.group & kWorkerGroup) != 0 &&
           std::any_of(arrived.begin(), arrived.end(),
                       [](const auto& one) { return !one.second.native; });
  });
}

Barriers::Answers Barriers::ReleaseStock() {
  Answers answers;
  for (auto& [place, arrived] : waiting_) {
    std::set<int32_t> told;
    for (const auto& [who, request] : arrived) {
      const bool tell = !request.native && told.insert(request.id).second;
      if (tell) answers.push_back({request, request.id, bs::Status::Ok()});
    }
    std::erase_if(arrived, [](const auto& entry) { return !entry.second.native; });
  }
  return answers;
}

bool Barriers::waits_at_end(int32_t id) const {
  const auto it = waiting_.find({.attached = false, .group = kEveryone});
  if (!start_done_ || it == waiting_.end()) return false;
  return std::any_of(it->second.begin(), it->second.end(),
                     [id](const auto& entry) { return entry.second.id == id; });
}

std::string Barriers::WaitsFor(const BarrierRequest& request) const {
  const Place place = PlaceOf(request);
  const auto it = waiting_.find(place);
  if (it == waiting_.end()) return "";
  std::string text;
  for (const int32_t id : AbsentFrom(place, it->second)) {
    text += (text.empty() ? "" : ", ") + DescribeId(id);
  }
  return text;
}

int32_t Barriers::WaitsElsewhere(int32_t id, const Place& place, bs::TimePoint limit) const {
  for (const auto& [other, arrived] : waiting_) {
    if (other == place) continue;
    for (const auto& [who, request] : arrived) {
      if (request.id == id && request.since < limit) return other.group;
    }
  }
  return 0;
}

std::string Barriers::WhoWaitElsewhere(const Place& place, const Arrived& arrived,
                                       bs::TimePoint limit) const {
  std::string text;
  for (const int32_t id : AbsentFrom(place, arrived)) {
    if (id % 2 == ServerId(0) % 2) continue;  // servers come when the workers end
    // A process with several customers waits in each of them for itself.
    const bool alone = std::count_if(nodes_.begin(), nodes_.end(),
                                     [id](const Node& node) { return node.id == id; }) == 1;
    const int32_t group = WaitsElsewhere(id, place, limit);
    if (!alone || group == 0) return "";
    text += (text.empty() ? "" : ", ") + DescribeId(id) + ", which waits at one of " +
            DescribeGroup(group);
  }
  return text;
}

std::string Barriers::DescribeDeadlock(bs::TimePoint limit) const {
  for (const auto& [place, arrived] : waiting_) {
    const auto stock = std::find_if(arrived.begin(), arrived.end(), [limit](const auto& entry) {
      return !entry.second.native && entry.second.since < limit;
    });
    if (stock == arrived.end()) continue;
    const std::string others = WhoWaitElsewhere(place, arrived, limit);
    if (others.empty()) continue;
    return DescribeId(stock->second.id) + " waits at a barrier of " + DescribeGroup(place.group) +
           " for " + others;
  }
  return "";
}

const BarrierRequest* Barriers::FindStockBefore(bs::TimePoint limit) const {
  const auto it = waiting_.find({.attached = false, .group = kWorkerGroup});
  if (it == waiting_.end()) return nullptr;
  for (const auto& [who, request] : it->second) {
    if (!request.native && request.since < limit) return &request;
  }
  return nullptr;
}

Barriers::Place Barriers::PlaceOf(const BarrierRequest& request) {
  return {IsAttachedId(request.id), request.group};
}

std::vector<int32_t> Barriers::MembersOf(const Place& place) const {
  std::vector<int32_t> members;
  if (place.attached) {
    for (int32_t rank = 0; rank < num_workers_; ++rank) members.push_back(AttachedId(rank));
    return members;
  }
  for (const Role role : {Role::kWorker, Role::kServer}) {
    for (const Node& node : nodes_) {
      if (node.role == role && IsIn(node, place.group)) members.push_back(node.id);
    }
  }
  return members;
}

std::vector<int32_t> Barriers::AbsentFrom(const Place& place, const Arrived& arrived) const {
  std::map<int32_t, int32_t> came;
  for (const auto& [who, request] : arrived) ++came[request.id];
  std::vector<int32_t> absent;
  for (const int32_t id : MembersOf(place)) {
    if (came[id]-- <= 0 && left_.count(id) == 0) absent.push_back(id);
  }
  return absent;
}

int32_t Barriers::GoneFrom(const Place& place, const Arrived& arrived) const {
  for (const int32_t id : MembersOf(place)) {
    if (left_.count(id) > 0 && arrived.count({id, kEmpty}) == 0) return id;
  }
  return kEmpty;
}

Barriers::Answers Barriers::FailNatives(const Place& place) {
  Arrived& arrived = waiting_[place];
  const int32_t gone = GoneFrom(place, arrived);
  const auto why = bs::Status::Unavailable("barrier of " + DescribeGroup(place.group) + ": " +
                                           LeftStatus(gone, left_[gone]).message());
  Answers answers;
  for (const auto& [who, request] : arrived) {
    if (request.native) answers.push_back(AnswerNative(request, why));
  }
  std::erase_if(arrived, [](const auto& entry) { return entry.second.native; });
  return answers;
}

Barriers::Answers Barriers::ReleaseIfComplete(const Place& place) {
  Arrived& arrived = waiting_[place];
  if (arrived.empty() || !AbsentFrom(place, arrived).empty()) return {};
  if (!place.attached && place.group == kEveryone) {
    // Native nodes may use the group for their own barriers, which end no node.
    const bool ends = std::all_of(arrived.begin(), arrived.end(), [](const auto& entry) {
      return !entry.second.native || entry.second.last;
    });
    if (start_done_ && ends) final_done_ = true;
    start_done_ = true;
  }
  ++passed_[place];
  const Arrived complete = std::exchange(arrived, Arrived());
  return AnswerAll(place, complete);
}

BarrierAnswer Barriers::AnswerNative(const BarrierRequest& request, const bs::Status& status) {
  answered_[request.id] = {request.sequence, status};
  return {request, request.id, status};
}

Barriers::Answers Barriers::AnswerAll(const Place& place, const Arrived& arrived) {
  Answers answers;
  std::set<int32_t> told;
  for (const int32_t id : MembersOf(place)) {
    if (!told.insert(id).second) continue;
    const auto native = arrived.find({id, kEmpty});
    if (native != arrived.end() && native->second.native) {
      answers.push_back(AnswerNative(native->second, bs::Status::Ok()));
    } else if (left_.count(id) == 0) {
      answers.push_back({last_stock_[place], id, bs::Status::Ok()});
    }
  }
  return answers;
}

}  // namespace ps
