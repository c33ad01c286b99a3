// Bench: one worker on simulated time, with a test that plays the servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/ps/ps_backend.h"
#include "sim/sim_executor.h"
#include "worker/ps_worker_options.h"
#include "worker/worker.h"

namespace bs::worker {

// How a callback was called.
struct Outcome {
  int calls = 0;
  std::optional<Status> status;
  bool worker_had_failed = false;

  bool ok() const { return calls == 1 && status && status->ok(); }
  // kOk while it was not called.
  StatusCode code() const { return status ? status->code() : StatusCode::kOk; }
  std::string text() const { return status ? status->message() : ""; }
};

class Bench {
 public:
  explicit Bench(const PsWorkerOptions& options, const protocol::Rules& rules = protocol::Rules());
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  // Closes the worker and expects that everything ended.
  ~Bench();

  // The calls return handles that the callbacks fill; they fail the test if called inside the call.
  const Outcome* Broadcast(Key key, DType dtype, std::span<std::byte> value);
  struct Sum {
    const Outcome* pushed;
    const Outcome* pulled;
  };
  Sum PushPull(Key key, Priority priority, std::span<const std::byte> in, std::span<std::byte> out,
               float threshold = 0);
  // Closes; the handle says when.
  const bool* Close();

  // Runs what is due now.
  void Run() { clock_.RunUntil(clock_.Now()); }
  void RunFor(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  // The worker's thread gets to nothing meanwhile.
  void Skip(Duration duration) { clock_.Skip(duration); }
  // The oldest message the worker sent, after running; fails the test if there is none.
  ps::Message Next();
  // Runs, and expects that the worker sent nothing.
  bool Quiet();
  // Answers `request` with `payload`, and releases it; or refuses it.
  void Answer(ps::Message request, std::span<const std::byte> payload = {});
  void Refuse(ps::Message request, const Status& why);
  // Sends `answer` to the worker as it is.
  void Tell(ps::Message answer);
  // The response to a lookup.
  void AnswerLookup(ps::Message request, uint64_t partition_bytes,
                    std::span<const std::byte> servers);
  // Declares or finds `key` and moves round 0, so that push-pull may begin; the worker is alone
  // with its server.
  void Initialise(Key key, std::span<std::byte> value, DType dtype = DType::kFloat32);
  // Response without a payload.
  static ps::Message ResponseTo(const ps::Message& request);

  std::deque<ps::Message> sent;
  std::vector<Status> failures;    // of on_failure
  std::vector<std::string> lines;  // of the worker's log, from kInfo on
  Worker* worker() { return &*worker_; }

 private:
  Worker::Done Into(Outcome* outcome);

  sim::SimClock clock_;
  sim::SimExecutor executor_;
  backend::PsBackend backend_;
  std::unique_ptr<Worker> worker_;
  bool calling_ = false;
  std::deque<Outcome> outcomes_;
  std::deque<bool> closed_;
};

std::vector<std::byte> Bytes(size_t count, int value);

}  // namespace bs::worker
