// Hands sums to the thread that calls MPI, and their ends back to the worker's executor.
#include "backend/collective/mpi/mpi_collective.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "backend/collective/mpi/mpi_sums.h"
#include "base/notification.h"

namespace bs::backend::collective {
namespace {

// Bounds of the time between two calls of MPI where no sum is under way.
constexpr Duration kLeastIdle = std::chrono::milliseconds(1);
constexpr Duration kMostIdle = std::chrono::milliseconds(10);

Status TooLate(Duration limit) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(limit).count();
  return Status::DeadlineExceeded(
      "MPI has not begun on all ranks for " + std::to_string(seconds) +
      " s: start all workers with BYTESCHEDULER_COMM=mpi and by one mpirun");
}

}  // namespace

// Calls MPI.
class MpiCollective::Caller : public std::enable_shared_from_this<Caller> {
 public:
  Caller(Executor* executor, std::shared_ptr<SumCallbacks> callbacks,
         std::unique_ptr<MpiLibrary> library, const MpiLauncher& launcher,
         const MpiOptions& options)
      : way_back_(executor),
        callbacks_(std::move(callbacks)),
        library_(std::move(library)),
        sums_(library_.get(), launcher),
        blame_(options.blame),
        pace_(options.spin) {}

  // The thread, which runs all other methods.
  void RunOn(Executor* thread) { thread_ = thread; }

  // The thread no longer uses the executor.  False: it does so right now, and soon ends.  Any
  // thread.
  bool Abandon() { return way_back_.Abandon(); }

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
    ++num_begun_;
    pace_.Worked(begun, thread_->Now());
    if (was_idle && !looks_) Look();
  }

  void Tell(UniqueFunction<void(uint64_t)> told) {
    way_back_.Post(Duration::zero(),
                   [callbacks = callbacks_, told = std::move(told), num_begun = num_begun_] {
                     if (!callbacks->is_closed()) told(num_begun);
                   });
  }

  // Any thread.
  void Stop() { sums_.Stop(); }
  // Any thread.
  void StayAtExit() { library_->StayAtExit(); }
  // Behind Stop: no call of MPI follows.
  void Leave() {
    left_ = true;
    way_back_.Post(Duration::zero(), [callbacks = callbacks_] { callbacks->EndAll(); });
  }

  // No callback follows.
  void End() {
    // An error concerns no sum.
    if (!std::exchange(left_, true)) static_cast<void>(sums_.End());
    if (sums_.in_use()) helps_ = false;
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
      way_back_.Post(Duration::zero(),
                     [callbacks = callbacks_, sequences = std::move(ended.value())] {
                       callbacks->End(sequences);
                     });
      pace_.Worked(now, thread_->Now());
    }
    if (sums_.is_idle()) return;
    looks_ = true;
    pace_.Again(thread_, now, [self = shared_from_this()] { self->Look(); });
  }

  // A sum that has ended here may have bytes on their way to a peer, which only a call of MPI
  // sends.
  void Help() {
    if (helps_ && !sums_.in_use()) helps_ = sums_.Progress();
    if (!helps_) return;
    const TimePoint now = thread_->Now();
    thread_->PostAt(now + std::clamp<Duration>(pace_.Idle(now), kLeastIdle, kMostIdle),
                    [self = shared_from_this()] { self->Help(); });
  }

  void Fail(const Status& status) {
    left_ = true;
    helps_ = false;
    const bool by_mpi = status.code() == StatusCode::kUnavailable;
    if (by_mpi) StayAtExit();  // else all ranks are there
    way_back_.Post(by_mpi ? blame_ : Duration::zero(), [callbacks = callbacks_, status] {
      callbacks->Fail(status);
      callbacks->EndAll();
    });
  }

  WayBack way_back_;
  const std::shared_ptr<SumCallbacks> callbacks_;
  const std::unique_ptr<MpiLibrary> library_;
  MpiSums sums_;
  const Duration blame_;
  Executor* thread_ = nullptr;
  LookPace pace_;
  uint64_t num_begun_ = 0;  // sums
  bool looks_ = false;      // a look is posted
  bool helps_ = false;      // calls MPI between sums too
  bool left_ = false;
  bool stays_ = false;
};

MpiCollective::MpiCollective(Executor* executor, std::unique_ptr<MpiLibrary> library,
                             const MpiLauncher& launcher, const MpiOptions& options)
    : executor_(executor),
      start_limit_(options.start_limit),
      patience_(options.patience),
      callbacks_(std::make_shared<SumCallbacks>()),
      caller_(
          std::make_shared<Caller>(executor, callbacks_, std::move(library), launcher, options)),
      thread_(std::make_unique<LoopThread>("bs-mpi")) {
  caller_->RunOn(thread_.get());
}

MpiCollective::~MpiCollective() {
  callbacks_->Close();  // tasks of the executor hold it too
  const auto ended = std::make_shared<Notification>();
  thread_->Post([caller = caller_, ended] {
    caller->End();
    ended->Notify();
  });
  const bool has_ended = ended->WaitFor(patience_);
  if (!has_ended) caller_->Stop();  // no task behind the present one calls MPI
  if (has_ended ? !caller_->stays() : !caller_->Abandon()) {
    thread_->End();
    return;
  }
  if (!has_ended) caller_->StayAtExit();
  LoopThread* const left_behind = thread_.get();
  LeaveBehind(std::move(thread_), [left_behind, caller = caller_] { caller->RunOn(left_behind); });
}

void MpiCollective::Prepare(Done done) {
  if (callbacks_->Refuses(executor_, &done)) return;
  callbacks_->Add(MpiSums::kStarted, std::move(done));
  executor_->PostAt(executor_->Now() + start_limit_,
                    [callbacks = callbacks_, weak = std::weak_ptr(caller_), limit = start_limit_] {
                      const std::shared_ptr<Caller> caller = weak.lock();
                      if (!caller || !callbacks->Waits(MpiSums::kStarted)) return;
                      caller->StayAtExit();
                      caller->Stop();
                      callbacks->Fail(TooLate(limit));
                      callbacks->EndAll();
                    });
  thread_->Post([caller = caller_] { caller->Start(); });
}

void MpiCollective::Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence, Done done) {
  if (callbacks_->Refuses(executor_, &done)) return;
  callbacks_->Add(sequence, std::move(done));
  thread_->Post([caller = caller_, pieces = std::move(pieces), dtype, sequence]() mutable {
    caller->Begin(std::move(pieces), dtype, sequence);
  });
}

void MpiCollective::TellBegun(UniqueFunction<void(uint64_t)> told) {
  thread_->Post(
      [caller = caller_, told = std::move(told)]() mutable { caller->Tell(std::move(told)); });
}

void MpiCollective::Abort(const Status& status) {
  if (!callbacks_->failure().ok()) return;
  callbacks_->Fail(status);
  // The worker closes, and all is well.
  if (status.code() == StatusCode::kCancelled && callbacks_->empty()) return;
  caller_->StayAtExit();
  caller_->Stop();
  thread_->Post([caller = caller_] { caller->Leave(); });
  // MPI may keep the thread, with memory of ours.
  executor_->PostAt(executor_->Now() + patience_,
                    [callbacks = callbacks_] { callbacks->EndAll(); });
}

}  // namespace bs::backend::collective
