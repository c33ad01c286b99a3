// CommTask: the state that a task knows by itself; the Core decides the rest.
#include "core/comm_task.h"

#include "base/check.h"
#include "core/core.h"

namespace bs {

CommTask::CommTask(Key key, Round round, Priority priority, uint64_t size_bytes)
    : key_(key), round_(round), priority_(priority), size_bytes_(size_bytes) {}

CommTask::~CommTask() { BS_CHECK(core_ == nullptr); }

void CommTask::NotifyReady() {
  BS_CHECK(core_ != nullptr);
  core_->TaskReady(this);
}

void CommTask::NotifyFinish(uint32_t partition_index, const Status& status) {
  BS_CHECK(core_ != nullptr);
  core_->PartitionFinished(this, partition_index, status);
}

}  // namespace bs
