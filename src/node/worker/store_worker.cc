// Puts a worker node together from a membership over a store and a KvstoreBackend.
#include "node/worker/store_worker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/count_of.h"
#include "base/descriptors.h"
#include "node/network.h"
#include "node/worker/store_membership.h"

namespace bs::node {
namespace {

constexpr uint64_t kSmallBytes = uint64_t{64} * 1024;  // half a millisecond of 1 Gbit/s
// Smaller partitions cost more operations of the store than they gain on any link.
constexpr uint64_t kLeastScaledBytes = uint64_t{32} * 1024;

// MXNet splits arrays of more elements over all its servers; counted in float32, and a little less.
uint64_t BoundBytes(const Config& config) {
  return (static_cast<uint64_t>(config.bigarray_bound) - 1) * sizeof(float);
}

uint64_t PartitionBytes(const Config& config, uint32_t scale) {
  const uint64_t scaled = std::max(backend::PartitionFor(config.partition_bytes, scale),
                                   std::min(config.partition_bytes, kLeastScaledBytes));
  return std::max(std::min(scaled, BoundBytes(config)), protocol::kAlignBytes);
}

// The size of the measurement's array, which lies on a single server; too small for a measurement
// if the user has set partition or credit.
uint64_t SampleBytes(const Config& config) {
  return config.partition_or_credit_given ? 0 : std::min(backend::kSampleBytes, BoundBytes(config));
}

WorkerOptions OptionsOverStore(const Config& config) {
  WorkerOptions options;
  options.partition_bytes = PartitionBytes(config, backend::kUsualScale);
  options.credit_bytes = config.credit_bytes;
  options.priority_order = config.scheduling;
  // Keys of ours would have to be broadcast by all in the same order.
  options.urgency = config.priority == "measured" ? Urgency::kMeasuredAlone : Urgency::kCaller;
  return options;
}

void Scale(const Config& config, uint32_t scale, const WorkerNode::ResizeFn& resize,
           const Logger& log) {
  if (scale == backend::kUsualScale || config.partition_or_credit_given) return;
  const backend::PartitionAndCredit sizes = {PartitionBytes(config, scale),
                                             backend::CreditFor(config.credit_bytes, scale)};
  resize(sizes);
  log.Info("the link to the stock servers decides: partitions of up to " +
           CountOf(sizes.partition_bytes, "byte") + ", a credit of " +
           std::to_string(sizes.credit_bytes));
}

std::unique_ptr<backend::KvstoreBackend> MakeBackend(const Config& config,
                                                     StoreMembership* membership,
                                                     const WorkerNode::ResizeFn& resize,
                                                     const Logger& log) {
  return std::make_unique<backend::KvstoreBackend>(
      backend::KvstoreBackend::Options{
          .view = membership->view(),
          .prepare_timeout = config.timeout,
          .straggler_timeout = config.straggler_timeout,
          .sample_bytes = SampleBytes(config),
          .on_scale = [config, resize, log](uint32_t scale) { Scale(config, scale, resize, log); },
          .small_bytes = std::min(kSmallBytes, config.credit_bytes)},
      membership->executor(),
      [store = membership->store()](const backend::StoreRequest& request, backend::StoreDone done) {
        store->Begin(request, std::move(done));
      },
      log);
}

}  // namespace

Result<StoreWorker> MakeStoreWorker(const Config& config, int32_t rank, WrappedStore::BeginFn begin,
                                    bool blocks) {
  if (rank < 0 || rank >= config.num_workers) {
    return Status::InvalidArgument("rank " + std::to_string(rank) + " of " +
                                   CountOf(config.num_workers, "worker"));
  }
  if (Status wrong = trace::CheckTimeline(config); !wrong.ok()) return wrong;
  const uint64_t threads = (blocks ? 2 : 1) + (config.timeline.empty() ? 0 : 2);
  if (Status few = CheckDescriptors(threads * LoopThread::kDescriptors, "this worker"); !few.ok()) {
    return few;
  }
  auto membership = std::make_unique<StoreMembership>(config, rank, std::move(begin), blocks);
  WrappedStore* const store = membership->store();
  WorkerNode::Parts parts{
      .membership = nullptr,
      .make_backend =
          [config, membership = membership.get()](
              const job::SharedView&, const WorkerNode::ResizeFn& resize, const Logger& log) {
            auto backend = MakeBackend(config, membership, resize, log);
            membership->MeetBy(backend.get());
            return backend;
          },
      .worker = OptionsOverStore(config)};
  parts.membership = std::move(membership);
  return StoreWorker{std::make_unique<WorkerNode>(config, std::move(parts), MakeLogger(config)),
                     store};
}

}  // namespace bs::node
