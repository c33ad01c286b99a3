// LinkRate: how fast the network takes what a worker pushes, and which pieces suit that.
//
// A piece delays a more urgent one by the time that it takes, and costs a message whatever its
// size.  So pieces are measured in time: those that a link carries in half a millisecond.
//
// Confined to the worker's executor, whose clock it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/executor.h"

namespace bs::worker {

struct Pieces {
  uint64_t partition_bytes;
  uint64_t credit_bytes;  // in flight to each server

  bool operator==(const Pieces&) const = default;
};

struct MeasuredLink {
  double bytes_per_second;     // to all servers together
  Duration round_trip;         // of what has nothing before it, without the time its bytes take
  bool shares_memory = false;  // most bytes go to servers on this host
};

// Partitions of a power of two, 32 to 256 KiB: the nearest to 0.55 ms of the link.  Of them two in
// flight to each server, four through shared memory.  More where the round trip is so long that the
// link would be idle: twice what it carried meanwhile.  What that rests on stands in
// docs/results/history.md.
// REQUIRES: bytes_per_second >= 0, num_servers > 0.
Pieces PiecesFor(const MeasuredLink& link, uint32_t num_servers);

class LinkRate {
 public:
  // `clock` is not owned.
  LinkRate(const Executor* clock, uint32_t num_servers)
      : clock_(clock), num_servers_(num_servers) {}

  // A request of next to no bytes leaves for a server, and is answered.
  TimePoint Asked() const { return clock_->Now(); }
  void Told(uint32_t server, TimePoint asked);
  // A piece is pushed to some server, as so many bytes; and is acknowledged, or will not be.
  void Started(uint64_t size_bytes);
  void Answered(uint64_t size_bytes);
  // Empty until enough is known.
  std::optional<MeasuredLink> measured() const;
  // The bytes of all pieces so far.
  uint64_t answered_bytes() const { return answered_bytes_; }
  // Nothing is measured any more.
  void Stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  // The responses in a time during which something was under way.
  struct Answers {
    TimePoint begin{};
    uint64_t bytes = 0;
  };
  // `busy_` belongs to a sample, which may be full with it; it begins anew.
  void AddToSample(TimePoint now);
  // Few pieces followed each other.
  void AddShort(uint64_t bytes, Duration took);
  std::optional<MeasuredLink> MeasuredByShort() const;

  const Executor* const clock_;
  const uint32_t num_servers_;
  bool stopped_ = false;
  size_t in_flight_ = 0;  // pieces
  size_t answered_ = 0;   // of them, since nothing was under way
  Answers busy_{};        // since then, or since it was last added
  uint64_t answered_bytes_ = 0;
  uint64_t first_bytes_ = 0;  // of the piece that had nothing before it
  // The quickest answer to such a piece, and that piece.
  Duration quickest_ = Duration::max();
  uint64_t quickest_bytes_ = 0;
  uint64_t sample_bytes_ = 0;
  Duration sample_took_{};
  std::vector<double> rates_;  // of the samples: bytes a second
  // Where few pieces follow each other: of all of them, and those that were quickest for their
  // bytes; and by server the quickest answer to what has next to no bytes.
  uint64_t short_bytes_ = 0;
  uint64_t best_bytes_ = 0;
  Duration best_took_{};
  std::map<uint32_t, Duration> idle_;
};

}  // namespace bs::worker
