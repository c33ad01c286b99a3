// RecordingTask: a CommTask that writes down what the Core does with it, and a deferrer run by
// hand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/comm_task.h"

namespace bs {

// Runs deferred functions when the test says so.
class ManualDefer {
 public:
  std::function<void(std::function<void()>)> fn() {
    return [this](std::function<void()> f) { queue_.push_back(std::move(f)); };
  }
  size_t size() const { return queue_.size(); }
  void RunAll() {
    while (!queue_.empty()) {
      const std::function<void()> f = std::move(queue_.front());
      queue_.pop_front();
      f();
    }
  }

 private:
  std::deque<std::function<void()>> queue_;
};

struct Started {
  Key key;
  uint32_t index;
  uint32_t server;
  uint64_t size_bytes;
  bool operator==(const Started&) const = default;
};

// Partition i goes to server (first_server + i) % num_servers.
struct RecordingOptions {
  Key key = 0;
  Priority priority = 0;
  uint64_t size_bytes = 0;
  uint32_t first_server = 0;
  uint32_t num_servers = 1;
  uint64_t credit_factor = 1;  // of a partition's bytes
  uint64_t value_bytes = 0;    // 0: as many as size_bytes
};

class RecordingTask : public CommTask {
 public:
  RecordingTask(const RecordingOptions& options, std::vector<Started>* log)
      : CommTask(options.key, 1, options.priority, options.size_bytes),
        options_(options),
        log_(log) {}

  std::vector<bs::Partition> Partition(uint64_t partition_bytes) override {
    std::vector<bs::Partition> result;
    uint64_t offset = 0;
    do {
      const auto index = static_cast<uint32_t>(result.size());
      const uint64_t size = std::min(partition_bytes, size_bytes() - offset);
      result.push_back({.index = index,
                        .server = (options_.first_server + index) % options_.num_servers,
                        .offset_bytes = offset,
                        .size_bytes = size});
      offset += size;
    } while (offset < size_bytes());
    return result;
  }

  uint64_t value_bytes() const override {
    return options_.value_bytes > 0 ? options_.value_bytes : size_bytes();
  }
  uint64_t CreditBytes(const bs::Partition& partition) const override {
    return options_.credit_factor * partition.size_bytes;
  }

  void Start(const bs::Partition& partition) override {
    log_->push_back({key(), partition.index, partition.server, partition.size_bytes});
    if (on_start) on_start(partition);
  }

  void OnFinished(Status status) override {
    ++times_finished;
    finished = status;
    if (on_finished) on_finished();  // may destroy this task: last
  }

  std::function<void(const bs::Partition&)> on_start;
  std::function<void()> on_finished;
  int times_finished = 0;
  std::optional<Status> finished;

 private:
  const RecordingOptions options_;
  std::vector<Started>* const log_;
};

}  // namespace bs
