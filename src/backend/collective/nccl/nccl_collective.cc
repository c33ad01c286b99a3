// Hands sums to the thread that calls NCCL, and their ends back to the worker's executor.
#include "backend/collective/nccl/nccl_collective.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>

#include "backend/collective/nccl/nccl_sums.h"
#include "base/notification.h"
#include "base/spin.h"

namespace bs::backend {
namespace {

using collective::Cards;
using collective::Piece;

// Between two looks of a thread that does not spin.
constexpr Duration kBetweenLooks = std::chrono::microseconds(50);
// Longer than a process runs.
constexpr Duration kForEver = std::chrono::hours(24 * 365 * 10);

}  // namespace

// The callbacks of sums under way.
class NcclCollective::Callers {
 public:
  explicit Callers(NcclOptions options) : options_(std::move(options)) {}

  void Add(uint64_t sequence, Done done) { pending_.emplace(sequence, std::move(done)); }
  void End(const std::vector<uint64_t>& sequences) {
    for (const uint64_t sequence : sequences) {
      const auto at = pending_.find(sequence);
      if (at == pending_.end()) continue;  // Abort has ended it
      const Done done = std::move(at->second);
      pending_.erase(at);
      ++num_ended_;
      done(Status::Ok());
    }
  }
  // The first error stays.
  void Fail(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }
  const Status& failure() const { return failure_; }
  // REQUIRES: failure() is an error.
  void EndAll() {
    for (const auto& [sequence, done] : std::exchange(pending_, {})) done(failure_);
  }
  void Introduce(const std::string& card, UniqueFunction<void(const Result<Cards>&)> done) {
    if (!is_closed_) options_.introduce(card, std::move(done));
  }
  // The owner goes: callbacks are dropped.
  void Close() {
    is_closed_ = true;
    pending_.clear();
  }
  bool is_closed() const { return is_closed_; }
  bool empty() const { return pending_.empty(); }
  uint64_t num_ended() const { return num_ended_; }

 private:
  const NcclOptions options_;
  std::map<uint64_t, Done> pending_;  // by sequence number
  uint64_t num_ended_ = 0;            // well
  Status failure_;
  bool is_closed_ = false;
};

// Calls NCCL.
class NcclCollective::Caller : public std::enable_shared_from_this<Caller> {
 public:
  Caller(Executor* executor, std::shared_ptr<Callers> callers, std::unique_ptr<NcclLibrary> library,
         std::unique_ptr<CudaDriver> driver, const NcclOptions& options)
      : executor_(executor),
        callers_(std::move(callers)),
        library_(std::move(library)),
        driver_(std::move(driver)),
        sums_(library_.get(), driver_.get(), options.rank, options.size),
        deadline_(options.deadline),
        blame_(options.blame),
        patience_(options.patience),
        spin_(options.spin) {}

  // The thread, which runs all other methods.
  void RunOn(Executor* thread) { thread_ = thread; }

  // The thread no longer uses the executor.  False: it does so right now, and soon ends.  Any
  // thread.
  bool Abandon() {
    Use idle = Use::kNone;
    return use_.compare_exchange_strong(idle, Use::kAbandoned);
  }

  void Begin(const std::vector<Piece>& pieces, DType dtype, uint64_t sequence) {
    if (left_) return;
    const bool was_idle = sums_.is_idle();
    const TimePoint begun = thread_->Now();
    if (was_idle) progress_ = begun;
    if (!sums_.has_gpu()) {
      const Result<std::string> card = sums_.TakeGpu(pieces.front().in.data());
      if (!card.ok()) return Fail(card.status());
      Introduce(card.value());
    }
    const Status status = sums_.Add(pieces, dtype, sequence);
    if (!status.ok()) return Fail(status);
    if (!looks_) Look();
    Worked(begun);
  }

  // No sum follows.
  void Leave() {
    if (!std::exchange(left_, true)) sums_.Abort();
    EndWhenQuiet(thread_->Now() + patience_, Duration::zero(), Status::Ok());
  }

  void End() {
    if (std::exchange(left_, true) || sums_.is_idle()) return;
    sums_.Abort();
  }

 private:
  void Introduce(const std::string& card) {
    auto done = [callers = callers_, self = shared_from_this()](const Result<Cards>& cards) {
      if (!callers->is_closed()) self->PostConnect(cards);
    };
    Post(Duration::zero(),
         [callers = callers_, card, done = std::move(done)] { callers->Introduce(card, done); });
  }

  // On the executor.
  void PostConnect(const Result<Cards>& cards) {
    thread_->Post([self = shared_from_this(), cards] { self->Connect(cards); });
  }

  void Connect(const Result<Cards>& cards) {
    if (left_) return;
    progress_ = thread_->Now();
    const Status status = cards.ok() ? sums_.Connect(cards.value()) : cards.status();
    if (!status.ok()) return Fail(status);
    if (!looks_) Look();
  }

  void Look() {
    looks_ = false;
    if (left_) return;
    const TimePoint now = thread_->Now();
    Result<std::vector<uint64_t>> ended = sums_.Poll();
    if (!ended.ok()) return Fail(ended.status());
    if (!ended.value().empty()) {
      Post(Duration::zero(),
           [callers = callers_, sequences = std::move(ended.value())] { callers->End(sequences); });
      Worked(now);
      progress_ = now;
    }
    if (sums_.is_idle()) return;
    if (now - progress_ > deadline_) return Fail(Stuck());
    looks_ = true;
    Task look = [self = shared_from_this()] { self->Look(); };
    if (now - idle_since_ < spin_.window()) return thread_->Post(std::move(look));
    thread_->PostAt(now + kBetweenLooks, std::move(look));
  }

  Status Stuck() const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(deadline_);
    return Status::DeadlineExceeded(
        "NCCL has ended no sum in " + std::to_string(seconds.count()) +
        " s: NCCL_DEBUG=INFO shows the networks that it tries, NCCL_SOCKET_IFNAME chooses one");
  }

  // There was work from `begun` until now.
  void Worked(TimePoint begun) {
    const TimePoint now = thread_->Now();
    if (begun > idle_since_) spin_.Paused(begun - idle_since_);
    spin_.Worked(now - begun);
    idle_since_ = now;
  }

  void Fail(const Status& status) {
    if (std::exchange(left_, true)) return;
    const Duration wait =
        status.code() == StatusCode::kUnavailable ? blame_ : Duration::zero();  // it is NCCL's
    // NCCL may keep the thread in the abort.
    PostEnd(wait + 2 * patience_, status);
    sums_.Abort();
    EndWhenQuiet(thread_->Now() + patience_, wait, status);
  }

  // Ends all callbacks once no sum uses its memory, or at `latest`, and `wait` later: with
  // `status`, or if that is ok with the failure that is known.
  void EndWhenQuiet(TimePoint latest, Duration wait, const Status& status) {
    const TimePoint now = thread_->Now();
    if (!sums_.IsQuiet() && now < latest) {
      thread_->PostAt(now + kBetweenLooks, [self = shared_from_this(), latest, wait, status] {
        self->EndWhenQuiet(latest, wait, status);
      });
      return;
    }
    PostEnd(wait, status);
  }

  void PostEnd(Duration wait, const Status& status) {
    Post(wait, [callers = callers_, status] {
      if (!status.ok()) callers->Fail(status);
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
  const std::unique_ptr<NcclLibrary> library_;
  const std::unique_ptr<CudaDriver> driver_;
  NcclSums sums_;
  const Duration deadline_;
  const Duration blame_;
  const Duration patience_;
  Executor* thread_ = nullptr;
  Spin spin_;
  TimePoint idle_since_{};
  TimePoint progress_{};               // since then no sum has ended
  std::atomic<Use> use_ = Use::kNone;  // of the executor by the thread
  bool looks_ = false;                 // a look is posted
  bool left_ = false;
};

NcclCollective::NcclCollective(Executor* executor, std::unique_ptr<NcclLibrary> library,
                               std::unique_ptr<CudaDriver> driver, const NcclOptions& options)
    : executor_(executor),
      patience_(options.patience),
      watch_(2 * (options.deadline + options.patience)),
      callers_(std::make_shared<Callers>(options)),
      caller_(std::make_shared<Caller>(executor, callers_, std::move(library), std::move(driver),
                                       options)),
      thread_(std::make_unique<LoopThread>("bs-nccl")) {
  caller_->RunOn(thread_.get());
}

NcclCollective::~NcclCollective() {
  callers_->Close();
  const auto ended = std::make_shared<Notification>();
  thread_->Post([caller = caller_, ended] {
    caller->End();
    ended->Notify();
  });
  if (ended->WaitFor(patience_) || !caller_->Abandon()) {
    thread_->End();
  } else {
    // It keeps itself and all that it uses, but the memory of sums: this task does not run.
    LoopThread* const left_behind = thread_.release();
    left_behind->PostAt(left_behind->Now() + kForEver,
                        [left_behind, caller = caller_] { caller->RunOn(left_behind); });
  }
}

bool NcclCollective::Sums(DType dtype) const {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBfloat16:
      return true;
    default:
      return false;
  }
}

void NcclCollective::AllReduce(std::vector<Piece> pieces, DType dtype, uint64_t sequence,
                               Done done) {
  if (!callers_->failure().ok()) {
    return executor_->Post(
        [done = std::move(done), status = callers_->failure()] { done(status); });
  }
  callers_->Add(sequence, std::move(done));
  if (!std::exchange(watches_, true)) Watch();
  thread_->Post([caller = caller_, pieces = std::move(pieces), dtype, sequence] {
    caller->Begin(pieces, dtype, sequence);
  });
}

void NcclCollective::Watch() {
  const uint64_t before = callers_->num_ended();
  executor_->PostAt(executor_->Now() + watch_, [this, callers = callers_, before] {
    if (callers->is_closed()) return;  // so is `this`
    watches_ = !callers->empty();
    if (!watches_) return;
    if (callers->num_ended() != before) return Watch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(watch_);
    Abort(Status::DeadlineExceeded("NCCL has kept the thread bs-nccl in a call for " +
                                   std::to_string(seconds.count()) +
                                   " s: NCCL_DEBUG=INFO shows where it waits"));
  });
}

void NcclCollective::Abort(const Status& status) {
  if (!callers_->failure().ok()) return;
  callers_->Fail(status);
  // The worker closes, and all is well: another rank may still receive from this one.
  if (status.code() == StatusCode::kCancelled && callers_->empty()) return;
  thread_->Post([caller = caller_] { caller->Leave(); });
  // If NCCL keeps the thread, the memory of its sums may change until the process exits.
  executor_->PostAt(executor_->Now() + 2 * patience_, [callers = callers_] { callers->EndAll(); });
}

}  // namespace bs::backend
