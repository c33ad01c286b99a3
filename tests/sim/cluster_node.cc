// The life of simulated nodes, and what is checked about it.
#include "sim/cluster_node.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/collective/collective_backend.h"
#include "backend/host_plan.h"
#include "protocol/bodies.h"
#include "sim/stock_ledger.h"

namespace bs::sim {
namespace {

constexpr Duration kLinger = std::chrono::seconds(1);

// Adds the reserve that Scheduler keeps for small partitions.
uint64_t WithReserve(uint64_t credit_bytes) { return credit_bytes + credit_bytes / 8; }

std::string DescribeMessage(const ps::Message& message) {
  const test::Asked about = test::About(message);
  static constexpr const char* kNames[] = {"none", "declare", "lookup", "push", "pull", "pending"};
  const auto op = static_cast<size_t>(about.op);
  std::string text = op < std::size(kNames) ? kNames[op] : "op " + std::to_string(op);
  text += " key=" + std::to_string(about.key) + " round=" + std::to_string(about.round) +
          " partition=" + std::to_string(about.partition) +
          " sequence=" + std::to_string(about.sequence);
  if (about.status != 0) text += " status=" + std::to_string(about.status);
  return about.text.empty() ? text : text + " '" + about.text + "'";
}

// A hosting process that does what the native optimizer does.
Status AddGradient(const ServerUpdate& update) {
  for (size_t at = 0; at < update.weights.size(); at += sizeof(float)) {
    float sum = 0;
    float gradient = 0;
    std::memcpy(&sum, &update.weights[at], sizeof(sum));
    std::memcpy(&gradient, &update.gradient[at], sizeof(gradient));
    sum += gradient;
    std::memcpy(&update.weights[at], &sum, sizeof(sum));
  }
  return Status::Ok();
}

}  // namespace

MemberNode::MemberNode(Job* job, ps::Role role, int32_t index)
    : job_(job),
      name_(std::string(ps::NameOf(role)) + " of port " + std::to_string(5000 + index)),
      io_(job->clock),
      transport_(job->network->MakeTransport(&io_)) {
  ps::MembershipOptions options = job->membership;
  options.role = role;
  const bool server = role == ps::Role::kServer;
  const std::vector<int32_t>& hosts = server ? job->server_hosts : job->hosts;
  options.node_host = hosts.empty() ? (server ? "10.0.0.2" : "10.0.0.3")
                                    : "10.0.1." + std::to_string(hosts[static_cast<size_t>(index)]);
  options.node_port = (server && !hosts.empty() ? 6000 : 5000) + index;
  options.joins_host = !server && !hosts.empty();
  address_ = "(" + options.node_host + ":" + std::to_string(options.node_port) + ")";
  const Logger log("", LogLevel::kDebug, [this](LogLevel, std::string_view line) {
    job_->journal->Note(name_, [&] { return std::string(line); });
  });
  member_ = std::make_unique<ps::Member>(options, transport_.get(), &io_, log, job->members,
                                         job->neighbours);
}

void MemberNode::Start(Duration delay) {
  ps::Member::Handler handler;
  handler.on_ready = [this](const Result<ps::View>& view) {
    job_->journal->Progress();
    if (!view.ok()) return Failed(view.status());
    rank_ = view.value().rank;
    incarnation_ = view.value().incarnation;
    number_ = view.value().job;
    nodes_ = view.value().nodes;
    name_ = ps::DescribeId(view.value().own_id);
    OnReady();
  };
  handler.on_message = [this](ps::Message message) {
    job_->journal->Note(name_, [&] {
      return "hears from " + ps::DescribeId(message.peer) + ": " + DescribeMessage(message);
    });
    OnMessage(std::move(message));
  };
  handler.on_worker_left = [this](int32_t rank, const Status& why) { OnWorkerLeft(rank, why); };
  handler.on_worker_vacant = [this](int32_t id, bool native) { OnWorkerVacant(id, native); };
  handler.on_failure = [this](const Status& why) { Failed(why); };
  handler.on_shutdown = [this] { OnShutdown(); };
  io_.PostAt(io_.Now() + delay, [this, handler] {
    if (!killed_) member_->Start(handler);
  });
}

void MemberNode::Failed(const Status& why) {
  if (killed_) return;
  job_->journal->Note(name_, [&] { return "fails: " + why.ToString(); });
  job_->journal->Progress();
  const bool named = job_->victim && why.message().find(*job_->victim) != std::string::npos;
  const bool may = std::any_of(may_fail_.begin(), may_fail_.end(), [&why](const auto& part) {
    return why.message().find(part) != std::string::npos;
  });
  if (!named && !may) job_->journal->Report(Broken::kStatus, name_, why.ToString());
  if (!failure_) failure_ = why;
  member_->ReportFailure(why);
  OnFailure(why);
}

void MemberNode::Send(ps::Message message) {
  if (!transport_) return;
  if (message.meta.extension.op == ps::Op::kReady) ++job_->ready_messages;
  job_->journal->Note(name_, [&] {
    return "tells " + ps::DescribeId(message.peer) + ": " + DescribeMessage(message);
  });
  transport_->Send(std::move(message));
}

void MemberNode::Kill() {
  job_->journal->Note(name_, [] { return "vanishes"; });
  killed_ = true;
  job_->network->Kill(transport_.get());
}

void MemberNode::CutOff(Duration duration) {
  job_->journal->Note(name_, [] { return "is cut off"; });
  job_->network->CutOff(transport_.get(), duration);
}

void MemberNode::LeaveAndClose(const std::string& reason) {
  if (killed_ || std::exchange(leaving_, true)) return;
  if (failure_) return CloseMember();
  member_->Leave(reason, [this](const Status& status) {
    job_->journal->Note(name_, [&] { return "has left: " + status.ToString(); });
    // The last answer may be lost for good (two generals): then the end of the job is the answer.
    left_well_ = status.ok() || job_->finished;
    if (!left_well_ && !job_->victim && may_fail_.empty()) {
      job_->journal->Report(Broken::kStatus, name_, "its goodbye: " + status.ToString());
    }
    io_.Post([this] { CloseMember(); });
  });
}

void MemberNode::CloseMember() {
  if (!member_) return;
  member_->Close(kLinger);
  job_->journal->Progress();
  over_ = true;
}

void MemberNode::DestroyMember() {
  member_.reset();
  transport_.reset();
}

job::View MemberNode::ViewOf(job::Role role) const {
  job::View view = job::MakeView({.role = role, .rank = rank_, .incarnation = incarnation_},
                                 job_->membership.num_workers, job_->membership.num_servers);
  if (job_->hosts.empty()) return view;
  std::map<std::string, int32_t> hosts;
  for (const ps::Node& node : nodes_) {
    if (node.role == ps::Role::kScheduler) continue;
    std::vector<job::Peer>& peers = node.role == ps::Role::kServer ? view.servers : view.workers;
    peers.at(static_cast<size_t>(ps::RankOf(node.id))).host =
        hosts.try_emplace(ps::HostOf(node), static_cast<int32_t>(hosts.size())).first->second;
  }
  view.hosts.resize(hosts.size());
  return view;
}

ServerNode::ServerNode(Job* job, int32_t index, const ServerOptions& options, int32_t num_shards,
                       const protocol::Rules& rules)
    : MemberNode(job, ps::Role::kServer, index),
      options_(options),
      rules_(rules),
      updater_(job->clock) {
  for (int32_t i = 0; i < num_shards; ++i) {
    shards_.push_back(std::make_unique<SimExecutor>(job->clock));
  }
}

void ServerNode::OnReady() {
  ServerOptions options = options_;
  options.view = std::make_shared<const job::View>(ViewOf(job::Role::kServer));
  options.updater = {.executor = &updater_,
                     .set_optimizer =
                         [](std::string_view pickle) {
                           return pickle == "pickle" ? Status::Ok()
                                                     : Status::Internal("another pickle");
                         },
                     .update =
                         [stock = job_->stock](const ServerUpdate& update) {
                           const bool whole = stock || update.about == std::to_string(update.key);
                           return whole ? AddGradient(update) : Status::Internal("another key");
                         }};
  std::vector<ServerShard> shards;
  shards.reserve(shards_.size());
  for (const auto& executor : shards_)
    shards.push_back({.executor = executor.get(), .numa_node = 0});
  Server::Handler handler;
  handler.send = [this](ps::Message message) {
    const ps::Extension& about = message.meta.extension;
    if (about.op == ps::Op::kPending && about.status != 0) ++put_off_;
    Send(std::move(message));
  };
  handler.on_stop = [this] {
    if (job_->stock) return JoinFinalBarrier();
    job_->journal->Report(Broken::kStatus, name_, "was told to stop");
  };
  handler.on_failure = [this](const Status& why) { Failed(why); };
  handler.on_violation = [this](int32_t, const std::string& what) {
    job_->journal->Report(Broken::kStatus, name_, "takes this for a protocol violation: " + what);
  };
  server_ = std::make_unique<Server>(options, &io_, shards, std::move(handler),
                                     Logger("", LogLevel::kOff), rules_);
}

void ServerNode::OnMessage(ps::Message message) {
  if (job_->ledger != nullptr && !message.meta.simple_app) {
    job_->ledger->OnReceived(rank(), message.peer, message.meta.timestamp);
  }
  if (server_) server_->OnMessage(std::move(message));
}

void ServerNode::OnWorkerLeft(int32_t rank, const Status& why) {
  if (server_) server_->OnWorkerGone(rank, why);
}

void ServerNode::OnWorkerVacant(int32_t id, bool native) {
  if (job_->ledger != nullptr) job_->ledger->OnVacant(rank(), id);
  const Status status = server_ ? server_->OnWorkerVacant(id, native) : Status::Ok();
  if (!status.ok()) Failed(status);
}

void ServerNode::OnFailure(const Status& why) {
  if (server_) server_->Fail(why);
  io_.PostAt(io_.Now() + kLinger, [this] { LeaveAndClose(); });
}

WorkerNode::WorkerNode(Job* job, int32_t index, const worker::PsWorkerOptions& options,
                       const ScriptOptions& script, uint64_t most_in_flight,
                       const protocol::Rules& rules)
    : MemberNode(job, ps::Role::kWorker, index),
      options_(options),
      script_options_(script),
      rules_(rules),
      most_in_flight_(WithReserve(std::max(options.credit_bytes, most_in_flight))),
      thread_(job->clock),
      unacknowledged_(static_cast<size_t>(job->membership.num_servers)),
      unacknowledged_bytes_(static_cast<size_t>(job->membership.num_servers)) {}

void WorkerNode::OnReady() {
  options_.SetView(ViewOf(job::Role::kWorker));
  options_.requests.incarnation = incarnation_;
  options_.requests.job = number_;
  script_options_.rank = rank();
  MakeBackend();
  worker_ = std::make_unique<Worker>(
      options_, &thread_, backend_.get(),
      [this](const Status& why) {
        io_.Post([this, why] {
          if (!closing_ && !failure()) Failed(why);
        });
      },
      Logger("", LogLevel::kOff), rules_);
  script_.emplace(script_options_, job_->clock, job_->journal);
  if (job_->victim) script_->AllowFailure(*job_->victim);
  script_->Begin(worker_.get(), &thread_, [this] { io_.Post([this] { Finish(); }); });
}

void WorkerNode::MakeBackend() {
  const auto send = [this](ps::Message message) { Transmit(std::move(message)); };
  const Logger log("", LogLevel::kOff);
  auto link = std::make_unique<backend::PsBackend>(options_, &thread_, send, log);
  link_ = link.get();
  if (job_->library_of) return MakeCollective(std::move(link));
  if (!backend::HostPlan(options_.view()).in_use()) {
    backend_ = std::move(link);
    return;
  }
  backend::HostBackendOptions options;
  options.view = options_.PsBackendOptions::view;
  options.least_bytes = job_->least_added_bytes;
  options.codecs = options_.codecs;
  options.credit_bytes = options_.credit_bytes;
  options.deterministic = rank() % 2 == 0;
  options.hold_bytes = job_->least_added_bytes;
  options.requests = options_.requests;
  auto host =
      std::make_unique<backend::HostBackend>(options, std::move(link), &thread_, send, log, rules_);
  host_ = host.get();
  backend_ = std::move(host);
}

void WorkerNode::MakeCollective(std::unique_ptr<backend::Backend> link) {
  backend::collective::CollectiveOptions options{.rank = rank()};
  const job::View& view = options_.view();
  place_ = rank();
  int32_t first_rank = 0;
  auto num_ranks = static_cast<size_t>(view.num_workers());
  if (!job_->hosts.empty()) {
    const backend::HostPlan plan(view, /*also_on_one_host=*/true);
    place_ = static_cast<int32_t>(plan.PlaceOnHost(rank()));
    first_rank = plan.ranks().front();
    num_ranks = plan.num_workers();
    options.host = backend::collective::HostOptions{
        .plan = plan,
        .crosses = num_ranks < static_cast<size_t>(view.num_workers()),
        .credit_bytes = options_.credit_bytes};
  }
  library_ = job_->library_of(first_rank, num_ranks);
  backend_ = std::make_unique<backend::collective::CollectiveBackend>(
      std::move(options), &thread_, std::move(link), library_->Join(place_, &thread_),
      [this](ps::KvRequest request, ps::KvWorker::Done done) {
        link_->Ask(std::move(request), std::move(done));
      },
      rules_);
}

void WorkerNode::LeaveLibrary() {
  if (library_ != nullptr) library_->Kill(place_);
}

void WorkerNode::OnMessage(ps::Message message) {
  if (!worker_) return;
  const ps::Extension& about = message.meta.extension;
  const auto server = static_cast<size_t>(ps::RankOf(message.peer));
  if (about.op == ps::Op::kPush && server < unacknowledged_.size()) {
    const auto acknowledged = unacknowledged_[server].extract(about.sequence);
    if (!acknowledged.empty()) unacknowledged_bytes_[server] -= acknowledged.mapped();
  }
  host_ != nullptr ? host_->OnMessage(std::move(message)) : link_->OnMessage(std::move(message));
}

void WorkerNode::OnWorkerLeft(int32_t rank, const Status& why) {
  if (host_ == nullptr) return;
  thread_.Post([this, rank, why] { host_->OnWorkerLeft(rank, why); });
}

void WorkerNode::Transmit(ps::Message message) {
  const test::Asked about = test::About(message);
  const auto server = static_cast<size_t>(ps::RankOf(message.peer));
  // Answers to workers of the host are none.
  const bool pushes = about.op == ps::Op::kPush || about.op == ps::Op::kPushPull;
  if (message.meta.request && pushes) {
    priorities_[about.key] = message.meta.priority;
    cuts_[about.key] = about.layout_version;
    CheckCut(about);
    CheckCopy(about);
  }
  if (message.peer == ps::WorkerId(ps::RankOf(message.peer))) ++job_->beside;
  if (about.op == ps::Op::kRelease && about.given_back) {
    job_->forgotten.emplace(about.key, about.oldest_layout);
  }
  // Sequences grow: what is not larger is a repeat and counts for nothing new.
  if (about.op == ps::Op::kPush && about.sequence > last_push_) {
    last_push_ = about.sequence;
    const uint64_t bytes = message.data.empty() ? 0 : message.data[0].size();
    unacknowledged_[server].emplace(about.sequence, bytes);
    unacknowledged_bytes_[server] += bytes;
  }
  Send(std::move(message));
}

void WorkerNode::CheckCopy(const test::Asked& push) {
  if (push.stands_for == 0) return;
  const int32_t host = options_.view().workers[static_cast<size_t>(rank())].host;
  const std::pair<int32_t, uint64_t> sender{rank(), push.sequence};
  const auto [known, first] = job_->copies.try_emplace(
      {push.key, push.round, push.partition, push.layout_version, host}, sender);
  if (known->second == sender) return;
  job_->journal->Report(Broken::kSum, name_,
                        "sends another copy of its host for key=" + std::to_string(push.key) +
                            " round=" + std::to_string(push.round) +
                            " partition=" + std::to_string(push.partition));
}

void WorkerNode::CheckCut(const test::Asked& push) {
  const auto [known, first] = job_->cuts.try_emplace({push.key, push.round}, push.layout_version);
  if (known->second == push.layout_version) return;
  job_->journal->Report(Broken::kSum, name_,
                        "pushes key=" + std::to_string(push.key) +
                            " round=" + std::to_string(push.round) + " in cut " +
                            std::to_string(push.layout_version) + ", another worker in cut " +
                            std::to_string(known->second));
}

void WorkerNode::Retune(uint64_t partition_bytes, uint64_t credit_bytes) {
  if (!worker_ || killed() || closing_) return;
  job_->journal->Note(name_, [&] {
    return "decides: partitions of " + std::to_string(partition_bytes) + " bytes, a credit of " +
           std::to_string(credit_bytes);
  });
  worker_->Retune(partition_bytes, credit_bytes, [this](const Status& status) {
    if (status.ok() || job_->victim || closing_) return;
    job_->journal->Report(Broken::kStatus, name_, "its decision: " + status.ToString());
  });
}

void WorkerNode::CheckCredit() {
  if (!worker_ || killed() || closing_) return;
  for (size_t server = 0; server < unacknowledged_.size(); ++server) {
    const uint64_t counted = worker_->in_flight_bytes(static_cast<uint32_t>(server));
    const uint64_t on_wire = unacknowledged_bytes_[server];
    // Copies of the host have a credit of their own.
    const bool adds_up = !job_->hosts.empty();
    const uint64_t most_on_wire = (adds_up ? 2 : 1) * most_in_flight_;
    if (counted <= most_in_flight_ && on_wire <= most_on_wire) continue;
    job_->journal->Report(Broken::kCredit, name_,
                          std::to_string(counted) + " bytes in flight to server " +
                              std::to_string(server) + ", " + std::to_string(on_wire) +
                              " on the wire; at most " + std::to_string(most_in_flight_));
  }
}

void WorkerNode::OnFailure(const Status& why) {
  if (worker_) worker_->Fail(why);
  if (!worker_) LeaveAndClose();
}

void WorkerNode::OnShutdown() {
  Failed(Status::Unavailable("the scheduler node has ended the job"));
}

void WorkerNode::Finish(const std::string& reason) {
  Close();
  thread_.Post([this, reason] {
    const auto leave = [this, reason](const Status&) {
      io_.Post([this, reason] { LeaveAndClose(reason); });
    };
    failure() ? leave(Status::Ok()) : backend_->Leave(reason, leave);
  });
}

void WorkerNode::GiveUp(const std::string& reason) {
  job_->journal->Note(name_, [&] { return "gives up: " + reason; });
  script_->Kill();
  Finish(reason);
}

void WorkerNode::Close() {
  if (!worker_ || std::exchange(closing_, true)) return;
  worker_->Close([this] { closed_ = true; });
}

}  // namespace bs::sim
