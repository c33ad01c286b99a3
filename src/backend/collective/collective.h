// Collective: an interface over libraries that sum arrays over ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"

namespace bs::backend::collective {

enum class PieceKind : uint8_t {
  kAllReduce,  // `out` of each rank gets the sum of all `in`
  kReduce,     // `out` of the root gets the sum; that of other ranks is undefined
  kBroadcast,  // `out` of each rank gets `in` of the root
};

// Memory of a rank in an operation.  `in` and `out` have the same size, and are equal or do not
// overlap.
struct Piece {
  std::span<const std::byte> in{};
  std::span<std::byte> out{};
  PieceKind kind = PieceKind::kAllReduce;
  int32_t root = 0;
};

// Memory of the host in a copy.
struct HostMemory {
  std::shared_ptr<void> owner{};  // keeps it: a device may use it after an error too
  // All of the owner's memory, if later copies use it too.  Empty: they do not.
  std::span<std::byte> lasting{};
};

// A library that sums arrays over all ranks of a job, if all ranks call it in one order.
//
// Confined to the worker's executor, as are its callbacks.
class Collective {
 public:
  using Done = UniqueFunction<void(const Status&)>;

  Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  virtual ~Collective() = default;

  // Gets ready for the other calls, together with all ranks.  Called at most once, first; `done`
  // may run inside.
  virtual void Prepare(Done done) { done(Status::Ok()); }
  // True if it sums arrays of `dtype`; servers sum all others.
  virtual bool Sums(DType dtype) const {
    return dtype == DType::kFloat32 || dtype == DType::kFloat64;
  }
  // Begins an operation on `pieces`, arrays of `dtype`, over all ranks, and returns at once.
  // `sequence` counts up by one from 0, alike on all ranks.  `done` runs once, never inside the
  // call: then each `out` has its bytes, which are undefined after an error.  The memory stays
  // valid until then.  REQUIRES: has_roots() for pieces with a root.
  virtual void Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence, Done done) = 0;
  // It has pieces with a root, and Copy.
  virtual bool has_roots() const { return false; }
  // Copies `in` to `out` between a device and the host's memory; `done` as above.  It is no
  // operation and has no order.  The library may page-lock memory that lasts, and then keeps it.
  // REQUIRES: has_roots().
  virtual void Copy(const Piece& /*piece*/, const HostMemory& /*host*/, Done /*done*/) {}
  // Tells how many operations the library has begun on this rank, as soon as its thread comes to
  // it.  A call of the library may keep the thread, and then nothing is told.
  virtual void TellBegun(UniqueFunction<void(uint64_t num_begun)> told) = 0;
  // Where to look if an operation does not end; empty: the library gives no hint.
  virtual std::string hint() const { return {}; }
  // Ends all operations with `status` as soon as their memory is out of use, and later calls too.
  // May block until a copy of an array has ended.
  virtual void Abort(const Status& status) = 0;
};

}  // namespace bs::backend::collective
