// Outbox: numbers and bodies of the scheduler node's messages.
#include "membership/coordinator/outbox.h"

#include "ps/kv_server.h"
#include "wire/control.h"

namespace ps {

Outbox::Outbox(uint64_t job, const Address& root, Transport* transport)
    : job_(job), transport_(transport) {
  own_.role = Role::kScheduler;
  own_.id = kSchedulerId;
  own_.hostname = root.host;
  own_.port = root.port;
}

void Outbox::Send(int32_t peer, Meta meta) {
  meta.timestamp = timestamp_++;
  // The count restarts before it reaches the protocol's "not set".
  if (timestamp_ == kEmpty) timestamp_ = 0;
  SendUnnumbered(peer, std::move(meta));
}

void Outbox::SendUnnumbered(int32_t peer, Meta meta) {
  Message message;
  message.peer = peer;
  message.meta = std::move(meta);
  Extension& extension = message.meta.extension;
  if (message.meta.native() && extension.body.empty()) {
    extension.body = Encode(extension.op, SchedulerBody{.job = job_});
  }
  transport_->Send(std::move(message));
}

void Outbox::SendStatus(int32_t peer, uint64_t sequence, const bs::Status& status,
                        const std::string& text) {
  Meta meta = NativeControl(Command::kNone, Op::kStatus, sequence);
  meta.extension.text = text;
  SetStatus(status, &meta.extension);
  Send(peer, std::move(meta));
}

void Outbox::SendAnswers(const Peers& peers, const Barriers::Answers& answers) {
  for (const BarrierAnswer& answer : answers) {
    const Peer* const peer = peers.Find(answer.id);
    if (peer == nullptr) continue;
    Meta meta;
    if (peer->native) {
      meta = NativeControl(Command::kBarrier, Op::kNone, answer.request.sequence);
      SetStatus(answer.status, &meta.extension);
    } else {
      meta.is_control = true;
      meta.control.command = Command::kBarrier;
      meta.app_id = answer.request.app_id;
      meta.customer_id = answer.request.customer_id;
    }
    meta.control.barrier_group = answer.request.group;
    Send(answer.id, std::move(meta));
  }
}

void Outbox::EndStockNode(const Node& node, int32_t peer, const std::string& why) {
  transport_->Send(MakeStockWord(peer, why));
  Message end = MakeStockEnd(peer);
  if (node.role == Role::kServer) {  // no response ends it, but a push of a key without values does
    end.meta.request = true;
    end.meta.pull = false;
    end.meta.push = true;
    end.data.emplace_back();
  }
  transport_->Send(std::move(end));
}

}  // namespace ps
