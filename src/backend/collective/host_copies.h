// HostCopies: the partitions that this worker owns on its host, on their way to the other hosts.
//
// The ranks of the host have added a partition up on this worker's device.  That sum is copied to
// the host's memory and sent to its server as the contribution of the host.  The sum of all hosts
// is copied back.
//
// Copies leave by a credit of their own, most urgent first, and wait for no rank of this host.  The
// credit bounds copies that no server has taken yet.  A server's answer may be late, as when
// another host is; memory for it, as large as the partition, and the copy itself stay until then.
// Confined to the worker's executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "backend/collective/collective.h"
#include "base/executor.h"
#include "base/status.h"
#include "base/unique_function.h"
#include "core/server_queues.h"
#include "protocol/tensor.h"

namespace bs::backend::collective {

struct HostCopiesOptions {
  uint32_t stands_for = 1;  // workers of this host
  uint64_t credit_bytes = kFirstCreditBytes;
};

class HostCopies {
 public:
  using Done = UniqueFunction<void(const Status&)>;

  // Memory that lasts: it serves later copies, and a library may page-lock it.  Its sizes are
  // powers of two, so that copies of other sizes fit.
  static constexpr uint64_t kMostLastingBytes = uint64_t{64} << 20U;

  // All outlive this; `link` carries what crosses.
  HostCopies(const HostCopiesOptions& options, Backend* link, Collective* library,
             Executor* executor);
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;
  ~HostCopies();

  // A partition whose sum of this host is in `memory` of the device, for the sum of all hosts.
  struct Owned {
    protocol::Tensor tensor{};  // without its partitions
    Partition partition{};
    Round round = 0;
    Priority priority = 0;
    Coding coding{};
    std::span<std::byte> memory{};
  };
  // `done` runs once, never inside the call.  The memory stays valid until then.
  void Cross(Owned owned, Done done);
  void SetCredit(uint64_t credit_bytes);
  // Ends what waits, with `status`.  The rest ends by the link and the library, which fail too.
  void Fail(const Status& status);
  // Copied between device and host, each way.
  uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  // Owners: this, and the library.
  struct Memory {
    std::shared_ptr<std::byte[]> bytes{};
    size_t size_bytes = 0;
    bool lasts = false;

    HostMemory lent() const {
      if (!lasts) return {.owner = bytes};
      return {.owner = bytes, .lasting = {bytes.get(), size_bytes}};
    }
  };
  struct Copy {
    Owned owned;
    Done done;
    Memory down{};  // the sum of this host
    Memory up{};    // of all hosts
    bool waits = false;
    int ends_missing = 0;  // on the link: its sending, and its sum
    Status crossed{};      // the first error of them
  };

  // Without bytes: there is no memory.
  Memory Take(size_t size_bytes);
  void Keep(Memory memory);
  void StartCopies();
  void CopyDown(Copy* copy);
  void Send(Copy* copy);
  void OnEnd(Copy* copy, const Status& status);
  void CopyUp(Copy* copy);
  void End(Copy* copy, const Status& status);

  const HostCopiesOptions options_;
  Backend* const link_;
  Collective* const library_;
  Executor* const executor_;
  core::ServerQueues queues_;
  std::map<const Copy*, std::unique_ptr<Copy>> copies_;
  std::multimap<size_t, Memory> spares_;  // memory that lasts and is free, by size
  uint64_t lasting_bytes_ = 0;
  uint64_t copied_bytes_ = 0;
  std::optional<Status> failure_{};
};

}  // namespace bs::backend::collective
