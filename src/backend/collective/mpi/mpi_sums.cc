// Begins sums, compares what the ranks sum, and copies their arrays.
#include "backend/collective/mpi/mpi_sums.h"

#include <algorithm>
#include <climits>
#include <iterator>
#include <new>
#include <span>

#include "base/count_of.h"

namespace bs::backend::collective {
namespace {

// A sum has two tickets: 2 * sequence, and the next one for its description.
constexpr uint64_t kDescribed = 1;
constexpr size_t kDescriptionWidth = 2;
// A rank's card has its version, the value of its algorithm and the source of that value.  Texts
// are packed into whole numbers that float64 holds.
constexpr size_t kVersionWidth = 16;
constexpr size_t kValueWidth = 4;
constexpr size_t kCardWidth = kVersionWidth + kValueWidth + 1;
constexpr size_t kPackedCharacters = 6;
constexpr uint64_t kTypes = 256;

void Pack(const std::string& text, std::span<double> packed) {
  for (size_t i = 0; i < std::min(text.size(), packed.size() * kPackedCharacters); ++i) {
    double& number = packed[i / kPackedCharacters];
    number = number * 256 + static_cast<unsigned char>(text[i]);
  }
}

std::string Unpack(std::span<const double> packed) {
  std::string text;
  for (const double number : packed) {
    std::string characters;
    for (auto part = static_cast<uint64_t>(number); part != 0; part /= 256) {
      characters.insert(characters.begin(), static_cast<char>(part % 256));
    }
    text += characters;
  }
  return text;
}

// Returns the first rank whose part differs from that of rank 0 in `count` numbers from `from` on;
// 0 if none does.
size_t FirstDifferent(std::span<const double> parts, size_t width, size_t from, size_t count) {
  for (size_t at = width; at < parts.size(); at += width) {
    if (!std::ranges::equal(parts.subspan(from, count), parts.subspan(at + from, count))) {
      return at / width;
    }
  }
  return 0;
}

std::vector<double> CardOf(const std::string& version, const MpiAlgorithm& algorithm) {
  std::vector<double> card(kCardWidth);
  Pack(version, std::span(card).first(kVersionWidth));
  Pack(algorithm.value, std::span(card).subspan(kVersionWidth, kValueWidth));
  card.back() = static_cast<double>(algorithm.source);
  return card;
}

std::string DescribeAlgorithm(std::span<const double> card) {
  using Source = MpiAlgorithm::Source;
  const std::string value = Unpack(card.subspan(kVersionWidth, kValueWidth));
  switch (static_cast<Source>(card.back())) {
    case Source::kWorker:
      return value + " (set by the worker)";
    case Source::kUser:
      return value + " (set before)";
    case Source::kScript:
      return "no value (the script has begun MPI)";
    default:
      return "no value";
  }
}

std::vector<double> Describe(uint64_t sequence, uint64_t bytes, DType dtype) {
  return {static_cast<double>(sequence),
          static_cast<double>(bytes * kTypes + static_cast<uint64_t>(dtype))};
}

std::string DescriptionOf(const std::vector<double>& parts, size_t rank) {
  const double* const part = &parts[rank * kDescriptionWidth];
  const auto size = static_cast<uint64_t>(part[1]);
  const std::optional<DType> dtype = DTypeFromCode(static_cast<uint32_t>(size % kTypes));
  return "rank " + std::to_string(rank) + " has " + CountOf(size / kTypes, "byte") + " of " +
         std::string(dtype ? NameOf(*dtype) : "an unknown type") + " in sum " +
         std::to_string(static_cast<uint64_t>(part[0]));
}

uint64_t BytesOf(const std::vector<Piece>& pieces) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.in.size();
  return bytes;
}

}  // namespace

Status MpiSums::Start() {
  Status status = library_->Init();
  if (!status.ok()) return status;
  const std::string version = library_->Version();
  if (library_->size() != launcher_.processes) {
    return Status::FailedPrecondition(
        library_->file() + " (" + version + ") counts " + CountOf(library_->size(), "rank") +
        ", and " + std::string(launcher_.name) + " has started " +
        std::to_string(launcher_.processes) + " processes (" +
        std::string(launcher_.size_variable) + "=" + std::to_string(launcher_.processes) +
        "): the library is not that of the launcher");
  }
  cards_ = PartsWith(CardOf(version, library_->algorithm()));
  return library_->SumNow(cards_->data(), static_cast<int>(cards_->size()));
}

Status MpiSums::Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence) {
  const uint64_t bytes = BytesOf(pieces);
  const uint64_t count = bytes / SizeOf(dtype);
  if (count > INT_MAX) {
    return Status::InvalidArgument("a sum by MPI has " + std::to_string(INT_MAX) +
                                   " elements at most, and this one " + std::to_string(count));
  }
  Sum& sum = sums_[sequence];
  sum.dtype = dtype;
  sum.pieces = std::move(pieces);
  return Gather(Describe(sequence, bytes, dtype), 2 * sequence + kDescribed, &sum.described);
}

Result<std::vector<uint64_t>> MpiSums::Poll() {
  std::vector<uint64_t> sequences;
  if (stopped_) return sequences;
  const MpiLibrary::Ended ended = library_->TakeEnded();
  in_use_ -= ended.tickets.size();
  if (stopped_) return sequences;  // that call may have taken long
  for (const uint64_t ticket : ended.tickets) Mark(ticket);
  if (!ended.status.ok()) {
    has_failed_ = true;
    return ended.status;
  }
  if (cards_) {
    if (Status different = CompareCards(*cards_); !different.ok()) return different;
    cards_.reset();
    sequences.push_back(kStarted);
  }
  for (auto at = sums_.find(next_); at != sums_.end() && at->second.described.over; ++at) {
    if (Status different = Compare(at->second); !different.ok()) {
      if (at == sums_.begin()) return different;
      break;  // all ranks have begun the sums before it
    }
    if (Status status = BeginDescribed(next_++, &at->second); !status.ok()) return status;
  }
  for (auto at = sums_.begin(); at != sums_.end();) {
    if (!at->second.over) {
      ++at;
      continue;
    }
    if (!CopyOut(&at->second)) break;
    sequences.push_back(at->first);
    at = sums_.erase(at);
  }
  return sequences;
}

Status MpiSums::End() { return is_idle() && !stopped_ ? library_->Free() : Status::Ok(); }

Status MpiSums::BeginDescribed(uint64_t sequence, Sum* sum) {
  const uint64_t bytes = BytesOf(sum->pieces);
  sum->memory = TakeMemory(bytes);
  if (!sum->memory.bytes) {
    return Status::ResourceExhausted(
        "sum " + std::to_string(sequence) + " by MPI: " + CountOf(bytes, "byte") +
        " for a copy in this host's memory are not free; set BYTESCHEDULER_PARTITION and "
        "BYTESCHEDULER_CREDIT to less, or give the host more memory");
  }
  if (!CopyIn(sum)) return Status::Ok();
  const uint64_t count = bytes / SizeOf(sum->dtype);
  ++in_use_;
  return library_->Begin(MpiChannel::kSums, nullptr, sum->memory.bytes.get(),
                         static_cast<int>(count), sum->dtype, 2 * sequence);
}

MpiSums::Memory MpiSums::TakeMemory(size_t size_bytes) {
  const auto fits = spare_.lower_bound(size_bytes);
  if (fits == spare_.end()) {
    if (!spare_.empty()) spare_.erase(std::prev(spare_.end()));  // sums have grown
    return {std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[size_bytes]), size_bytes};
  }
  Memory memory{std::move(fits->second), fits->first};
  spare_.erase(fits);
  return memory;
}

bool MpiSums::CopyIn(Sum* sum) {
  const MpiGate::Visit visit(&copies_);
  if (!visit.is_inside()) return false;
  std::byte* to = sum->memory.bytes.get();
  for (const Piece& piece : sum->pieces) to = std::copy(piece.in.begin(), piece.in.end(), to);
  return true;
}

bool MpiSums::CopyOut(Sum* sum) {
  const MpiGate::Visit visit(&copies_);
  if (!visit.is_inside()) return false;
  const std::byte* from = sum->memory.bytes.get();
  for (const Piece& piece : sum->pieces) {
    std::copy_n(from, piece.out.size(), piece.out.data());
    from += piece.out.size();
  }
  spare_.emplace(sum->memory.room, std::move(sum->memory.bytes));
  return true;
}

std::vector<double> MpiSums::PartsWith(const std::vector<double>& part) const {
  const auto ranks = static_cast<size_t>(library_->size());
  const auto rank = static_cast<size_t>(library_->rank());
  std::vector<double> parts(ranks * part.size());
  std::ranges::copy(part, parts.begin() + static_cast<ptrdiff_t>(rank * part.size()));
  return parts;
}

Status MpiSums::Gather(const std::vector<double>& part, uint64_t ticket, Gathered* gathered) {
  gathered->parts = PartsWith(part);
  ++in_use_;
  return library_->Begin(MpiChannel::kDescriptions, nullptr, gathered->parts.data(),
                         static_cast<int>(gathered->parts.size()), DType::kFloat64, ticket);
}

void MpiSums::Mark(uint64_t ticket) {
  Sum& sum = sums_.at(ticket / 2);
  (ticket % 2 == kDescribed ? sum.described.over : sum.over) = true;
}

Status MpiSums::CompareCards(const std::vector<double>& cards) const {
  const auto card_of = [&](size_t rank) {
    return std::span<const double>(cards).subspan(rank * kCardWidth, kCardWidth);
  };
  if (const size_t rank = FirstDifferent(cards, kCardWidth, 0, kVersionWidth); rank > 0) {
    return Status::FailedPrecondition("rank 0 has " + Unpack(card_of(0).first(kVersionWidth)) +
                                      ", and rank " + std::to_string(rank) + " has " +
                                      Unpack(card_of(rank).first(kVersionWidth)) +
                                      ": install the same MPI library on all hosts");
  }
  // Ranks with other algorithms would send each other other messages: wrong sums, or none.
  if (const size_t rank = FirstDifferent(cards, kCardWidth, kVersionWidth, kValueWidth); rank > 0) {
    const std::string& variable = library_->algorithm().variable;
    return Status::FailedPrecondition(variable + ": rank 0 has " + DescribeAlgorithm(card_of(0)) +
                                      ", and rank " + std::to_string(rank) + " has " +
                                      DescribeAlgorithm(card_of(rank)) +
                                      "; set it to the same value in the environment of all "
                                      "processes before MPI begins");
  }
  return Status::Ok();
}

Status MpiSums::Compare(const Sum& sum) {
  const size_t rank = FirstDifferent(sum.described.parts, kDescriptionWidth, 0, kDescriptionWidth);
  if (rank == 0) return Status::Ok();
  return Status::FailedPrecondition(
      "the ranks do not sum the same by MPI: " + DescriptionOf(sum.described.parts, 0) + ", and " +
      DescriptionOf(sum.described.parts, rank));
}

}  // namespace bs::backend::collective
