// Membership: how a node of a job learns which nodes are in it, waits for them, and leaves.
//
// src/node/worker implements it over the scheduler node's rendezvous, and over the application's
// own store.  A back end that brings its processes along, such as MPI, adds its own implementation.
//
// Confined to an executor, but for Close: every method is called there, and every callback runs
// there, never inside the call that took it.  Only Close blocks.
#pragma once

#include <functional>
#include <string>

#include "base/executor.h"
#include "base/status.h"
#include "base/unique_function.h"
#include "job/view.h"

namespace bs::job {

class Membership {
 public:
  using Done = UniqueFunction<void(const Status&)>;

  struct Handler {
    // The first call says that this node is in the job, and every node with it.  A later call
    // brings another view with a greater epoch.  Today there is none: the epoch stays 0.
    std::function<void(const SharedView& view)> on_view;
    // This node did not get into the job, or the job has failed.  The status names the node that
    // is the cause, as far as it is known.  Called at most once, before the barriers that the
    // failure ends.  No view comes after it.
    std::function<void(const Status& why)> on_failure;
  };

  struct Goodbye {
    bool drained = false;     // all of the node's operations have ended
    std::string reason = {};  // why it leaves early, if it does; calls that miss it say so
  };

  Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  // REQUIRES: Close() has returned ok, or Join() was not called.
  virtual ~Membership() = default;

  // The executor; ends with this object.
  virtual Executor* executor() = 0;
  // Asks to be in the job.  REQUIRES: called first, once.
  virtual void Join(Handler handler) = 0;
  // The latest view; null before the first.
  virtual SharedView view() const = 0;
  // A text with which another process of this host can say goodbye for this node; empty where that
  // is impossible.  REQUIRES: there is a view.
  virtual std::string place() const { return {}; }

  // Ends when every worker of the job has called it as often.  `done` runs once: ok, kUnavailable
  // if a node was lost, kDeadlineExceeded if a worker does not come in time, kCancelled on Close.
  // REQUIRES, here and below: there is a view.
  virtual void Barrier(Done done) = 0;
  // This node has failed for good, and with it the job: the other nodes hear `why` where membership
  // can reach them.  on_failure is not called for it.
  virtual void Fail(const Status& why) = 0;
  // This node is done; its end is no failure from here on.  `done` runs once, after a bounded time:
  // ok, or why other nodes may not know it.
  virtual void Leave(const Goodbye& goodbye, Done done) = 0;

  // Ends membership, and with it the network that carries the operations of this node.  Ends
  // pending barriers with kCancelled; no other callback comes after it.  When it returns ok,
  // nothing uses memory of an operation.  kUnavailable: something still does, and then nothing may
  // be destroyed.  Blocks for a bounded time.  REQUIRES: called once, on another thread than the
  // executor's; no operation starts any more.
  virtual Status Close() = 0;
};

}  // namespace bs::job
