// Hands sums to the thread that calls MPI, and their ends back to the worker's executor.
#include "backend/collective/mpi/mpi_collective.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backend/collective/mpi/mpi_sums.h"
#include "base/notification.h"
#include "base/spin.h"

namespace bs::backend {
namespace {

using collective::Collective;
using collective::Piece;

// Between two looks of a thread that does not spin.
constexpr Duration kBetweenLooks = std::chrono::microseconds(50);
// Bounds of the time between two calls of MPI where no sum is under way.
constexpr Duration kLeastIdle = std::chrono::milliseconds(1);
constexpr Duration kMostIdle = std::chrono::milliseconds(10);
// Longer than a process runs.
constexpr Duration kForEver = std::chrono::hours(24 * 365 * 10);

Status TooLate(Duration limit) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(limit).count();
  return Status::DeadlineExceeded(
      "MPI has not begun on all ranks for " + std::to_string(seconds) +
      " s: start all workers with BYTESCHEDULER_COMM=mpi and by one mpirun");
}

}  // namespace

// The callbacks of sums under way.
class MpiCollective::Callers {
 public:
  void Add(uint64_t sequence, Done done) { pending_.emplace(sequence, std::move(done)); }
  void End(const std::vector<uint64_t>& sequences) {
    for (const uint64_t sequence : sequences) {
      const auto at = pending_.find(sequence);
      if (at == pending_.end()) continue;  // Abort has ended it
      const Done done = std::move(at->second);
      pending_.erase(at);
      done(Status::Ok());
    }
  }
  // The first error stays.
  void Fail(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  const Status& failure() const { return failure_; }
  bool empty() const { return pending_.empty(); }
  bool Waits(uint64_t sequence) const { return pending_.contains(sequence); }
  // No callback runs from now on.
  void Drop() { std::exchange(pending_, {}).clear(); }
  // REQUIRES: failure() is an error.
  void EndAll() {
    for (const auto& [sequence, done] : std::exchange(pending_, {})) done(failure_);
  }

 private:
  std::map<uint64_t, Done> pending_;  // by sequence number; MpiSums::kStarted is that of Prepare
  Status failure_;
};

// Calls MPI.
class MpiCollective::Caller : public std::enable_shared_from_this<Caller> {
 public:
  Caller(Executor* executor, std::shared_ptr<Callers> callers, std::unique_ptr<MpiLibrary> library,
         const MpiLauncher& launcher, const MpiOptions& options)
      : executor_(executor),
        callers_(std::move(callers)),
        library_(std::move(library)),
        sums_(library_.get(), launcher),
        blame_(options.blame),
        spin_(options.spin) {}

  // The thread, which runs all other methods.
  void RunOn(Executor* thread) { thread_ = thread; }

  // The thread no longer uses the executor.  False: it does so right now, and soon ends.  Any
  // thread.
  bool Abandon() {
    Use idle = Use::kNone;
    return use_.compare_exchange_strong(idle, Use::kAbandoned);
  }

  void Start() {
    if (left_ || sums_.is_stopped()) return;
    if (const Status status = sums_.Start(); !status.ok()) return Fail(status);
    helps_ = true;
    Look();
    Help();
  }

  void Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence) {
    if (left_ || sums_.is_stopped()) return;
    const bool was_idle = sums_.is_idle();
    const TimePoint begun = thread_->Now();
    const Status status = sums_.Begin(std::move(pieces), dtype, sequence);
    if (!status.ok()) return Fail(status);
    Worked(begun);
    if (was_idle && !looks_) Look();
  }

  // Any thread.
  void Stop() { sums_.Stop(); }
  // Any thread.
  void StayAtExit() { library_->StayAtExit(); }
  // Behind Stop: no call of MPI follows.
  void Leave() {
    left_ = true;
    Post(Duration::zero(), [callers = callers_] { callers->EndAll(); });
  }

  // No callback follows.
  void End() {
    // An error concerns no sum.
    if (!std::exchange(left_, true)) static_cast<void>(sums_.End());
    if (sums_.in_use()) helps_ = false;  // callers may free their memory now
    stays_ = helps_ || sums_.in_use();
  }
  // The thread and this object must stay until the process ends.  Any thread, after End.
  bool stays() const { return stays_; }

 private:
  void Look() {
    looks_ = false;
    if (left_ || sums_.is_stopped()) return;
    const TimePoint now = thread_->Now();
    Result<std::vector<uint64_t>> ended = sums_.Poll();
    if (!ended.ok()) return Fail(ended.status());
    if (!ended.value().empty()) {
      Post(Duration::zero(),
           [callers = callers_, sequences = std::move(ended.value())] { callers->End(sequences); });
      Worked(now);
    }
    if (sums_.is_idle()) return;
    looks_ = true;
    Task look = [self = shared_from_this()] { self->Look(); };
    if (now - idle_since_ < spin_.window()) return thread_->Post(std::move(look));
    thread_->PostAt(now + kBetweenLooks, std::move(look));
  }

  // A sum that has ended here may have bytes on their way to a peer, which only a call of MPI
  // sends.
  void Help() {
    if (helps_ && !sums_.in_use()) helps_ = sums_.Progress();
    if (!helps_) return;
    const TimePoint now = thread_->Now();
    thread_->PostAt(now + std::clamp<Duration>(now - idle_since_, kLeastIdle, kMostIdle),
                    [self = shared_from_this()] { self->Help(); });
  }

  // There was work from `begun` until now.
  void Worked(TimePoint begun) {
    const TimePoint now = thread_->Now();
    if (begun > idle_since_) spin_.Paused(begun - idle_since_);
    spin_.Worked(now - begun);
    idle_since_ = now;
  }

  void Fail(const Status& status) {
    left_ = true;
    helps_ = false;
    const bool by_mpi = status.code() == StatusCode::kUnavailable;
    if (by_mpi) StayAtExit();  // else all ranks are there
    Post(by_mpi ? blame_ : Duration::zero(), [callers = callers_, status] {
      callers->Fail(status);
      callers->EndAll();
    });
  }

  // Posts to the executor, unless it may be gone.
  void Post(Duration wait, Task task) {
    Use idle = Use::kNone;
    if (!use_.compare_exchange_strong(idle, Use::kPosting)) return;
    if (wait == Duration::zero()) {
      executor_->Post(std::move(task));
    } else {
      executor_->PostAt(executor_->Now() + wait, std::move(task));
    }
    use_ = Use::kNone;
  }

  enum class Use : uint8_t { kNone, kPosting, kAbandoned };

  Executor* const executor_;
  const std::shared_ptr<Callers> callers_;
  const std::unique_ptr<MpiLibrary> library_;
  MpiSums sums_;
  const Duration blame_;
  Executor* thread_ = nullptr;
  Spin spin_;
  TimePoint idle_since_{};
  std::atomic<Use> use_ = Use::kNone;  // of the executor by the thread
  bool looks_ = false;                 // a look is posted
  bool helps_ = false;                 // calls MPI between sums too
  bool left_ = false;
  bool stays_ = false;
};

MpiCollective::MpiCollective(Executor* executor, std::unique_ptr<MpiLibrary> library,
                             const MpiLauncher& launcher, const MpiOptions& options)
    : executor_(executor),
      start_limit_(options.start_limit),
      patience_(options.patience),
      callers_(std::make_shared<Callers>()),
      caller_(std::make_shared<Caller>(executor, callers_, std::move(library), launcher, options)),
      thread_(std::make_unique<LoopThread>("bs-mpi")) {
  caller_->RunOn(thread_.get());
}

MpiCollective::~MpiCollective() {
  callers_->Drop();  // tasks of the executor hold it too
  const auto ended = std::make_shared<Notification>();
  thread_->Post([caller = caller_, ended] {
    caller->End();
    ended->Notify();
  });
  const bool has_ended = ended->WaitFor(patience_);
  if (has_ended ? !caller_->stays() : !caller_->Abandon()) {
    thread_->End();
    return;
  }
  if (!has_ended) {
    caller_->StayAtExit();
    caller_->Stop();
  }
  // It keeps all that it uses, but the memory of callers: this task does not run.
  LoopThread* const left_behind = thread_.release();
  left_behind->PostAt(left_behind->Now() + kForEver,
                      [left_behind, caller = caller_] { caller->RunOn(left_behind); });
}

void MpiCollective::Prepare(Done done) {
  if (!callers_->failure().ok()) {
    return executor_->Post(
        [done = std::move(done), status = callers_->failure()] { done(status); });
  }
  callers_->Add(MpiSums::kStarted, std::move(done));
  executor_->PostAt(executor_->Now() + start_limit_,
                    [callers = callers_, weak = std::weak_ptr(caller_), limit = start_limit_] {
                      const std::shared_ptr<Caller> caller = weak.lock();
                      if (!caller || !callers->Waits(MpiSums::kStarted)) return;
                      caller->StayAtExit();
                      caller->Stop();
                      callers->Fail(TooLate(limit));
                      callers->EndAll();
                    });
  thread_->Post([caller = caller_] { caller->Start(); });
}

void MpiCollective::AllReduce(std::vector<Piece> pieces, DType dtype, uint64_t sequence,
                              Done done) {
  if (!callers_->failure().ok()) {
    return executor_->Post(
        [done = std::move(done), status = callers_->failure()] { done(status); });
  }
  callers_->Add(sequence, std::move(done));
  thread_->Post([caller = caller_, pieces = std::move(pieces), dtype, sequence]() mutable {
    caller->Begin(std::move(pieces), dtype, sequence);
  });
}

void MpiCollective::Abort(const Status& status) {
  if (!callers_->failure().ok()) return;
  callers_->Fail(status);
  // The worker closes, and all is well.
  if (status.code() == StatusCode::kCancelled && callers_->empty()) return;
  caller_->StayAtExit();
  caller_->Stop();
  thread_->Post([caller = caller_] { caller->Leave(); });
  // If MPI keeps the thread, the memory of its sums may change until the process exits.
  executor_->PostAt(executor_->Now() + patience_, [callers = callers_] { callers->EndAll(); });
}

}  // namespace bs::backend
