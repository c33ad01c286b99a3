// CommTask: the state that a task knows by itself; the Core decides the rest.
#include "core/comm_task.h"

#include <algorithm>

#include "base/check.h"
#include "core/core.h"

namespace bs {

CommTask::CommTask(Key key, Round round, Priority priority, uint64_t size_bytes)
    : key_(key), round_(round), priority_(priority), size_bytes_(size_bytes) {}

CommTask::~CommTask() { BS_CHECK(core_ == nullptr); }

Priority CommTask::PriorityOf(uint32_t partition_index) const {
  if (precedes_early_) return std::max(priority_, kSmallTensorPriority);
  return partition_index < num_early_ ? std::max(priority_, kEarlyPriority) : priority_;
}

void CommTask::NotifyReady() {
  BS_CHECK(core_ != nullptr);
  core_->TaskReady(this);
}

void CommTask::NotifyFinish(uint32_t partition_index, const Status& status) {
  BS_CHECK(core_ != nullptr);
  core_->PartitionFinished(this, partition_index, status);
}

}  // namespace bs
