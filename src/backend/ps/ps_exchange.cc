// Exchanges between some workers: gives and takes, and the word that a result has come.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "backend/ps/exchange_body.h"
#include "backend/ps/ps_backend.h"
#include "base/count_of.h"
#include "protocol/data_body.h"

namespace bs::backend {
namespace {

// A request tells of at most so many.
constexpr size_t kMostTold = 1024;
// Servers keep results for this long besides.
constexpr Duration kTellAfter = std::chrono::milliseconds(1);

ps::KvRequest RequestFor(ps::Op op, const ExchangePart& part) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(part.partition.server);
  request.priority = part.priority;
  request.extension.op = op;
  request.extension.body =
      protocol::Encode(op, protocol::DataRequest{.key = part.key,
                                                 .partition = part.partition.index,
                                                 .offset_bytes = part.partition.offset_bytes,
                                                 .size_bytes = part.partition.size_bytes,
                                                 .terms = part.terms});
  return request;
}

// The server's own refusal: a request that got no answer has no message.
bool IsRefused(const Status& status, const ps::Message& response) {
  return !status.ok() && response.meta.native();
}

Status CopyResult(const ExchangePart& part, const ps::Message& response) {
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

void PsBackend::StartPart(ExchangePart part) {
  const bool together =
      part.given && part.taken && !part.in.empty() && part.in.size() <= options_.together_bytes;
  if (together) return Take(std::move(part));
  if (part.given) Give(&part);
  if (part.taken) Take(std::move(part));
}

void PsBackend::Give(ExchangePart* part) {
  ps::KvRequest request = RequestFor(ps::Op::kGive, *part);
  request.payload = part->in;
  requests_.Send(std::move(request),
                 [released = std::move(part->released), given = std::move(part->given)](
                     const Status& status, const ps::Message& response) {
                   released(status, IsRefused(status, response));
                   given(status, IsRefused(status, response));
                 });
}

void PsBackend::Take(ExchangePart part) {
  ps::KvRequest request = RequestFor(ps::Op::kTake, part);
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
  taken.untold.push_back(partition);
  if (std::exchange(taken.under_way, true)) return;
  // One request tells of many small exchanges.
  executor_->PostAt(executor_->Now() + kTellAfter, [this, server, lives = std::weak_ptr(lives_)] {
    if (!lives.expired()) TellTaken(server);
  });
}

void PsBackend::TellTaken(uint32_t server) {
  Taken& taken = taken_[server];
  const size_t count = std::min(taken.untold.size(), kMostTold);
  const auto end = taken.untold.begin() + static_cast<std::ptrdiff_t>(count);
  ps::KvRequest request;
  request.server = static_cast<int32_t>(server);
  request.extension.op = ps::Op::kTaken;
  request.extension.body = protocol::Encode(
      ps::Op::kTaken, protocol::DataRequest{.taken = protocol::Encode(std::span(
                                                std::as_const(taken.untold).data(), count))});
  taken.untold.erase(taken.untold.begin(), end);
  requests_.Send(std::move(request), [this, server, lives = std::weak_ptr(lives_)](
                                         const Status& status, const ps::Message&) {
    if (lives.expired()) return;
    const bool tells = status.ok() && !taken_[server].untold.empty();
    taken_[server].under_way = tells;
    if (tells) TellTaken(server);
  });
}

void PsBackend::Quit(Key key, uint32_t destination, const Status& why, Done done) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(destination);
  request.extension.op = ps::Op::kQuit;
  request.extension.status = static_cast<uint32_t>(why.code());
  request.extension.text = why.message();
  request.extension.body = protocol::Encode(ps::Op::kQuit, protocol::DataRequest{.key = key});
  requests_.Send(
      std::move(request),
      [done = std::move(done)](const Status& status, const ps::Message&) { done(status); });
}

}  // namespace bs::backend
