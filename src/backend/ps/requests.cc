// Makes requests and checks that the answers fit them.
#include "backend/ps/requests.h"

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "codec/two_bit.h"
#include "protocol/placement.h"

namespace bs::worker {
namespace {

std::span<const std::byte> PayloadOf(const ps::Message& message) {
  return message.data.empty() ? std::span<const std::byte>() : message.data.front().bytes();
}

// "pull key=7 round=12 partition=2 to server 1".
std::string DescribePull(Key key, const Piece& piece) {
  return "pull key=" + std::to_string(key) + " round=" + std::to_string(piece.round) +
         " partition=" + std::to_string(piece.partition.index) + " to server " +
         std::to_string(piece.partition.server);
}

Result<Tensor> ReadLookup(const ps::Message& answer, Tensor asked, uint32_t num_servers) {
  const ps::Extension& said = answer.meta.extension;
  const std::string what = "lookup key=" + std::to_string(asked.key) + " to server " +
                           std::to_string(HomeServer(asked.key, num_servers));
  if (said.size_bytes != asked.size_bytes || said.dtype != static_cast<uint32_t>(asked.dtype) ||
      said.part_bytes < kAlignBytes || said.part_bytes % kAlignBytes != 0) {
    return Status::Internal(what + ": answered " + std::to_string(said.size_bytes) +
                            " bytes of dtype " + std::to_string(said.dtype) + " in partitions of " +
                            std::to_string(said.part_bytes));
  }
  asked.part_bytes = said.part_bytes;
  asked.partitions = Cut(asked.size_bytes, asked.part_bytes, kAlignBytes);
  const Status fits = DecodeServers(PayloadOf(answer), num_servers, asked.partitions);
  if (!fits.ok()) return Status::Internal(what + ": answered " + fits.message());
  return asked;
}

ps::KvRequest MakeRequest(ps::Op op, const Tensor& tensor, const Piece& piece) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(piece.partition.server);
  request.priority = piece.priority;
  request.extension.op = op;
  request.extension.key = tensor.key;
  request.extension.round = piece.round;
  request.extension.part = piece.partition.index;
  request.extension.offset_bytes = piece.partition.offset_bytes;
  request.extension.size_bytes = piece.partition.size_bytes;
  request.extension.dtype = static_cast<uint32_t>(tensor.dtype);
  request.extension.mode = static_cast<uint32_t>(tensor.mode);
  request.extension.cut = tensor.cut;
  return request;
}

// Writes the sum that comes as an answer where it belongs.
ps::KvWorker::Done IntoPlace(Key key, const Piece& piece, std::span<std::byte> bytes, Pulled done) {
  return
      [key, piece, bytes, done = std::move(done)](const Status& status, const ps::Message& answer) {
        if (!status.ok()) return done(status, {});
        const std::span<const std::byte> sum = PayloadOf(answer);
        if (sum.size() != bytes.size()) {
          return done(Status::Internal(DescribePull(key, piece) + ": answered " +
                                       std::to_string(sum.size()) + " bytes, want " +
                                       std::to_string(bytes.size())),
                      {});
        }
        // It may have been read there.
        if (!sum.empty() && sum.data() != bytes.data()) {
          std::memcpy(bytes.data(), sum.data(), sum.size());
        }
        done(Status::Ok(), answer.meta.extension.next);
      };
}

ps::KvRequest MakePush(const Tensor& tensor, const Piece& piece) {
  ps::KvRequest request = MakeRequest(ps::Op::kPush, tensor, piece);
  request.extension.learning_rate = piece.rates.learning_rate;
  request.extension.weight_decay = piece.rates.weight_decay;
  request.extension.rescale_grad = piece.rates.rescale_grad;
  request.extension.next = piece.next;
  return request;
}

}  // namespace

std::string DescribePlacement(const Tensor& tensor) {
  std::map<uint32_t, size_t> counts;
  for (const Partition& partition : tensor.partitions) ++counts[partition.server];
  std::string text = "key=" + std::to_string(tensor.key) + ": " +
                     std::to_string(tensor.size_bytes) + " bytes of " +
                     std::string(NameOf(tensor.dtype)) + " in " +
                     std::to_string(tensor.partitions.size()) + " partitions";
  const char* separator = "; ";
  for (const auto& [server, count] : counts) {
    text += separator + ("server " + std::to_string(server)) + " has " + std::to_string(count);
    separator = ", ";
  }
  return text;
}

void Declare(const Link& link, const Tensor& tensor, Answered done) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(HomeServer(tensor.key, link.num_servers));
  request.extension.op = ps::Op::kDeclare;
  request.extension.key = tensor.key;
  request.extension.size_bytes = tensor.size_bytes;
  request.extension.part_bytes = tensor.part_bytes;
  request.extension.mode = static_cast<uint32_t>(tensor.mode);
  request.extension.dtype = static_cast<uint32_t>(tensor.dtype);
  auto servers = std::make_unique<const std::vector<std::byte>>(EncodeServers(tensor.partitions));
  request.payload = *servers;
  // The callback keeps the payload: it runs when the payload is out of use.
  link.requests->Send(std::move(request),
                      [done = std::move(done), kept = std::move(servers)](
                          const Status& status, const ps::Message&) { done(status); });
}

void Lookup(const Link& link, const Tensor& asked, UniqueFunction<void(Result<Tensor>)> done) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(HomeServer(asked.key, link.num_servers));
  request.extension.op = ps::Op::kLookup;
  request.extension.key = asked.key;
  request.extension.size_bytes = asked.size_bytes;
  request.extension.dtype = static_cast<uint32_t>(asked.dtype);
  request.extension.mode = static_cast<uint32_t>(asked.mode);
  link.requests->Send(std::move(request),
                      [asked, num_servers = link.num_servers, done = std::move(done)](
                          const Status& status, const ps::Message& answer) {
                        status.ok() ? done(ReadLookup(answer, asked, num_servers)) : done(status);
                      });
}

void SetOptimizer(const Link& link, OptimizerText optimizer, uint64_t number, Answered done) {
  struct Round {
    OptimizerText optimizer;  // the payload of each
    uint32_t missing;
    Status refused;
    Answered done;
  };
  // Owned by the callbacks of all requests.
  const auto round = std::make_shared<Round>(Round{.optimizer = std::move(optimizer),
                                                   .missing = link.num_servers,
                                                   .refused = {},
                                                   .done = std::move(done)});
  for (uint32_t server = 0; server < link.num_servers; ++server) {
    ps::KvRequest request;
    request.server = static_cast<int32_t>(server);
    request.extension.op = ps::Op::kOptimizer;
    request.extension.round = number;
    request.extension.text = round->optimizer.text;
    request.payload = std::as_bytes(std::span(round->optimizer.pickle));
    link.requests->Send(std::move(request), [round](const Status& status, const ps::Message&) {
      if (!status.ok() && round->refused.ok()) round->refused = status;
      if (--round->missing == 0) round->done(round->refused);
    });
  }
}

void Push(const Link& link, const Tensor& tensor, const Piece& piece,
          std::span<const std::byte> bytes, Answered done) {
  ps::KvRequest request = MakePush(tensor, piece);
  request.payload = bytes;
  if (piece.round == 0) {
    request.extension.text = tensor.about;
    request.extension.hosted = tensor.hosted;
  }
  link.requests->Send(
      std::move(request),
      [done = std::move(done)](const Status& status, const ps::Message&) { done(status); });
}

void PushTwoBit(const Link& link, const Tensor& tensor, const Piece& piece,
                std::span<const std::byte> bytes, const TwoBit& coding, Answered done) {
  BS_CHECK(bytes.size() == coding.residual.size_bytes());
  auto words =
      std::make_unique<std::vector<std::byte>>(reduce::TwoBitBytes(coding.residual.size()));
  reduce::QuantizeTwoBit(coding.threshold, bytes.data(), coding.residual.data(), words->data(),
                         coding.residual.size());
  ps::KvRequest request = MakePush(tensor, piece);
  request.extension.codec = ps::Codec::kTwoBit;
  request.extension.threshold = coding.threshold;
  request.payload = *words;
  // The callback keeps the payload: it runs when the payload is out of use.
  link.requests->Send(std::move(request),
                      [done = std::move(done), kept = std::move(words)](
                          const Status& status, const ps::Message&) { done(status); });
}

void Pull(const Link& link, const Tensor& tensor, const Piece& piece, std::span<std::byte> bytes,
          Pulled done) {
  ps::KvRequest request = MakeRequest(ps::Op::kPull, tensor, piece);
  request.answer = bytes;
  link.requests->Send(std::move(request), IntoPlace(tensor.key, piece, bytes, std::move(done)));
}

void PushPull(const Link& link, const Tensor& tensor, const Piece& piece, BothWays ways,
              Pulled done) {
  ps::KvRequest request = MakeRequest(ps::Op::kPushPull, tensor, piece);
  request.extension.next = piece.next;
  request.payload = ways.in;
  request.answer = ways.out;
  request.left = std::move(ways.left);
  link.requests->Send(std::move(request), IntoPlace(tensor.key, piece, ways.out, std::move(done)));
}

void Release(const Link& link, const Tensor& retired, Answered done) {
  std::set<uint32_t> servers;
  for (const Partition& partition : retired.partitions) servers.insert(partition.server);
  struct Round {
    size_t missing;
    Status refused;
    Answered done;
  };
  // Owned by the callbacks of all requests.
  const auto round = std::make_shared<Round>(
      Round{.missing = servers.size(), .refused = {}, .done = std::move(done)});
  for (const uint32_t server : servers) {
    ps::KvRequest request;
    request.server = static_cast<int32_t>(server);
    request.extension.op = ps::Op::kRelease;
    request.extension.key = retired.key;
    request.extension.cut = retired.cut + 1;
    request.extension.part = static_cast<uint32_t>(retired.partitions.size());
    link.requests->Send(std::move(request), [round](const Status& status, const ps::Message&) {
      if (!status.ok() && round->refused.ok()) round->refused = status;
      if (--round->missing == 0) round->done(round->refused);
    });
  }
}

}  // namespace bs::worker
