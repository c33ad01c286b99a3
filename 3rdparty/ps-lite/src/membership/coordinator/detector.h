// Detector: judges which processes of the job are lost, by their silence, their connections, their
// violations, and the reports of others.
//
// It keeps the evidence about each holder of a place, and says when that is enough; the table of
// states (peer_table.h) says what follows.  Evidence is no state: a connection breaks and comes
// back in any state, and a worker may report a server while its own connection is broken.
//
// Confined to the scope's executor.  Bounded by the ids of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "membership/attempts.h"
#include "membership/pause_detector.h"
#include "membership/reconnect_timer.h"
#include "membership/stock/inbound_watch.h"
#include "membership/task_scope.h"
#include "membership/violation_limiter.h"
#include "ps/membership.h"

namespace ps {

class Detector {
 public:
  // Called never inside another call here, but for CheckSilence.
  using Lost = std::function<void(int32_t id, const std::string& why)>;

  // `lost`: a holder is lost.  `unheard`: a stock node, which may be alive, sends no more.
  Detector(const MembershipOptions& options, TaskScope* scope, Lost lost, Lost unheard);
  Detector(const Detector&) = delete;
  Detector& operator=(const Detector&) = delete;
  ~Detector() = default;

  // Another process holds the place from now on, at this address; its evidence begins anew.  It is
  // lost if our connection does not come up within `patience`.
  void Begin(int32_t id, const Address& address, bs::Duration patience);
  // Our connection to the holder is no longer missed when it ends.
  void ForgetConnection(int32_t id) { reconnect_timer_.Forget(id); }
  // The end of the stock node's present connection does not matter.
  void ForgetInbound(int32_t id) { inbound_.Forget(id); }

  // The transport's callbacks, for any peer.
  void OnAttempt(int32_t id, const std::string& what) { attempts_.OnAttempt(id, what); }
  void OnConnected(int32_t id);
  void OnDisconnected(int32_t id);
  void OnInbound(int32_t id) { inbound_.OnOpened(id); }
  void OnInboundEnded(int32_t id, bool watched, bool torn) { inbound_.OnEnded(id, watched, torn); }
  // A connection to the holder's address came up before it had its id.
  void OnReached(int32_t id) { attempts_.OnConnected(id); }
  // A message came, or was sent to which silence is no answer: the silence counts from now on.
  void OnHeard(int32_t id);

  // True if our connection to the holder is up, or was.
  bool WasConnected(int32_t id) const;
  // True if our connection to the holder never broke.
  bool NeverBroke(int32_t id) const;
  // True if the holder lives, as far as is known: nothing broke, or it was heard since.
  bool HeardSinceBreak(int32_t id) const;
  // True if a registration of another process at the holder's address means that the holder is
  // gone: the connection broke and came back, as when a process is killed and started again at
  // once.
  bool IsGone(int32_t id) const;
  bs::Duration SilenceOf(int32_t id) const;

  // The job begins: silence counts from now on.
  void Start();
  // Reports those of `ids`, holders that are there, that were silent for the heartbeat time-out.
  void CheckSilence(const std::vector<int32_t>& ids);

  // A message of the holder violates the protocol.  True if it was one too many: the holder is
  // dismissed until another process has the place.
  bool CountViolation(int32_t id);
  bool IsDismissed(int32_t id) const;

  // The worker `id` cannot reach a server; it repeats the report with each heartbeat.  True if the
  // server was heard a grace after the first report: then the worker is the lost one.
  bool ReportsLiveServer(int32_t id, int32_t server);
  // The worker `id` has sent a heartbeat.  If its reports have stopped, it has reconnected.
  void ForgetOldReport(int32_t id);

 private:
  struct Evidence {
    Address address;
    bs::TimePoint last_heard{};
    bool connected = false;                   // our connection is up, or was
    std::optional<bs::TimePoint> broke{};     // when our connection last broke
    bool dismissed = false;                   // it sent too many violations
    std::optional<bs::TimePoint> reported{};  // when it first reported the server
    int heartbeats_since_report = 0;          // since its latest report
  };

  // Null for an id that no process has had.
  Evidence* Find(int32_t id);
  const Evidence* Find(int32_t id) const;

  const bs::Duration heartbeat_interval_;
  const bs::Duration heartbeat_timeout_;
  const bs::Duration reconnect_grace_;
  TaskScope* const scope_;
  const Lost lost_;
  Attempts attempts_;
  ReconnectTimer reconnect_timer_;
  InboundWatch inbound_;
  std::optional<PauseDetector> pause_detector_;  // once the job has begun
  ViolationLimiter violations_;
  std::map<int32_t, Evidence> evidence_;  // by id
};

}  // namespace ps
