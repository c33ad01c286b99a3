// StockPeers: repeats, silence, and the ends of lost workers.
#include "membership/member/stock_peers.h"

#include <utility>

#include "ps/kv_server.h"
#include "wire/control.h"

namespace ps {

StockPeers::StockPeers(MemberContext* context, Neighbours* neighbours, const Unheard& unheard)
    : context_(context),
      neighbours_(neighbours),
      inbound_(&context->scope, context->options.reconnect_grace, unheard),
      suspicion_timer_(&context->scope, context->options.straggler_timeout, unheard) {}

bool StockPeers::Take(const Message& message) {
  suspicion_timer_.OnHeard(message.peer);
  Resends::Verdict verdict = resends_.Take(message, context_->own.id);
  if (verdict.ack) {
    context_->transport->Send({.peer = message.peer, .meta = std::move(*verdict.ack)});
  }
  return verdict.fresh;
}

void StockPeers::TurnAway(const Message& message) {
  const int32_t id = message.peer;
  const bool stock_worker = context_->own.role == Role::kServer && !message.meta.native() &&
                            IdFitsRole(id, Role::kWorker);
  const Neighbour* const lost = stock_worker ? FindLost(id) : nullptr;
  if (lost == nullptr) {
    context_->Drop(id, "data of a node that is not in the job");
    return;
  }
  if (lost->ends_sent > 0) return;
  context_->log.Warning(Describe(lost->node) + " was lost (" + lost->why +
                        ") and asks for more: its process is told to end");
  TellTheEnd(id);
}

Neighbour* StockPeers::FindLost(int32_t id) {
  const NeighbourState state = neighbours_->StateOf(id);
  const bool lost = state == NeighbourState::kLost || state == NeighbourState::kReported ||
                    state == NeighbourState::kVacant;
  return lost ? neighbours_->At(id) : nullptr;
}

// Repeated, because the worker does not read a new connection while it has our old connection.
void StockPeers::TellTheEnd(int32_t id) {
  constexpr bs::Duration kPause = std::chrono::seconds(2);
  constexpr int kMostTold = 30;
  Neighbour* const lost = FindLost(id);
  if (lost == nullptr || lost->ends_sent == kMostTold) return;
  if (context_->state != MemberState::kReady) return;
  ++lost->ends_sent;
  context_->transport->Connect(id, AddressOf(lost->node), context_->own.id);
  SendEnd(lost->node, lost->why);
  context_->scope.After(kPause, [this, id] { TellTheEnd(id); });
}

void StockPeers::SendEnd(const Node& node, const std::string& why) {
  constexpr bs::Duration kLinger = std::chrono::seconds(1);
  context_->transport->Send(MakeStockWord(node.id, "lost " + Describe(node) + ": " + why));
  context_->transport->Send(MakeStockEnd(node.id));
  context_->transport->Disconnect(node.id, kLinger);
}

void StockPeers::OnInboundEnded(int32_t id, bool torn) {
  const bool known = neighbours_->IsKnown(id) || (id == kSchedulerId && context_->stock_scheduler);
  inbound_.OnEnded(id, known && resends_.Heard(id) && context_->takes_part(),
                   torn && !resends_.SendsAgain(id));
  Suspect(id);
}

void StockPeers::Suspect(int32_t id) {
  const bool stock_worker =
      neighbours_->IsKnown(id) && IdFitsRole(id, Role::kWorker) && resends_.Heard(id);
  const bool trains = context_->state == MemberState::kReady && !context_->joined_final;
  if (context_->own.role == Role::kServer && stock_worker && trains) suspicion_timer_.Begin(id);
}

void StockPeers::ForgetSilence(int32_t id) {
  inbound_.Forget(id);
  suspicion_timer_.Forget(id);
}

}  // namespace ps
