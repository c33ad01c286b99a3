// Connects the ranks, then puts sums on a stream in their order.
#include "backend/collective/nccl/nccl_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace bs::backend::collective {
namespace {

// The card of a rank: its version of NCCL, its GPU, and from rank 0 the id.
struct Card {
  int32_t version = 0;
  std::string uuid{};
  std::string id{};

  std::string Encode() const {
    std::string bytes(sizeof(version), '\0');
    std::memcpy(bytes.data(), &version, sizeof(version));
    bytes += uuid;
    bytes += id;
    bytes.resize(sizeof(version) + CudaDriver::kUuidBytes + NcclLibrary::kIdBytes, '\0');
    return bytes;
  }
  static Card Decode(const std::string& bytes) {
    Card card;
    std::memcpy(&card.version, bytes.data(), std::min(bytes.size(), sizeof(card.version)));
    card.uuid = bytes.substr(sizeof(card.version), CudaDriver::kUuidBytes);
    card.id = bytes.substr(sizeof(card.version) + CudaDriver::kUuidBytes);
    return card;
  }
};

// Names the first pair that does not fit, so that all ranks have the same text.
Status CheckCards(const std::vector<Card>& cards, std::span<const int32_t> workers) {
  const auto name_of = [workers](size_t rank) {
    return "worker " + (workers.empty() ? std::to_string(rank) : std::to_string(workers[rank]));
  };
  for (size_t later = 1; later < cards.size(); ++later) {
    if (cards[later].version != cards[0].version) {
      return Status::FailedPrecondition(
          name_of(0) + " has NCCL " + NcclLibrary::TextOf(cards[0].version) + ", and " +
          name_of(later) + " has NCCL " + NcclLibrary::TextOf(cards[later].version) +
          ": install one version on all hosts");
    }
    for (size_t earlier = 0; earlier < later; ++earlier) {
      if (cards[earlier].uuid != cards[later].uuid) continue;
      return Status::FailedPrecondition(
          name_of(earlier) + " and " + name_of(later) +
          " have tensors on one GPU, and NCCL needs a GPU for each: call "
          "torch.cuda.set_device(bps.local_rank()) before the first tensor");
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::string> NcclSums::TakeGpu(const void* memory) {
  Status status = driver_->Init();
  if (!status.ok()) return status;
  const Result<int> gpu = driver_->GpuOf(memory);
  if (!gpu.ok()) return gpu.status();
  status = driver_->Use(gpu.value());
  if (!status.ok()) return status;
  gpu_ = gpu.value();
  Result<CudaDriver::Stream> stream = driver_->NewStream();
  if (!stream.ok()) return stream.status();
  stream_ = stream.value();
  Result<std::string> uuid = driver_->UuidOf(*gpu_);
  if (!uuid.ok()) return uuid.status();
  Card card{.version = library_->version(), .uuid = std::move(uuid.value())};
  if (rank_ == 0) {
    Result<std::string> id = library_->NewId();
    if (!id.ok()) return id.status();
    card.id = std::move(id.value());
  }
  return card.Encode();
}

Status NcclSums::Connect(std::span<const std::string> cards, std::span<const int32_t> workers) {
  std::vector<Card> decoded;
  std::ranges::transform(cards, std::back_inserter(decoded), &Card::Decode);
  Status status = CheckCards(decoded, workers);
  if (!status.ok()) return status;
  const Result<NcclLibrary::Communicator> made =
      library_->Connect(decoded.front().id, rank_, size_);
  if (!made.ok()) return made.status();
  communicator_ = made.value();
  is_connecting_ = true;
  return Status::Ok();
}

Status NcclSums::CheckGpu(const void* memory) const {
  const Result<int> gpu = driver_->GpuOf(memory);
  if (!gpu.ok()) return gpu.status();
  if (gpu.value() == gpu_) return Status::Ok();
  return Status::InvalidArgument("this tensor is on GPU " + std::to_string(gpu.value()) +
                                 ", and this worker's first one was on GPU " +
                                 std::to_string(gpu_.value_or(-1)) +
                                 ": NCCL sums tensors of one GPU in each worker");
}

Status NcclSums::Add(const std::vector<Piece>& pieces, DType dtype, uint64_t sequence) {
  Waiting waiting{.arrays = {}, .dtype = dtype, .sequence = sequence};
  for (const Piece& piece : pieces) {
    Status status = CheckGpu(piece.in.data());
    if (status.ok()) status = CheckGpu(piece.out.data());
    if (!status.ok()) return status;
    waiting.arrays.push_back({.in = piece.in.data(),
                              .out = piece.out.data(),
                              .count = piece.in.size() / SizeOf(dtype),
                              .kind = piece.kind,
                              .root = piece.root});
  }
  waiting_.push_back(std::move(waiting));
  return Status::Ok();
}

bool NcclSums::is_idle() const {
  return waiting_.empty() && !launching_ && under_way_.empty() && copies_.empty() &&
         !is_connecting_;
}

Result<CudaDriver::Stream> NcclSums::StreamOfCopies() {
  if (stream_of_copies_ != nullptr) return stream_of_copies_;
  Result<CudaDriver::Stream> stream = driver_->NewStream();
  if (stream.ok()) stream_of_copies_ = stream.value();
  return stream;
}

NcclSums::~NcclSums() {
  for (UnderWay& copy : copies_) lost_.push_back(std::move(copy.owner));
  for (auto& [memory, owner] : locked_) lost_.push_back(std::move(owner));
  if (lost_.empty()) return;
  // The process keeps it.
  [[maybe_unused]] const auto* const kept =
      std::make_unique<std::vector<std::shared_ptr<void>>>(std::move(lost_)).release();
}

void NcclSums::Lock(const HostMemory& host) {
  const std::span<std::byte> memory = host.lasting;
  if (memory.empty() || !can_lock_ || locked_.contains(memory.data())) return;
  // Without it copies are right, and slower.
  can_lock_ = driver_->Lock(memory.data(), memory.size()).ok();
  if (can_lock_) locked_.emplace(memory.data(), host.owner);
}

void NcclSums::Unlock() {
  if (locked_.empty() || !IsQuiet()) return;
  std::erase_if(locked_, [this](const auto& row) { return driver_->Unlock(row.first).ok(); });
}

Status NcclSums::Copy(const Piece& piece, const HostMemory& host, uint64_t ticket) {
  const Result<CudaDriver::Stream> stream = StreamOfCopies();
  if (!stream.ok()) return stream.status();
  Lock(host);
  Status status = driver_->Copy(piece.in.data(), piece.out.data(), piece.in.size(), stream.value());
  if (!status.ok()) return status;
  const Result<CudaDriver::Event> end = driver_->Record(stream.value());
  if (!end.ok()) {
    lost_.push_back(host.owner);
    has_lost_sum_ = true;
    return end.status();
  }
  copies_.push_back({.end = end.value(), .sequence = ticket, .owner = host.owner});
  return status;
}

Result<std::vector<uint64_t>> NcclSums::Poll() {
  if (communicator_ == nullptr) return std::vector<uint64_t>();
  // An operation that fails ends too, so errors are asked for last.
  std::vector<uint64_t> ended;
  const Status sums = TakeEnded(&under_way_, &ended);
  const Status copies = TakeEnded(&copies_, &ended);
  Status status = Launch();
  if (!status.ok()) return status;
  if (!sums.ok() || !copies.ok()) return sums.ok() ? copies : sums;
  return ended;
}

Status NcclSums::Launch() {
  while (true) {
    const Result<bool> at_rest = library_->IsAtRest(communicator_);
    if (!at_rest.ok()) return at_rest.status();
    if (!at_rest.value()) return Status::Ok();
    is_connecting_ = false;
    if (launching_) {
      const Result<CudaDriver::Event> end = driver_->Record(stream_);
      if (!end.ok()) return end.status();
      under_way_.push_back({.end = end.value(), .sequence = *launching_});
      launching_.reset();
      ++num_begun_;
    }
    if (waiting_.empty()) return Status::Ok();
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    launching_ = next.sequence;
    Status status = library_->Put(communicator_, next.arrays, next.dtype, stream_);
    if (!status.ok()) return status;
  }
}

Status NcclSums::TakeEnded(std::deque<UnderWay>* under_way, std::vector<uint64_t>* ended) const {
  while (!under_way->empty()) {
    const Result<bool> is_over = driver_->IsOver(under_way->front().end);
    if (!is_over.ok()) return is_over.status();
    if (!is_over.value()) break;
    driver_->Free(under_way->front().end);
    ended->push_back(under_way->front().sequence);
    under_way->pop_front();
  }
  return Status::Ok();
}

void NcclSums::Abort() {
  waiting_.clear();
  if (communicator_ != nullptr) library_->Abort(std::exchange(communicator_, nullptr));
  is_connecting_ = false;
  if (!launching_) return;
  launching_.reset();
  // It may have come to the stream.
  const Result<CudaDriver::Event> end = driver_->Record(stream_);
  if (!end.ok()) has_lost_sum_ = true;
  if (end.ok()) under_way_.push_back({.end = end.value(), .sequence = 0});
}

bool NcclSums::IsQuiet() {
  std::vector<uint64_t> ended;
  const bool is_known =
      TakeEnded(&under_way_, &ended).ok() && TakeEnded(&copies_, &ended).ok() && !has_lost_sum_;
  return is_known && under_way_.empty() && copies_.empty();
}

}  // namespace bs::backend::collective
