// Turns the exchanges of a worker into operations on a stock store.
#include "backend/kvstore/kvstore_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "backend/kvstore/store_header.h"
#include "base/check.h"
#include "base/count_of.h"

namespace bs::backend {
namespace {

// More than the partitions in flight to a server at the default credit.  A probe that finds none
// free goes behind all partitions sent meanwhile.
constexpr size_t kProbesOfServer = 4;
// The most servers whose links are measured.  Usually at most one of them is on rank 0's host.
constexpr uint32_t kMostSampled = 8;
constexpr uint64_t kSmallPartitions = 16;  // that fit into small_bytes
constexpr float kOne = 1.0F;
constexpr const char* kWaitsFor =
    "the push of another worker, or for a stock server: MXNet's own processes do not say which of "
    "them is lost, so look which has ended and start the job again (how long to wait: "
    "BYTESCHEDULER_STRAGGLER_TIMEOUT)";

std::span<const std::byte> BytesOf(const float& number) {
  return std::as_bytes(std::span<const float>(&number, 1));
}

std::string Describe(const protocol::Tensor& tensor) {
  return "key=" + std::to_string(tensor.key) + " of " + CountOf(tensor.size_bytes, "byte") +
         " of dtype " + std::to_string(static_cast<uint32_t>(tensor.dtype));
}

Status NoKeysLeft() {
  return Status::ResourceExhausted(
      "a stock store has keys for some 150000 partitions and all are taken: raise "
      "BYTESCHEDULER_PARTITION, so that tensors have fewer partitions");
}

}  // namespace

KvstoreBackend::KvstoreBackend(const Options& options, Executor* executor, StoreFn begin,
                               const Logger& log)
    : options_(options),
      executor_(executor),
      begin_(std::move(begin)),
      calls_(executor, options.straggler_timeout, kWaitsFor, log),
      keys_(num_servers()),
      loads_(num_servers()),
      probes_(num_servers()),
      traffic_(num_servers()) {
  // These are the first keys, so all of them are still free.
  barrier_key_ = keys_.Take(0).value_or(0);
  const uint32_t sampled = std::min(num_servers(), kMostSampled);
  for (uint32_t i = 0; i < sampled; ++i) {
    const uint32_t server = i * num_servers() / sampled;
    if (const auto key = keys_.Take(server)) samples_[server] = *key;
  }
  for (uint32_t server = 0; server < num_servers(); ++server) {
    for (size_t i = 0; i < kProbesOfServer; ++i) {
      if (const auto key = keys_.Take(server)) probes_[server].free.push_back(*key);
    }
  }
}

void KvstoreBackend::Prepare(Done done) {
  if (options_.view->own.rank != 0) return done(Status::Ok());
  std::vector<int32_t> own = {barrier_key_};
  for (const Probes& probes : probes_) {
    own.insert(own.end(), probes.free.begin(), probes.free.end());
  }
  // Shared by the pushes: the last calls `done`.
  struct Waiting {
    size_t left;
    Status status;
    Done done;
  };
  auto measure = [this, done = WithDeadline(std::move(done))](const Status& status) mutable {
    status.ok() ? MeasureScale(std::move(done)) : done(status);
  };
  const auto waiting = std::make_shared<Waiting>(Waiting{own.size(), {}, std::move(measure)});
  for (const int32_t key : own) {
    const StoreRequest request{.what = StoreRequest::What::kPush,
                               .store_key = key,
                               .size_bytes = sizeof(kOne),
                               .in = BytesOf(kOne)};
    begin_(request, [waiting](const Status& status, std::span<const std::byte>) {
      if (!status.ok()) waiting->status = status;
      if (--waiting->left == 0) waiting->done(waiting->status);
    });
  }
}

Status KvstoreBackend::CheckExtra(const std::string& what) const {
  return Status::FailedPrecondition(what +
                                    ": stock servers know nothing of it; start the job "
                                    "with bslaunch");
}

Backend::Done KvstoreBackend::WithDeadline(Done done) {
  // Owners: the deadline and the returned function.
  const auto waiting = std::make_shared<Done>(std::move(done));
  const TimerId deadline =
      executor_->PostAt(executor_->Now() + options_.prepare_timeout, [waiting] {
        std::exchange(*waiting, {})(Status::DeadlineExceeded(
            "the wrapped store did not take its first values in time (BYTESCHEDULER_TIMEOUT): look "
            "whether all of its servers run"));
      });
  return [executor = executor_, waiting, deadline](const Status& status) {
    executor->Cancel(deadline);
    if (const Done first = std::exchange(*waiting, {})) first(status);
  };
}

void KvstoreBackend::MeasureScale(Done done) {
  if (options_.sample_bytes < kLeastSampleBytes) {
    SetScale(kUsualScale);
    return done(Status::Ok());
  }
  scaler_ = std::make_unique<StoreScale>(begin_, [this] { return executor_->Now(); });
  std::vector<StoreScale::Keys> servers;
  servers.reserve(samples_.size());
  for (const auto& [server, key] : samples_) {
    servers.push_back({.large = key, .tiny = probes_[server].free.front()});
  }
  scaler_->Measure(std::move(servers), options_.sample_bytes,
                   [this, done = std::move(done)](const Result<uint32_t>& scale) {
                     scaler_.reset();
                     if (scale.ok()) SetScale(scale.value());
                     done(scale.status());
                   });
}

void KvstoreBackend::SetScale(uint32_t scale) {
  if (scale_ != 0) return;
  scale_ = scale;
  if (options_.on_scale) options_.on_scale(scale);
}

// -- declarations --------------------------------------------------------------------------------

std::optional<int32_t> KvstoreBackend::TakeHeaderKey() {
  return keys_.Take(static_cast<uint32_t>(num_headers_++ % num_servers()));
}

Status KvstoreBackend::Adopt(const protocol::Tensor& tensor) {
  auto adopted = std::make_unique<StoreTensor>();
  adopted->tensor = tensor;
  for (const Partition& partition : tensor.partitions) {
    const auto key = keys_.Take(partition.server);
    if (!key) return NoKeysLeft();
    StorePartition& stored = adopted->partitions.emplace_back();
    stored.store_key = *key;
    stored.server = partition.server;
    stored.size_bytes = partition.size_bytes;
  }
  tensors_[tensor.key] = std::move(adopted);
  return Status::Ok();
}

void KvstoreBackend::Place(std::span<Partition> partitions, std::span<const Partition> replaced) {
  loads_.Remove(replaced);
  loads_.Place(partitions);
}

void KvstoreBackend::Declare(const protocol::Tensor& tensor, Done done) {
  const OpenCalls::Id call = calls_.Add({.verb = "declare", .key = tensor.key}, std::move(done));
  if (!calls_.IsOpen(call)) return;
  const auto header_key = TakeHeaderKey();
  if (!header_key) return calls_.End(call, NoKeysLeft());
  if (const Status adopted = Adopt(tensor); !adopted.ok()) return calls_.End(call, adopted);
  const std::vector<std::byte> header =
      Encode({tensor.key, tensor.size_bytes, tensor.partition_bytes,
              static_cast<uint32_t>(tensor.dtype), scale_});
  const StoreRequest publish{.what = StoreRequest::What::kPush,
                             .store_key = *header_key,
                             .size_bytes = header.size(),
                             .in = header};
  begin_(publish, [this, call](const Status& status, std::span<const std::byte>) {
    calls_.End(call, status);
  });
}

void KvstoreBackend::Lookup(const protocol::Tensor& asked,
                            UniqueFunction<void(Result<protocol::Tensor>)> done) {
  // Owned by the call and by the queue.
  const auto tensor = std::make_shared<protocol::Tensor>(asked);
  const OpenCalls::Id call = calls_.Add({.verb = "lookup", .key = asked.key},
                                        [tensor, done = std::move(done)](const Status& status) {
                                          status.ok() ? done(std::move(*tensor)) : done(status);
                                        });
  if (!calls_.IsOpen(call)) return;
  lookups_.push_back({call, tensor});
  if (lookups_.size() == 1) LookupNext();
}

void KvstoreBackend::LookupNext() {
  while (!lookups_.empty() && lookup_failure_.ok()) {
    const auto header_key = TakeHeaderKey();
    if (!header_key) {
      lookup_failure_ = NoKeysLeft();
      break;
    }
    const StoreRequest fetch{.what = StoreRequest::What::kPull,
                             .store_key = *header_key,
                             .size_bytes = kStoreHeaderBytes};
    return begin_(fetch, [this](const Status& status, std::span<const std::byte> value) {
      lookup_failure_ = status.ok() ? OnHeader(value) : status;
      if (lookup_failure_.ok()) lookups_.pop_front();
      LookupNext();
    });
  }
  // Workers may now differ in the keys of their tensors, and a stock worker aborts when sizes
  // differ.
  for (const LookupCall& lookup : std::exchange(lookups_, {})) {
    calls_.End(lookup.call, lookup_failure_);
  }
}

Status KvstoreBackend::OnHeader(std::span<const std::byte> value) {
  const LookupCall& lookup = lookups_.front();
  const auto header = DecodeStoreHeader(value);
  if (!header || header->partition_bytes < protocol::kAlignBytes ||
      header->partition_bytes % protocol::kAlignBytes != 0 || header->scale == 0 ||
      header->scale > kLargestScale) {
    return Status::Internal("rank 0 published something else than a header");
  }
  protocol::Tensor tensor{.key = header->key,
                          .dtype = static_cast<DType>(header->dtype),
                          .size_bytes = header->size_bytes,
                          .partition_bytes = header->partition_bytes,
                          .partitions = protocol::SplitIntoPartitions(
                              header->size_bytes, header->partition_bytes, protocol::kAlignBytes)};
  const protocol::Tensor& wanted = *lookup.tensor;
  if (Describe(tensor) != Describe(wanted)) {
    return Status::Unavailable("this worker initialises " + Describe(wanted) +
                               " where rank 0 initialises " + Describe(tensor) +
                               ": on stock servers all workers must initialise the same tensors in "
                               "the same order");
  }
  SetScale(header->scale);
  loads_.Place(tensor.partitions);
  if (Status adopted = Adopt(tensor); !adopted.ok()) return adopted;
  lookup.tensor->partition_bytes = tensor.partition_bytes;
  lookup.tensor->partitions = std::move(tensor.partitions);
  calls_.End(lookup.call, Status::Ok());
  return Status::Ok();
}

// -- partitions -----------------------------------------------------------------------------------

void KvstoreBackend::Start(const protocol::Tensor& tensor, Exchange exchange) {
  BS_CHECK(exchange.coder.coding.plain() && exchange.next_layout.empty());
  const auto it = tensors_.find(tensor.key);
  BS_CHECK(it != tensors_.end() && exchange.partition.index < it->second->partitions.size());
  StorePartition* const partition = &it->second->partitions[exchange.partition.index];
  partition->priority = exchange.priority;
  if (exchange.sent) Push(*it->second, partition, &exchange);
  if (exchange.summed) Pull(*it->second, partition, &exchange);
}

void KvstoreBackend::Push(const StoreTensor& tensor, StorePartition* partition,
                          Exchange* exchange) {
  BS_CHECK(!calls_.IsOpen(partition->push.call));
  const OpenCalls::Id call =
      calls_.Add({"push", tensor.tensor.key,
                  CallName::Place{exchange->round, exchange->partition.index, partition->server}},
                 [released = std::move(exchange->released),
                  sent = std::move(exchange->sent)](const Status& status) {
                   released(status);
                   sent(status);
                 });
  if (!calls_.IsOpen(call)) return;
  partition->push = {call, executor_->Now()};
  partition->done = false;
  const bool first = exchange->round == 0;
  partition->taken = partition->beside = !first && GoesBesideCredit(*partition);
  if (partition->beside) probes_[partition->server].beside_bytes += partition->size_bytes;
  Begin(tensor, partition,
        {.what = first ? StoreRequest::What::kPush : StoreRequest::What::kPushPull,
         .in = exchange->in});
  if (first || partition->done) return;
  if (partition->beside) return Settle(partition);
  probes_[partition->server].uncovered.push_back({partition, call});
  Probe(partition->server);
}

void KvstoreBackend::Pull(const StoreTensor& tensor, StorePartition* partition,
                          Exchange* exchange) {
  BS_CHECK(!calls_.IsOpen(partition->pull.call));
  const OpenCalls::Id call = calls_.Add(
      {"pull", tensor.tensor.key,
       CallName::Place{exchange->round, exchange->partition.index, partition->server}},
      [summed = std::move(exchange->summed)](const Status& status) { summed(status, {}); });
  if (!calls_.IsOpen(call)) return;
  partition->pull = {call, executor_->Now()};
  partition->out = exchange->out;
  if (exchange->round != 0) return Settle(partition);
  partition->done = false;
  Begin(tensor, partition, {.what = StoreRequest::What::kPull});
}

void KvstoreBackend::Release(const protocol::Tensor& /*retired*/, bool /*given_back*/, Done done) {
  executor_->Post([done = std::move(done)] { done(Status::Ok()); });
}

void KvstoreBackend::SetOptimizer(OptimizerText /*optimizer*/, uint64_t /*number*/, Done done) {
  executor_->Post([done = std::move(done)] {
    done(Status::InvalidArgument("stock servers take no optimizer from the kvstore back end"));
  });
}

void KvstoreBackend::Measure(Metrics* metrics) const {
  for (uint32_t server = 0; server < num_servers(); ++server) {
    AddTraffic(traffic_[server], server, metrics);
  }
  metrics->Add("pending_requests", static_cast<double>(calls_.pending()));
}

void KvstoreBackend::Begin(const StoreTensor& tensor, StorePartition* partition,
                           StoreRequest request) {
  if (partition->size_bytes == 0) {  // nothing to send, and a stock store refuses it
    partition->done = true;
    return Settle(partition);
  }
  request.store_key = partition->store_key;
  request.priority = partition->priority;
  request.dtype = tensor.tensor.dtype;
  request.size_bytes = partition->size_bytes;
  begin_(request, [this, partition](const Status& status, std::span<const std::byte> value) {
    partition->done = true;
    if (std::exchange(partition->beside, false)) {
      probes_[partition->server].beside_bytes -= partition->size_bytes;
    }
    partition->outcome = status;
    partition->value = value;
    Settle(partition);
  });
}

bool KvstoreBackend::GoesBesideCredit(const StorePartition& partition) const {
  return partition.size_bytes > 0 &&
         partition.size_bytes <= options_.small_bytes / kSmallPartitions &&
         probes_[partition.server].beside_bytes + partition.size_bytes <= options_.small_bytes;
}

void KvstoreBackend::Settle(StorePartition* partition) {
  Traffic* const traffic = &traffic_[partition->server];
  if (calls_.IsOpen(partition->push.call) && (partition->taken || partition->done)) {
    End(*partition, partition->push, &traffic->pushed,
        partition->done ? partition->outcome : Status::Ok());
  }
  if (calls_.IsOpen(partition->pull.call) && partition->done) {
    End(*partition, partition->pull, &traffic->pulled, TakeSum(*partition));
  }
}

Status KvstoreBackend::TakeSum(const StorePartition& partition) const {
  if (!partition.outcome.ok()) return partition.outcome;
  const std::span<const std::byte> value = partition.value;
  if (value.size() != partition.out.size()) {
    return Status::Internal("the store gave " + std::to_string(value.size()) +
                            " bytes of a partition, want " + std::to_string(partition.out.size()));
  }
  if (!value.empty()) std::memcpy(partition.out.data(), value.data(), value.size());
  return Status::Ok();
}

void KvstoreBackend::End(const StorePartition& partition, const OneWay& way,
                         Traffic::Direction* counted, const Status& status) {
  if (status.ok()) counted->Add(partition.size_bytes, executor_->Now() - way.began);
  calls_.End(way.call, status);
}

void KvstoreBackend::Probe(uint32_t server) {
  Probes* const probes = &probes_[server];
  if (probes->free.empty()) return;
  std::vector<Sent> covers;
  for (const Sent& sent : std::exchange(probes->uncovered, {})) {
    if (calls_.IsOpen(sent.push)) covers.push_back(sent);
  }
  // No operation may begin while MXNet stops its engine for a fork, which it does when nothing is
  // pending.  Uncovered partitions belong to a pending round, so a probe for them is safe.
  if (covers.empty()) return;
  const int32_t key = probes->free.back();
  probes->free.pop_back();
  const StoreRequest ask{
      .what = StoreRequest::What::kPull, .store_key = key, .size_bytes = sizeof(kOne)};
  begin_(ask, [this, server, key, covers = std::move(covers)](const Status& status,
                                                              std::span<const std::byte>) {
    probes_[server].free.push_back(key);
    for (const Sent& sent : covers) {
      if (!calls_.IsOpen(sent.push)) continue;
      // A probe that failed leaves the credit to the partition's own end.
      sent.partition->taken = status.ok();
      Settle(sent.partition);
    }
    Probe(server);
  });
}

// -- barrier -------------------------------------------------------------------------------------

void KvstoreBackend::Barrier(Done done) {
  barriers_.push_back(std::move(done));
  if (barriers_.size() == 1) BarrierNext();
}

void KvstoreBackend::BarrierNext() {
  const StoreRequest meet{.what = StoreRequest::What::kPushPull,
                          .store_key = barrier_key_,
                          .size_bytes = sizeof(kOne),
                          .in = BytesOf(kOne)};
  begin_(meet, [this](const Status& status, std::span<const std::byte>) {
    const Done done = std::move(barriers_.front());
    barriers_.pop_front();
    if (!barriers_.empty()) BarrierNext();
    done(status);
  });
}

}  // namespace bs::backend
