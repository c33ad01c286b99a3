// BlockSignals: the calling thread takes next to no signals, while it lives.
//
// For threads that it starts meanwhile, which inherit that.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace bs {

// The framework's main thread must keep getting its signals (Ctrl-C in Python), so loop threads
// take only signals that a fault of their own raises.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t most;
    sigfillset(&most);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF}) {
      sigdelset(&most, fault);
    }
    pthread_sigmask(SIG_BLOCK, &most, &before_);
  }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace bs
