// Hands sums to the thread that calls NCCL, and their ends back to the worker's executor.
#include "backend/collective/nccl/nccl_collective.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "backend/collective/nccl/nccl_sums.h"
#include "base/notification.h"

namespace bs::backend::collective {
namespace {

// Copies have tickets from here on, operations have lower ones.
constexpr uint64_t kFirstCopy = uint64_t{1} << 63U;

// Between two questions whether memory is in use.
constexpr Duration kBetweenQuestions = std::chrono::microseconds(50);

constexpr std::string_view kHint =
    "NCCL_DEBUG=INFO shows the networks that it tries, NCCL_SOCKET_IFNAME chooses one";

}  // namespace

// Calls NCCL.
class NcclCollective::Caller : public std::enable_shared_from_this<Caller> {
 public:
  Caller(Executor* executor, std::shared_ptr<SumCallbacks> callbacks,
         std::unique_ptr<NcclLibrary> library, std::unique_ptr<CudaDriver> driver,
         const NcclOptions& options)
      : way_back_(executor),
        callbacks_(std::move(callbacks)),
        library_(std::move(library)),
        driver_(std::move(driver)),
        sums_(library_.get(), driver_.get(), options.rank, options.size),
        workers_(options.workers),
        introduce_(options.introduce),
        deadline_(options.deadline),
        blame_(options.blame),
        patience_(options.patience),
        pace_(options.spin) {}

  // The thread, which runs all other methods.
  void RunOn(Executor* thread) { thread_ = thread; }

  // The thread no longer uses the executor.  False: it does so right now, and soon ends.  Any
  // thread.
  bool Abandon() { return way_back_.Abandon(); }

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
    pace_.Worked(begun, thread_->Now());
  }

  void Copy(const Piece& piece, const HostMemory& host, uint64_t ticket) {
    if (left_) return;
    const TimePoint begun = thread_->Now();
    if (sums_.is_idle()) progress_ = begun;
    const Status status = sums_.Copy(piece, host, ticket);
    if (!status.ok()) return Fail(status);
    if (!looks_) Look();
    pace_.Worked(begun, thread_->Now());
  }

  void Tell(UniqueFunction<void(uint64_t)> told) {
    way_back_.Post(Duration::zero(),
                   [callbacks = callbacks_, told = std::move(told), num_begun = sums_.num_begun()] {
                     if (!callbacks->is_closed()) told(num_begun);
                   });
  }

  // No sum follows.
  void Leave() {
    if (!std::exchange(left_, true)) sums_.Abort();
    EndWhenQuiet(thread_->Now() + patience_, Duration::zero(), Status::Ok());
  }

  void End() {
    if (!std::exchange(left_, true) && !sums_.is_idle()) sums_.Abort();
    sums_.Unlock();
  }

 private:
  void Introduce(const std::string& card) {
    auto done = [callbacks = callbacks_, self = shared_from_this()](const Result<Cards>& cards) {
      if (!callbacks->is_closed()) self->PostConnect(cards);
    };
    way_back_.Post(Duration::zero(),
                   [callbacks = callbacks_, introduce = introduce_, card, done = std::move(done)] {
                     if (!callbacks->is_closed()) introduce(card, done);
                   });
  }

  // On the executor.
  void PostConnect(const Result<Cards>& cards) {
    thread_->Post([self = shared_from_this(), cards] { self->Connect(cards); });
  }

  void Connect(const Result<Cards>& cards) {
    if (left_) return;
    progress_ = thread_->Now();
    const Status status = cards.ok() ? sums_.Connect(cards.value(), workers_) : cards.status();
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
      way_back_.Post(Duration::zero(),
                     [callbacks = callbacks_, sequences = std::move(ended.value())] {
                       callbacks->End(sequences);
                     });
      pace_.Worked(now, thread_->Now());
      progress_ = now;
    }
    if (sums_.is_idle()) return;
    if (now - progress_ > deadline_) return Fail(Stuck());
    looks_ = true;
    pace_.Again(thread_, now, [self = shared_from_this()] { self->Look(); });
  }

  Status Stuck() const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(deadline_);
    return Status::DeadlineExceeded("NCCL has ended no sum in " + std::to_string(seconds.count()) +
                                    " s: " + std::string(kHint));
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
      thread_->PostAt(now + kBetweenQuestions, [self = shared_from_this(), latest, wait, status] {
        self->EndWhenQuiet(latest, wait, status);
      });
      return;
    }
    PostEnd(wait, status);
  }

  void PostEnd(Duration wait, const Status& status) {
    way_back_.Post(wait, [callbacks = callbacks_, status] {
      if (!status.ok()) callbacks->Fail(status);
      callbacks->EndAll();
    });
  }

  WayBack way_back_;
  const std::shared_ptr<SumCallbacks> callbacks_;
  const std::unique_ptr<NcclLibrary> library_;
  const std::unique_ptr<CudaDriver> driver_;
  NcclSums sums_;
  const std::vector<int32_t> workers_;
  const decltype(NcclOptions::introduce) introduce_;
  const Duration deadline_;
  const Duration blame_;
  const Duration patience_;
  Executor* thread_ = nullptr;
  LookPace pace_;
  TimePoint progress_{};  // since then no sum has ended
  bool looks_ = false;    // a look is posted
  bool left_ = false;
};

NcclCollective::NcclCollective(Executor* executor, std::unique_ptr<NcclLibrary> library,
                               std::unique_ptr<CudaDriver> driver, const NcclOptions& options)
    : executor_(executor),
      patience_(options.patience),
      watch_(2 * (options.deadline + options.patience)),
      callbacks_(std::make_shared<SumCallbacks>()),
      caller_(std::make_shared<Caller>(executor, callbacks_, std::move(library), std::move(driver),
                                       options)),
      thread_(std::make_unique<LoopThread>("bs-nccl")) {
  caller_->RunOn(thread_.get());
}

NcclCollective::~NcclCollective() {
  callbacks_->Close();
  const auto ended = std::make_shared<Notification>();
  thread_->Post([caller = caller_, ended] {
    caller->End();
    ended->Notify();
  });
  if (ended->WaitFor(patience_) || !caller_->Abandon()) {
    thread_->End();
  } else {
    LoopThread* const left_behind = thread_.get();
    LeaveBehind(std::move(thread_),
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

void NcclCollective::Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence, Done done) {
  if (callbacks_->Refuses(executor_, &done)) return;
  callbacks_->Add(sequence, std::move(done));
  if (!std::exchange(watches_, true)) Watch();
  thread_->Post([caller = caller_, pieces = std::move(pieces), dtype, sequence] {
    caller->Begin(pieces, dtype, sequence);
  });
}

void NcclCollective::Copy(const Piece& piece, const HostMemory& host, Done done) {
  if (callbacks_->Refuses(executor_, &done)) return;
  const uint64_t ticket = kFirstCopy + num_copies_++;
  callbacks_->Add(ticket, std::move(done));
  if (!std::exchange(watches_, true)) Watch();
  thread_->Post([caller = caller_, piece, host, ticket] { caller->Copy(piece, host, ticket); });
}

void NcclCollective::TellBegun(UniqueFunction<void(uint64_t)> told) {
  thread_->Post(
      [caller = caller_, told = std::move(told)]() mutable { caller->Tell(std::move(told)); });
}

std::string NcclCollective::hint() const { return std::string(kHint); }

void NcclCollective::Watch() {
  const uint64_t before = callbacks_->num_ended();
  executor_->PostAt(executor_->Now() + watch_, [this, callbacks = callbacks_, before] {
    if (callbacks->is_closed()) return;  // so is `this`
    watches_ = !callbacks->empty();
    if (!watches_) return;
    if (callbacks->num_ended() != before) return Watch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(watch_);
    Abort(Status::DeadlineExceeded("NCCL has kept the thread bs-nccl in a call for " +
                                   std::to_string(seconds.count()) +
                                   " s: NCCL_DEBUG=INFO shows where it waits"));
  });
}

void NcclCollective::Abort(const Status& status) {
  if (!callbacks_->failure().ok()) return;
  callbacks_->Fail(status);
  // The worker closes, and all is well: another rank may still receive from this one.
  if (status.code() == StatusCode::kCancelled && callbacks_->empty()) return;
  thread_->Post([caller = caller_] { caller->Leave(); });
  // If NCCL keeps the thread, the memory of its sums may change until the process exits.
  executor_->PostAt(executor_->Now() + 2 * patience_,
                    [callbacks = callbacks_] { callbacks->EndAll(); });
}

}  // namespace bs::backend::collective
