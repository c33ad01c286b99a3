// FakeMpiLibrary: the MPI library of a rank whose peers the test plays.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/mpi/mpi_library.h"

namespace bs::backend::collective {

class FakeMpiLibrary final : public MpiLibrary {
 public:
  struct Call {
    MpiChannel channel;
    void* out;
    int count;
    DType dtype;
    uint64_t ticket;
  };
  // Thread-safe only before the first call.
  struct Script {
    int size = 2;
    Status init{};
    MpiAlgorithm algorithm{};
    // Adds the contributions of the peers to `out`, which holds that of this rank.
    std::function<void(const Call& call)> add = [](const Call&) {};
    std::function<bool(const Call& call)> ends = [](const Call&) { return true; };
    std::function<Status()> test = [] { return Status::Ok(); };
    std::function<bool()> progress = [] { return false; };
    std::function<void()> stay_at_exit = [] {};  // any thread
    std::function<void()> free = [] {};
  };

  explicit FakeMpiLibrary(Script script) : script_(std::move(script)) {}

  const std::string& file() const override { return file_; }
  std::string Version() override { return "Fake MPI 1.5"; }
  const MpiAlgorithm& algorithm() const override { return script_.algorithm; }
  Status Init() override { return script_.init; }
  int rank() const override { return 0; }
  int size() const override { return script_.size; }
  Status SumNow(double* values, int count) override {
    calls_.push_back({MpiChannel::kDescriptions, values, count, DType::kFloat64, UINT64_MAX});
    script_.add(calls_.back());
    return Status::Ok();
  }
  Status Begin(MpiChannel channel, const void* in, void* out, int count, DType dtype,
               uint64_t ticket) override {
    if (in != nullptr && count > 0) {
      std::memcpy(out, in, static_cast<size_t>(count) * SizeOf(dtype));
    }
    calls_.push_back({channel, out, count, dtype, ticket});
    script_.add(calls_.back());
    under_way_.push_back(calls_.back());
    return Status::Ok();
  }
  Ended TakeEnded() override {
    Ended ended{.tickets = {}, .status = script_.test()};
    std::vector<Call> left;
    for (const Call& call : under_way_) {
      if (script_.ends(call)) {
        ended.tickets.push_back(call.ticket);
      } else {
        left.push_back(call);
      }
    }
    under_way_ = std::move(left);
    return ended;
  }
  bool Progress() override { return script_.progress(); }
  void StayAtExit() override { script_.stay_at_exit(); }
  Status Free() override {
    ++freed_;
    script_.free();
    return Status::Ok();
  }

  const std::vector<Call>& calls() const { return calls_; }
  int freed() const { return freed_; }

 private:
  const Script script_;
  const std::string file_ = "libfake.so";
  std::vector<Call> calls_;
  std::vector<Call> under_way_;
  int freed_ = 0;
};

// Adds a peer that contributes as this rank does, to float64 and float32.
inline void AddTwin(const FakeMpiLibrary::Call& call) {
  for (int i = 0; i < call.count; ++i) {
    if (call.dtype == DType::kFloat64) {
      static_cast<double*>(call.out)[i] *= 2;
    } else {
      static_cast<float*>(call.out)[i] *= 2;
    }
  }
}

// Gives rank 1 the part of a gathered array that rank 0, this rank, has.
inline void CopyPart(const FakeMpiLibrary::Call& call) {
  auto* const parts = static_cast<double*>(call.out);
  const int width = call.count / 2;
  for (int i = 0; i < width; ++i) parts[width + i] = parts[i];
}

// A peer that sums and describes as this rank does.
inline void PlayTwin(const FakeMpiLibrary::Call& call) {
  call.channel == MpiChannel::kSums ? AddTwin(call) : CopyPart(call);
}

inline MpiLauncher FakeLauncher() {
  return {.name = "Launcher",
          .size_variable = "SIZE",
          .packages = "`pip install fake`",
          .abis = {},
          .processes = 2};
}

}  // namespace bs::backend::collective
