// Turns a worker's requests into operations on a stock store, and their ends into answers.
#include "backend/kvstore/kvstore_backend.h"

#include <string>
#include <utility>

#include "backend/kvstore/store_header.h"
#include "base/check.h"

namespace bs::worker {
namespace {

// More than the partitions in flight to one server at the default credit.  A probe that finds none
// free goes behind all partitions sent meanwhile.
constexpr size_t kProbesOfServer = 4;
constexpr uint64_t kSmallPartitions = 16;  // so many small partitions fit into small_bytes
constexpr float kOne = 1.0F;

std::span<const std::byte> BytesOf(const float& number) {
  return std::as_bytes(std::span<const float>(&number, 1));
}

std::string Tell(const Tensor& tensor) {
  return "key=" + std::to_string(tensor.key) + " of " + std::to_string(tensor.size_bytes) +
         " bytes of dtype " + std::to_string(static_cast<uint32_t>(tensor.dtype));
}

Status NoKeysLeft() {
  return Status::ResourceExhausted(
      "a stock store has keys for some 150000 partitions and all are taken: raise "
      "BYTESCHEDULER_PARTITION, so that tensors have fewer partitions");
}

}  // namespace

KvstoreBackend::KvstoreBackend(const Options& options, StoreFn begin,
                               std::function<void(ps::Message)> answer)
    : options_(options),
      begin_(std::move(begin)),
      answer_(std::move(answer)),
      keys_(options.num_servers),
      loads_(options.num_servers),
      probes_(options.num_servers) {
  // These are the first keys, so all of them are still free.
  barrier_key_ = keys_.Take(0).value_or(0);
  sample_key_ = keys_.Take(0).value_or(0);
  for (uint32_t server = 0; server < options.num_servers; ++server) {
    for (size_t i = 0; i < kProbesOfServer; ++i) {
      if (const auto key = keys_.Take(server)) probes_[server].free.push_back(*key);
    }
  }
}

void KvstoreBackend::Prepare(Done done) {
  if (options_.rank != 0) return done(Status::Ok());
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
  auto measure = [this, done = std::move(done)](const Status& status) mutable {
    status.ok() ? Measure(std::move(done)) : done(status);
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

void KvstoreBackend::Measure(Done done) {
  if (options_.sample_bytes < kLeastSampleBytes) {
    SetScale(kUsualScale);
    return done(Status::Ok());
  }
  scaler_ = std::make_unique<StoreScale>(begin_, options_.now);
  scaler_->Measure(sample_key_, options_.sample_bytes, barrier_key_,
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

void KvstoreBackend::OnRequest(const ps::Message& message) {
  const ps::Extension& extension = message.meta.extension;
  const ps::Op op = extension.op;
  Result<protocol::DataRequest> what = protocol::DecodeRequest(op, extension.body);
  BS_CHECK(what.ok());  // our own worker's
  Asked request{.peer = message.peer, .envelope = extension, .what = std::move(what.value())};
  if (op == ps::Op::kDeclare) return OnDeclare(std::move(request));
  if (op == ps::Op::kLookup) return OnLookup(std::move(request));
  BS_CHECK(op == ps::Op::kPush || op == ps::Op::kPull);
  const auto it = tensors_.find(request.what.key);
  BS_CHECK(it != tensors_.end() && request.what.partition < it->second->partitions.size());
  StorePartition* const partition = &it->second->partitions[request.what.partition];
  partition->priority = message.meta.priority;
  if (op == ps::Op::kPull) return OnPull(*it->second, partition, std::move(request));
  OnPush(*it->second, partition, std::move(request),
         message.data.empty() ? std::span<const std::byte>() : message.data.front().bytes());
}

// -- declarations --------------------------------------------------------------------------------

std::optional<int32_t> KvstoreBackend::TakeHeaderKey() {
  return keys_.Take(static_cast<uint32_t>(num_headers_++ % options_.num_servers));
}

Status KvstoreBackend::Adopt(const Tensor& tensor) {
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

void KvstoreBackend::OnDeclare(Asked request) {
  const protocol::DataRequest& what = request.what;
  if (declaring_.contains(what.key)) return SayPending(request);
  if (tensors_.contains(what.key)) return Answer(request, Status::Ok());
  Tensor tensor{.key = what.key,
                .dtype = static_cast<DType>(what.dtype),
                .size_bytes = what.tensor_bytes,
                .partition_bytes = what.partition_bytes,
                .partitions = Cut(what.tensor_bytes, what.partition_bytes, kAlignBytes)};
  // This worker has placed them on the same servers, and the others will.
  loads_.Place(tensor.partitions);
  const auto header_key = TakeHeaderKey();
  if (!header_key) return Answer(request, NoKeysLeft());
  if (const Status adopted = Adopt(tensor); !adopted.ok()) return Answer(request, adopted);
  const std::vector<std::byte> header =
      Encode({what.key, what.tensor_bytes, what.partition_bytes, what.dtype, scale_});
  const StoreRequest publish{.what = StoreRequest::What::kPush,
                             .store_key = *header_key,
                             .size_bytes = header.size(),
                             .in = header};
  const Key key = what.key;
  declaring_.emplace(key, std::move(request));
  begin_(publish, [this, key](const Status& status, std::span<const std::byte>) {
    const Asked asked = std::move(declaring_.at(key));
    declaring_.erase(key);
    Answer(asked, status);
  });
}

void KvstoreBackend::OnLookup(Asked request) {
  for (const Asked& waiting : lookups_) {
    if (waiting.what.key == request.what.key) return SayPending(request);
  }
  const auto known = tensors_.find(request.what.key);
  if (known != tensors_.end()) return AnswerLookup(request, known->second->tensor);
  lookups_.push_back(std::move(request));
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
  for (const Asked& request : std::exchange(lookups_, {})) Answer(request, lookup_failure_);
}

Status KvstoreBackend::OnHeader(std::span<const std::byte> value) {
  const Asked& request = lookups_.front();
  const auto header = DecodeStoreHeader(value);
  if (!header || header->partition_bytes < kAlignBytes ||
      header->partition_bytes % kAlignBytes != 0 || header->scale == 0 ||
      header->scale > kLargestScale) {
    return Status::Internal("rank 0 published something else than a header");
  }
  Tensor tensor{.key = header->key,
                .dtype = static_cast<DType>(header->dtype),
                .size_bytes = header->size_bytes,
                .partition_bytes = header->partition_bytes,
                .partitions = Cut(header->size_bytes, header->partition_bytes, kAlignBytes)};
  const Tensor wanted{.key = request.what.key,
                      .dtype = static_cast<DType>(request.what.dtype),
                      .size_bytes = request.what.tensor_bytes,
                      .partition_bytes = 0,
                      .partitions = {}};
  if (Tell(tensor) != Tell(wanted)) {
    return Status::Unavailable("this worker initialises " + Tell(wanted) +
                               " where rank 0 initialises " + Tell(tensor) +
                               ": on stock servers all workers must initialise the same tensors in "
                               "the same order");
  }
  SetScale(header->scale);
  loads_.Place(tensor.partitions);
  Status adopted = Adopt(tensor);
  if (adopted.ok()) AnswerLookup(request, tensor);
  return adopted;
}

// -- partitions -----------------------------------------------------------------------------------

void KvstoreBackend::OnPush(const StoreTensor& tensor, StorePartition* partition, Asked request,
                            std::span<const std::byte> payload) {
  if (request.envelope.sequence == partition->push.envelope.sequence) {
    if (partition->push_open) return SayPending(request);
    partition->push_open = true;  // the answer is on its way already; one more does no harm
    return Settle(partition);
  }
  BS_CHECK(!partition->push_open);
  partition->taken = partition->done = false;
  partition->push = std::move(request);
  partition->push_open = true;
  const bool first = protocol::IsInitial(partition->push.what);
  partition->taken = partition->beside = !first && GoesBesideCredit(*partition);
  if (partition->beside) probes_[partition->server].beside_bytes += partition->size_bytes;
  Begin(tensor, partition,
        {.what = first ? StoreRequest::What::kPush : StoreRequest::What::kPushPull, .in = payload});
  if (first || partition->done) return;
  if (partition->beside) return Settle(partition);
  probes_[partition->server].uncovered.push_back({partition, partition->push.envelope.sequence});
  Probe(partition->server);
}

void KvstoreBackend::OnPull(const StoreTensor& tensor, StorePartition* partition, Asked request) {
  const bool repeated = request.envelope.sequence == partition->pull.envelope.sequence;
  if (repeated && partition->pull_open) return SayPending(request);
  BS_CHECK(!partition->pull_open);
  const bool fetches = protocol::IsInitial(request.what) && !repeated;
  partition->pull = std::move(request);
  partition->pull_open = true;
  if (!fetches) return Settle(partition);
  partition->done = false;
  Begin(tensor, partition, {.what = StoreRequest::What::kPull});
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
  if (partition->push_open && (partition->taken || partition->done)) {
    partition->push_open = false;
    Answer(partition->push, partition->done ? partition->outcome : Status::Ok());
  }
  if (partition->pull_open && partition->done) {
    partition->pull_open = false;
    // The value stays until the next round of this key, which begins behind this response.
    Answer(partition->pull, partition->outcome, ps::Frame::Borrow(partition->value, {}));
  }
}

void KvstoreBackend::Probe(uint32_t server) {
  Probes* const probes = &probes_[server];
  if (probes->free.empty()) return;
  std::vector<Sent> covers;
  for (const Sent& sent : std::exchange(probes->uncovered, {})) {
    if (sent.waits()) covers.push_back(sent);
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
      if (!sent.waits()) continue;
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

// -- answers -------------------------------------------------------------------------------------

ps::Message KvstoreBackend::ResponseTo(const Asked& request, ps::Op op,
                                       protocol::DataResponse body) {
  body.identity = protocol::IdentityOf(request.envelope.op, request.what);
  ps::Message response;
  response.peer = request.peer;
  response.meta.extension = {.version = ps::kExtensionVersion,
                             .op = op,
                             .sequence = request.envelope.sequence,
                             .incarnation = request.envelope.incarnation,
                             .body = protocol::Encode(request.envelope.op, body)};
  return response;
}

void KvstoreBackend::Answer(const Asked& request, const Status& status, ps::Frame payload) {
  ps::Message response = ResponseTo(request, request.envelope.op);
  ps::Extension& said = response.meta.extension;
  said.status = static_cast<uint32_t>(status.code());
  said.text = status.message();
  if (payload.size() > 0) response.data.push_back(std::move(payload));
  answer_(std::move(response));
}

void KvstoreBackend::AnswerLookup(const Asked& request, const Tensor& tensor) {
  ps::Message response = ResponseTo(request, request.envelope.op,
                                    {.tensor_bytes = request.what.tensor_bytes,
                                     .partition_bytes = tensor.partition_bytes,
                                     .dtype = request.what.dtype});
  response.data.push_back(ps::Frame::Copy(EncodeServers(tensor.partitions)));
  answer_(std::move(response));
}

void KvstoreBackend::SayPending(const Asked& request) {
  ps::Message response = ResponseTo(request, ps::Op::kPending);
  response.meta.extension.text =
      "the push of another worker, or for a stock server: MXNet's own processes do not say who is "
      "lost, so look which of them has ended and start the job again (how long to wait: "
      "BYTESCHEDULER_STRAGGLER_TIMEOUT)";
  answer_(std::move(response));
}

}  // namespace bs::worker
