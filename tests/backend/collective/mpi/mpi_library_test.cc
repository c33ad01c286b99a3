// MpiLibrary, MpiFile and the table of ABIs, over shared libraries that play MPI.
#include "backend/collective/mpi/mpi_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "backend/collective/mpi/fake_mpi.h"
#include "backend/collective/mpi/mpi_file.h"
#include "base/snapshot.h"

namespace bs::backend::collective {
namespace {

// Where CMake has built the fake libraries, a folder for each.
const std::string kFakes = BS_FAKE_MPI_FOLDER;

constexpr Duration kEndLimit = std::chrono::milliseconds(200);

MpiLauncher LauncherOf(std::span<const MpiAbi> abis) {
  return {.name = "Launcher",
          .size_variable = "SIZE",
          .packages = "`pip install fake`",
          .abis = abis,
          .processes = 1};
}

Result<std::unique_ptr<MpiLibrary>> LoadFake(std::span<const MpiAbi> abis,
                                             const std::string& folder) {
  const std::vector<std::string> folders = {kFakes + "/nowhere", folder};
  return LoadMpi(LauncherOf(abis), folders, kEndLimit);
}

FakeMpi* StateOf(const MpiLibrary& library) {
  void* const opened = ::dlopen(library.file().c_str(), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<FakeMpiState>(::dlsym(opened, kFakeMpiState))();
}

// Replaces the folder of this build in a sentence.
std::string Portable(std::string text) {
  for (size_t at = text.find(kFakes); at != std::string::npos; at = text.find(kFakes)) {
    text.replace(at, kFakes.size(), "FAKES");
  }
  return text;
}

struct AbiCase {
  std::string folder;
  std::span<const MpiAbi> abis;
};

class MpiLibraryTest : public testing::TestWithParam<AbiCase> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<MpiLibrary>> library =
        LoadFake(GetParam().abis, kFakes + "/" + GetParam().folder);
    ASSERT_TRUE(library.ok()) << library.status().message();
    library_ = std::move(library.value());
    state_ = StateOf(*library_);
    *state_ = FakeMpi();
  }
  // MPI ends with a process in which it began, so what initialises it is a process of its own.
  void TearDown() override {
    EXPECT_FALSE(state_->wrong_call);
    EndByScript();
  }
  void Begin() {
    state_->initialized = 1;
    state_->queried = GetParam().abis.front().thread_multiple;
    ASSERT_TRUE(library_->Init().ok());
  }
  void EndByScript() const {
    void* const opened = ::dlopen(library_->file().c_str(), RTLD_NOW | RTLD_NOLOAD);
    reinterpret_cast<FakeMpiFinalize>(::dlsym(opened, kFakeMpiFinalize))();
  }

  std::unique_ptr<MpiLibrary> library_;
  FakeMpi* state_ = nullptr;
};

// An environment without the variable `name`, until the end of a test.
class WithoutVariable {
 public:
  explicit WithoutVariable(const char* name) : name_(name) {
    if (const char* const value = ::getenv(name); value != nullptr) value_ = value;
    ::unsetenv(name);
  }
  ~WithoutVariable() {
    if (value_) {
      ::setenv(name_, value_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  WithoutVariable(const WithoutVariable&) = delete;
  WithoutVariable& operator=(const WithoutVariable&) = delete;
  WithoutVariable(WithoutVariable&&) = delete;
  WithoutVariable& operator=(WithoutVariable&&) = delete;

 private:
  const char* name_;
  std::optional<std::string> value_;
};

TEST_P(MpiLibraryTest, OpenMpiTakesTheAlgorithmThatSendsLeastUnlessTheUserSaysOtherwise) {
  const char* const name = "OMPI_MCA_coll_libnbc_iallreduce_algorithm";
  const bool is_open_mpi = GetParam().folder == "open";
  const WithoutVariable unset(name);
  ASSERT_TRUE(LoadFake(GetParam().abis, kFakes + "/" + GetParam().folder).ok());
  const char* const value = ::getenv(name);
  EXPECT_EQ(value == nullptr ? "" : std::string(value), is_open_mpi ? "3" : "");
  ::setenv(name, "1", 1);
  ASSERT_TRUE(LoadFake(GetParam().abis, kFakes + "/" + GetParam().folder).ok());
  EXPECT_STREQ(::getenv(name), "1");
}

TEST_P(MpiLibraryTest, TellsTheAlgorithmThatMpiHasAndItsSource) {
  using Source = MpiAlgorithm::Source;
  const char* const name = "OMPI_MCA_coll_libnbc_iallreduce_algorithm";
  const bool is_open_mpi = GetParam().folder == "open";
  const WithoutVariable unset(name);
  const auto told = [&] {
    return LoadFake(GetParam().abis, kFakes + "/" + GetParam().folder).value()->algorithm();
  };
  state_->initialized = 1;
  EXPECT_EQ(told().source, is_open_mpi ? Source::kScript : Source::kLibrary);
  EXPECT_EQ(told().value, "");
  EXPECT_EQ(::getenv(name), nullptr) << "MPI no longer reads it, and a later job would believe it";
  state_->initialized = 0;
  const MpiAlgorithm chosen = told();
  EXPECT_EQ(chosen.source, is_open_mpi ? Source::kWorker : Source::kLibrary);
  EXPECT_EQ(chosen.value, is_open_mpi ? "3" : "");
  ::setenv(name, "1", 1);
  EXPECT_EQ(told().source, is_open_mpi ? Source::kUser : Source::kLibrary);
  EXPECT_EQ(told().value, is_open_mpi ? "1" : "");
}

TEST_P(MpiLibraryTest, SaysWhichItIs) {
  EXPECT_EQ(library_->Version(), "Fake Version: 1.5");
  EXPECT_NE(library_->file().find(GetParam().folder), std::string::npos);
}

TEST_P(MpiLibraryTest, SumsBothTypes) {
  state_->initialized = 1;
  state_->queried = GetParam().abis.front().thread_multiple;
  ASSERT_TRUE(library_->Init().ok());
  EXPECT_EQ(library_->size(), 1);
  EXPECT_EQ(state_->init_calls, 0) << "the process has done that";
  double now = 7;
  EXPECT_TRUE(library_->SumNow(&now, 1).ok());
  EXPECT_EQ(now, 7);
  const std::vector<float> in = {1, 2, 3};
  std::vector<float> out(3);
  double value = 7;
  EXPECT_TRUE(
      library_->Begin(MpiChannel::kSums, in.data(), out.data(), 3, DType::kFloat32, 5).ok());
  EXPECT_TRUE(
      library_->Begin(MpiChannel::kDescriptions, nullptr, &value, 1, DType::kFloat64, 9).ok());
  state_->ends = false;
  EXPECT_TRUE(library_->TakeEnded().tickets.empty());
  state_->ends = true;
  EXPECT_EQ(library_->TakeEnded().tickets, (std::vector<uint64_t>{5, 9}));
  EXPECT_TRUE(library_->TakeEnded().tickets.empty());
  EXPECT_EQ(out, in);
  EXPECT_EQ(state_->communicators, 2);
  EXPECT_TRUE(library_->Free().ok());
  EXPECT_EQ(state_->communicators, 1) << "progress needs one";
  EXPECT_TRUE(library_->Progress());
}

TEST_P(MpiLibraryTest, ProgressIsACallOfMpi) {
  Begin();
  EXPECT_TRUE(library_->Progress());
  EXPECT_TRUE(library_->Progress());
  EXPECT_EQ(state_->probe_calls, 2);
}

TEST_P(MpiLibraryTest, NoCallFollowsTheEndOfMpi) {
  Begin();
  double value = 7;
  EXPECT_TRUE(library_->Begin(MpiChannel::kSums, nullptr, &value, 1, DType::kFloat64, 1).ok());
  EndByScript();
  EXPECT_FALSE(library_->Progress());
  EXPECT_EQ(state_->probe_calls, 0);
  const Status status = library_->Begin(MpiChannel::kSums, nullptr, &value, 1, DType::kFloat64, 2);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(
      status.message(),
      "MPI has ended in this process (MPI_Finalize) before the job: close the job first");
  const MpiLibrary::Ended ended = library_->TakeEnded();
  EXPECT_TRUE(ended.tickets.empty());
  EXPECT_EQ(ended.status.message(), status.message());
}

TEST_P(MpiLibraryTest, AnErrorHasTheTextOfMpi) {
  state_->initialized = 1;
  state_->queried = GetParam().abis.front().thread_multiple;
  ASSERT_TRUE(library_->Init().ok());
  double value = 7;
  EXPECT_TRUE(library_->Begin(MpiChannel::kSums, nullptr, &value, 1, DType::kFloat64, 1).ok());
  state_->fails = true;
  const Status status = library_->TakeEnded().status;
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "MPI_Testsome: a rank is gone");
}

TEST_P(MpiLibraryTest, IsRefusedWhereOneThreadMayCallIt) {
  state_->initialized = 1;
  state_->queried = GetParam().abis.front().thread_multiple - 1;
  const Status status = library_->Init();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(status.message(),
                  "this process has initialised MPI for calls of a single thread at a time, and "
                  "the worker calls it from its own: initialise it with MPI_THREAD_MULTIPLE, as "
                  "mpi4py does unless mpi4py.rc.thread_level says otherwise");
}

TEST_P(MpiLibraryTest, IsRefusedAfterItsEnd) {
  state_->initialized = state_->finalized = 1;
  const Status status = library_->Init();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(status.message(),
                  "MPI has ended in this process (MPI_Finalize), and cannot begin again: open the "
                  "job before that");
}

// Returns the exit code of a child that ends with `code` after Init.  A child that finds that its
// MPI was not ended as it should be ends with 99, and after a call behind the end with 97.
int EndAfterInit(
    MpiLibrary* library, FakeMpi* state, int code, int finalize_calls,
    const std::function<void()>& before_exit = [] {}) {
  const pid_t child = ::fork();
  if (child == 0) {
    struct Wanted {
      MpiLibrary* library;
      FakeMpi* state;
      int calls;
    };
    auto* const wanted = new Wanted{library, state, finalize_calls};
    // Handlers run in the reverse order.
    ::on_exit(
        [](int, void* argument) {
          const std::unique_ptr<const Wanted> expected(static_cast<Wanted*>(argument));
          if (expected->state->finalize_calls != expected->calls) ::_exit(99);
          if (expected->library->Progress()) ::_exit(97);
        },
        wanted);
    if (!library->Init().ok() || state->init_calls != 1) ::_exit(98);
    before_exit();
    std::exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_P(MpiLibraryTest, EndsMpiWhenTheProcessEndsWell) {
  EXPECT_EQ(EndAfterInit(library_.get(), state_, 0, 1), 0);
}

// Another rank has failed behind the job's good end, and never calls MPI_Finalize.
TEST_P(MpiLibraryTest, LeavesMpiWhereItsEndWaitsTooLong) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const auto never_ends = [&] {
    state_->never_finalizes = true;
    ::dup2(ends[1], STDERR_FILENO);
  };
  // The child leaves before the handlers that check the calls.
  EXPECT_EQ(EndAfterInit(library_.get(), state_, 0, 0, never_ends), 0);
  ::close(ends[1]);
  std::string said(1000, '\0');
  said.resize(static_cast<size_t>(std::max<ssize_t>(::read(ends[0], said.data(), said.size()), 0)));
  ::close(ends[0]);
  EXPECT_SNAPSHOT(said,
                  "bytescheduler: MPI_Finalize has waited 1 s for all processes of the launcher, "
                  "so this process exits without it; see whether another process has failed, or "
                  "raise BYTESCHEDULER_STRAGGLER_TIMEOUT\n");
}

TEST_P(MpiLibraryTest, LeavesMpiWhenTheProcessFails) {
  EXPECT_EQ(EndAfterInit(library_.get(), state_, 3, 0), 3);
}

TEST_P(MpiLibraryTest, LeavesMpiWhereARankMayBeLost) {
  library_->StayAtExit();
  EXPECT_EQ(EndAfterInit(library_.get(), state_, 0, 0), 0);
}

TEST_P(MpiLibraryTest, LeavesMpiWhereASumIsUnderWay) {
  double value = 7;
  const auto begin = [&] {
    state_->ends = false;
    static_cast<void>(library_->Begin(MpiChannel::kSums, nullptr, &value, 1, DType::kFloat64, 1));
    static_cast<void>(library_->TakeEnded());
  };
  EXPECT_EQ(EndAfterInit(library_.get(), state_, 0, 0, begin), 0);
  const auto end = [&] {
    begin();
    state_->ends = true;
    static_cast<void>(library_->TakeEnded());
  };
  EXPECT_EQ(EndAfterInit(library_.get(), state_, 0, 1, end), 0);
}

TEST_P(MpiLibraryTest, IsRefusedWhereItTakesOneThread) {
  state_->level = GetParam().abis.front().thread_multiple - 1;
  const Status status = library_->Init();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            library_->file() +
                " (Fake Version: 1.5) refuses calls of several threads: install a "
                "build with MPI_THREAD_MULTIPLE");
}

INSTANTIATE_TEST_SUITE_P(Abis, MpiLibraryTest,
                         testing::Values(AbiCase{"open", OpenMpiAbis()},
                                         AbiCase{"mpich", MpichAbis()},
                                         AbiCase{"abi", MpichAbis().subspan(1)}),
                         [](const auto& test) { return test.param.folder; });

TEST(MpiFileTest, NamesTheFunctionThatIsMissing) {
  const Status status = LoadFake(MpichAbis(), kFakes + "/lacks").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_SNAPSHOT(Portable(status.message()),
                  "FAKES/lacks/libmpi.so.12 lacks MPI_Iallreduce, so it is no library of MPICH "
                  "with MPI 3 or newer");
}

TEST(MpiFileTest, SeesAnotherAbiUnderTheSameName) {
  const Status status = LoadFake(MpichAbis(), kFakes + "/foreign").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_SNAPSHOT(
      Portable(status.message()),
      "FAKES/foreign/libmpi.so.12 has ompi_mpi_comm_world, so it is no library of MPICH");
}

TEST(MpiFileTest, SaysWhyAFileCannotBeLoaded) {
  const std::string folder = testing::TempDir() + "/broken_mpi";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/libmpi.so.12") << "no library";
  const Status status = LoadFake(MpichAbis(), folder).status();
  std::filesystem::remove_all(folder);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("libmpi.so.12: "), std::string::npos) << status.message();
}

TEST(MpiFileTest, SaysHowToInstallALibraryThatIsNotThere) {
  MpiAbi absent = OpenMpiAbis().front();
  absent.libraries = {"libabsent.so.1", "libabsent.so.2"};
  const Status status = LoadFake(std::span(&absent, 1), kFakes).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_SNAPSHOT(
      Portable(status.message()),
      "Launcher started this process, and its MPI library (libabsent.so.1, libabsent.so.2) is "
      "neither in FAKES/nowhere nor in LD_LIBRARY_PATH nor among the system's libraries: run `pip "
      "install fake`, or add its folder to LD_LIBRARY_PATH");
}

TEST(MpiFileTest, LooksBesideTheProgramsAboveThisProcess) {
  const std::vector<std::string> folders = FoldersOfLaunchers();
  ASSERT_FALSE(folders.empty());
  const std::filesystem::path parent =
      std::filesystem::read_symlink("/proc/" + std::to_string(::getppid()) + "/exe");
  EXPECT_EQ(folders.front(), (parent.parent_path().parent_path() / "lib").string());
}

}  // namespace
}  // namespace bs::backend::collective
