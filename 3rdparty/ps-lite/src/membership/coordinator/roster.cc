// Roster: admission, order and ranks of the nodes that register.
#include "membership/coordinator/roster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/count_of.h"
#include "wire/control.h"

namespace ps {
namespace {

using Verdict = Roster::Verdict;

// Bytes of a difference that are shown to people: any host may send us settings.
constexpr size_t kMostDifference = 256;
constexpr int32_t kAnyRank = -1;

std::set<std::string> LinesOf(const std::string& text) {
  std::set<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Returns the lines of `a` that are not in `b`.
std::string Without(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::string text;
  for (const std::string& line : a) {
    if (b.count(line) > 0) continue;
    text += text.empty() ? line : ", " + line;
  }
  if (text.size() > kMostDifference) text = text.substr(0, kMostDifference) + "...";
  return text.empty() ? "nothing" : text;
}

}  // namespace

bs::Status Roster::CheckRank(const Node& node, int32_t rank) const {
  if (rank == kAnyRank) return bs::Status::Ok();
  const std::string asks = DescribeUnranked(node) + " asks for rank " + std::to_string(rank);
  const bool worker = node.role == Role::kWorker;
  if (rank < 0 || rank >= Wanted(node.role)) {
    return bs::Status::InvalidArgument(
        asks + ": the job has " + bs::CountOf(Wanted(node.role), worker ? "worker" : "server"));
  }
  const auto other = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.node.role == node.role && entry.wanted_rank == rank;
  });
  if (other == entries_.end()) return bs::Status::Ok();
  return bs::Status::AlreadyExists(asks + ", which " + DescribeUnranked(other->node) +
                                   " has asked for: give each " + std::string(NameOf(node.role)) +
                                   " a rank of its own (" +
                                   (worker ? "DMLC_WORKER_ID" : "DMLC_SERVER_ID") + ")");
}

bs::Result<Roster::Entry*> Roster::FindSame(const Node& node, bool native) {
  for (Entry& entry : entries_) {
    if (entry.node.hostname != node.hostname || entry.node.port != node.port) continue;
    if (entry.native != native || entry.node.role != node.role) {
      return bs::Status::AlreadyExists(DescribeUnranked(node) +
                                       ": this address has registered as " +
                                       DescribeUnranked(entry.node) + " already");
    }
    // Stock processes with several customers register once for each, from the same address.
    if (native || entry.node.customer_id == node.customer_id) return &entry;
  }
  return nullptr;
}

bs::Status Roster::CheckRoom(const Node& node) const {
  const int32_t wanted = Wanted(node.role);
  if (Count(node.role) < wanted) return bs::Status::Ok();
  return bs::Status::AlreadyExists(
      DescribeUnranked(node) + ": the job has its " +
      bs::CountOf(wanted, node.role == Role::kWorker ? "worker" : "server") + " already (" +
      kOfAnotherJob + ")");
}

Roster::Outcome Roster::Add(const Node& node, bool native, uint64_t sequence, int32_t wanted_rank) {
  if (node.role == Role::kScheduler) {
    return {Verdict::kRefused,
            bs::Status::InvalidArgument(DescribeUnranked(node) + ": the job has one already")};
  }
  const bs::Result<Entry*> same = FindSame(node, native);
  if (!same.ok()) return {Verdict::kRefused, same.status()};
  if (same.value() != nullptr) {
    same.value()->sequence = sequence;
    return {Verdict::kRepeated, bs::Status::Ok()};
  }
  if (const bs::Status check = CheckRank(node, wanted_rank); !check.ok()) {
    return {Verdict::kRefused, check};
  }
  if (const bs::Status check = CheckRoom(node); !check.ok()) return {Verdict::kRefused, check};
  entries_.push_back({node, native, sequence, wanted_rank});
  entries_.back().node.first_hostname.clear();
  return {Verdict::kAdded, bs::Status::Ok()};
}

bs::Status Roster::Check() const {
  const Node* const native = Find(Role::kWorker, true);
  const Node* const server = StockServer();
  const Node* const worker = StockWorker();
  const Node* const stock = server != nullptr ? server : worker;
  if (native == nullptr || stock == nullptr) return bs::Status::Ok();
  return bs::Status::FailedPrecondition(
      DescribeUnranked(*stock) + " is MXNet's own, and " + DescribeUnranked(*native) +
      " is a native worker: " +
      (stock == server ? "start our servers (bslaunch), or wrap a dist store in the workers "
                         "(BYTESCHEDULER_BACKEND=kvstore)"
                       : "make the stores of all workers alike, each a dist store of MXNet's, "
                         "wrapped in all or in none, or none of them"));
}

void Roster::Remove(const Address& address) {
  std::erase_if(entries_, [&](const Entry& entry) { return AddressOf(entry.node) == address; });
}

void Roster::AssignIds() {
  BS_CHECK(complete());
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    if (a.node.hostname != b.node.hostname) return a.node.hostname > b.node.hostname;
    if (a.node.port != b.node.port) return a.node.port < b.node.port;
    return a.node.customer_id < b.node.customer_id;
  });
  std::map<Role, std::set<int32_t>> taken;
  for (const Entry& entry : entries_) {
    if (entry.wanted_rank != kAnyRank) taken[entry.node.role].insert(entry.wanted_rank);
  }
  std::map<std::pair<std::string, int32_t>, int32_t> known;
  for (Entry& entry : entries_) {
    int32_t rank = entry.wanted_rank;
    if (rank == kAnyRank) {
      // An entry that shares an id uses up a rank, too, as with stock schedulers.
      for (rank = 0; !taken[entry.node.role].insert(rank).second;) ++rank;
    }
    const int32_t next = entry.node.role == Role::kWorker ? WorkerId(rank) : ServerId(rank);
    entry.node.id =
        known.emplace(std::pair(entry.node.hostname, entry.node.port), next).first->second;
  }
}

void Roster::Replace(const Node& node, uint64_t sequence) {
  for (Entry& entry : entries_) {
    if (entry.node.id != node.id) continue;
    Node next = node;
    const Node& last = entry.node;
    const std::string& first = last.first_hostname.empty() ? last.hostname : last.first_hostname;
    next.first_hostname = first == node.hostname ? "" : first;
    next.link_rate = last.link_rate;
    entry = {std::move(next), entry.native, sequence, entry.wanted_rank};
  }
}

int64_t Roster::CountId(int32_t id) const {
  return std::count_if(entries_.begin(), entries_.end(),
                       [id](const Entry& entry) { return entry.node.id == id; });
}

const Roster::Entry* Roster::Find(const std::string& hostname, int32_t port) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.node.hostname == hostname && entry.node.port == port;
  });
  return it == entries_.end() ? nullptr : &*it;
}

const Node* Roster::Find(Role role, bool native) const {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.node.role == role && entry.native == native;
  });
  return it == entries_.end() ? nullptr : &it->node;
}

std::string Roster::Waiting() const { return "waiting for " + AllLacking(); }

std::string Roster::AllLacking() const {
  std::string text;
  for (const Role role : {Role::kWorker, Role::kServer}) {
    if (Count(role) == Wanted(role)) continue;
    text += (text.empty() ? "" : ", ") + Lacking(role);
  }
  return text;
}

std::string Roster::Missing() const {
  std::string text = "missing " + AllLacking() + "; registered: ";
  if (entries_.empty()) return text + "none";
  for (size_t i = 0; i < entries_.size(); ++i) {
    text += (i == 0 ? "" : ", ") + DescribeUnranked(entries_[i].node);
  }
  return text;
}

int32_t Roster::Count(Role role) const {
  return static_cast<int32_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [role](const Entry& entry) { return entry.node.role == role; }));
}

std::string Roster::Lacking(Role role) const {
  const bool worker = role == Role::kWorker;
  const int32_t wanted = Wanted(role);
  return std::to_string(wanted - Count(role)) + " of " +
         bs::CountOf(wanted, worker ? "worker" : "server");
}

std::string DifferenceOf(const std::string& settings, const std::string& expected) {
  const std::set<std::string> here = LinesOf(settings);
  const std::set<std::string> there = LinesOf(expected);
  if (here == there) return "";
  return Without(here, there) + " instead of " + Without(there, here);
}

}  // namespace ps
