// A sum of bytes to which each rank contributes its card, and zeros elsewhere.
#include "backend/collective/introduction.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "protocol/placement.h"
#include "protocol/tensor.h"

namespace bs::backend::collective {
namespace {

// Operations of the back end own it.
class Introduction : public std::enable_shared_from_this<Introduction> {
 public:
  using Done = UniqueFunction<void(const Result<Cards>&)>;

  Introduction(Backend* servers, int32_t rank, int32_t num_ranks, const std::string& card,
               Done done)
      : servers_(servers),
        is_first_(rank == 0),
        card_bytes_(card.size()),
        sent_(card.size() * static_cast<size_t>(num_ranks)),
        received_(sent_.size()),
        done_(std::move(done)) {
    std::ranges::transform(card, sent_.begin() + static_cast<ptrdiff_t>(card.size()) * rank,
                           [](char byte) { return static_cast<std::byte>(byte); });
    tensor_.key = kIntroductionKey;
    tensor_.dtype = DType::kUint8;
    tensor_.size_bytes = sent_.size();
  }

  void Begin() {
    if (!is_first_) {
      return servers_->Lookup(tensor_, [self = shared_from_this()](Result<protocol::Tensor> found) {
        if (!found.ok()) return self->End(found.status());
        self->tensor_ = std::move(found.value());
        self->ReceiveFirst();
      });
    }
    const uint64_t whole = tensor_.size_bytes + protocol::kAlignBytes;
    tensor_.partition_bytes = whole - whole % protocol::kAlignBytes;
    tensor_.partitions = protocol::SplitIntoPartitions(tensor_.size_bytes, tensor_.partition_bytes,
                                                       protocol::kAlignBytes);
    servers_->Place(tensor_.partitions, {});
    servers_->Declare(tensor_, [self = shared_from_this()](const Status& status) {
      status.ok() ? self->SendFirst() : self->End(status);
    });
  }

 private:
  Exchange MakeExchange(Round round) const {
    return {.round = round, .partition = tensor_.partitions.front()};
  }
  // Round 0 makes the key known; its bytes do not count.
  void SendFirst() {
    Exchange exchange = MakeExchange(0);
    exchange.in = received_;
    exchange.released = [](const Status&) {};
    exchange.sent = [self = shared_from_this()](const Status& status) {
      status.ok() ? self->Sum() : self->End(status);
    };
    servers_->Start(tensor_, std::move(exchange));
  }
  void ReceiveFirst() {
    Exchange exchange = MakeExchange(0);
    exchange.out = received_;
    exchange.summed = [self = shared_from_this()](const Status& status, const std::string&) {
      status.ok() ? self->Sum() : self->End(status);
    };
    servers_->Start(tensor_, std::move(exchange));
  }
  void Sum() {
    Exchange exchange = MakeExchange(1);
    exchange.in = sent_;
    exchange.out = received_;
    exchange.released = [](const Status&) {};
    exchange.sent = [](const Status&) {};
    exchange.summed = [self = shared_from_this()](const Status& status, const std::string&) {
      self->End(status);
    };
    servers_->Start(tensor_, std::move(exchange));
  }
  void End(const Status& status) {
    const Done done = std::move(done_);
    if (!status.ok()) return done(status);
    Cards cards;
    for (size_t at = 0; at < received_.size(); at += card_bytes_) {
      const std::span<const std::byte> bytes = std::span(received_).subspan(at, card_bytes_);
      cards.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    done(cards);
  }

  Backend* const servers_;
  const bool is_first_;
  const size_t card_bytes_;
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  protocol::Tensor tensor_;
  Done done_;
};

}  // namespace

void Introduce(Backend* servers, int32_t rank, int32_t num_ranks, const std::string& card,
               UniqueFunction<void(const Result<Cards>&)> done) {
  std::make_shared<Introduction>(servers, rank, num_ranks, card, std::move(done))->Begin();
}

}  // namespace bs::backend::collective
