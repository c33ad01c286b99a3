// Contacts: connections, news and losses.
#include "membership/member/contacts.h"

#include <algorithm>
#include <utility>

#include "wire/control.h"

namespace ps {

Contacts::Contacts(MemberContext* context, const NeighbourTable& table, Hooks hooks)
    : context_(context),
      hooks_(std::move(hooks)),
      reconnect_timer_(&context->scope, context->options.timeout, context->options.reconnect_grace,
                       [this](int32_t id, const std::string& why) { OnUnconnected(id, why); }),
      neighbours_([this](NeighbourCondition condition,
                         const Neighbour& neighbour) { return Holds(condition, neighbour); },
                  [this](NeighbourAction action, Neighbour* neighbour,
                         const NeighbourDetails& details) { Act(action, neighbour, details); },
                  table),
      stock_(context, &neighbours_,
             [this](int32_t id, const std::string& why) { OnUnheard(id, why); }) {}

void Contacts::Connect() {
  for (const Node& node : context_->view.nodes) {
    const bool other_side = node.role != context_->own.role && node.role != Role::kScheduler;
    if (other_side) neighbours_.Apply(node, NeighbourEvent::kListed);
  }
  if (context_->options.joins_host && context_->view.all_native) ConnectBeside();
  // The configured address works here; the address in the list may only work for the scheduler
  // node.
  context_->transport->Connect(kSchedulerId, context_->options.root, context_->own.id);
  reconnect_timer_.Watch(kSchedulerId);
}

void Contacts::ConnectBeside() {
  const View& view = context_->view;
  const int32_t own_id = context_->own.id;
  const auto own = std::ranges::find(view.nodes, own_id, &Node::id);
  // Nothing of a job of one host crosses a link.
  const auto elsewhere = [&](const Node& node) {
    return node.role != Role::kScheduler && HostOf(node) != HostOf(*own);
  };
  if (std::ranges::none_of(view.nodes, elsewhere)) return;
  for (const Node& node : view.nodes) {
    const bool worker = node.role == Role::kWorker && !IsAttachedId(node.id);
    if (!worker || node.id == own_id || HostOf(node) != HostOf(*own)) continue;
    beside_.emplace(node.id, node);
    context_->transport->Connect(node.id, AddressOf(node), own_id);
    reconnect_timer_.Watch(node.id);
  }
}

void Contacts::DisconnectAll() {
  for (const auto& [id, neighbour] : neighbours_.all()) {
    if (neighbour.state == NeighbourState::kKnown) {
      context_->transport->Disconnect(id, bs::Duration(0));
    }
  }
  for (const auto& [id, node] : beside_) context_->transport->Disconnect(id, bs::Duration(0));
}

bool Contacts::Knows(int32_t id) const {
  const bool expected = id == kSchedulerId || neighbours_.IsExpected(id) || IsBeside(id);
  return expected && !dismissed_.contains(id);
}

bool Contacts::IsOfFormer(const Message& message) const {
  const uint64_t incarnation = neighbours_.IncarnationOf(message.peer);
  return context_->own.role == Role::kServer && incarnation > 0 &&
         message.meta.extension.incarnation != incarnation;
}

void Contacts::OnConnected(int32_t id) {
  attempts_.OnConnected(id);
  reconnect_timer_.OnConnected(id);
}

void Contacts::OnDisconnected(int32_t id) {
  reconnect_timer_.OnDisconnected(id);
  stock_.Suspect(id);
}

void Contacts::OnOverflow(int32_t id, const std::string& why) {
  if (!IsBeside(id)) return Lose(id, why);
  reconnect_timer_.Forget(id);
  hooks_.fail_job(LostStatus(beside_.at(id), why));
}

void Contacts::OnViolation(int32_t id, const std::string& what) {
  const bool in_job = id == kSchedulerId ? !context_->scheduler_lost : IsKnown(id);
  if (!in_job || !context_->takes_part()) return;
  if (!violations_.Add(id, context_->scope.Now())) return;
  dismissed_.insert(id);
  Lose(id, ViolationLimiter::Why(what));
}

void Contacts::DropViolation(int32_t id, const std::string& why) {
  context_->Drop(id, why);
  OnViolation(id, why);
}

void Contacts::OnNews(const Meta& meta, const SchedulerBody& said) {
  if (!IsNews(meta)) return;
  const Node& node = meta.control.nodes.front();
  if (meta.control.command == Command::kAddNode) return OnNewcomer(node, said.incarnation);
  if (meta.extension.op == Op::kVacate) return OnWorkerVacant(node, said);
  OnWorkerLeft(node, meta.extension.text);
}

bool Contacts::IsNews(const Meta& meta) {
  context_->SendControl(NativeControl(Command::kAck, Op::kNone, meta.extension.sequence));
  uint64_t& latest = neighbours_.At(meta.control.nodes.front().id)->notice;
  if (meta.extension.sequence <= latest) return false;
  latest = meta.extension.sequence;
  return true;
}

void Contacts::OnNewcomer(const Node& node, uint64_t incarnation) {
  const bool expected = IsAttachedId(node.id) || neighbours_.IncarnationOf(node.id) > 0;
  const bool sane = CheckNode(node).ok() && node.role == Role::kWorker && expected &&
                    IdFitsRole(node.id, node.role) &&
                    RankOf(node.id) < context_->options.num_workers;
  if (!sane) {
    DropViolation(kSchedulerId, "news of an impossible worker");
    return;
  }
  if (incarnation > 0) neighbours_.At(node.id)->incarnation = incarnation;
  dismissed_.erase(node.id);
  attempts_.Forget(node.id);
  neighbours_.Apply(node, NeighbourEvent::kComes);
}

void Contacts::OnWorkerVacant(const Node& node, const SchedulerBody& said) {
  const bool sane = node.role == Role::kWorker && IdFitsRole(node.id, node.role) &&
                    RankOf(node.id) < context_->options.num_workers && said.next_incarnation > 0;
  if (!sane || context_->own.role != Role::kServer) {
    DropViolation(kSchedulerId, "news of an impossible loss");
    return;
  }
  neighbours_.At(node.id)->incarnation = said.next_incarnation;
  reconnect_timer_.Forget(node.id);
  stock_.ForgetSilence(node.id);
  stock_.ForgetMessages(node.id);
  neighbours_.Apply(node, NeighbourEvent::kVacated, {.native = said.native});
}

void Contacts::OnWorkerLeft(const Node& node, const std::string& reason) {
  // A server may have reported the worker as lost: its connection ended before this notice came.
  if (!neighbours_.Apply(node, NeighbourEvent::kLeaves, {.why = reason})) return;
  reconnect_timer_.Forget(node.id);
  stock_.EndSuspicion(node.id);
}

void Contacts::Lose(int32_t id, const std::string& why) {
  reconnect_timer_.Forget(id);
  stock_.ForgetSilence(id);
  if (id == kSchedulerId) return hooks_.scheduler_lost(why);
  if (const Node* const node = neighbours_.FindKnown(id)) {
    neighbours_.Apply(Node(*node), NeighbourEvent::kLost, {.why = why});
  }
}

void Contacts::OnUnconnected(int32_t id, const std::string& why) {
  if (IsBeside(id)) return OnUnconnectedBeside(id, why);
  const Node* const node = neighbours_.FindKnown(id);
  Lose(id, node == nullptr ? why : attempts_.WhyLost(id, AddressOf(*node), why));
}

void Contacts::OnUnconnectedBeside(int32_t id, const std::string& why) {
  // Messages that wait for it would never leave, and their owners would never get the memory back.
  context_->transport->Disconnect(id, bs::Duration(0));
  if (!context_->takes_part()) return;
  const Node& node = beside_.at(id);
  if (!attempts_.Reached(id)) {
    return hooks_.fail_job(LostStatus(node, attempts_.WhyLost(id, AddressOf(node), why)));
  }
  // If it did not leave, servers find it lost in the same time, and the job fails by their reason.
  const MembershipOptions& options = context_->options;
  context_->scope.After(options.reconnect_grace + options.reason_patience, [this, id] {
    if (!context_->takes_part() || !context_->handler.on_worker_left) return;
    context_->handler.on_worker_left(RankOf(id), LeftStatus(id, ""));
  });
}

void Contacts::OnUnheard(int32_t id, const std::string& why) {
  if (context_->joined_final) return;  // stock nodes close after the final barrier
  const Node* const node = neighbours_.FindKnown(id);
  // Else the attached worker notifies it.
  const bool alone = !IsKnown(AttachedId(RankOf(id)));
  if (node != nullptr && alone) stock_.SendEnd(Node(*node), why);
  Lose(id, why);
}

bool Contacts::Holds(NeighbourCondition condition, const Neighbour& neighbour) const {
  const Node& node = neighbour.node;
  switch (condition) {
    case NeighbourCondition::kAlways:
      return true;
    case NeighbourCondition::kNotMissed: {
      if (context_->over() || HasLeft(context_->state)) return true;
      if (IsAttachedId(node.id)) return false;
      // Stock workers leave without a message; the scheduler node judges if they had finished.
      if (context_->joined_final) return true;
      // Its process has left, and ended without the destructor of MXNet's own store.
      return node.role == Role::kWorker &&
             neighbours_.StateOf(AttachedId(RankOf(node.id))) == NeighbourState::kLeft;
    }
    case NeighbourCondition::kReplaceable:
      // The scheduler node judges which is lost: the worker, which may be this node, or the server.
      return context_->options.rejoin_timeout > bs::Duration(0) && !context_->stock_scheduler &&
             (node.role == Role::kWorker || context_->state == MemberState::kReady);
  }
  return false;
}

void Contacts::Act(NeighbourAction action, Neighbour* neighbour, const NeighbourDetails& details) {
  const Node& node = neighbour->node;
  switch (action) {
    case NeighbourAction::kConnect:
      context_->transport->Connect(node.id, AddressOf(node), context_->own.id);
      return reconnect_timer_.Watch(node.id);
    case NeighbourAction::kDrop:
      return DropLost(neighbour, details.why);
    case NeighbourAction::kReport:
      DropLost(neighbour, details.why);
      return SendUnreachable();
    case NeighbourAction::kFailJob:
      DropLost(neighbour, details.why);
      return hooks_.fail_job(LostStatus(node, details.why, context_->options.servers_in_workers));
    case NeighbourAction::kDropVacant:
      DropLost(neighbour, "its place is free for another");
      return NotifyOfVacant(node.id, details.native);
    case NeighbourAction::kVacate:
      return NotifyOfVacant(node.id, details.native);
    case NeighbourAction::kLetGo:
      context_->transport->Disconnect(node.id, bs::Duration(0));
      return NotifyOfGoodbye(node.id, details.why);
    case NeighbourAction::kRetire:
      return NotifyOfGoodbye(node.id, details.why);
  }
}

void Contacts::SendUnreachable() {
  for (const auto& [id, neighbour] : neighbours_.all()) {
    if (neighbour.state != NeighbourState::kReported) continue;
    Meta meta = NativeControl(Command::kHeartbeat, Op::kVacate, context_->NextSequence());
    meta.control.nodes = {context_->own, neighbour.node};
    meta.extension.text = neighbour.why;
    MemberBody body;
    body.lost_incarnation = static_cast<uint32_t>(neighbour.incarnation);
    context_->SendControl(std::move(meta), std::move(body));
  }
}

void Contacts::DropLost(Neighbour* neighbour, const std::string& why) {
  neighbour->why = why;
  neighbour->ends_sent = 0;
  // Messages that wait for it would never leave, and their owners would never get the memory back.
  context_->transport->Disconnect(neighbour->node.id, bs::Duration(0));
}

void Contacts::NotifyOfVacant(int32_t id, bool native) {
  context_->scope.Post([this, id, native] {
    if (context_->handler.on_worker_vacant) context_->handler.on_worker_vacant(id, native);
  });
}

void Contacts::NotifyOfGoodbye(int32_t id, const std::string& reason) {
  const bool waits = reason.empty() && !IsAttachedId(id);  // an attached worker may come again
  const bs::Duration patience = waits ? context_->options.reason_patience : bs::Duration(0);
  context_->scope.After(patience, [this, id, why = LeftStatus(id, reason)] {
    if (context_->handler.on_worker_left) context_->handler.on_worker_left(RankOf(id), why);
  });
}

}  // namespace ps
