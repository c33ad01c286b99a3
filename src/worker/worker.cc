// Worker: keys, their order of operations, and the way into the core and the KV layer.
#include "bytescheduler/worker.h"

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bytescheduler/core.h"
#include "worker/placement.h"
#include "worker/transfer.h"

namespace bs {
namespace {

constexpr uint64_t kAlignBytes = 64;   // a cache line: sums of neighbours do not share one
constexpr uint64_t kMinAlignBytes = 8;  // the largest element

uint64_t AlignFor(uint64_t partition_bytes) {
  return partition_bytes >= kAlignBytes ? kAlignBytes : kMinAlignBytes;
}

std::string KeyText(Key key) { return "key " + std::to_string(key); }

// Errors of a declaration that concern the caller's arguments, not the job.
bool ConcernsTheCall(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument ||
         status.code() == StatusCode::kAlreadyExists;
}

}  // namespace

// Everything below runs on the executor.
class Worker::Impl {
 public:
  Impl(const WorkerOptions& options, Executor* executor, SendFn send,
       std::function<void(Status)> on_failure, const Logger& log)
      : options_(options),
        executor_(executor),
        on_failure_(std::move(on_failure)),
        kv_(options.requests, executor, std::move(send), log),
        core_(CoreOptions{.num_servers = static_cast<uint32_t>(options.num_servers),
                          .partition_bytes = options.partition_bytes,
                          .credit_bytes = options.credit_bytes,
                          .priority_order = options.priority_order},
              [executor](std::function<void()> run) { executor->Post(std::move(run)); }),
        loads_(static_cast<uint32_t>(options.num_servers)) {
    BS_CHECK(options.partition_bytes >= kMinAlignBytes);
  }

  void Broadcast(Key key, DType dtype, std::span<std::byte> value, Done done);
  void PushPull(Key key, Priority priority, std::span<const std::byte> in,
                std::span<std::byte> out, Done pushed, Done pulled);
  void OnMessage(ps::Message message) { kv_.OnMessage(std::move(message)); }
  void Fail(const Status& status, bool tell);
  void Close(UniqueFunction<void()> closed);
  Executor* executor() const { return executor_; }
  const Core& core() const { return core_; }

 private:
  struct Tensor {
    DType dtype = DType::kFloat32;
    uint64_t size_bytes = 0;
    std::vector<Partition> partitions;  // empty until declared
    Round round = 0;                    // of the latest operation begun
    bool busy = false;
    std::deque<UniqueFunction<void()>> waiting;  // operations in the order of the calls
  };
  using Transfers = std::unordered_map<uint64_t, std::unique_ptr<worker::Transfer>>;

  void Declare(Key key, std::span<std::byte> value, Done done);
  void LookUp(Key key, std::span<std::byte> value, Done done);
  Status TakePlacement(Tensor* tensor, const ps::Message& response) const;
  ps::KvRequest DeclarationRequest(Key key, ps::Op op) const;
  void AfterDeclaration(Key key, std::span<std::byte> value, const Status& status, Done done);
  void Begin(const worker::TransferSpec& spec, Done pushed, Done pulled);
  // The operation of `key` that was under way is over: the next one may begin.
  void OperationOver(Key key);
  void MaybeClosed();

  const WorkerOptions options_;
  Executor* const executor_;
  const std::function<void(Status)> on_failure_;
  ps::KvWorker kv_;
  Core core_;
  worker::Loads loads_;  // rank 0 only
  std::unordered_map<Key, Tensor> tensors_;
  Transfers transfers_;  // under way, by a number of our own
  uint64_t next_transfer_ = 0;
  size_t declarations_ = 0;  // under way
  Status failure_;
  UniqueFunction<void()> closed_;
};

void Worker::Impl::Broadcast(Key key, DType dtype, std::span<std::byte> value, Done done) {
  if (!failure_.ok()) return done(failure_);
  if (value.size() % SizeOf(dtype) != 0) {
    return done(Status::InvalidArgument(KeyText(key) + ": " + std::to_string(value.size()) +
                                        " bytes are no whole number of " +
                                        std::string(NameOf(dtype))));
  }
  const auto [it, is_new] = tensors_.try_emplace(key);
  if (!is_new) return done(Status::AlreadyExists(KeyText(key) + " is initialised already"));
  Tensor& tensor = it->second;
  tensor.dtype = dtype;
  tensor.size_bytes = value.size();
  tensor.busy = true;
  ++declarations_;
  if (options_.rank == 0) {
    Declare(key, value, std::move(done));
  } else {
    LookUp(key, value, std::move(done));
  }
}

ps::KvRequest Worker::Impl::DeclarationRequest(Key key, ps::Op op) const {
  const Tensor& tensor = tensors_.at(key);
  ps::KvRequest request;
  request.server = static_cast<int32_t>(
      worker::HomeServer(key, static_cast<uint32_t>(options_.num_servers)));
  request.extension.op = op;
  request.extension.key = key;
  request.extension.size_bytes = tensor.size_bytes;
  request.extension.dtype = static_cast<uint32_t>(tensor.dtype);
  return request;
}

void Worker::Impl::Declare(Key key, std::span<std::byte> value, Done done) {
  Tensor& tensor = tensors_.at(key);
  const uint64_t align = AlignFor(options_.partition_bytes);
  tensor.partitions = worker::Cut(tensor.size_bytes, options_.partition_bytes, align);
  loads_.Place(tensor.partitions);
  ps::KvRequest request = DeclarationRequest(key, ps::Op::kDeclare);
  request.extension.part_bytes = options_.partition_bytes - options_.partition_bytes % align;
  // Owned by the callback, so that it lives as long as the request.
  auto servers = std::make_unique<std::vector<std::byte>>(worker::EncodeServers(tensor.partitions));
  request.payload = *servers;
  kv_.Send(request, [this, key, value, servers = std::move(servers), done = std::move(done)](
                        const Status& status, const ps::Message&) mutable {
    AfterDeclaration(key, value, status, std::move(done));
  });
}

void Worker::Impl::LookUp(Key key, std::span<std::byte> value, Done done) {
  kv_.Send(DeclarationRequest(key, ps::Op::kLookup),
           [this, key, value, done = std::move(done)](const Status& status,
                                                      const ps::Message& response) mutable {
             const Status taken =
                 status.ok() ? TakePlacement(&tensors_.at(key), response) : status;
             AfterDeclaration(key, value, taken, std::move(done));
           });
}

Status Worker::Impl::TakePlacement(Tensor* tensor, const ps::Message& response) const {
  const uint64_t part_bytes = response.meta.extension.part_bytes;
  const std::span<const std::byte> servers =
      response.data.empty() ? std::span<const std::byte>() : response.data[0].bytes();
  const uint64_t align = AlignFor(part_bytes);
  if (part_bytes < kMinAlignBytes || part_bytes % align != 0 ||
      std::max<uint64_t>(1, (tensor->size_bytes + part_bytes - 1) / part_bytes) !=
          servers.size() / 2) {
    return Status::Internal("a declaration with partitions of " + std::to_string(part_bytes) +
                            " bytes on " + std::to_string(servers.size() / 2) +
                            " places does not fit a tensor of " +
                            std::to_string(tensor->size_bytes) + " bytes");
  }
  tensor->partitions = worker::Cut(tensor->size_bytes, part_bytes, align);
  return worker::DecodeServers(servers, static_cast<uint32_t>(options_.num_servers),
                               tensor->partitions);
}

void Worker::Impl::AfterDeclaration(Key key, std::span<std::byte> value, const Status& status,
                                    Done done) {
  --declarations_;
  if (!status.ok()) {
    if (ConcernsTheCall(status)) {
      // Operations that were called meanwhile find the key gone.
      auto waiting = std::move(tensors_.at(key).waiting);
      tensors_.erase(key);
      done(status);
      for (auto& operation : waiting) operation();
    } else {
      Fail(status, true);
      done(failure_);
      OperationOver(key);
    }
    return MaybeClosed();
  }
  const Tensor& tensor = tensors_.at(key);
  const bool root = options_.rank == 0;
  worker::TransferSpec spec{.key = key,
                            .round = 0,
                            .priority = 0,
                            .dtype = tensor.dtype,
                            .partitions = tensor.partitions,
                            .in = value,
                            .out = value,
                            .push = root,
                            .pull = !root,
                            .credit_until_pulled = false};
  // Rank 0 has its value; it is done when the servers have it too.
  if (root) return Begin(spec, std::move(done), {});
  Begin(spec, {}, std::move(done));
}

void Worker::Impl::PushPull(Key key, Priority priority, std::span<const std::byte> in,
                            std::span<std::byte> out, Done pushed, Done pulled) {
  const auto refuse = [&](const Status& status) {
    pushed(status);
    pulled(status);
  };
  if (!failure_.ok()) return refuse(failure_);
  const auto it = tensors_.find(key);
  if (it == tensors_.end()) {
    return refuse(Status::FailedPrecondition(KeyText(key) + " was never initialised"));
  }
  Tensor& tensor = it->second;
  if (in.size() != tensor.size_bytes || out.size() != tensor.size_bytes) {
    return refuse(Status::InvalidArgument(
        KeyText(key) + ": " + std::to_string(in.size()) + " bytes in, " +
        std::to_string(out.size()) + " bytes out, initialised with " +
        std::to_string(tensor.size_bytes) + " bytes"));
  }
  if (tensor.busy) {
    tensor.waiting.emplace_back([this, key, priority, in, out, pushed = std::move(pushed),
                                 pulled = std::move(pulled)]() mutable {
      PushPull(key, priority, in, out, std::move(pushed), std::move(pulled));
    });
    return;
  }
  tensor.busy = true;
  Begin({.key = key,
         .round = ++tensor.round,
         .priority = priority,
         .dtype = tensor.dtype,
         .partitions = tensor.partitions,
         .in = in,
         .out = out,
         .push = true,
         .pull = true,
         .credit_until_pulled = options_.test_credit_until_pulled},
        std::move(pushed), std::move(pulled));
}

void Worker::Impl::Begin(const worker::TransferSpec& spec, Done pushed, Done pulled) {
  const uint64_t number = next_transfer_++;
  worker::Transfer::Handler handler;
  handler.on_pushed = std::move(pushed);
  handler.on_pulled = std::move(pulled);
  handler.on_error = [this](const Status& status) { Fail(status, true); };
  handler.on_end = [this, number, key = spec.key] {
    // Not destroyed inside its own callback.
    executor_->Post([this, number, key] {
      transfers_.erase(number);
      OperationOver(key);
      MaybeClosed();
    });
  };
  auto owned = std::make_unique<worker::Transfer>(spec, &kv_, std::move(handler));
  worker::Transfer* const transfer = owned.get();
  transfers_.emplace(number, std::move(owned));
  if (!spec.push) return transfer->StartPulls();
  core_.Add(transfer);
  if (failure_.ok()) transfer->NotifyReady();
}

void Worker::Impl::OperationOver(Key key) {
  const auto it = tensors_.find(key);
  if (it == tensors_.end()) return;
  it->second.busy = false;
  if (!failure_.ok()) {
    auto waiting = std::move(it->second.waiting);
    it->second.waiting.clear();
    for (auto& operation : waiting) operation();  // each ends with the failure
    return;
  }
  if (it->second.waiting.empty()) return;
  UniqueFunction<void()> next = std::move(it->second.waiting.front());
  it->second.waiting.pop_front();
  next();
}

void Worker::Impl::Fail(const Status& status, bool tell) {
  if (!failure_.ok()) return;
  failure_ = status;
  kv_.FailAll(status);
  core_.FailAll(status);
  if (tell && on_failure_) executor_->Post([this, status] { on_failure_(status); });
}

void Worker::Impl::Close(UniqueFunction<void()> closed) {
  closed_ = std::move(closed);
  Fail(Status::Cancelled("the worker was closed"), false);
  MaybeClosed();
}

void Worker::Impl::MaybeClosed() {
  if (!closed_ || !transfers_.empty() || declarations_ > 0) return;
  std::exchange(closed_, {})();
}

Worker::Worker(const WorkerOptions& options, Executor* executor, SendFn send,
               std::function<void(Status)> on_failure, const Logger& log)
    : impl_(std::make_unique<Impl>(options, executor, std::move(send), std::move(on_failure),
                                   log)) {}

Worker::~Worker() = default;

void Worker::Broadcast(Key key, DType dtype, std::span<std::byte> value, Done done) {
  impl_->executor()->Post([impl = impl_.get(), key, dtype, value, done = std::move(done)]() mutable {
    impl->Broadcast(key, dtype, value, std::move(done));
  });
}

void Worker::PushPull(Key key, Priority priority, std::span<const std::byte> in,
                      std::span<std::byte> out, Done pushed, Done pulled) {
  impl_->executor()->Post([impl = impl_.get(), key, priority, in, out, pushed = std::move(pushed),
                           pulled = std::move(pulled)]() mutable {
    impl->PushPull(key, priority, in, out, std::move(pushed), std::move(pulled));
  });
}

void Worker::OnMessage(ps::Message message) {
  impl_->executor()->Post([impl = impl_.get(), message = std::move(message)]() mutable {
    impl->OnMessage(std::move(message));
  });
}

void Worker::Fail(Status status) {
  impl_->executor()->Post(
      [impl = impl_.get(), status = std::move(status)] { impl->Fail(status, false); });
}

void Worker::Close(UniqueFunction<void()> closed) {
  impl_->executor()->Post([impl = impl_.get(), closed = std::move(closed)]() mutable {
    impl->Close(std::move(closed));
  });
}

uint64_t Worker::in_flight_bytes(uint32_t server) const {
  return impl_->core().in_flight_bytes(server);
}

}  // namespace bs
