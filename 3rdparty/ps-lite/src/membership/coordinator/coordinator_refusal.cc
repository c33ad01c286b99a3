// Coordinator: messages to nodes that get no place, each over a connection of its own.
//
// Unknown nodes must not make us open connections without bound.  So messages wait their turn in a
// bounded queue, and those that find no room there are only counted.
#include <algorithm>
#include <utility>

#include "base/count_of.h"
#include "membership/coordinator/coordinator_impl.h"
#include "wire/control.h"

namespace ps {
namespace {

// The time for a message to reach a node without another connection; the bounds of messages under
// way, and of those that wait.
constexpr bs::Duration kRefusalLinger = std::chrono::seconds(2);
constexpr int32_t kMostUnderWay = 32;
constexpr size_t kMostWaiting = 4096;
// The latest refused nodes, which reports to the others name.
constexpr size_t kMostNamed = 3;
// The bound of messages under way at the end, when there is no later turn.
constexpr int32_t kMostAtTheEnd = 512;

}  // namespace

bool Coordinator::Impl::SettingsDiffer(const Node& node, uint64_t sequence,
                                       const std::string& settings) {
  const std::string difference = DifferenceOf(settings, options_.settings);
  if (difference.empty()) return false;
  Refuse(node, true, sequence,
         bs::Status::InvalidArgument("settings differ: " + DescribeUnranked(node) + " has " +
                                     difference + ", which " + Describe(OwnEntry()) + " has"));
  return true;
}

std::string Coordinator::Impl::Refused() const {
  std::string text;
  for (const std::string& why : refused_) text += "; refused: " + why;
  for (const auto& [who, sentence] : unreached_) text += "; " + sentence;
  return text;
}

bool Coordinator::Impl::ComesAgain(const Node& node, bool native) {
  // Nodes that have just registered may be dead already: connect to find out.
  for (const Roster::Entry& entry : roster_.entries()) {
    if (entry.native && entry.node.role == node.role) TemporaryPeer(entry.node, true);
  }
  for (const auto& [rank, early] : early_) {
    if (early.node.role == node.role) TemporaryPeer(early.node, true);
  }
  if (!temporary_reconnect_timer_.AnyDown()) return false;
  if (native) return true;
  if (coming_again_ >= options_.num_workers + options_.num_servers) return false;
  ++coming_again_;
  scope_.After(options_.reconnect_grace, [this, node] {
    --coming_again_;
    Register(node, {}, {}, false);
  });
  return true;
}

void Coordinator::Impl::Refuse(const Node& node, bool native, uint64_t sequence,
                               const bs::Status& why) {
  const std::string who = DescribeUnranked(node);
  const bool named = why.message().find(who) != std::string::npos;
  const std::string text = (named ? "" : who + ": ") + why.message();
  limited_log_.Warning("refused: " + text);
  const bool known = std::find(refused_.begin(), refused_.end(), text) != refused_.end();
  if (phase_ == Phase::kGathering && !known) {
    refused_.push_back(text);
    if (refused_.size() > kMostNamed) refused_.pop_front();
  }
  if (!native) {
    // The stock protocol has no message for it, so a node that waits in vain is ended.  A node that
    // is in the job is not.
    const Roster::Entry* const entry = roster_.Find(node.hostname, node.port);
    const Peer* const peer = entry == nullptr ? nullptr : FindPeer(entry->node.id);
    if (entry == nullptr || (peer != nullptr && IsVacant(peer->state))) {
      TellOnce({node, std::nullopt, why.message()});
    }
    return;
  }
  Meta meta = NativeControl(Command::kNone, Op::kStatus, sequence);
  SetStatus(why, &meta.extension);
  TellOnce({node, std::move(meta)});
}

void Coordinator::Impl::TellOnce(Word word) {
  const auto same = std::find_if(words_.begin(), words_.end(), [&](const Word& other) {
    return AddressOf(other.node) == AddressOf(word.node);
  });
  if (same != words_.end()) {  // a repeat
    *same = std::move(word);
  } else if (words_.size() < kMostWaiting) {
    words_.push_back(std::move(word));
  } else if (words_dropped_++ == 0) {
    scope_.After(kRefusalLinger, [this] {
      log_.Warning("refused in silence: " + bs::CountOf(std::exchange(words_dropped_, 0), "node") +
                   ", as " + std::to_string(kMostWaiting) + " others were to be told first");
    });
  }
  TellWaiting();
}

bs::Status Coordinator::Impl::Over() const {
  return verdict_.ok() ? bs::Status::Unavailable("the job is over") : verdict_;
}

void Coordinator::Impl::TellWaiting() {
  const int32_t most = phase_ == Phase::kFinished ? kMostAtTheEnd : kMostUnderWay;
  while (words_under_way_ < most && !words_.empty()) {
    Word word = std::move(words_.front());
    words_.pop_front();
    ++words_under_way_;
    scope_.After(kRefusalLinger, [this] {
      --words_under_way_;
      TellWaiting();
    });
    const int32_t peer = next_refused_++;
    transport_->Connect(peer, AddressOf(word.node), kSchedulerId);
    if (word.meta) {
      Send(peer, std::move(*word.meta));
    } else {
      EndStockNode(word.node, peer, word.why);
    }
    transport_->Disconnect(peer, kRefusalLinger);
  }
}

}  // namespace ps
