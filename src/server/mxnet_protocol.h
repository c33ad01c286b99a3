// MxnetProtocol: what the server says to stock MXNet workers, whose messages carry no extension.
//
// Confined to the front's executor; never blocks.  Commands are answered; data is not served yet
// and ends the job with a sentence that says what to do.  Nothing that arrives is executed: a
// pickled optimizer is answered and ignored, because the native worker runs the optimizer itself.
#pragma once

#include <cstdint>

#include "base/executor.h"
#include "base/log.h"
#include "bytescheduler/server.h"
#include "ps/message.h"

namespace bs::server {

class MxnetProtocol {
 public:
  // `front` must outlive this.  The handler's functions are posted to it, each at most once.
  MxnetProtocol(int32_t rank, Executor* front, Server::SendFn send, Server::Handler handler,
                const Logger& log);

  // A message that is not native.  Control messages and responses are ignored.
  void OnMessage(const ps::Message& message);

 private:
  void OnCommand(const ps::Message& request);
  void OnData(const ps::Message& request);

  const int32_t rank_;
  Executor* const front_;
  const Server::SendFn send_;
  const Server::Handler handler_;
  const Logger log_;
  bool stopped_ = false;
  bool failed_ = false;
  bool told_of_optimizer_ = false;
};

}  // namespace bs::server
