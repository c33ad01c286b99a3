// Rendezvous: registration until all nodes are there.
#include "membership/coordinator/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/count_of.h"
#include "wire/control.h"
#include "wire/wire.h"

namespace ps {
namespace {

// True for the message that repeats a registration; a stock scheduler node drops it.
bool IsRepeat(const Meta& meta) {
  const Op op = meta.extension.op;
  return meta.native() && meta.control.command == Command::kAck &&
         (op == Op::kRegister || op == Op::kAttach);
}

}  // namespace

Rendezvous::Rendezvous(JobState* job, Refusals* refusals, Detector* detector, Places* places)
    : job_(job),
      refusals_(refusals),
      detector_(detector),
      places_(places),
      waiting_(job, [this](const Node& node, const std::string& why) { OnGone(node, why); }),
      report_(&job->scope) {}

void Rendezvous::Start(bs::Task begun) {
  begun_ = std::move(begun);
  start_ = job_->scope.Now();
  report_.Start(job_->options.report_interval, [this] { Report(); });
  job_->scope.After(job_->options.UntilAllThere(), [this] { OnDeadline(); });
}

void Rendezvous::OnDeadline() {
  if (job_->phase != Phase::kGathering) return;
  const bs::Duration limit = kMostTimeouts * job_->options.UntilAllThere();
  const bs::Duration waited = job_->scope.Now() - start_;
  const bool live = AllLive();
  if (live && waited < limit) {
    held_ = true;
    const bs::Duration next = std::min(job_->options.report_interval, limit - waited);
    job_->scope.After(next, [this] { OnDeadline(); });
    return;
  }
  const bs::Duration shown =
      held_ ? std::chrono::floor<std::chrono::seconds>(waited) : job_->options.UntilAllThere();
  const std::string slow =
      live ? "; bslaunch says that the missing workers' processes live, but no job waits for "
             "longer than " +
                 std::to_string(kMostTimeouts) + " times BYTESCHEDULER_RENDEZVOUS_TIMEOUT"
           : "";
  job_->end(bs::Status::DeadlineExceeded("rendezvous: after " + TextOf(shown) + " still " +
                                         job_->roster.Missing() + slow + Refused()));
}

void Rendezvous::OnVouch(const Message& message) {
  const Extension& extension = message.meta.extension;
  const bs::Result<MemberBody> body = DecodeMemberBody(extension.body);
  if (!body.ok()) return job_->Drop(message, body.status().message());
  if (job_->phase != Phase::kGathering) return;
  const size_t most = static_cast<size_t>(job_->options.num_workers);
  const uint64_t token = extension.sequence;
  CountVouched();  // forgets old words
  if (vouchers_.size() >= most && !vouchers_.contains(token)) return;
  vouchers_[token] = {.workers = body.value().rank, .at = job_->scope.Now()};
}

int64_t Rendezvous::CountVouched() {
  // A launcher repeats its word as often as nodes are reported missing.
  const bs::TimePoint oldest = job_->scope.Now() - 3 * job_->options.report_interval;
  std::erase_if(vouchers_, [&](const auto& entry) { return entry.second.at < oldest; });
  int64_t count = 0;
  for (const auto& [token, voucher] : vouchers_) count += std::max(voucher.workers, 0);
  return count;
}

bool Rendezvous::AllLive() {
  const Roster& roster = job_->roster;
  // A launcher does not hear that a stock worker has registered.
  const auto is_stock_worker = [](const Roster::Entry& entry) {
    return !entry.native && entry.node.role == Role::kWorker;
  };
  const int64_t stock = std::ranges::count_if(roster.entries(), is_stock_worker);
  const auto missing_workers = roster.NumMissing(Role::kWorker);
  const auto missing_servers = roster.NumMissing(Role::kServer);
  // A missing worker's process hosts a missing server.
  const bool servers_follow =
      job_->options.servers_in_workers && missing_servers <= missing_workers;
  return (missing_servers == 0 || servers_follow) && CountVouched() - stock >= missing_workers;
}

void Rendezvous::OnMessage(const Message& message) {
  const Meta& meta = message.meta;
  const auto drop = [&](const std::string& why) { job_->Drop(message, why); };
  if (meta.extension.op == Op::kVouch) return OnVouch(message);
  if (meta.control.nodes.size() != 1 || meta.control.command == Command::kNone) {
    return drop("no registration");
  }
  const Node& node = meta.control.nodes.front();
  if (const bs::Status check = CheckNode(node); !check.ok()) return drop(check.message());
  const bs::Result<MemberBody> body = DecodeMemberBody(meta.extension.body);
  if (!body.ok()) return drop(body.status().message());
  const bool repeat = IsRepeat(meta);
  if (meta.control.command == Command::kAddNode || repeat) {
    OnRegistration(node, meta.extension, body.value(), repeat);
  } else if (meta.control.command == Command::kAck && meta.native()) {
    const int32_t peer = waiting_.Find(AddressOf(node));
    if (peer != kEmpty) job_->broadcast.Confirm(peer, meta.extension.sequence);
  } else {
    drop("control of a node that has not registered");
  }
}

void Rendezvous::OnRegistration(const Node& node, const Extension& extension,
                                const MemberBody& body, bool repeat) {
  const Arrival arrival{.registrant = {node, extension.sequence},
                        .native = extension.version != 0,
                        .rank = body.rank,
                        .attaches = extension.op == Op::kAttach,
                        .repeat = repeat,
                        .yields = body.yields};
  const auto refuse = [&](const bs::Status& why) {
    refusals_->Refuse(node, arrival.native, extension.sequence, why);
  };
  if (job_->over()) return refuse(job_->Over());
  if (arrival.native && extension.version != kExtensionVersion) {
    return refuse(bs::Status::InvalidArgument(
        DescribeUnranked(node) + " speaks version " + std::to_string(extension.version) +
        ", the job version " + std::to_string(kExtensionVersion)));
  }
  if (arrival.native && places_->IsFormer(node, extension.sequence)) return;
  const std::string difference =
      arrival.native ? DifferenceOf(body.settings, job_->options.settings) : "";
  if (!difference.empty()) {
    return refuse(bs::Status::InvalidArgument("settings differ: " + DescribeUnranked(node) +
                                              " has " + difference + ", which " +
                                              Describe(job_->outbox.own()) + " has"));
  }
  Register(arrival);
}

void Rendezvous::Register(const Arrival& arrival) {
  if (job_->over()) {
    refusals_->Refuse(arrival.node(), arrival.native, arrival.registrant.sequence, job_->Over());
  } else if (arrival.attaches) {
    Attach(arrival);
  } else if (job_->running()) {
    places_->Register(arrival);
  } else {
    Gather(arrival);
  }
}

void Rendezvous::Attach(const Arrival& arrival) {
  const bs::Status check = places_->CheckAttach(arrival.node(), arrival.rank);
  if (!check.ok()) {
    refusals_->Refuse(arrival.node(), true, arrival.registrant.sequence, check);
  } else if (job_->running()) {
    places_->Attach(arrival);
  } else {
    AttachEarly(arrival);
  }
}

void Rendezvous::AttachEarly(const Arrival& arrival) {
  const auto [it, added] = job_->early.try_emplace(arrival.rank, arrival.registrant);
  if (added) waiting_.ConnectSoon(arrival.node(), true);
  if (AddressOf(it->second.node) == AddressOf(arrival.node())) {
    it->second.sequence = arrival.registrant.sequence;
  } else if (!ComesAgain(arrival)) {
    refusals_->Refuse(arrival.node(), true, arrival.registrant.sequence,
                      Places::IsTaken(arrival, it->second.node));
  }
}

void Rendezvous::Gather(const Arrival& arrival) {
  const Node& node = arrival.node();
  const uint64_t sequence = arrival.registrant.sequence;
  const Node* const stock_server = job_->roster.StockServer();
  if (arrival.native && arrival.yields && stock_server != nullptr) {
    refusals_->Refuse(node, true, sequence, ServersAreStock(node, *stock_server));
    return;
  }
  WarnIfShared(arrival);
  const Roster::Outcome outcome = job_->roster.Add(node, arrival.native, sequence, arrival.rank);
  switch (outcome.verdict) {
    case Roster::Verdict::kRefused:
      if (!ComesAgain(arrival)) refusals_->Refuse(node, arrival.native, sequence, outcome.why);
      return;
    case Roster::Verdict::kRepeated:
      // A stock node registers once, so this is a process that was started again at its address.
      if (!arrival.native) waiting_.ConnectAgain(node);
      return;
    case Roster::Verdict::kAdded:
      return OnAdded(arrival);
  }
}

void Rendezvous::WarnIfShared(const Arrival& arrival) {
  const Node& node = arrival.node();
  const Roster::Entry* const same = job_->roster.Find(node.hostname, node.port);
  if (!arrival.native || same == nullptr || !same->native) return;
  if (same->node.role != node.role || same->sequence == arrival.registrant.sequence) return;
  job_->WarnOfSharedAddress(node, DescribeUnranked(same->node));
}

void Rendezvous::OnAdded(const Arrival& arrival) {
  const Node& node = arrival.node();
  if (arrival.native && arrival.yields) yielding_[TextOf(AddressOf(node))] = node;
  if (!arrival.native && node.role == Role::kServer) RefuseYielding(node);
  job_->log.Info(DescribeUnranked(node) + " registered");
  if (!job_->roster.complete()) {
    waiting_.ConnectSoon(node, arrival.native);
  } else if (const bs::Status check = job_->roster.Check(); check.ok()) {
    Complete();
  } else {
    job_->end(check);
  }
}

bool Rendezvous::ComesAgain(const Arrival& arrival) {
  const Role role = arrival.node().role;
  // Nodes that have just registered may be dead already: connect to find out.
  for (const Roster::Entry& entry : job_->roster.entries()) {
    if (entry.native && entry.node.role == role) waiting_.PeerOf(entry.node, true);
  }
  for (const auto& [rank, early] : job_->early) {
    if (early.node.role == role) waiting_.PeerOf(early.node, true);
  }
  if (!waiting_.AnyDown()) return false;
  if (arrival.native) return true;
  if (coming_again_ >= job_->options.num_workers + job_->options.num_servers) return false;
  ++coming_again_;
  job_->scope.After(job_->options.reconnect_grace, [this, node = arrival.node()] {
    --coming_again_;
    Register({.registrant = {node}, .native = false});
  });
  return true;
}

void Rendezvous::OnGone(const Node& node, const std::string& why) {
  std::erase_if(job_->early,
                [&](const auto& entry) { return AddressOf(entry.second.node) == AddressOf(node); });
  job_->roster.Remove(AddressOf(node));
  job_->log.Warning(DescribeUnranked(node) + " is gone before all nodes were there (" + why +
                    "); another may take its place; " + job_->roster.Waiting());
}

bs::Status Rendezvous::ServersAreStock(const Node& worker, const Node& server) {
  return bs::Status::NotFound(DescribeUnranked(worker) + " is native, and " +
                              DescribeUnranked(server) +
                              " is MXNet's own: it needs a dist store of MXNet's");
}

void Rendezvous::RefuseYielding(const Node& server) {
  for (const auto& [address, node] : std::exchange(yielding_, {})) {
    const Roster::Entry* const entry = job_->roster.Find(node.hostname, node.port);
    if (entry == nullptr || !entry->native) continue;
    const uint64_t sequence = entry->sequence;
    job_->roster.Remove(AddressOf(node));
    waiting_.Remove(AddressOf(node));
    refusals_->Refuse(node, true, sequence, ServersAreStock(node, server));
  }
}

void Rendezvous::Complete() {
  job_->phase = Phase::kRunning;
  report_.Stop();
  const std::set<std::string> reached = waiting_.Close();
  job_->roster.AssignIds();
  std::vector<Node> nodes;
  for (const Roster::Entry& entry : job_->roster.entries()) {
    nodes.push_back(entry.node);
    job_->peers.Apply(entry.node.id, PeerEvent::kAllThere,
                      {.newcomer = {entry.node, entry.sequence}, .native = entry.native});
    if (reached.contains(TextOf(AddressOf(entry.node)))) detector_->OnReached(entry.node.id);
  }
  job_->barriers.SetNodes(std::move(nodes));
  job_->log.Info("all nodes are there: " + bs::CountOf(job_->options.num_workers, "worker") + ", " +
                 bs::CountOf(job_->options.num_servers, "server"));
  for (const Role role : {Role::kWorker, Role::kServer}) {  // the protocol's order of a group
    for (const auto& [id, peer] : job_->peers.all()) {
      if (peer.node.role == role) places_->SendList(peer);
    }
  }
  begun_();
  for (const auto& [rank, early] : std::exchange(job_->early, {})) {
    Attach({.registrant = early, .rank = rank, .attaches = true});
  }
}

void Rendezvous::Report() {
  const std::string text =
      job_->roster.Waiting() + (AllLive() ? ", whose processes live" : "") + Refused();
  if (std::exchange(logs_, !logs_)) job_->log.Info(text);
  for (const Roster::Entry& entry : job_->roster.entries()) {
    if (!entry.native) continue;
    job_->outbox.SendStatus(waiting_.PeerOf(entry.node, true), entry.sequence, bs::Status::Ok(),
                            text);
  }
  for (const auto& [rank, early] : job_->early) {
    job_->outbox.SendStatus(waiting_.PeerOf(early.node, true), early.sequence, bs::Status::Ok(),
                            text);
  }
}

std::vector<int32_t> Rendezvous::End() {
  std::vector<int32_t> natives;
  for (const Roster::Entry& entry : job_->roster.entries()) {
    const int32_t peer = waiting_.PeerOf(entry.node, entry.native);
    if (entry.native) {
      natives.push_back(peer);
    } else {
      job_->transport->Connect(peer, AddressOf(entry.node), kSchedulerId);
      job_->outbox.EndStockNode(entry.node, peer, job_->verdict.message());
    }
  }
  for (const auto& [rank, early] : job_->early)
    natives.push_back(waiting_.PeerOf(early.node, true));
  return natives;
}

std::vector<std::pair<int32_t, uint64_t>> Rendezvous::Registering() {
  std::vector<std::pair<int32_t, uint64_t>> registering;
  for (const auto& [node, peer] : waiting_.all()) {
    const Roster::Entry* const entry = job_->roster.Find(node.hostname, node.port);
    const bool native = entry != nullptr && entry->native;
    if (native) registering.emplace_back(peer, entry->sequence);
  }
  for (const auto& [rank, early] : job_->early) {
    registering.emplace_back(waiting_.PeerOf(early.node, true), early.sequence);
  }
  return registering;
}

}  // namespace ps
