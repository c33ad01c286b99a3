// Calls an MPI library by the types and constants of its ABI.
#include "backend/collective/mpi/mpi_library.h"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "backend/collective/mpi/mpi_abi.h"
#include "backend/collective/mpi/mpi_file.h"
#include "backend/collective/mpi/mpi_gate.h"
#include "base/guarded.h"
#include "base/loop_thread.h"
#include "base/notification.h"

namespace bs::backend::collective {
namespace {

// No library has longer texts (MPI_MAX_LIBRARY_VERSION_STRING, MPI_MAX_ERROR_STRING).
constexpr size_t kLongestText = 8192;

// The library's part in the end of MPI, which it may not live to see.
struct Ending {
  MpiGate gate;
  std::atomic<bool> stays = false;  // MpiLibrary::StayAtExit
  std::atomic<size_t> sums = 0;     // under way
};

// For a call of MPI that is under way when MPI ends.
constexpr Duration kPatience = std::chrono::seconds(1);

// Ends MPI when the process exits.  A child of fork() inherits it and must not call it.
struct AtExit {
  int (*finalize)();  // null: other code does that
  int (*finalized)(int*);
  pid_t process;
  std::shared_ptr<Ending> ending;
  Duration limit;
};

// False: `finalize` has not ended within `limit`, and its thread goes on.
bool FinalizeWithin(int (*finalize)(), Duration limit) {
  const auto ended = std::make_shared<Notification>();
  std::unique_ptr<LoopThread> thread;
  const Status status = Guarded([&] {
    thread = std::make_unique<LoopThread>("bs-mpi-end");
    return Status::Ok();
  });
  if (!status.ok()) {
    finalize();
    return true;
  }
  thread->Post([finalize, ended] {
    finalize();
    ended->Notify();
  });
  if (ended->WaitFor(limit)) return true;
  [[maybe_unused]] const LoopThread* const left_behind = thread.release();
  return false;
}

void FinalizeAtExit(int code, void* argument) {
  const std::unique_ptr<AtExit> at_exit(static_cast<AtExit*>(argument));
  if (at_exit->process != ::getpid()) return;
  // The libraries' own handlers follow, and none may meet a call.
  const bool is_quiet = at_exit->ending->gate.CloseWithin(kPatience);
  // MPI_Finalize waits for all ranks, and after a failure some may be lost.
  const bool stays = code != 0 || at_exit->ending->stays || at_exit->ending->sums > 0;
  if (!is_quiet || stays || at_exit->finalize == nullptr) return;
  int finalized = 0;
  if (at_exit->finalized(&finalized) != 0 || finalized != 0) return;
  if (FinalizeWithin(at_exit->finalize, at_exit->limit)) return;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(at_exit->limit).count();
  const std::string sentence =
      "bytescheduler: MPI_Finalize has waited " + std::to_string(seconds) +
      " s for all processes of the launcher, so this process exits without it; see whether "
      "another process has failed, or raise BYTESCHEDULER_STRAGGLER_TIMEOUT\n";
  static_cast<void>(std::fputs(sentence.c_str(), stderr));
  static_cast<void>(std::fflush(nullptr));
  ::_exit(code);  // the libraries' own handlers must not meet that call
}

// Attributes of MPI_COMM_SELF: MPI_Finalize deletes them first, and MPI may be called until then.
template <typename Handle>
int CopyNone(Handle /*from*/, int /*keyval*/, void* /*extra*/, void* /*value*/, void* /*copy*/,
             int* copies) {
  *copies = 0;
  return 0;
}

template <typename Handle>
int CloseAtEnd(Handle /*self*/, int /*keyval*/, void* value, void* /*extra*/) {
  const std::unique_ptr<std::shared_ptr<Ending>> ending(
      static_cast<std::shared_ptr<Ending>*>(value));
  static_cast<void>((*ending)->gate.CloseWithin(kPatience));
  return 0;
}

Status Over() {
  return Status::FailedPrecondition(
      "MPI has ended in this process (MPI_Finalize) before the job: close the job first");
}

// Without blanks in a row: MPICH's text is a table.
std::string FirstLineOf(std::string_view text) {
  std::string line;
  for (const char character : text.substr(0, text.find_first_of(",\n"))) {
    const bool is_blank = character == ' ' || character == '\t';
    if (!is_blank) {
      line += character;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  return line;
}

// The functions, with the type that handles have.
template <typename Handle>
struct Functions {
  int (*get_library_version)(char*, int*);
  int (*error_string)(int, char*, int*);
  int (*initialized)(int*);
  int (*finalized)(int*);
  int (*init_thread)(int*, char***, int, int*);
  int (*query_thread)(int*);
  int (*finalize)();
  int (*comm_size)(Handle, int*);
  int (*comm_rank)(Handle, int*);
  int (*comm_dup)(Handle, Handle*);
  int (*comm_free)(Handle*);
  int (*comm_set_errhandler)(Handle, Handle);
  int (*allreduce)(const void*, void*, int, Handle, Handle, Handle);
  int (*iallreduce)(const void*, void*, int, Handle, Handle, Handle, Handle*);
  int (*testsome)(int, Handle*, int*, int*, void*);
  int (*iprobe)(int, int, Handle, int*, void*);
  int (*comm_create_keyval)(int (*)(Handle, int, void*, void*, void*, int*),
                            int (*)(Handle, int, void*, void*), int*, void*);
  int (*comm_set_attr)(Handle, int, void*);
};

template <typename Handle>
struct Constants {
  Handle comm_world;
  Handle comm_self;
  Handle errors_return;
  Handle sum;
  Handle float32;
  Handle float64;
};

template <typename Handle>
Handle AsHandle(const MpiFile& file, const MpiConstant& constant) {
  if constexpr (std::is_pointer_v<Handle>) {
    if (constant.symbol != nullptr) return file.Find(constant.symbol);
    return std::bit_cast<Handle>(constant.number);
  } else {
    return static_cast<Handle>(constant.number);
  }
}

template <typename Handle>
class TypedLibrary final : public MpiLibrary {
 public:
  TypedLibrary(const MpiAbi& abi, MpiFile file, Functions<Handle> functions,
               Constants<Handle> constants, MpiAlgorithm algorithm, Duration end_limit)
      : abi_(abi),
        file_(std::move(file)),
        mpi_(functions),
        constants_(constants),
        algorithm_(std::move(algorithm)),
        end_limit_(end_limit) {}

  const std::string& file() const override { return file_.name(); }
  const MpiAlgorithm& algorithm() const override { return algorithm_; }

  std::string Version() override {
    std::array<char, kLongestText + 1> text{};
    int length = 0;
    if (mpi_.get_library_version(text.data(), &length) != 0) return "of an unknown version";
    return FirstLineOf(text.data());
  }

  Status Init() override {
    Status status = Initialise();
    if (!status.ok()) return status;
    const MpiGate::Visit visit(&ending_->gate);
    if (!visit.is_inside()) return Over();
    const Handle world = constants_.comm_world;
    status =
        Check("MPI_Comm_set_errhandler", mpi_.comm_set_errhandler(world, constants_.errors_return));
    if (status.ok()) status = Check("MPI_Comm_size", mpi_.comm_size(world, &size_));
    if (status.ok()) status = Check("MPI_Comm_rank", mpi_.comm_rank(world, &rank_));
    for (Handle& communicator : communicators_) {
      if (status.ok()) status = Check("MPI_Comm_dup", mpi_.comm_dup(world, &communicator));
      if (!status.ok()) return status;
      status = Check("MPI_Comm_set_errhandler",
                     mpi_.comm_set_errhandler(communicator, constants_.errors_return));
    }
    return status;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status SumNow(double* values, int count) override {
    const MpiGate::Visit visit(&ending_->gate);
    if (!visit.is_inside()) return Over();
    return Check("MPI_Allreduce",
                 mpi_.allreduce(std::bit_cast<const void*>(abi_.in_place), values, count,
                                constants_.float64, constants_.sum,
                                communicators_[static_cast<size_t>(MpiChannel::kDescriptions)]));
  }

  Status Begin(MpiChannel channel, const void* in, void* out, int count, DType dtype,
               uint64_t ticket) override {
    const Handle type = dtype == DType::kFloat64 ? constants_.float64 : constants_.float32;
    const MpiGate::Visit visit(&ending_->gate);
    if (!visit.is_inside()) return Over();
    const void* from = in != nullptr ? in : std::bit_cast<const void*>(abi_.in_place);
    Handle request{};
    const Status status = Check(
        "MPI_Iallreduce", mpi_.iallreduce(from, out, count, type, constants_.sum,
                                          communicators_[static_cast<size_t>(channel)], &request));
    if (!status.ok()) return status;
    requests_.push_back(request);
    tickets_.push_back(ticket);
    ending_->sums = requests_.size();
    return status;
  }

  Ended TakeEnded() override {
    Ended ended;
    if (requests_.empty()) return ended;
    const MpiGate::Visit visit(&ending_->gate);
    if (!visit.is_inside()) {
      ended.status = Over();
      return ended;
    }
    places_.resize(requests_.size());
    int count = 0;
    ended.status = Check("MPI_Testsome",
                         mpi_.testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                       places_.data(), std::bit_cast<void*>(abi_.status_ignore)));
    // With an error the sums that failed are among those that have ended.
    if (count == abi_.undefined || count <= 0) return ended;
    is_over_.assign(requests_.size(), false);
    for (int i = 0; i < count; ++i)
      is_over_[static_cast<size_t>(places_[static_cast<size_t>(i)])] = true;
    RemoveOver(&ended.tickets);
    return ended;
  }

  bool Progress() override {
    const MpiGate::Visit visit(&ending_->gate);
    if (!visit.is_inside()) return false;
    // A communicator of ours has no messages to find.
    int found = 0;
    return mpi_.iprobe(0, 0, communicators_[static_cast<size_t>(MpiChannel::kDescriptions)], &found,
                       std::bit_cast<void*>(abi_.status_ignore)) == 0;
  }

  void StayAtExit() override { ending_->stays = true; }

  Status Free() override {
    const MpiGate::Visit visit(&ending_->gate);
    if (!visit.is_inside()) return Status::Ok();
    return Check("MPI_Comm_free",
                 mpi_.comm_free(&communicators_[static_cast<size_t>(MpiChannel::kSums)]));
  }

 private:
  Status Check(const char* function, int error) {
    if (error == 0) return Status::Ok();
    std::array<char, kLongestText + 1> text{};
    int length = 0;
    const bool has_text = mpi_.error_string(error, text.data(), &length) == 0;
    return Status::Unavailable(std::string(function) + ": " +
                               (has_text ? text.data() : "error " + std::to_string(error)));
  }

  void RemoveOver(std::vector<uint64_t>* tickets) {
    size_t left = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (is_over_[i]) {
        tickets->push_back(tickets_[i]);
        continue;
      }
      requests_[left] = requests_[i];
      tickets_[left++] = tickets_[i];
    }
    requests_.resize(left);
    tickets_.resize(left);
    ending_->sums = left;
  }

  Status Initialise() {
    int initialized = 0;
    int finalized = 0;
    int level = 0;
    Status status = Check("MPI_Initialized", mpi_.initialized(&initialized));
    if (status.ok()) status = Check("MPI_Finalized", mpi_.finalized(&finalized));
    if (!status.ok()) return status;
    if (finalized != 0) {
      return Status::FailedPrecondition(
          "MPI has ended in this process (MPI_Finalize), and cannot begin again: open the job "
          "before that");
    }
    if (initialized != 0) {
      status = Check("MPI_Query_thread", mpi_.query_thread(&level));
      if (!status.ok()) return status;
      if (level >= abi_.thread_multiple) return WatchEnd(nullptr);
      return Status::FailedPrecondition(
          "this process has initialised MPI for calls of a single thread at a time, and the worker "
          "calls it from its own: initialise it with MPI_THREAD_MULTIPLE, as mpi4py does unless "
          "mpi4py.rc.thread_level says otherwise");
    }
    // Other code may call MPI later, from its own threads.
    status =
        Check("MPI_Init_thread", mpi_.init_thread(nullptr, nullptr, abi_.thread_multiple, &level));
    if (status.ok()) status = WatchEnd(mpi_.finalize);
    if (!status.ok() || level >= abi_.thread_multiple) return status;
    return Status::FailedPrecondition(file() + " (" + Version() +
                                      ") refuses calls of several threads: install a build with "
                                      "MPI_THREAD_MULTIPLE");
  }

  // Closes the gate when MPI ends, or the process, which then calls `finalize` unless it is null.
  Status WatchEnd(int (*finalize)()) {
    std::unique_ptr<AtExit> at_exit(new AtExit{.finalize = finalize,
                                               .finalized = mpi_.finalized,
                                               .process = ::getpid(),
                                               .ending = ending_,
                                               .limit = end_limit_});
    if (::on_exit(FinalizeAtExit, at_exit.get()) == 0) {
      [[maybe_unused]] const AtExit* const of_exit = at_exit.release();
    }
    int keyval = 0;
    Status status =
        Check("MPI_Comm_create_keyval",
              mpi_.comm_create_keyval(CopyNone<Handle>, CloseAtEnd<Handle>, &keyval, nullptr));
    if (!status.ok()) return status;
    auto value = std::make_unique<std::shared_ptr<Ending>>(ending_);
    status =
        Check("MPI_Comm_set_attr", mpi_.comm_set_attr(constants_.comm_self, keyval, value.get()));
    if (!status.ok()) return status;
    [[maybe_unused]] const auto* const of_mpi = value.release();
    return status;
  }

  const MpiAbi& abi_;
  const MpiFile file_;
  const Functions<Handle> mpi_;
  const Constants<Handle> constants_;
  const MpiAlgorithm algorithm_;
  const Duration end_limit_;
  // Shared with handlers of the ends of MPI and of the process, which outlive this.
  const std::shared_ptr<Ending> ending_ = std::make_shared<Ending>();
  std::array<Handle, kMpiChannels> communicators_{};
  int rank_ = 0;
  int size_ = 0;
  // The sums that are under way, in the order of their begin.
  std::vector<Handle> requests_;
  std::vector<uint64_t> tickets_;
  // TakeEnded's own, so that a poll allocates nothing.
  std::vector<int> places_;
  std::vector<bool> is_over_;
};

template <typename Handle>
Result<std::unique_ptr<MpiLibrary>> Bind(const MpiAbi& abi, MpiFile file, MpiAlgorithm algorithm,
                                         Duration end_limit) {
  Functions<Handle> mpi{};
  std::string missing;
  const auto find = [&](auto* function, const char* name) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(file.Find(name));
    if (*function == nullptr && missing.empty()) missing = name;
  };
  find(&mpi.get_library_version, "MPI_Get_library_version");
  find(&mpi.error_string, "MPI_Error_string");
  find(&mpi.initialized, "MPI_Initialized");
  find(&mpi.finalized, "MPI_Finalized");
  find(&mpi.init_thread, "MPI_Init_thread");
  find(&mpi.query_thread, "MPI_Query_thread");
  find(&mpi.finalize, "MPI_Finalize");
  find(&mpi.comm_size, "MPI_Comm_size");
  find(&mpi.comm_rank, "MPI_Comm_rank");
  find(&mpi.comm_dup, "MPI_Comm_dup");
  find(&mpi.comm_free, "MPI_Comm_free");
  find(&mpi.comm_set_errhandler, "MPI_Comm_set_errhandler");
  find(&mpi.allreduce, "MPI_Allreduce");
  find(&mpi.iallreduce, "MPI_Iallreduce");
  find(&mpi.testsome, "MPI_Testsome");
  find(&mpi.iprobe, "MPI_Iprobe");
  find(&mpi.comm_create_keyval, "MPI_Comm_create_keyval");
  find(&mpi.comm_set_attr, "MPI_Comm_set_attr");
  for (const MpiConstant& constant :
       {abi.comm_world, abi.comm_self, abi.errors_return, abi.sum, abi.float32, abi.float64}) {
    if (constant.symbol != nullptr && file.Find(constant.symbol) == nullptr && missing.empty()) {
      missing = constant.symbol;
    }
  }
  if (!missing.empty()) {
    return Status::Unavailable(file.name() + " lacks " + missing + ", so it is no library of " +
                               std::string(abi.name) + " with MPI 3 or newer");
  }
  const Constants<Handle> constants{.comm_world = AsHandle<Handle>(file, abi.comm_world),
                                    .comm_self = AsHandle<Handle>(file, abi.comm_self),
                                    .errors_return = AsHandle<Handle>(file, abi.errors_return),
                                    .sum = AsHandle<Handle>(file, abi.sum),
                                    .float32 = AsHandle<Handle>(file, abi.float32),
                                    .float64 = AsHandle<Handle>(file, abi.float64)};
  return std::unique_ptr<MpiLibrary>(std::make_unique<TypedLibrary<Handle>>(
      abi, std::move(file), mpi, constants, std::move(algorithm), end_limit));
}

// MPI_Init reads the variable of `tuning` from the environment alone.
MpiAlgorithm ChooseAlgorithm(const MpiVariable& tuning, const MpiFile& file) {
  using Source = MpiAlgorithm::Source;
  if (tuning.name == nullptr) return {};
  const auto initialized = reinterpret_cast<int (*)(int*)>(file.Find("MPI_Initialized"));
  int has_begun = 0;
  if (initialized != nullptr) static_cast<void>(initialized(&has_begun));
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  if (const char* const given = ::getenv(tuning.name); given != nullptr) {
    return {tuning.name, given, Source::kUser};
  }
  if (has_begun != 0) return {tuning.name, "", Source::kScript};
  ::setenv(tuning.name, tuning.value, /*replace=*/0);  // NOLINT(concurrency-mt-unsafe)
  return {tuning.name, tuning.value, Source::kWorker};
}

}  // namespace

Result<std::unique_ptr<MpiLibrary>> LoadMpi(const MpiLauncher& launcher,
                                            std::span<const std::string> folders,
                                            Duration end_limit) {
  Result<FoundMpi> found = FindMpi(launcher, folders);
  if (!found.ok()) return found.status();
  const MpiAbi& abi = *found.value().abi;
  MpiFile file = std::move(found.value().file);
  MpiAlgorithm algorithm = ChooseAlgorithm(abi.tuning, file);
  if (abi.handle == MpiHandle::kInt) {
    return Bind<int>(abi, std::move(file), std::move(algorithm), end_limit);
  }
  return Bind<void*>(abi, std::move(file), std::move(algorithm), end_limit);
}

}  // namespace bs::backend::collective
