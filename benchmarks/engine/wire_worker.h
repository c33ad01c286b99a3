// A worker of the engine without a framework, and the lines that it prints for its watcher.
//
// An error ends the program, with a message.
#pragma once

#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "bytescheduler/c_api.h"
#include "checked_tensor.h"

namespace bench {

constexpr int kPatienceMs = 300'000;
constexpr int kWarmUps = 2;

using Clock = std::chrono::steady_clock;

struct WaiterFree {
  void operator()(bs_waiter* waiter) const { bs_waiter_free(waiter); }
};
using WaiterPtr = std::unique_ptr<bs_waiter, WaiterFree>;

inline void CheckOk(int code, const bs_error& error) {
  if (code == 0 && error.code == 0) return;
  std::fprintf(stderr, "wire_benchmark: %s\n", error.message);
  std::exit(1);
}

// Writes "WORD NAME" and waits for the reader.
inline void Meet(const char* word, const std::string& name, const std::vector<double>& seconds) {
  std::printf("%s %s", word, name.c_str());
  for (const double value : seconds) std::printf(" %.9f", value);
  std::printf("\n");
  std::fflush(stdout);
  if (std::getchar() == EOF) std::exit(1);
}

class Tensor : public CheckedTensor {
 public:
  using CheckedTensor::CheckedTensor;
  bs_coding coding{};  // of gradients and sums; zeros: they travel as they are
};

// Ends the program if something is `wrong`.
inline void CheckSum(const std::string& wrong) {
  if (wrong.empty()) return;
  std::fprintf(stderr, "wire_benchmark: %s\n", wrong.c_str());
  std::exit(1);
}

// Returns this thread's time of the processor.
inline double ThreadSeconds() {
  timespec now{};
  BS_CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Counts of this process, since it began.
struct Cost {
  double sent;   // messages
  double fused;  // of these, inside others
  double cpu_us;
};

class Worker {
 public:
  Worker() {
    bs_error error{};
    const int code = bs_worker_open(nullptr, 0, -1, &worker_, &error);
    CheckOk(code, error);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { bs_worker_close(worker_, kPatienceMs, nullptr); }

  Tensor Declare(uint64_t key, size_t bytes, const bs_coding& coding = {}) {
    bs_view view{};
    view.size = sizeof(view);
    bs_error unseen{};
    CheckOk(bs_worker_view(worker_, &view, nullptr, 0, &unseen), unseen);
    Tensor tensor(key, bytes, view.rank, view.num_workers);
    tensor.coding = coding;
    const WaiterPtr waiter(bs_waiter_new(1));
    bs_error error{};
    const bs_operation operation = Make(BS_BROADCAST, &tensor, waiter.get());
    const int code = bs_worker_start_operation(worker_, &operation, &error);
    CheckOk(code, error);
    Await(waiter.get());
    return tensor;
  }

  void PushPull(Tensor* tensor, bs_waiter* waiter) { PushPull(tensor, tensor->key(), 0, waiter); }
  void PushPull(Tensor* tensor, uint64_t place, uint64_t called, bs_waiter* waiter) {
    bs_operation operation = Make(BS_PUSH_PULL, tensor, waiter);
    operation.priority = -static_cast<int>(place);
    operation.called = called;
    operation.in = tensor->in();
    operation.pushed = bs_waiter_done;
    bs_error error{};
    const int code = bs_worker_start_operation(worker_, &operation, &error);
    CheckOk(code, error);
  }

  // All of them at once; seconds until every sum is there.
  double Round(std::vector<Tensor>* tensors) {
    const WaiterPtr waiter(bs_waiter_new(2 * tensors->size()));
    const auto begin = Clock::now();
    for (Tensor& tensor : *tensors) PushPull(&tensor, waiter.get());
    Await(waiter.get());
    const std::chrono::duration<double> took = Clock::now() - begin;
    return took.count();
  }

  // The same with new gradients, and a look at some sums of each; adds to `aside_s` what that
  // takes.
  double CheckedRound(std::vector<Tensor>* tensors, double* aside_s) {
    double begin_s = ThreadSeconds();
    for (Tensor& tensor : *tensors) tensor.Change();
    *aside_s += ThreadSeconds() - begin_s;
    const double took_s = Round(tensors);
    begin_s = ThreadSeconds();
    for (const Tensor& tensor : *tensors) CheckSum(tensor.Wrong());
    *aside_s += ThreadSeconds() - begin_s;
    return took_s;
  }

  // A round of its own, `name`d, that others may watch.
  void Measure(const std::string& name, std::vector<Tensor>* tensors, int rounds) {
    double aside_s = 0;
    for (int i = 0; i < kWarmUps; ++i) CheckedRound(tensors, &aside_s);
    Meet("BEGIN", name, {});
    aside_s = 0;
    std::vector<double> seconds;
    for (int i = 0; i < rounds; ++i) seconds.push_back(CheckedRound(tensors, &aside_s));
    std::printf("ASIDE %.9f\n", aside_s);
    Meet("END", name, seconds);
    for (Tensor& tensor : *tensors) {
      CheckSum(tensor.WrongAnywhere());
      tensor.ChangeAll();
    }
    Round(tensors);
    for (const Tensor& tensor : *tensors) CheckSum(tensor.WrongAnywhere());
  }

  Cost CostSoFar() const {
    Cost cost{};
    bs_error error{};
    const auto row = [](void* context, const char* name, int /*of*/, double value) {
      auto* const told = static_cast<Cost*>(context);
      if (std::strcmp(name, "sent_messages_total") == 0) told->sent = value;
      if (std::strcmp(name, "sent_fused_total") == 0) told->fused = value;
    };
    const int code = bs_worker_measure(worker_, kPatienceMs, row, &cost, &error);
    CheckOk(code, error);
    rusage used{};
    BS_CHECK(::getrusage(RUSAGE_SELF, &used) == 0);
    for (const timeval& time : {used.ru_utime, used.ru_stime}) {
      cost.cpu_us += static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
    }
    return cost;
  }

  static void Await(const bs_waiter* waiter) {
    bs_error error{};
    BS_CHECK(bs_waiter_wait(waiter, kPatienceMs, &error) == 1);
    CheckOk(0, error);
  }

 private:
  static bs_operation Make(bs_operation_kind kind, Tensor* tensor, bs_waiter* waiter) {
    bs_operation operation = bs_operation_init(kind);
    operation.key = tensor->key();
    operation.out = tensor->out();
    operation.size_bytes = tensor->size_bytes();
    operation.coding = tensor->coding;
    operation.done = bs_waiter_done;
    operation.context = waiter;
    return operation;
  }

  bs_worker* worker_ = nullptr;
};

}  // namespace bench
