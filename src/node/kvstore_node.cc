// Connects a worker to a KvstoreBackend, and ends both.
#include "node/kvstore_node.h"

#include <algorithm>
#include <utility>

#include "base/count_of.h"
#include "base/descriptors.h"
#include "base/run_on.h"
#include "node/network.h"
#include "ps/text.h"

namespace bs::api {
namespace {

constexpr uint64_t kSmallBytes = uint64_t{64} * 1024;  // half a millisecond of 1 Gbit/s
// Smaller partitions cost more operations of the store than they gain on any link.
constexpr uint64_t kLeastScaledBytes = uint64_t{32} * 1024;

// MXNet splits arrays of more elements over all its servers; counted in float32, and a little less.
uint64_t BoundBytes(const Config& config) {
  return (static_cast<uint64_t>(config.bigarray_bound) - 1) * sizeof(float);
}

uint64_t PartitionBytes(const Config& config, uint32_t scale) {
  const uint64_t scaled = std::max(worker::PartitionFor(config.partition_bytes, scale),
                                   std::min(config.partition_bytes, kLeastScaledBytes));
  return std::max(std::min(scaled, BoundBytes(config)), worker::kAlignBytes);
}

// The size of the measurement's array, which lies on one server; too small for a measurement if the
// user has set partition or credit.
uint64_t SampleBytes(const Config& config) {
  return config.partition_or_credit_given ? 0 : std::min(worker::kSampleBytes, BoundBytes(config));
}

WorkerOptions MakeOptions(const Config& config, int32_t rank) {
  WorkerOptions options;
  options.rank = rank;
  options.num_workers = config.num_workers;
  options.partition_bytes = PartitionBytes(config, worker::kUsualScale);
  options.credit_bytes = config.credit_bytes;
  options.priority_order = config.scheduling;
  // Keys of ours would have to be broadcast by all in the same order.
  options.urgency = config.priority == "measured" ? Urgency::kMeasuredAlone : Urgency::kCaller;
  return options;
}

}  // namespace

Result<std::unique_ptr<KvstoreNode>> KvstoreNode::Start(const Config& config, int32_t rank,
                                                        BeginFn begin, bool blocks) {
  if (rank < 0 || rank >= config.num_workers) {
    return Status::InvalidArgument("rank " + std::to_string(rank) + " of " +
                                   CountOf(config.num_workers, "worker"));
  }
  if (Status wrong = CheckTimeline(config); !wrong.ok()) return wrong;
  const uint64_t threads = (blocks ? 2 : 1) + (config.timeline.empty() ? 0 : 2);
  if (Status few = CheckDescriptors(threads * LoopThread::kDescriptors, "this worker"); !few.ok()) {
    return few;
  }
  return std::make_unique<KvstoreNode>(config, rank, std::move(begin), blocks);
}

KvstoreNode::KvstoreNode(const Config& config, int32_t rank, BeginFn begin, bool blocks)
    : rank_(rank),
      num_workers_(config.num_workers),
      num_servers_(config.num_servers),
      timeout_(config.timeout),
      straggler_timeout_(config.straggler_timeout),
      begin_(std::move(begin)),
      log_(MakeLogger(config).Named("worker " + std::to_string(rank))),
      thread_(std::make_unique<LoopThread>("bs-worker")),
      store_thread_(blocks ? std::make_unique<LoopThread>("bs-kvstore") : nullptr) {
  backend_ = std::make_unique<worker::KvstoreBackend>(
      worker::KvstoreBackend::Options{
          .rank = rank,
          .num_servers = static_cast<uint32_t>(config.num_servers),
          .straggler_timeout = config.straggler_timeout,
          .sample_bytes = SampleBytes(config),
          .on_scale = [this, config](uint32_t scale) { Scale(config, scale); },
          .small_bytes = std::min(kSmallBytes, config.credit_bytes)},
      thread_.get(),
      [this](const worker::StoreRequest& request, worker::StoreDone done) {
        Begin(request, std::move(done));
      },
      log_);
  timeline_ = Timeline::OfWorker(config, rank, log_);
  WorkerOptions options = MakeOptions(config, rank);
  options.trace = timeline_ ? timeline_->trace() : nullptr;
  worker_ = std::make_unique<Worker>(
      options, thread_.get(), backend_.get(),
      [this](const Status& why) {
        if (!closing_) SetFailure(why);
      },
      log_);
}

void KvstoreNode::Scale(const Config& config, uint32_t scale) {
  if (scale == worker::kUsualScale || config.partition_or_credit_given) return;
  const uint64_t partition_bytes = PartitionBytes(config, scale);
  const uint64_t credit_bytes = worker::CreditFor(config.credit_bytes, scale);
  worker_->SetPartitionAndCredit(partition_bytes, credit_bytes);
  log_.Info("the link to the stock servers decides: partitions of up to " +
            CountOf(partition_bytes, "byte") + ", a credit of " + std::to_string(credit_bytes));
}

void KvstoreNode::Join() {
  thread_->PostAt(thread_->Now() + timeout_, [this] {
    const Status late = Status::DeadlineExceeded(
        "the wrapped store did not take its first values in time (BYTESCHEDULER_TIMEOUT): look "
        "whether all of its servers run");
    if (joined_.Set(late)) worker_->Fail(late);
  });
  thread_->Post(
      [this] { backend_->Prepare([this](const Status& status) { joined_.Set(status); }); });
}

KvstoreNode::~KvstoreNode() { Close(Duration::zero()); }

void KvstoreNode::Begin(const worker::StoreRequest& request, worker::StoreDone done) {
  const uint64_t token = next_token_++;
  open_.emplace(token, Open{request.size_bytes, std::move(done)});
  ++num_store_requests_;
  if (!store_thread_) return begin_(request, token);
  // The pushed bytes are valid during this call only.
  store_thread_->Post(
      [this, request, token, lent = std::vector(request.in.begin(), request.in.end())] {
        worker::StoreRequest kept = request;
        kept.in = lent;
        begin_(kept, token);
      });
}

void KvstoreNode::OnStoreDone(uint64_t token, Status status, const std::byte* value) {
  thread_->Post([this, token, status = std::move(status), value] {
    const auto node = open_.extract(token);
    const Open& open = node.mapped();
    const uint64_t size_bytes = value == nullptr ? 0 : open.size_bytes;
    open.done(status, {value, size_bytes});
    if (--num_store_requests_ == 0 && closing_) idle_.Notify();
  });
}

void KvstoreNode::EndCallback() {
  if (--pending_ == 0 && draining_) drained_.Notify();
}

KvstoreNode::Done KvstoreNode::Counted(Done done) {
  ExpectCallback();
  return [this, done = std::move(done)](Status status) {
    done(std::move(status));
    EndCallback();
  };
}

void KvstoreNode::Barrier(Done done) {
  thread_->Post([this, done = Counted(std::move(done))]() mutable {
    if (const auto failed = failure_.Get()) return done(*failed);
    const uint64_t number = next_barrier_++;
    const TimerId deadline =
        thread_->PostAt(thread_->Now() + straggler_timeout_, [this] { FailLateBarrier(); });
    barriers_.emplace(number, Meeting{std::move(done), deadline});
    backend_->Barrier([this, number](const Status& status) {
      const auto node = barriers_.extract(number);
      if (!node) return;
      thread_->Cancel(node.mapped().deadline);
      node.mapped().done(status);
    });
  });
}

void KvstoreNode::FailLateBarrier() {
  const Status late = Status::DeadlineExceeded(
      "barrier: after " + ps::TextOf(straggler_timeout_) +
      " not every worker has come, or a server is gone: look which process of the job has "
      "ended (BYTESCHEDULER_STRAGGLER_TIMEOUT)");
  SetFailure(late);
  worker_->Fail(late);
}

void KvstoreNode::SetFailure(const Status& status) {
  if (!failure_.Set(status)) return;
  thread_->Post([this, status] {
    for (const auto& [number, meeting] : std::exchange(barriers_, {})) {
      thread_->Cancel(meeting.deadline);
      meeting.done(status);
    }
  });
}

Result<Metrics> KvstoreNode::Measure(Duration timeout) const {
  return MetricsOfWorker(thread_.get(), worker_, failure_, nullptr, timeout);
}

void KvstoreNode::NameKey(Key key, const std::string& name) {
  if (timeline_) timeline_->Name(key, name);
}

Result<std::vector<StepTime>> KvstoreNode::Steps(Duration timeout) const {
  return StepsOfWorker(thread_.get(), worker_, timeout);
}

void KvstoreNode::Fail(const std::string& why) {
  const Status status = Status::Unavailable("worker " + std::to_string(rank_) + " gave up: " + why);
  SetFailure(status);
  worker_->Fail(status);
}

bool KvstoreNode::Drain(Duration timeout) {
  RunOn(thread_.get(), [this] {
    draining_ = true;
    if (pending_ == 0) drained_.Notify();
  });
  return drained_.WaitFor(timeout);
}

void KvstoreNode::WaitUntilIdle(Duration timeout) {
  RunOn(thread_.get(), [this] {
    if (num_store_requests_ == 0) idle_.Notify();
  });
  idle_.WaitFor(timeout);
}

void KvstoreNode::Close(Duration drain) {
  if (std::exchange(closed_, true)) return;
  const bool well = !failure_.Get() && Drain(drain);
  closing_ = true;
  SetFailure(Status::Cancelled("the worker was closed"));
  Notification released;
  worker_->Close([&released] { released.Notify(); });
  released.Wait();
  // After a good end only the last probes are still in flight; after a failure that is unknown.
  WaitUntilIdle(well ? timeout_ : Duration::zero());
  if (busy()) return;
  store_thread_.reset();
  RunOn(thread_.get(), [this] {
    worker_.reset();
    backend_.reset();
  });
  thread_.reset();
  timeline_.reset();
}

}  // namespace bs::api
