// Network: the foundation of every node: the thread "bs-io" and a transport on it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/log.h"
#include "base/loop_thread.h"
#include "config/config.h"
#include "ps/membership.h"
#include "ps/transport.h"

// See transport/rdma/rdma_options.h, which rooms above this room do not include.
namespace ps {
struct RdmaCounts;
struct RdmaOptions;
}  // namespace ps

namespace bs::node {

// Longest time at the end for messages that are not sent yet.
inline constexpr Duration kLinger = std::chrono::seconds(2);
// The same for a node that has not joined: few messages wait, perhaps for a scheduler node that
// does not exist.
inline constexpr Duration kLingerUnjoined = std::chrono::milliseconds(200);

// "scheduler", "worker 1" and so on in the log; the network and the membership may say more.
Logger MakeLogger(const Config& config);
// `log`: the node's own.
Logger MakeNetworkLogger(const Config& config, const Logger& log);

// Returns the limit of the bytes that wait to be sent to a peer.  `available_bytes` of memory are
// left at the start.
uint64_t MostWaitingBytes(const Config& config, uint64_t available_bytes);
// Returns the limit of the bytes of requests that wait in a server for its threads.
uint64_t MostBacklogBytes(uint64_t available_bytes);

// Returns how long bs-io may look for work, where control groups allow the process the time of
// `processor_quota` processors.
Duration SpinOf(const Config& config, double processor_quota);

// The settings of the rendezvous.  kInvalidArgument if this node has no address to show, or cannot
// listen at the address that a setting names.
Result<ps::MembershipOptions> MakeMembershipOptions(const Config& config, ps::Role role);

// kResourceExhausted unless this process may open as many descriptors as a node with this
// configuration does: for its connections, its network thread and `num_threads` more.
Status CheckDescriptorsOf(const Config& config, uint64_t num_threads);

// Says so in the log if the scheduler node's name is not known (yet).  Blocks for the look-up.
void WarnOfUnknownRoot(const Config& config, const Logger& log);

// Logs a line with the names of BytePS that have no effect here.
void WarnOfByteps(const Config& config, const Logger& log);

// Warns of loopback addresses where other hosts are expected.  Blocks for look-ups.
void WarnOfLoopback(const Config& config, const Logger& log);

// CheckNames, for a caller that repeats it: `waited` is the time since its first call, at which
// this logs that it waits.  kUnavailable to go on; kInvalidArgument once the timeout is over.
Status AwaitNames(const Config& config, Duration waited);

// Owns the thread and the transport; ends them in its destructor, which blocks until every frame is
// released.  REQUIRES, before the destructor: the member or coordinator on it was closed and is
// gone.
class Network {
 public:
  Network(const Config& config, const Logger& log);
  // `rdma`: beside TCP; without verbs there is none.
  Network(const Config& config, const Logger& log, ps::RdmaOptions rdma);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() = default;

  LoopThread* io() { return &io_; }
  ps::Transport* transport() { return transport_.get(); }
  // Thread-safe.
  const ps::SentCounts& sent() const { return *sent_; }
  const ps::RdmaCounts& rdma() const { return *rdma_; }
  // Transport::Lend for memory of the framework's, whose child processes may use it too.  Null
  // while nothing goes by RDMA.  Thread-safe.
  std::shared_ptr<void> Lend(std::span<std::byte> memory, ps::Lending use);
  // Transport::Register for such memory.  Null while nothing goes by RDMA.  Thread-safe.
  Result<std::shared_ptr<ps::Registration>> Register(std::span<std::byte> memory, ps::Lending use);
  // False: both always give null.
  bool MayLend() const { return fork_is_harmless_; }
  // The transport's end, before that of the thread; blocks as the destructor does.
  void EndTransport() { transport_.reset(); }

 private:
  const std::shared_ptr<ps::SentCounts> sent_ = std::make_shared<ps::SentCounts>();
  const std::shared_ptr<ps::RdmaCounts> rdma_;
  const bool fork_is_harmless_;
  LoopThread io_;  // ends last: the transport needs it to come to rest
  std::unique_ptr<ps::Transport> transport_;
};

}  // namespace bs::node
