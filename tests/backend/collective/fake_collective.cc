// Sums when the last rank has called, and checks each call.
#include "backend/collective/fake_collective.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace bs::backend::collective {
namespace {

uint64_t SizeOf(const std::vector<Piece>& pieces) {
  uint64_t size_bytes = 0;
  for (const Piece& piece : pieces) size_bytes += piece.in.size();
  return size_bytes;
}

// "16+8 bytes of float32".
std::string Describe(const std::vector<Piece>& pieces, DType dtype) {
  std::string text;
  for (const Piece& piece : pieces) {
    text += (text.empty() ? "" : "+") + std::to_string(piece.in.size());
    if (piece.kind == PieceKind::kReduce) text += " to " + std::to_string(piece.root);
    if (piece.kind == PieceKind::kBroadcast) text += " from " + std::to_string(piece.root);
  }
  return text + " bytes of " + std::string(NameOf(dtype));
}

template <typename T>
void AddTo(std::vector<std::byte>* sum, std::span<const std::byte> in) {
  for (size_t i = 0; i < in.size(); i += sizeof(T)) {
    T left{};
    T right{};
    std::memcpy(&left, sum->data() + i, sizeof(T));
    std::memcpy(&right, in.data() + i, sizeof(T));
    left += right;
    std::memcpy(sum->data() + i, &left, sizeof(T));
  }
}

}  // namespace

class FakeWorld::Member final : public Collective {
 public:
  Member(FakeWorld* world, int32_t rank) : world_(world), rank_(rank) {}

  void Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence, Done done) override {
    world_->Begin(rank_, {std::move(pieces), dtype, std::move(done)}, sequence);
  }
  void TellBegun(UniqueFunction<void(uint64_t)> told) override {
    world_->TellBegun(rank_, std::move(told));
  }
  bool has_roots() const override { return true; }
  std::string hint() const override { return world_->options_.hint; }
  void Copy(const Piece& piece, const HostMemory& host, Done done) override {
    world_->Copy(rank_, piece, host, std::move(done));
  }
  void Abort(const Status& status) override { world_->Abort(rank_, status); }

 private:
  FakeWorld* const world_;
  const int32_t rank_;
};

FakeWorld::FakeWorld(FakeOptions options)
    : options_(std::move(options)), ranks_(static_cast<size_t>(options_.num_ranks)) {}

FakeWorld::~FakeWorld() = default;

std::unique_ptr<Collective> FakeWorld::Join(int32_t rank, Executor* executor) {
  const MutexLock lock(&mutex_);
  ranks_.at(static_cast<size_t>(rank)).executor = executor;
  return std::make_unique<Member>(this, rank);
}

void FakeWorld::Kill(int32_t rank) {
  const MutexLock lock(&mutex_);
  ranks_.at(static_cast<size_t>(rank)).dead = true;
}

void FakeWorld::Stall(int32_t rank) {
  const MutexLock lock(&mutex_);
  ranks_.at(static_cast<size_t>(rank)).stalled = true;
}

void FakeWorld::TellBegun(int32_t number, UniqueFunction<void(uint64_t)> told) {
  const MutexLock lock(&mutex_);
  const Rank& rank = ranks_.at(static_cast<size_t>(number));
  if (rank.dead || rank.stalled) return;
  rank.executor->Post([told = std::move(told), num_begun = rank.next] { told(num_begun); });
}

void FakeWorld::Copy(int32_t number, const Piece& piece, const HostMemory& host,
                     Collective::Done done) {
  const MutexLock lock(&mutex_);
  const bool is_new = !host.lasting.empty() && lasting_.insert(host.lasting.data()).second;
  if (is_new) counts_.lasting_bytes += host.lasting.size();
  const Rank& rank = ranks_.at(static_cast<size_t>(number));
  if (rank.failure.ok()) {
    std::memcpy(piece.out.data(), piece.in.data(), piece.in.size());
    counts_.copied_bytes += piece.in.size();
  }
  rank.executor->Post([done = std::move(done), status = rank.failure] { done(status); });
}

void FakeWorld::FailNext(int32_t rank, const Status& status) {
  const MutexLock lock(&mutex_);
  ranks_.at(static_cast<size_t>(rank)).next_fails = status;
}

FakeWorld::Counts FakeWorld::counts() const {
  const MutexLock lock(&mutex_);
  return counts_;
}

std::string FakeWorld::Check(int32_t number, const Call& call, uint64_t sequence) const {
  const Rank& rank = ranks_[static_cast<size_t>(number)];
  const std::string here = "rank " + std::to_string(number) + " calls sum " +
                           std::to_string(sequence) + " with " + Describe(call.pieces, call.dtype);
  if (sequence != rank.next) return here + ", and sum " + std::to_string(rank.next) + " is next";
  const uint64_t bytes = rank.bytes + SizeOf(call.pieces);
  if (number == 0 && rank.bytes > 0 && bytes > options_.most_bytes) {
    return here + ", which makes " + std::to_string(bytes) + " bytes in flight";
  }
  const auto known = operations_.find(sequence);
  if (known == operations_.end()) return {};
  for (size_t other = 0; other < known->second.calls.size(); ++other) {
    const std::optional<Call>& there = known->second.calls[other];
    if (!there) continue;
    const std::string shape = Describe(there->pieces, there->dtype);
    if (shape == Describe(call.pieces, call.dtype)) return {};
    return here + ", rank " + std::to_string(other) + " with " + shape;
  }
  return {};
}

void FakeWorld::Begin(int32_t number, Call call, uint64_t sequence) {
  const MutexLock lock(&mutex_);
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const bool keeps = rank.dead || rank.stalled;
  if (keeps && rank.failure.ok()) return rank.dropped.push_back(std::move(call));
  if (rank.failure.ok() && !rank.next_fails.ok()) rank.failure = rank.next_fails;
  if (rank.failure.ok()) {
    if (const std::string wrong = Check(number, call, sequence); !wrong.empty()) Violate(wrong);
  }
  if (!rank.failure.ok()) {
    rank.executor->Post([done = std::move(call.done), why = rank.failure] { done(why); });
    return;
  }
  ++rank.next;
  rank.bytes += SizeOf(call.pieces);
  Operation& operation = operations_[sequence];
  operation.calls.resize(ranks_.size());
  operation.calls[static_cast<size_t>(number)] = std::move(call);
  if (++operation.num_calls == ranks_.size()) Complete(sequence);
}

void FakeWorld::Violate(const std::string& what) {
  if (options_.on_violation) options_.on_violation(what);
  for (int32_t rank = 0; rank < options_.num_ranks; ++rank) {
    EndCalls(rank, Status::Internal(what));
  }
}

void FakeWorld::Complete(uint64_t sequence) {
  Operation& operation = operations_.at(sequence);
  const bool whole = std::ranges::all_of(operation.calls, [](const auto& call) { return !!call; });
  const bool alive = std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.dead; });
  if (!whole || !alive) return;  // a rank has aborted its call
  operation.complete = true;
  const std::vector<Piece>& pieces = operation.calls.front()->pieces;
  const uint64_t size_bytes = SizeOf(pieces);
  ++counts_.operations;
  counts_.pieces += pieces.size();
  counts_.largest_bytes = std::max(counts_.largest_bytes, size_bytes);
  if (options_.adds) Sum(&operation);
  const TimePoint now = ranks_.front().executor->Now();
  free_at_ = std::max(free_at_, now);
  if (options_.duration) free_at_ += options_.duration(size_bytes);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank].executor->PostAt(
        free_at_, [this, rank, sequence] { End(static_cast<int32_t>(rank), sequence); });
  }
}

void FakeWorld::Sum(Operation* operation) const {
  for (size_t piece = 0; piece < operation->calls.front()->pieces.size(); ++piece) {
    const Piece& first = operation->calls.front()->pieces[piece];
    const auto root = static_cast<size_t>(first.root);
    if (first.kind == PieceKind::kBroadcast) {
      const std::span<const std::byte> from = operation->calls[root]->pieces[piece].in;
      for (const std::optional<Call>& call : operation->calls) {
        std::memmove(call->pieces[piece].out.data(), from.data(), from.size());
      }
      continue;
    }
    std::vector<std::byte> sum(operation->calls.front()->pieces[piece].in.size());
    for (const std::optional<Call>& call : operation->calls) {
      const std::span<const std::byte> in = call->pieces[piece].in;
      call->dtype == DType::kFloat64 ? AddTo<double>(&sum, in) : AddTo<float>(&sum, in);
    }
    for (size_t rank = 0; rank < operation->calls.size(); ++rank) {
      if (first.kind == PieceKind::kReduce && rank != root) continue;
      std::memcpy(operation->calls[rank]->pieces[piece].out.data(), sum.data(), sum.size());
    }
  }
}

void FakeWorld::End(int32_t number, uint64_t sequence) {
  std::optional<Call> call;
  {
    const MutexLock lock(&mutex_);
    Operation& operation = operations_.at(sequence);
    call = std::exchange(operation.calls[static_cast<size_t>(number)], std::nullopt);
    ranks_[static_cast<size_t>(number)].bytes -= SizeOf(call->pieces);
    if (--operation.num_calls == 0) operations_.erase(sequence);
  }
  call->done(Status::Ok());
}

void FakeWorld::Abort(int32_t rank, const Status& status) {
  const MutexLock lock(&mutex_);
  EndCalls(rank, status);
}

void FakeWorld::EndCalls(int32_t number, const Status& status) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  if (rank.failure.ok()) rank.failure = status;
  for (Call& call : std::exchange(rank.dropped, {})) {
    rank.executor->Post([done = std::move(call.done), why = rank.failure] { done(why); });
  }
  for (auto& [sequence, operation] : operations_) {
    std::optional<Call>& call = operation.calls[static_cast<size_t>(number)];
    if (operation.complete || !call) continue;
    rank.executor->Post([done = std::move(call->done), why = rank.failure] { done(why); });
    call.reset();
  }
}

}  // namespace bs::backend::collective
