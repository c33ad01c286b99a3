// ExchangeTask: one exchange's way through the back end, on one of its workers.
//
// A giver's partitions start when the Core says so, and their credit returns when the server has
// taken them up.  A request for a partition of the result goes right behind the worker's own
// contribution.  A worker that only takes asks for all partitions at once, at no credit: credit
// that waits for other workers could wait for ever.
//
// Confined to the worker's executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/types.h"
#include "base/unique_function.h"
#include "core/comm_task.h"
#include "worker/operation_context.h"

namespace bs::worker {

class ExchangeTask final : public CommTask {
 public:
  struct Call {
    Key key = 0;
    Priority priority = 0;
    std::string terms{};                      // encoded
    std::vector<bs::Partition> partitions{};  // all on one server
    bool gives = false;
    bool takes = false;
    std::span<const std::byte> in{};
    std::span<std::byte> out{};
    UniqueFunction<void(Status)> given{};  // may be empty
    UniqueFunction<void(Status)> done{};
  };

  // `context` outlives the task.  `ended` runs after `given` and `done`, when no request is left
  // and the Core has let go of the task; it may destroy the task.
  ExchangeTask(const OperationContext* context, Call call, UniqueFunction<void()> ended);

  // REQUIRES: called once; the worker has not failed.
  void Begin();
  // The exchange fails with `why`, once its requests under way have ended: at once if there are
  // none.  It may be gone when this returns.
  void Abort(const Status& why);
  uint32_t server() const { return call_.partitions.front().server; }
  const std::string& terms() const { return call_.terms; }

  std::vector<bs::Partition> Partition(uint64_t partition_bytes) override;
  void Start(const bs::Partition& partition) override;
  void OnFinished(Status status) override;

 private:
  void StartPart(const bs::Partition& partition);
  void OnReleased(uint32_t index, const Status& status, bool refused);
  void OnGiven(const Status& status, bool refused);
  void OnTaken(const Status& status, bool refused);
  // Keeps the first failure.  `refused`: it is only this exchange's.
  void Note(const Status& status, bool refused);
  // Calls the callbacks that are due; the task may be gone when it returns.
  void Settle();

  const OperationContext* const context_;
  Call call_;
  // A network device's registrations of the call's memory, which end before the callbacks.
  std::shared_ptr<void> lent_in_{};
  std::shared_ptr<void> lent_out_{};
  size_t giving_ = 0;      // partitions whose callback is to come
  size_t taking_ = 0;      // likewise
  bool released_ = false;  // by the Core, or it never had the task
  Status failure_;
  Status aborted_;  // counts unless a request has failed, which says more
  UniqueFunction<void()> ended_;
};

}  // namespace bs::worker
