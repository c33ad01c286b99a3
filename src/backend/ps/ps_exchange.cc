// Exchanges between some workers: gives and takes, and the notice that a result has come.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "backend/ps/exchange_body.h"
#include "backend/ps/ps_backend.h"
#include "base/count_of.h"
#include "protocol/data_body.h"
#include "ps/text.h"

namespace bs::backend {
namespace {

constexpr Priority kMostUrgent = std::numeric_limits<Priority>::max();
// Servers keep results for this long besides.
constexpr Duration kNotifyAfter = std::chrono::milliseconds(1);
constexpr Duration kNotifyAgainAfter = std::chrono::seconds(1);

ps::KvRequest RequestFor(ps::Op op, const ExchangePartition& part, uint64_t answered_below) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(part.partition.server);
  request.priority = part.priority;
  request.extension.op = op;
  request.extension.body =
      protocol::Encode(op, protocol::DataRequest{.key = part.key,
                                                 .partition = part.partition.index,
                                                 .offset_bytes = part.partition.offset_bytes,
                                                 .size_bytes = part.partition.size_bytes,
                                                 .answered_below = answered_below,
                                                 .terms = part.terms});
  return request;
}

// The server's own refusal: a request that got no answer has no message.
// A worker that is lost fails the job.  A worker that left fails what waits for it, which the
// worker that waits may have given up already.
bool IsRefused(const Status& status, const ps::Message& response) {
  if (status.ok() || !response.meta.native()) return false;
  return status.code() != StatusCode::kUnavailable || ps::IsLeftStatus(status);
}

Status CopyResult(const ExchangePartition& part, const ps::Message& response) {
  const std::span<const std::byte> result = PayloadOf(response);
  if (result.size() != part.out.size()) {
    return Status::Internal("take key=" + std::to_string(part.key) +
                            " partition=" + std::to_string(part.partition.index) + " to server " +
                            std::to_string(part.partition.server) + ": answered " +
                            CountOf(result.size(), "byte") + ", want " +
                            std::to_string(part.out.size()));
  }
  // The transport may have read it there.
  if (!result.empty() && result.data() != part.out.data()) {
    std::memcpy(part.out.data(), result.data(), result.size());
  }
  return Status::Ok();
}

}  // namespace

void PsBackend::StartPartition(ExchangePartition part) {
  const bool together =
      part.given && part.taken && !part.in.empty() && part.in.size() <= options_.together_bytes;
  if (together) return Take(std::move(part));
  if (part.given) Give(&part);
  if (part.taken) Take(std::move(part));
}

void PsBackend::Give(ExchangePartition* part) {
  ps::KvRequest request = RequestFor(ps::Op::kGive, *part, requests_.first_open());
  request.payload = part->in;
  const uint64_t size_bytes = part->in.size();
  estimator_.PartitionSent(size_bytes);
  requests_.Send(std::move(request), [this, size_bytes, released = std::move(part->released),
                                      given = std::move(part->given)](const Status& status,
                                                                      const ps::Message& response) {
    estimator_.PartitionAcknowledged(size_bytes);
    released(status, IsRefused(status, response));
    given(status, IsRefused(status, response));
  });
}

void PsBackend::Take(ExchangePartition part) {
  ps::KvRequest request = RequestFor(ps::Op::kTake, part, requests_.first_open());
  request.waits_for_ever = true;  // the exchange has a deadline of its own
  request.answer = part.out;
  if (part.given) {
    request.payload = part.in;
    request.left = [released = std::move(part.released)] { released(Status::Ok(), false); };
  }
  requests_.Send(std::move(request), [this, part = std::move(part)](const Status& status,
                                                                    const ps::Message& response) {
    const bool refused = IsRefused(status, response);
    if (part.given) part.given(status, refused);
    if (!status.ok()) return part.taken(status, refused);
    const Status copied = CopyResult(part, response);
    NoteTaken(part.partition.server, {.key = part.key, .partition = part.partition.index});
    part.taken(copied, /*refused=*/false);
  });
}

void PsBackend::NoteTaken(uint32_t server, const protocol::TakenPartition& partition) {
  Taken& taken = taken_[server];
  taken.unreported.push_back(partition);
  if (std::exchange(taken.under_way, true)) return;
  // One notice is for many small exchanges.
  NotifyTakenAfter(kNotifyAfter, server);
}

void PsBackend::NotifyTakenAfter(Duration delay, uint32_t server) {
  executor_->PostAt(executor_->Now() + delay, [this, server, lives = std::weak_ptr(lives_)] {
    if (!lives.expired()) NotifyTaken(server);
  });
}

void PsBackend::NotifyTaken(uint32_t server) {
  const Taken& taken = taken_[server];
  const size_t count = std::min(taken.unreported.size(), protocol::kMostTakenPartitions);
  ps::KvRequest request;
  request.server = static_cast<int32_t>(server);
  request.priority = kMostUrgent;
  request.extension.op = ps::Op::kTaken;
  request.extension.body = protocol::Encode(
      ps::Op::kTaken,
      protocol::DataRequest{.answered_below = requests_.first_open(),
                            .taken = protocol::Encode(std::span(taken.unreported.data(), count))});
  requests_.Send(std::move(request), [this, server, count, lives = std::weak_ptr(lives_)](
                                         const Status& status, const ps::Message& response) {
    if (!lives.expired()) OnNotified(server, count, status, IsRefused(status, response));
  });
}

void PsBackend::OnNotified(uint32_t server, size_t count, const Status& status, bool refused) {
  Taken& taken = taken_[server];
  if (!status.ok()) {
    log_.Warning("server " + std::to_string(server) +
                 " keeps results of exchanges that this worker has: " + status.message());
  }
  // A refusal comes again.
  if (status.ok() || refused) {
    taken.unreported.erase(taken.unreported.begin(),
                           taken.unreported.begin() + static_cast<std::ptrdiff_t>(count));
  }
  taken.under_way = !failed_ && !taken.unreported.empty();
  if (!taken.under_way) return;
  status.ok() ? NotifyTaken(server) : NotifyTakenAfter(kNotifyAgainAfter, server);
}

void PsBackend::Quit(Key key, const std::string& terms, uint32_t destination, const Status& why,
                     Done done) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(destination);
  request.priority = kMostUrgent;
  request.extension.op = ps::Op::kQuit;
  request.extension.status = static_cast<uint32_t>(why.code());
  request.extension.text = why.message();
  request.extension.body =
      protocol::Encode(ps::Op::kQuit, protocol::DataRequest{.key = key, .terms = terms});
  requests_.Send(
      std::move(request),
      [done = std::move(done)](const Status& status, const ps::Message&) { done(status); });
}

}  // namespace bs::backend
