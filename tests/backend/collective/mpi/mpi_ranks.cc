// A rank of an MPI job, without a test framework: mpiexec starts several.
//
// Its argument is the case, and the second the number of an ABI in the launcher's table.  It ends
// with 0 if all went well, and says so.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/mpi/mpi_collective.h"
#include "backend/collective/mpi/mpi_file.h"
#include "base/loop_thread.h"
#include "base/notification.h"

namespace bs::backend::collective {
namespace {

constexpr Duration kDeadline = std::chrono::seconds(60);

[[noreturn]] void Give(int code, const std::string& text) {
  std::fprintf(code == 0 ? stdout : stderr, "%s\n", text.c_str());
  std::fflush(nullptr);
  std::exit(code);
}

std::optional<std::string> Variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

// One rank.  Its calls wait, as a test may.
class Rank {
 public:
  Rank(const MpiLauncher& launcher, std::unique_ptr<MpiLibrary> library) {
    RunInLoop([&] {
      mpi_ = std::make_unique<MpiCollective>(&loop_, std::move(library), launcher,
                                             MpiOptions{.spin = std::chrono::microseconds(100)});
    });
  }
  ~Rank() {
    RunInLoop([&] { mpi_.reset(); });
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Status Start() {
    return Wait([&](Collective::Done done) { mpi_->Prepare(std::move(done)); });
  }
  Status Sum(std::vector<Piece> pieces, DType dtype) {
    return Wait([&](Collective::Done done) {
      mpi_->Begin(std::move(pieces), dtype, sequence_++, std::move(done));
    });
  }
  void Abort(const Status& status) {
    RunInLoop([&] { mpi_->Abort(status); });
  }

 private:
  void RunInLoop(Task task) {
    Notification ran;
    loop_.Post([&] {
      task();
      ran.Notify();
    });
    ran.Wait();
  }
  template <typename F>
  Status Wait(F begin) {
    Notification ended;
    Status result;
    RunInLoop([&] {
      begin([&](const Status& status) {
        result = status;
        ended.Notify();
      });
    });
    if (!ended.WaitFor(kDeadline)) Give(3, "a call has not ended");
    return result;
  }

  LoopThread loop_{"test"};
  uint64_t sequence_ = 0;
  std::unique_ptr<MpiCollective> mpi_;
};

template <typename T>
Piece PieceOf(std::vector<T>* in, std::vector<T>* out) {
  return {.in = std::as_bytes(std::span(*in)), .out = std::as_writable_bytes(std::span(*out))};
}

int NumberOf(const char* variable) { return std::atoi(Variable(variable).value_or("0").c_str()); }

int OwnRank() { return NumberOf("OMPI_COMM_WORLD_RANK") + NumberOf("PMI_RANK"); }

// Sums `sizes.size()` arrays as one operation; element e of array a has (rank + 1) * (e + a) % 97.
template <typename T>
void SumArrays(Rank* rank, int ranks, DType dtype, const std::vector<size_t>& sizes,
               bool in_place) {
  std::vector<std::vector<T>> in(sizes.size());
  std::vector<std::vector<T>> out(sizes.size());
  std::vector<Piece> pieces;
  for (size_t a = 0; a < sizes.size(); ++a) {
    for (size_t e = 0; e < sizes[a]; ++e) {
      in[a].push_back(static_cast<T>((OwnRank() + 1) * static_cast<int>((e + a) % 97)));
    }
    out[a].resize(sizes[a]);
    pieces.push_back(PieceOf(&in[a], in_place ? &in[a] : &out[a]));
  }
  const Status status = rank->Sum(std::move(pieces), dtype);
  if (!status.ok()) Give(1, status.message());
  const int factor = ranks * (ranks + 1) / 2;
  for (size_t a = 0; a < sizes.size(); ++a) {
    for (size_t e = 0; e < sizes[a]; ++e) {
      const auto wanted = static_cast<T>(factor * static_cast<int>((e + a) % 97));
      if ((in_place ? in : out)[a][e] != wanted) Give(1, "a sum is wrong");
    }
  }
}

// Sums fractions, whose sum depends on the order, and compares the bits of all ranks.
void SumFractions(Rank* rank, int ranks) {
  std::vector<float> values;
  for (int e = 0; e < 5000; ++e) {
    values.push_back(1.0F / static_cast<float>(e + 3 * OwnRank() + 1));
  }
  if (!rank->Sum({PieceOf(&values, &values)}, DType::kFloat32).ok()) Give(1, "fractions failed");
  std::vector<double> hash(2);
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash[0] = static_cast<double>((static_cast<uint64_t>(hash[0]) * 31 + bits) % 1000003);
  }
  hash[1] = hash[0] * hash[0];
  const std::vector<double> own = hash;
  if (!rank->Sum({PieceOf(&hash, &hash)}, DType::kFloat64).ok()) Give(1, "the hash failed");
  if (hash[0] != ranks * own[0] || hash[1] != ranks * own[1]) Give(1, "the ranks' bits differ");
}

void Sums(Rank* rank, int ranks) {
  for (const bool in_place : {false, true}) {
    for (const std::vector<size_t>& sizes : std::vector<std::vector<size_t>>{
             {1}, {1000}, {40000}, {1, 7, 1000, 3}, {20000, 1, 2000}, {}}) {
      SumArrays<float>(rank, ranks, DType::kFloat32, sizes, in_place);
      SumArrays<double>(rank, ranks, DType::kFloat64, sizes, in_place);
    }
  }
  for (int i = 0; i < 20; ++i) {
    SumArrays<float>(rank, ranks, DType::kFloat32, {static_cast<size_t>(i % 50), 5}, i % 2 == 0);
  }
  SumFractions(rank, ranks);
}

// Rank 1 has another size: every rank gets the same sentence.
void Sizes(Rank* rank, size_t usual, size_t other) {
  std::vector<float> values(OwnRank() == 1 ? other : usual);
  const Status status = rank->Sum({PieceOf(&values, &values)}, DType::kFloat32);
  if (status.ok()) Give(1, "sizes that differ were summed");
  std::printf("%s\n", status.message().c_str());
}

// Rank 1 ends inside of an operation, and membership says so.  The end of MPI would wait for it.
void Lost(Rank* rank) {
  std::vector<float> values(4000000);
  if (OwnRank() == 1) std::_Exit(0);
  LoopThread membership("membership");
  membership.PostAt(membership.Now() + std::chrono::milliseconds(300),
                    [&] { rank->Abort(Status::Unavailable("worker 1 was lost")); });
  const Status status = rank->Sum({PieceOf(&values, &values)}, DType::kFloat32);
  Give(status.ok() ? 1 : 0, status.message());
}

void Run(const std::string& name, size_t abi) {
  const int ranks = NumberOf("OMPI_COMM_WORLD_SIZE") + NumberOf("PMI_SIZE");
  Result<MpiLauncher> launcher = FindMpiLauncher(Variable, ranks);
  if (!launcher.ok()) Give(1, launcher.status().message());
  launcher.value().abis = launcher.value().abis.subspan(abi);
  // Open MPI's library, whatever the launcher.
  if (name == "foreign") launcher.value().abis = OpenMpiAbis();
  Result<std::unique_ptr<MpiLibrary>> library =
      LoadMpi(launcher.value(), FoldersOfLaunchers(), std::chrono::minutes(1));
  if (!library.ok()) Give(1, library.status().message());
  const std::string file = library.value()->file();
  Rank rank(launcher.value(), std::move(library.value()));
  const Status started = rank.Start();
  if (name == "foreign") Give(started.ok() ? 1 : 0, started.message());
  if (!started.ok()) Give(1, started.message());
  if (name == "sums") Sums(&rank, ranks);
  if (name == "smaller") Sizes(&rank, 100000, 50);
  if (name == "larger") Sizes(&rank, 50, 100000);
  if (name == "lost") Lost(&rank);
  std::printf("%s: all is well with %s\n", name.c_str(), file.c_str());
}

}  // namespace
}  // namespace bs::backend::collective

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  bs::backend::collective::Run(arguments.at(1), argc > 2 ? std::stoul(arguments.at(2)) : 0);
  return 0;
}
