// Answers the commands of stock MXNet workers and refuses their data.
#include "server/mxnet_protocol.h"

#include <cstring>
#include <string>
#include <utility>

#include "ps/kv_server.h"

namespace bs::server {
namespace {

// Heads of commands that need more than an empty answer (the others are settings of a store that
// carries no data here).
constexpr int32_t kController = 0;
constexpr int32_t kStopServer = 2;

// "key 3" or "data": only server 0's range of stock keys begins at 0, the others depend on the
// number of servers.
std::string KeyOf(const ps::Message& request, int32_t server_rank) {
  uint64_t key = 0;
  if (server_rank != 0 || request.data.empty() || request.data[0].size() < sizeof(key)) {
    return "data";
  }
  std::memcpy(&key, request.data[0].bytes().data(), sizeof(key));
  return "key " + std::to_string(key);
}

}  // namespace

MxnetProtocol::MxnetProtocol(int32_t rank, Executor* front, Server::SendFn send,
                             Server::Handler handler, const Logger& log)
    : rank_(rank), front_(front), send_(std::move(send)), handler_(std::move(handler)), log_(log) {}

void MxnetProtocol::OnMessage(const ps::Message& message) {
  // An anonymous sender can not be answered, and no stock worker that has joined is one.
  if (message.meta.is_control || !message.meta.request || message.peer == ps::kEmpty) return;
  message.meta.simple_app ? OnCommand(message) : OnData(message);
}

void MxnetProtocol::OnCommand(const ps::Message& request) {
  if (request.meta.head == kController && !told_of_optimizer_) {
    told_of_optimizer_ = true;
    log_.Info("the optimizer that " + ps::DescribeId(request.peer) +
              " sent is ignored: the native worker runs it");
  }
  send_(ps::MakeCommandResponse(request, ""));
  if (request.meta.head != kStopServer || stopped_) return;
  stopped_ = true;
  if (handler_.on_stop) front_->Post([on_stop = handler_.on_stop] { on_stop(); });
}

void MxnetProtocol::OnData(const ps::Message& request) {
  if (failed_) return;
  failed_ = true;
  if (!handler_.on_failure) return;
  Status why = Status::FailedPrecondition(
      ps::DescribeId(request.peer) + " sends " + KeyOf(request, rank_) +
      " through the stock store, which these servers do not serve: wrap the store, "
      "kvs = ScheduledKVS(kvs)");
  front_->Post([on_failure = handler_.on_failure, why = std::move(why)] { on_failure(why); });
}

}  // namespace bs::server
