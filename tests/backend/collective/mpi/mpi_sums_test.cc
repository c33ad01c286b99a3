// MpiSums, over a library whose peers are played.
#include "backend/collective/mpi/mpi_sums.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <new>
#include <set>

#include "backend/collective/mpi/fake_mpi_library.h"
#include "base/snapshot.h"

namespace {

std::atomic<bool> no_memory_for_sums = false;

}  // namespace

// Memory for sums alone is asked for in this way.
void* operator new[](size_t size_bytes, const std::nothrow_t& /*tag*/) noexcept {
  return no_memory_for_sums ? nullptr : ::operator new[](size_bytes);
}

namespace bs::backend::collective {
namespace {

using Sequences = std::vector<uint64_t>;

Piece PieceOf(std::vector<float>* in, std::vector<float>* out) {
  return {.in = std::as_bytes(std::span(*in)), .out = std::as_writable_bytes(std::span(*out))};
}

class MpiSumsTest : public testing::Test {
 protected:
  void Make(FakeMpiLibrary::Script script) {
    library_ = std::make_unique<FakeMpiLibrary>(std::move(script));
    sums_ = std::make_unique<MpiSums>(library_.get(), FakeLauncher());
  }
  void MakeStarted(FakeMpiLibrary::Script script) {
    Make(std::move(script));
    ASSERT_TRUE(sums_->Start().ok());
    ASSERT_EQ(sums_->Poll().value(), Sequences{MpiSums::kStarted});
  }
  // The sums that the library got, by the calls' tickets.
  std::vector<uint64_t> Summed() const {
    std::vector<uint64_t> tickets;
    for (const auto& call : library_->calls()) {
      if (call.channel == MpiChannel::kSums) tickets.push_back(call.ticket);
    }
    return tickets;
  }

  std::unique_ptr<FakeMpiLibrary> library_;
  std::unique_ptr<MpiSums> sums_;
};

TEST_F(MpiSumsTest, StartsWithRanksThatAreAlike) {
  MakeStarted({.add = PlayTwin});
  EXPECT_TRUE(sums_->is_idle());
  EXPECT_TRUE(sums_->End().ok());
  EXPECT_EQ(library_->freed(), 1);
}

TEST_F(MpiSumsTest, RefusesALibraryThatCountsOtherRanksThanTheLauncher) {
  Make({.size = 1});
  const Status status = sums_->Start();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(status.message(),
                  "libfake.so (Fake MPI 1.5) counts 1 rank, and Launcher has started 2 processes "
                  "(SIZE=2): the library is not that of the launcher");
}

TEST_F(MpiSumsTest, NamesTheRankWithAnotherVersion) {
  Make({.add = [](const FakeMpiLibrary::Call& call) {
    CopyPart(call);
    // The last characters of "Fake MPI 1.5" are the second number of the part.
    static_cast<double*>(call.out)[call.count / 2 + 1] += 1;
  }});
  ASSERT_TRUE(sums_->Start().ok());
  const Status status = sums_->Poll().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(status.message(),
                  "rank 0 has Fake MPI 1.5, and rank 1 has Fake MPI 1.6: install the same MPI "
                  "library on all hosts");
}

MpiAlgorithm AlgorithmOf(const std::string& value, MpiAlgorithm::Source source) {
  return {.variable = "ALGORITHM", .value = value, .source = source};
}

// Rank 1 has another value, with which MPI_Iallreduce sends other messages.
TEST_F(MpiSumsTest, NamesTheRankWithAnotherAlgorithmBeforeAnySum) {
  using Source = MpiAlgorithm::Source;
  const auto error_of = [&](const MpiAlgorithm& own, double value, Source source) {
    Make({.algorithm = own, .add = [=](const FakeMpiLibrary::Call& call) {
            CopyPart(call);
            double* const card = static_cast<double*>(call.out) + call.count / 2;
            card[call.count / 2 - 5] = value;
            card[call.count / 2 - 1] = static_cast<double>(source);
          }});
    EXPECT_TRUE(sums_->Start().ok());
    const Result<Sequences> ended = sums_->Poll();
    EXPECT_EQ(ended.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(library_->calls().size(), 1U) << "only the call that blocks";
    return ended.status().message();
  };
  EXPECT_SNAPSHOT(
      error_of(AlgorithmOf("", Source::kScript), '3', Source::kWorker),
      "ALGORITHM: rank 0 has no value (the script has begun MPI), and rank 1 has 3 (set "
      "by the worker); set it to the same value in the environment of all processes "
      "before MPI begins");
  EXPECT_SNAPSHOT(error_of(AlgorithmOf("3", Source::kWorker), '1', Source::kUser),
                  "ALGORITHM: rank 0 has 3 (set by the worker), and rank 1 has 1 (set before); set "
                  "it to the same value in the environment of all processes before MPI begins");
}

TEST_F(MpiSumsTest, TheSameAlgorithmFromAnotherSourceIsAlike) {
  MakeStarted({.algorithm = AlgorithmOf("3", MpiAlgorithm::Source::kWorker),
               .add = [](const FakeMpiLibrary::Call& call) {
                 CopyPart(call);
                 static_cast<double*>(call.out)[call.count - 1] =
                     static_cast<double>(MpiAlgorithm::Source::kUser);
               }});
  EXPECT_TRUE(sums_->is_idle());
}

TEST_F(MpiSumsTest, SumsAPieceInMemoryOfItsOwn) {
  MakeStarted({.add = PlayTwin});
  std::vector<float> in = {1, 2};
  std::vector<float> out(2);
  ASSERT_TRUE(sums_->Begin({PieceOf(&in, &out)}, DType::kFloat32, 0).ok());
  EXPECT_EQ(sums_->Poll().value(), Sequences{}) << "the description has come";
  EXPECT_EQ(sums_->Poll().value(), Sequences{0});
  EXPECT_EQ(out, (std::vector<float>{2, 4}));
  EXPECT_EQ(in, (std::vector<float>{1, 2}));
  EXPECT_NE(library_->calls().back().out, out.data());
}

TEST_F(MpiSumsTest, ASumWithoutMemoryIsAnErrorAndNeverReachesMpi) {
  MakeStarted({.add = PlayTwin});
  std::vector<float> values(2, 1);
  ASSERT_TRUE(sums_->Begin({PieceOf(&values, &values)}, DType::kFloat32, 0).ok());
  no_memory_for_sums = true;
  const Status status = sums_->Poll().status();
  no_memory_for_sums = false;
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_SNAPSHOT(status.message(),
                  "sum 0 by MPI: 8 bytes for a copy in this host's memory are not free; set "
                  "BYTESCHEDULER_PARTITION and BYTESCHEDULER_CREDIT to less, or give the host more "
                  "memory");
  EXPECT_EQ(values, std::vector<float>(2, 1));
  EXPECT_EQ(Summed(), Sequences{});
}

TEST_F(MpiSumsTest, MemoryServesAgain) {
  MakeStarted({.add = PlayTwin});
  std::vector<const void*> memory;
  for (uint64_t sequence = 0; sequence < 4; ++sequence) {
    std::vector<float> values(sequence == 1 ? 8 : 16, 1);
    ASSERT_TRUE(sums_->Begin({PieceOf(&values, &values)}, DType::kFloat32, sequence).ok());
    EXPECT_EQ(sums_->Poll().value(), Sequences{});
    EXPECT_EQ(sums_->Poll().value(), Sequences{sequence});
    EXPECT_EQ(values, std::vector<float>(values.size(), 2));
    memory.push_back(library_->calls().back().out);
  }
  for (const void* const later : memory) EXPECT_EQ(later, memory.front());
}

TEST_F(MpiSumsTest, ASumTakesTheSmallestMemoryThatFits) {
  MakeStarted({.add = PlayTwin});
  std::map<size_t, std::set<const void*>> memory;  // by elements
  uint64_t sequence = 0;
  for (const bool is_small_first : {false, true, false}) {
    std::vector<float> small(16, 1);
    std::vector<float> large(4096, 1);
    for (std::vector<float>* const values :
         {is_small_first ? &small : &large, is_small_first ? &large : &small}) {
      ASSERT_TRUE(sums_->Begin({PieceOf(values, values)}, DType::kFloat32, sequence++).ok());
    }
    for (int poll = 0; poll < 4; ++poll) ASSERT_TRUE(sums_->Poll().ok());
    ASSERT_TRUE(sums_->is_idle());
    for (const auto& call : library_->calls()) {
      if (call.channel == MpiChannel::kSums) {
        memory[static_cast<size_t>(call.count)].insert(call.out);
      }
    }
  }
  EXPECT_EQ(memory[16].size(), 1U);
  EXPECT_EQ(memory[4096].size(), 1U);
}

TEST_F(MpiSumsTest, NoArrayIsTouchedAfterItsStop) {
  MakeStarted({.add = PlayTwin});
  std::vector<float> first = {1};
  std::vector<float> second = {1};
  ASSERT_TRUE(sums_->Begin({PieceOf(&first, &first)}, DType::kFloat32, 0).ok());
  EXPECT_EQ(sums_->Poll().value(), Sequences{}) << "MPI has sum 0";
  ASSERT_TRUE(sums_->Begin({PieceOf(&second, &second)}, DType::kFloat32, 1).ok());
  sums_->Stop();
  for (int poll = 0; poll < 3; ++poll) EXPECT_EQ(sums_->Poll().value(), Sequences{});
  EXPECT_EQ(first, std::vector<float>{1});
  EXPECT_EQ(Summed(), Sequences{0});
}

TEST_F(MpiSumsTest, SumsSeveralPiecesAsOneOperation) {
  MakeStarted({.add = PlayTwin});
  std::vector<float> first = {1, 2};
  std::vector<float> second = {3};
  std::vector<float> out(1);
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    const float scale = sequence == 0 ? 1 : 2;
    ASSERT_TRUE(
        sums_->Begin({PieceOf(&first, &first), PieceOf(&second, &out)}, DType::kFloat32, sequence)
            .ok());
    EXPECT_EQ(sums_->Poll().value(), Sequences{});
    EXPECT_EQ(sums_->Poll().value(), Sequences{sequence});
    EXPECT_EQ(first, (std::vector<float>{2 * scale, 4 * scale}));
    EXPECT_EQ(out, std::vector<float>{6});
  }
  EXPECT_EQ(Summed().size(), 2U);
  EXPECT_EQ(library_->calls().back().count, 3);
}

TEST_F(MpiSumsTest, GivesSumsToMpiInTheirOrderWhateverEndsFirst) {
  bool holds_first = true;
  MakeStarted({.add = PlayTwin, .ends = [&](const FakeMpiLibrary::Call& call) {
                 return !holds_first || call.ticket != 1;  // the description of sum 0
               }});
  std::vector<float> values = {1};
  std::vector<float> others = {1};
  ASSERT_TRUE(sums_->Begin({PieceOf(&values, &values)}, DType::kFloat32, 0).ok());
  ASSERT_TRUE(sums_->Begin({PieceOf(&others, &others)}, DType::kFloat32, 1).ok());
  EXPECT_EQ(sums_->Poll().value(), Sequences{});
  EXPECT_EQ(Summed(), Sequences{});
  holds_first = false;
  EXPECT_EQ(sums_->Poll().value(), Sequences{});
  EXPECT_EQ(Summed(), (Sequences{0, 2}));
  EXPECT_EQ(sums_->Poll().value(), (Sequences{0, 1}));
}

TEST_F(MpiSumsTest, AnotherSizeOnAnotherRankNeverReachesMpi) {
  MakeStarted({.add = [](const FakeMpiLibrary::Call& call) {
    CopyPart(call);
    auto* const parts = static_cast<double*>(call.out);
    if (call.count == 4) parts[3] += 256 * 4;  // four bytes more
  }});
  std::vector<float> values(2);
  ASSERT_TRUE(sums_->Begin({PieceOf(&values, &values)}, DType::kFloat32, 0).ok());
  const Status status = sums_->Poll().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(status.message(),
                  "the ranks do not sum the same by MPI: rank 0 has 8 bytes of float32 in sum 0, "
                  "and rank 1 has 12 bytes of float32 in sum 0");
  EXPECT_EQ(Summed(), Sequences{});
}

TEST_F(MpiSumsTest, AnotherOrderOnAnotherRankNeverReachesMpi) {
  MakeStarted({.add = [](const FakeMpiLibrary::Call& call) {
    CopyPart(call);
    if (call.count == 4) static_cast<double*>(call.out)[2] += 1;
  }});
  std::vector<float> values(2);
  ASSERT_TRUE(sums_->Begin({PieceOf(&values, &values)}, DType::kFloat32, 0).ok());
  EXPECT_SNAPSHOT(sums_->Poll().status().message(),
                  "the ranks do not sum the same by MPI: rank 0 has 8 bytes of float32 in sum 0, "
                  "and rank 1 has 8 bytes of float32 in sum 1");
  EXPECT_EQ(Summed(), Sequences{});
}

TEST_F(MpiSumsTest, SumsThatDifferWaitForTheSumsBeforeThem) {
  bool ends = false;
  MakeStarted({.add =
                   [](const FakeMpiLibrary::Call& call) {
                     if (call.channel == MpiChannel::kSums) return AddTwin(call);
                     CopyPart(call);
                     // The peer has another size in sum 1.
                     if (call.ticket == 3) static_cast<double*>(call.out)[3] += 256;
                   },
               .ends =
                   [&](const FakeMpiLibrary::Call& call) {
                     return ends || call.channel == MpiChannel::kDescriptions;
                   }});
  std::vector<float> values = {1};
  std::vector<float> more = {1};
  ASSERT_TRUE(sums_->Begin({PieceOf(&values, &values)}, DType::kFloat32, 0).ok());
  ASSERT_TRUE(sums_->Begin({PieceOf(&more, &more)}, DType::kFloat32, 1).ok());
  for (int poll = 0; poll < 2; ++poll) {
    const Result<Sequences> ended = sums_->Poll();
    ASSERT_TRUE(ended.ok()) << "MPI has the memory of sum 0";
    EXPECT_EQ(ended.value(), Sequences{});
  }
  EXPECT_TRUE(sums_->in_use());
  ends = true;
  EXPECT_EQ(sums_->Poll().value(), Sequences{0});
  EXPECT_EQ(values, std::vector<float>{2});
  EXPECT_EQ(sums_->Poll().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(sums_->in_use());
  EXPECT_EQ(Summed(), Sequences{0});
}

TEST_F(MpiSumsTest, NoCallBeginsAfterItsStop) {
  int polls = 0;
  int calls = 0;
  MakeStarted({.add = PlayTwin,
               .test =
                   [&] {
                     ++polls;
                     return Status::Ok();
                   },
               .progress =
                   [&] {
                     ++calls;
                     return true;
                   }});
  EXPECT_TRUE(sums_->Progress());
  sums_->Stop();
  EXPECT_FALSE(sums_->Progress());
  EXPECT_EQ(sums_->Poll().value(), Sequences{});
  EXPECT_EQ(polls, 1) << "that of the start";
  EXPECT_EQ(calls, 1);
}

TEST_F(MpiSumsTest, AnErrorOfMpiIsForAllSums) {
  Status error;
  MakeStarted({.add = PlayTwin, .test = [&] { return error; }});
  std::vector<float> values(2);
  ASSERT_TRUE(sums_->Begin({PieceOf(&values, &values)}, DType::kFloat32, 0).ok());
  error = Status::Unavailable("MPI_Testsome: a rank is gone");
  EXPECT_EQ(sums_->Poll().status().message(), "MPI_Testsome: a rank is gone");
  EXPECT_TRUE(sums_->in_use()) << "MPI may keep memory, though the calls have ended";
}

TEST_F(MpiSumsTest, RefusesMoreElementsThanMpiCounts) {
  MakeStarted({.add = PlayTwin});
  const std::span<std::byte> all(reinterpret_cast<std::byte*>(64), size_t{1} << 34U);
  const Status status = sums_->Begin({{.in = all, .out = all}}, DType::kFloat32, 0);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(status.message(),
                  "a sum by MPI has 2147483647 elements at most, and this one 4294967296");
}

}  // namespace
}  // namespace bs::backend::collective
