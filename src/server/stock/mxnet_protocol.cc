// Answers the commands of stock MXNet workers, and hands their values on.
#include "server/stock/mxnet_protocol.h"

#include <string>
#include <utility>

#include "ps/kv_server.h"

namespace bs::server {
namespace {

// Heads of commands; other commands need only an empty answer.
enum class StockCommand : int32_t {
  kController = 0,  // an optimizer
  kSetMultiPrecision = 1,
  kStopServer = 2,
  kSyncMode = 3,
  kSetGradientCompression = 4,
  kProfiler = 5,
};

}  // namespace

MxnetProtocol::MxnetProtocol(const ServerOptions& options, Executor* dispatcher,
                             const std::vector<ServerShard>& shards, StockWays ways,
                             std::function<void()> on_stop, const Logger& log)
    : dispatcher_(dispatcher),
      send_(ways.send),
      on_stop_(std::move(on_stop)),
      store_(options, dispatcher, shards, std::move(ways), log),
      profile_(options.view->own.rank, dispatcher, log) {}

void MxnetProtocol::OnMessage(ps::Message message) {
  // An anonymous sender can not be answered, and no stock worker that has joined is anonymous.
  if (message.meta.is_control || !message.meta.request || message.peer == ps::kEmpty) return;
  message.meta.simple_app ? OnCommand(message) : store_.OnData(std::move(message));
}

void MxnetProtocol::Fail(const Status& why) { store_.Fail(why); }

// A command takes effect before every request that comes behind its response.
void MxnetProtocol::OnCommand(const ps::Message& request) {
  if (static_cast<StockCommand>(request.meta.head) == StockCommand::kController) {
    return store_.SetOptimizer(request);
  }
  Obey(request);
  send_(ps::MakeCommandResponse(request, ""));
}

void MxnetProtocol::Obey(const ps::Message& request) {
  switch (static_cast<StockCommand>(request.meta.head)) {
    case StockCommand::kSetMultiPrecision:
      return store_.SetWide();
    case StockCommand::kStopServer:
      return OnStop();
    case StockCommand::kSyncMode:
      return store_.SetSynchronous();
    case StockCommand::kSetGradientCompression:
      return store_.SetCompression(request.meta.body, request.peer);
    case StockCommand::kProfiler:
      return profile_.Obey(request.meta.body);
    default:
      return;
  }
}

void MxnetProtocol::OnStop() {
  if (std::exchange(stopped_, true)) return;
  if (on_stop_) dispatcher_->Post([on_stop = on_stop_] { on_stop(); });
}

}  // namespace bs::server
