// UnwrappedStores: the warning.
#include "membership/coordinator/unwrapped_stores.h"

#include <string>

#include "wire/control.h"

namespace ps {

void UnwrappedStores::Warn() {
  if (!job_->running() || job_->roster.StockServer() != nullptr) return;
  for (const auto& [id, peer] : job_->peers.all()) {
    if (peer.native || peer.node.role != Role::kWorker) continue;
    if (job_->peers.Find(AttachedId(RankOf(id))) != nullptr) continue;
    if (!named_.emplace(id, peer.incarnation).second) continue;
    job_->log.Warning(
        Describe(peer.node) +
        " uses MXNet's own store: not scheduled; add kvs = ScheduledKVS(kvs) (from "
        "bytescheduler.mxnet import ScheduledKVS); if it has BYTESCHEDULER_BACKEND=kvstore, "
        "which schedules over that store, unset that instead" +
        (attached_ ? "; others have wrapped theirs and have no keys in common with it, so "
                     "wrap it in every worker or in none"
                   : ""));
  }
}

}  // namespace ps
