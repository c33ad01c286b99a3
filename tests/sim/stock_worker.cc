// A stock MXNet worker on simulated time.
#include "sim/stock_worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "codec/two_bit.h"
#include "server/stock/stock_request.h"

namespace bs::sim {
namespace {

constexpr int32_t kSyncMode = 3;
constexpr int32_t kSetGradientCompression = 4;
constexpr int32_t kStopServer = 2;
constexpr int32_t kDenseFloats = 0;  // heads
constexpr int32_t kTwoBitFloats = 3;
constexpr int32_t kRowsOfFloats = 1;
constexpr int32_t kController = 0;
constexpr uint64_t kRowLength = 3;
constexpr int kMostRetries = 10;  // the next one ends a stock process

bool HasRows(const StockKeyPlan& plan) {
  return plan.way == StockWay::kRows || plan.way == StockWay::kSharedRows;
}

// Elements of a unit of the plan's count.
uint64_t LengthOf(const StockKeyPlan& plan) { return HasRows(plan) ? kRowLength : 1; }

bool PushesRow(int32_t rank, uint64_t round, uint64_t row) {
  return round == 0 || (row + 2 * static_cast<uint64_t>(rank) + round) % 3 != 0;
}

std::string BytesOf(const void* data, size_t size) {
  return {static_cast<const char*>(data), size};
}

}  // namespace

StockWorker::StockWorker(Job* job, int32_t index, const StockPlan& plan)
    : job_(job),
      plan_(plan),
      address_{"10.0.0.4", 6000 + index},
      name_("stock worker of port " + std::to_string(address_.port)),
      io_(job->clock),
      transport_(job->network->MakeTransport(&io_)),
      open_(plan.keys.size()),
      rounds_(plan.keys.size()),
      answered_(plan.keys.size()),
      pushed_(plan.keys.size()) {}

StockWorker::~StockWorker() { transport_->Close(Duration(0)); }

void StockWorker::Start(Duration delay) {
  io_.PostAt(io_.Now() + delay, [this] {
    ps::Transport::Handler handler;
    handler.on_message = [this](const ps::Message& message) { OnMessage(message); };
    transport_->Start(handler);
    transport_->Bind(address_, [](const Result<int32_t>&) {});
    transport_->Connect(ps::kSchedulerId, job_->membership.root, ps::kEmpty);
    ps::Meta meta;
    meta.is_control = true;
    meta.control.command = ps::Command::kAddNode;
    meta.control.nodes = {{ps::Role::kWorker, ps::kEmpty, address_.host, address_.port, false, 0}};
    meta.timestamp = num_control_++;
    Transmit(ps::kSchedulerId, meta, {});
  });
}

void StockWorker::Kill() {
  job_->journal->Note(name_, [] { return "vanishes"; });
  killed_ = true;
  job_->network->Kill(transport_.get());
}

void StockWorker::Vanish() {
  io_.Post([this] { job_->network->Kill(transport_.get()); });
}

void StockWorker::OnMessage(const ps::Message& message) {
  if (over()) return;
  job_->journal->Progress();
  if (TakeResend(message)) return;
  if (!message.meta.is_control) return OnResponse(message);
  switch (message.meta.control.command) {
    case ps::Command::kAddNode:
      return OnList(message.meta.control.nodes);
    case ps::Command::kBarrier:
      return OnBarrier();
    default:
      job_->journal->Report(Broken::kStatus, name_, "it got a command that it does not know");
  }
}

void StockWorker::OnList(const std::vector<ps::Node>& nodes) {
  for (const ps::Node& node : nodes) {
    if (node.hostname != address_.host || node.port != address_.port) continue;
    id_ = node.id;
    replaces_ = node.is_recovery;
  }
  rank_ = ps::RankOf(id_);
  name_ = ps::DescribeId(id_);
  for (const ps::Node& node : nodes) {
    if (node.role == ps::Role::kWorker) continue;
    transport_->Connect(node.id, {node.hostname, node.port}, id_);
  }
  if (plan_.resends) Resend();
  if (!replaces_) return Barrier(ps::kEveryone);
  job_->ledger->Forget(id_);
  // The start barrier is over, and so are those of the initial values.
  OnBarrier();
}

// The start, everyone's initial values, everyone's last round, the end.
void StockWorker::OnBarrier() {
  switch (++stage_) {
    case 1:
      ready_ = true;
      if (plan_.asynchronous) return Command(kController, "pickle");
      return rank_ == 0 ? Command(kSyncMode, "") : InitBarrier();
    case 2:
      for (size_t i = 0; i < plan_.keys.size(); ++i) {
        ++open_[i];
        Ask(i, 0, false, true);
      }
      return;
    case 3:
      if (!plan_.asynchronous) return BeginEnd();
      looks_last_ = true;
      for (size_t i = 0; i < plan_.keys.size(); ++i) {
        open_[i] = 1;
        Ask(i, plan_.keys[i].rounds, false, true);
      }
      return;
    default:
      done_ = true;
      Vanish();
  }
}

void StockWorker::InitBarrier() { return replaces_ ? OnBarrier() : Barrier(ps::kWorkerGroup); }

void StockWorker::BeginEnd() {
  return rank_ == 0 ? Command(kStopServer, "") : Barrier(ps::kEveryone);
}

void StockWorker::Barrier(int32_t group) {
  ps::Meta meta;
  meta.is_control = true;
  meta.control.command = ps::Command::kBarrier;
  meta.control.barrier_group = group;
  meta.request = true;
  meta.app_id = 0;
  meta.customer_id = 0;
  meta.timestamp = num_control_++;
  Send(ps::kSchedulerId, meta);
}

void StockWorker::Command(int32_t head, const std::string& body) {
  ps::Meta meta;
  meta.head = head;
  meta.body = body;
  meta.simple_app = true;
  meta.request = true;
  meta.app_id = 0;
  meta.customer_id = 0;
  meta.timestamp = num_requests_++;
  Request& request = requests_[meta.timestamp];
  request.simple = true;
  request.round = static_cast<uint64_t>(head);
  for (int32_t rank = 0; rank < plan_.num_servers; ++rank) {
    request.unanswered.insert(ps::ServerId(rank));
    Send(ps::ServerId(rank), meta);
  }
}

void StockWorker::Initialise() {
  for (size_t i = 0; i < plan_.keys.size(); ++i) {
    ++open_[i];
    Ask(i, 0, true, false);
  }
}

void StockWorker::BeginRound(size_t index) {
  if (rounds_[index] == plan_.keys[index].rounds) return FinishKeys();
  const auto pause = static_cast<uint64_t>(plan_.longest_pause.count());
  io_.PostAt(io_.Now() + Duration(job_->clock->Uniform(0, pause)), [this, index] {
    if (over()) return;
    const uint64_t round = rounds_[index] + 1;
    open_[index] = 1;
    // Servers that have the lost one's push already are asked for the value only.
    switch (job_->clock->Uniform(RoundsPaid(index).second ? 1 : 0, 2)) {
      case 0:
        return Ask(index, round, true, true);
      case 1:
        return Ask(index, round, true, false);  // and the pull when that is answered
      default:
        ++open_[index];
        Ask(index, round, true, false);
        Ask(index, round, false, true);
    }
  });
}

void StockWorker::Ask(size_t index, uint64_t round, bool push, bool pull) {
  const StockKeyPlan& plan = plan_.keys[index];
  const bool coded = plan.way == StockWay::kTwoBit && push && round > 0;
  const bool rows = HasRows(plan);
  ps::Meta meta;
  meta.head = plan.way == StockWay::kTwoBit && (coded || !push) ? kTwoBitFloats : kDenseFloats;
  if (rows) meta.head = kRowsOfFloats;
  meta.request = true;
  meta.push = push;
  // MXNet does not code in one request, nor push and pull rows, so such a push brings its own pull.
  meta.pull = pull && !coded && !(rows && push);
  meta.app_id = 0;
  meta.customer_id = 0;
  meta.timestamp = num_requests_++;
  Request& request = requests_[meta.timestamp];
  request.key = index;
  request.round = round;
  request.push = push;
  request.pull = meta.pull;
  if (push) pushed_[index] = round;
  if (push && round > 0 && job_->ledger != nullptr) {
    job_->ledger->OnSent(id_, meta.timestamp, index, round);
  }
  for (const Part& part : PartsOf(plan)) {
    if (push && round > 0 && RoundsPaid(index, part.server) >= round) continue;
    const uint64_t first = server::StockRangeOf(part.server, plan_.num_servers).begin;
    std::vector<uint64_t> keys = {first + plan.key};
    if (coded) keys.insert(keys.begin(), first + part.count);
    for (const uint64_t row : rows ? RowsOf(part, push ? round : 0) : std::vector<uint64_t>()) {
      keys.push_back(first + plan.key + row - part.begin);
    }
    request.unanswered.insert(ps::ServerId(part.server));
    Send(ps::ServerId(part.server), meta,
         {BytesOf(keys.data(), keys.size() * sizeof(uint64_t)),
          push ? Payload(plan, part, round) : std::string()});
  }
}

void StockWorker::OnResponse(const ps::Message& message) {
  const ps::Meta& meta = message.meta;
  if (meta.pull && message.data.size() < 2) {  // a stock process aborts here
    job_->journal->Note(name_, [] { return "is ended"; });
    ended_ = true;
    return Vanish();
  }
  const auto found = requests_.find(meta.timestamp);
  if (found == requests_.end() || found->second.unanswered.erase(message.peer) == 0) {
    return job_->journal->Report(Broken::kCallback, name_, "an answer to nothing or a second one");
  }
  ++answers_;
  Request& request = found->second;
  if (request.pull) {
    std::vector<float>& part = request.parts[message.peer];
    part.resize(message.data[1].size() / sizeof(float));
    if (!part.empty()) {
      std::memcpy(part.data(), message.data[1].bytes().data(), message.data[1].size());
    }
  }
  if (!request.unanswered.empty()) return;
  const Request answered = std::move(request);
  requests_.erase(found);
  Answered(answered);
}

void StockWorker::Answered(const Request& request) {
  if (request.simple) {
    switch (static_cast<int32_t>(request.round)) {
      case kSyncMode:
        return Command(kSetGradientCompression, "1,1.000000");
      case kSetGradientCompression:
        return Initialise();
      case kController:
        return rank_ == 0 ? Initialise() : InitBarrier();
      default:
        return Barrier(ps::kEveryone);
    }
  }
  if (request.push) answered_[request.key] = request.round;
  if (request.pull) CheckValues(request);
  if (--open_[request.key] > 0) return;
  if (looks_last_) {
    if (std::all_of(open_.begin(), open_.end(), [](int open) { return open == 0; })) BeginEnd();
    return;
  }
  if (stage_ == 1) {  // an initial value of rank 0
    if (std::all_of(open_.begin(), open_.end(), [](int open) { return open == 0; })) InitBarrier();
    return;
  }
  if (!request.pull) {
    ++open_[request.key];
    return Ask(request.key, request.round, false, true);
  }
  rounds_[request.key] = request.round == 0 ? RoundsPaid(request.key).first : request.round;
  BeginRound(request.key);
}

void StockWorker::FinishKeys() {
  if (++keys_done_ == plan_.keys.size()) Barrier(ps::kWorkerGroup);
}

void StockWorker::CheckValues(const Request& request) {
  const StockKeyPlan& plan = plan_.keys[request.key];
  for (const Part& part : PartsOf(plan)) {
    const std::vector<float>& got = request.parts.at(ps::ServerId(part.server));
    const uint64_t round =
        request.round == 0 ? RoundsPaid(request.key, part.server) : request.round;
    const uint64_t length = LengthOf(plan);
    const auto right = [&](bool all) {
      if (got.size() != part.count * length) return false;
      uint64_t i = 0;
      while (i < got.size() && IsRight(plan, round, part.begin * length + i, got[i], all)) ++i;
      return i == got.size();
    };
    if (right(looks_last_)) continue;
    // The end of a job that failed lets those go who wait for the others.
    if (looks_last_ && job_->victim && right(false)) {
      missed_some_ = true;
      continue;
    }
    job_->journal->Report(Broken::kSum, name_,
                          "key " + std::to_string(plan.key) + " round " +
                              std::to_string(request.round) + " from server " +
                              std::to_string(part.server));
  }
}

// The value of a dist_async store is the first one, this worker's pushes, and of every other worker
// its first so many.
bool StockWorker::IsRight(const StockKeyPlan& plan, uint64_t round, uint64_t element, float value,
                          bool all) const {
  if (!plan_.asynchronous) return value == SumOf(plan, round, element);
  std::set<float> sums = {ValueOf(plan, 0, 0, element)};
  const auto add = [&](int32_t rank, uint64_t least, uint64_t most) {
    std::set<float> with;
    for (const float sum : sums) {
      float more = sum;
      for (uint64_t r = 0; r <= most; ++r) {
        if (r > 0) more += ValueOf(plan, rank, r, element);
        if (r >= least) with.insert(more);
      }
    }
    sums = std::move(with);
  };
  const auto key = static_cast<size_t>(&plan - plan_.keys.data());
  for (int32_t rank = 0; rank < plan_.num_workers; ++rank) {
    add(rank, rank == rank_ ? round : all ? plan.rounds : 0, rank == rank_ ? round : plan.rounds);
    if (job_->ledger == nullptr) continue;
    for (const StockLedger::Life& life : job_->ledger->lost[static_cast<size_t>(rank)]) {
      add(rank, all ? life.answered[key] : 0, life.pushed[key]);
    }
  }
  return sums.contains(value);
}

uint64_t StockWorker::RoundsPaid(size_t index, int32_t server) const {
  if (!replaces_ || plan_.asynchronous) return 0;
  return job_->ledger->counted(server, id_, index);
}

std::pair<uint64_t, bool> StockWorker::RoundsPaid(size_t index) const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  uint64_t most = 0;
  for (const Part& part : PartsOf(plan_.keys[index])) {
    least = std::min(least, RoundsPaid(index, part.server));
    most = std::max(most, RoundsPaid(index, part.server));
  }
  return {least, most > least};
}

std::vector<uint64_t> StockWorker::RowsOf(const Part& part, uint64_t round) const {
  std::vector<uint64_t> rows;
  for (uint64_t row = part.begin; row < part.begin + part.count; ++row) {
    if (PushesRow(rank_, round, row)) rows.push_back(row);
  }
  return rows;
}

std::vector<StockWorker::Part> StockWorker::PartsOf(const StockKeyPlan& plan) const {
  const auto servers = static_cast<uint64_t>(plan_.num_servers);
  if (plan.way != StockWay::kShared && plan.way != StockWay::kSharedRows) {
    return {{static_cast<int32_t>(plan.key * 9973 % servers), 0, plan.count}};
  }
  std::vector<Part> parts;
  const double share = static_cast<double>(plan.count) / static_cast<double>(servers);
  for (uint64_t i = 0; i < servers; ++i) {
    const auto begin = static_cast<uint64_t>(std::llround(share * static_cast<double>(i)));
    const auto end = static_cast<uint64_t>(std::llround(share * static_cast<double>(i + 1)));
    parts.push_back({static_cast<int32_t>(i), begin, end - begin});
  }
  return parts;
}

// Whole numbers, of which sums are exact; codes of the threshold 1 say them too.
float StockWorker::ValueOf(const StockKeyPlan& plan, int32_t rank, uint64_t round,
                           uint64_t element) const {
  const uint64_t mixed = static_cast<uint64_t>(rank) * 7 + plan.key * 5 + round * 11 + element;
  return plan.way == StockWay::kTwoBit ? static_cast<float>(mixed % 3) - 1
                                       : static_cast<float>(mixed % 17) - 8;
}

float StockWorker::SumOf(const StockKeyPlan& plan, uint64_t round, uint64_t element) const {
  if (round == 0) return ValueOf(plan, 0, 0, element);
  float sum = 0;
  for (int32_t rank = 0; rank < plan_.num_workers; ++rank) {
    if (HasRows(plan) && !PushesRow(rank, round, element / kRowLength)) continue;
    sum += ValueOf(plan, rank, round, element);
  }
  return sum;
}

std::string StockWorker::Payload(const StockKeyPlan& plan, const Part& part, uint64_t round) const {
  if (HasRows(plan)) {
    std::vector<float> rows;
    for (const uint64_t row : RowsOf(part, round)) {
      for (uint64_t i = 0; i < kRowLength; ++i) {
        rows.push_back(ValueOf(plan, rank_, round, row * kRowLength + i));
      }
    }
    return BytesOf(rows.data(), rows.size() * sizeof(float));
  }
  std::vector<float> values(part.count);
  for (uint64_t i = 0; i < part.count; ++i) {
    values[i] = ValueOf(plan, rank_, round, part.begin + i);
  }
  if (plan.way != StockWay::kTwoBit || round == 0) {
    return BytesOf(values.data(), values.size() * sizeof(float));
  }
  std::vector<float> residual(values.size(), 0);
  std::string words(codec::TwoBitBytes(values.size()), '\0');
  codec::QuantizeTwoBit(1, values.data(), residual.data(), words.data(), values.size());
  return words;
}

void StockWorker::Send(int32_t peer, const ps::Meta& meta, std::vector<std::string> data) {
  Transmit(peer, meta, data);
  if (!plan_.resends) return;
  unacknowledged_[Signature(meta, id_, peer)] = {peer, meta, std::move(data), io_.Now(), 0};
}

void StockWorker::Transmit(int32_t peer, const ps::Meta& meta,
                           const std::vector<std::string>& data) {
  ps::Message message;
  message.peer = peer;
  message.meta = meta;
  for (const std::string& frame : data) message.data.push_back(ps::Frame::Copy(frame));
  transport_->Send(std::move(message));
}

uint64_t StockWorker::Signature(const ps::Meta& meta, int32_t sender, int32_t receiver) {
  const auto byte = [](int32_t id) { return static_cast<uint64_t>(id & 0xff); };
  const uint64_t app = static_cast<uint64_t>(meta.app_id) & 0xffff;
  const auto number = static_cast<uint64_t>(int64_t{meta.timestamp} * 2);
  return app << 48U | byte(sender) << 40U | byte(receiver) << 32U | number |
         (meta.request ? 1U : 0U);
}

bool StockWorker::TakeResend(const ps::Message& message) {
  const bool acknowledges =
      message.meta.is_control && message.meta.control.command == ps::Command::kAck;
  if (!plan_.resends || id_ == ps::kEmpty) {
    const bool says = !message.meta.body.empty();  // a word before the end
    if (acknowledges && !says)
      job_->journal->Report(Broken::kStatus, name_, "it asked for no such thing");
    return acknowledges;
  }
  if (acknowledges) {
    unacknowledged_.erase(message.meta.control.signature);
    return true;
  }
  const uint64_t signature = Signature(message.meta, message.peer, id_);
  ps::Meta meta;
  meta.is_control = true;
  meta.control.command = ps::Command::kAck;
  meta.control.signature = signature;
  Transmit(message.peer, meta, {});
  return !seen_.insert(signature).second;
}

void StockWorker::GiveUp() {
  // The dead acknowledge nothing.
  if (!job_->victim) {
    job_->journal->Report(Broken::kStuck, name_, "what it sends is never acknowledged");
  }
  ended_ = true;
  Vanish();
}

void StockWorker::Resend() {
  io_.PostAt(io_.Now() + plan_.resend_timeout, [this] {
    if (over()) return;
    for (auto& [signature, sent] : unacknowledged_) {
      if (io_.Now() < sent.when + plan_.resend_timeout * (1 + sent.retries)) continue;
      sent.when = io_.Now();
      if (++sent.retries == kMostRetries) return GiveUp();
      ++resent_;
      Transmit(sent.peer, sent.meta, sent.data);
    }
    Resend();
  });
}

}  // namespace bs::sim
