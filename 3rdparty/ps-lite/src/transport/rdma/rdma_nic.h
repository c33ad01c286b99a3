// RdmaNic: the device that a node uses, its completions, and the links on it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/rdma/rdma_memory.h"
#include "transport/rdma/rdma_options.h"
#include "transport/rdma/verbs.h"

namespace ps {

// An end of a link.  Calls come on the executor of its RdmaNic.
class RdmaEnd {
 public:
  RdmaEnd() = default;
  RdmaEnd(const RdmaEnd&) = delete;
  RdmaEnd& operator=(const RdmaEnd&) = delete;
  virtual ~RdmaEnd() = default;

  // A post of its queue pair has ended.  Not ok: the link is broken, and OnBroken follows.
  virtual bs::Status OnCompletion(const Completion& completion) = 0;
  // The completions of this turn are over, or room was freed.  May destroy the end.
  virtual void OnTurnOver() = 0;
  // Called once.  May destroy the end.
  virtual void OnBroken(const bs::Status& why) = 0;
};

// Belongs to the executor of its Loop, but for Open and destruction.  Its owner may let go of it on
// another thread once no end is left: a task that runs then keeps it until its end.
class RdmaNic : public std::enable_shared_from_this<RdmaNic> {
 public:
  // A link that broke so often within a minute is not tried again in this job.
  static constexpr size_t kMostBreaks = 3;
  // Completions of a turn; then other work gets its turn.
  static constexpr int kCompletionsPerTurn = 128;

  // Where an RdmaNic lives.
  struct Loop {
    bs::Executor* executor = nullptr;
    // Calls `on_readable` on the executor while `fd` is readable; empty: not any more.
    std::function<void(int fd, const std::function<void()>& on_readable)> watch{};
  };
  // Opens the device that `options` name.  REQUIRES: options.verbs is not null.
  static bs::Result<std::shared_ptr<RdmaNic>> Open(const Loop& loop, const RdmaOptions& options,
                                                   const bs::Logger& log);
  // Used by Open.
  RdmaNic(Loop loop, RdmaOptions options, std::shared_ptr<VerbsDevice> device,
          const bs::Logger& log);
  RdmaNic(const RdmaNic&) = delete;
  RdmaNic& operator=(const RdmaNic&) = delete;
  // REQUIRES: no end is left.
  ~RdmaNic();

  const RdmaOptions& options() const { return options_; }
  VerbsDevice* device() const { return device_.get(); }
  const RdmaPort& port() const { return port_; }
  const std::shared_ptr<RdmaMemory>& memory() const { return memory_; }
  RdmaCounts* counts() const { return options_.counts.get(); }  // may be null
  bs::Executor* executor() const { return loop_.executor; }

  // The reason why no link can be made now with the peer of this name; ok if there is none.
  bs::Status Trusts(const std::string& peer);
  // A link to the peer broke, and is named in the log.  `result`: of the completion that broke it;
  // kOk if none did.
  void NoteBreak(const std::string& peer, const bs::Status& why,
                 Completion::Result result = Completion::Result::kOk);

  // Makes room for `completions` that may wait to be polled; false: there is none.  The
  // number of the end is the upper half of the ids that it posts.
  bool Add(RdmaEnd* end, uint32_t completions, uint32_t* number);
  // Its posts are looked at no more.  REQUIRES: its queue pair is gone.
  void Remove(uint32_t number);

  // The end gets OnTurnOver when bounce memory is free again.
  void AwaitRoom(uint32_t number) { awaiting_room_.insert(number); }
  void RoomFreed();

  // Takes all completions that are there.  Their handling may end any link.
  void Settle();

 private:
  void Watch(bool on);
  // Runs `task` soon on the executor, unless nothing owns this by then.
  void PostToSelf(void (*task)(RdmaNic* self));
  void OnCompletions();
  void OnEvents();
  // Takes the completions that are there; returns how many.
  size_t PollOnce();
  void Break(uint32_t number, const bs::Status& why);
  void BreakAll(const bs::Status& why);
  void EndTurn();

  const Loop loop_;
  const RdmaOptions options_;
  const bs::Logger log_;
  const std::shared_ptr<VerbsDevice> device_;
  RdmaPort port_;
  const std::shared_ptr<RdmaMemory> memory_;
  bs::Status usable_;

  struct Member {
    RdmaEnd* end;  // not owned
    uint32_t completions;
  };
  std::map<uint32_t, Member> members_;
  uint32_t next_number_ = 1;
  uint32_t reserved_ = 0;       // completions
  std::set<uint32_t> touched_;  // in this turn
  std::set<uint32_t> awaiting_room_;
  std::map<std::string, std::deque<bs::TimePoint>> breaks_;  // by peer
};

// The bound of completions that may wait.
inline constexpr uint32_t kMostRdmaCompletions = 1U << 15U;

}  // namespace ps
