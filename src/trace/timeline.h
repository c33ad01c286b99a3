// Timeline: the file of BYTESCHEDULER_TIMELINE, written on a thread of its own, "bs-trace".
//
// Training waits for the file only at the end of the process, and never fails by it.  A file that
// cannot be opened causes a warning.  Events that come too fast are dropped and counted.  A full
// disk ends the file at a whole line; a warning says so, and a second warning at the end tells how
// much is missing.  The file can be read at any time.  After a kill of the process it lacks its end
// and at most the last half second.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/loop_thread.h"
#include "base/status.h"
#include "base/types.h"
#include "config/config.h"
#include "trace/trace.h"
#include "trace/trace_text.h"

namespace bs::trace {

// Checks that a file can be made there, else kInvalidArgument, which names the setting.  Blocks on
// the file system.
Status CheckTimeline(const Config& config);
// Returns the path of a process.  For "out/t.json" worker 3 writes "out/t-r3.json", and server 0
// "out/t-s0.json".
std::string TimelinePath(const std::string& setting, const TraceOwner& owner);

class Timeline {
 public:
  // Null if the config asks for none.  For the node that holds the view, a worker or a server with
  // `num_shards` shards.
  static std::unique_ptr<Timeline> OfWorker(const Config& config, job::SharedView view,
                                            const Logger& log);
  static std::unique_ptr<Timeline> OfServer(const Config& config, job::SharedView view,
                                            int32_t num_shards, const Logger& log);

  // Opens `path` on bs-trace, so it never blocks.  `capacity` is that of core::Trace.  A worker has
  // one trace, a server has a trace for each shard and for the dispatcher.  Host, time and wall
  // time of `owner` are filled in.
  Timeline(std::string path, TraceOwner owner, size_t capacity, const Logger& log);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  // Writes the remaining events and the end of the file; blocks for it.  REQUIRES: no thread
  // records any more.
  ~Timeline();

  // Names the spans of the key from now on.  Any thread.
  void Name(Key key, std::string name);
  // Tells the framework whose tensors travel.  Any thread.
  void Framework(std::string name);
  // For one thread at a time.
  Trace* trace(size_t index = 0) { return traces_.at(index).get(); }

 private:
  static std::unique_ptr<Timeline> Open(const Config& config, const TraceOwner& owner,
                                        size_t capacity, const Logger& log);

  void Wake();  // on any thread

  // All on bs-trace.
  void Begin();
  void WriteInTurn();
  void WriteAll();
  // Writes a turn of each trace, so that a busy trace leaves room in the file to the other traces.
  // False if there was nothing.
  bool WriteSome();
  void SayIfLost();
  void Flush();
  void End();
  uint64_t Lost() const;

  const std::string path_;
  const Logger log_;
  const size_t turn_;                           // of a trace, in events
  std::vector<std::unique_ptr<Trace>> traces_;  // constant after construction
  // Touched on bs-trace only.
  int fd_ = -1;                        // -1: not open yet, or given up
  std::unique_ptr<TraceText> writer_;  // null: the file could not be opened
  std::string text_;                   // not written yet
  uint64_t text_events_ = 0;           // in it
  uint64_t dropped_ = 0;               // could not be written
  int64_t file_bytes_ = 0;             // of whole batches
  bool told_of_loss_ = false;
  LoopThread thread_;  // ends first
};

}  // namespace bs::trace
