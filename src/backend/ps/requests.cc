// Makes requests and checks that the answers fit them.
#include "backend/ps/requests.h"

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "codec/codec.h"
#include "protocol/data_body.h"
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
  const std::string what = "lookup key=" + std::to_string(asked.key) + " to server " +
                           std::to_string(HomeServer(asked.key, num_servers));
  const Result<protocol::DataResponse> body =
      protocol::DecodeResponse(ps::Op::kLookup, answer.meta.extension.body);
  if (!body.ok()) return Status::Internal(what + ": answered " + body.status().message());
  const protocol::DataResponse& said = body.value();
  if (said.tensor_bytes != asked.size_bytes || said.dtype != static_cast<uint32_t>(asked.dtype) ||
      said.partition_bytes < kAlignBytes || said.partition_bytes % kAlignBytes != 0) {
    return Status::Internal(what + ": answered " + std::to_string(said.tensor_bytes) +
                            " bytes of dtype " + std::to_string(said.dtype) + " in partitions of " +
                            std::to_string(said.partition_bytes));
  }
  asked.partition_bytes = said.partition_bytes;
  asked.partitions = Cut(asked.size_bytes, asked.partition_bytes, kAlignBytes);
  const Status fits = DecodeServers(PayloadOf(answer), num_servers, asked.partitions);
  if (!fits.ok()) return Status::Internal(what + ": answered " + fits.message());
  return asked;
}

protocol::DataRequest BodyOf(const Tensor& tensor, const Piece& piece) {
  const bool counted = tensor.mode == Mode::kAsynchronous;
  return {.key = tensor.key,
          .round = counted ? 0 : piece.round,
          .push_count = counted ? piece.round : 0,
          .partition = piece.partition.index,
          .offset_bytes = piece.partition.offset_bytes,
          .size_bytes = piece.partition.size_bytes,
          .dtype = static_cast<uint32_t>(tensor.dtype),
          .mode = static_cast<uint32_t>(tensor.mode),
          .layout_version = tensor.layout_version};
}

protocol::DataRequest BodyOfPush(const Tensor& tensor, const Piece& piece) {
  protocol::DataRequest body = BodyOf(tensor, piece);
  body.learning_rate = piece.rates.learning_rate;
  body.weight_decay = piece.rates.weight_decay;
  body.rescale_grad = piece.rates.rescale_grad;
  body.next_layout = piece.next;
  return body;
}

ps::KvRequest MakeRequest(ps::Op op, uint32_t server, const protocol::DataRequest& body) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(server);
  request.extension.op = op;
  request.extension.body = protocol::Encode(op, body);
  return request;
}

ps::KvRequest MakeRequest(ps::Op op, const Piece& piece, const protocol::DataRequest& body) {
  ps::KvRequest request = MakeRequest(op, piece.partition.server, body);
  request.priority = piece.priority;
  return request;
}

// Writes the sum that comes as an answer where it belongs.
ps::KvWorker::Done IntoPlace(Key key, const Piece& piece, std::span<std::byte> bytes, Pulled done) {
  return [key, piece, bytes, done = std::move(done)](const Status& status,
                                                     const ps::Message& answer) {
    if (!status.ok()) return done(status, {});
    const std::span<const std::byte> sum = PayloadOf(answer);
    if (sum.size() != bytes.size()) {
      return done(
          Status::Internal(DescribePull(key, piece) + ": answered " + std::to_string(sum.size()) +
                           " bytes, want " + std::to_string(bytes.size())),
          {});
    }
    Result<protocol::DataResponse> body =
        protocol::DecodeResponse(ps::Op::kPull, answer.meta.extension.body);
    if (!body.ok()) {
      return done(
          Status::Internal(DescribePull(key, piece) + ": answered " + body.status().message()), {});
    }
    // It may have been read there.
    if (!sum.empty() && sum.data() != bytes.data()) {
      std::memcpy(bytes.data(), sum.data(), sum.size());
    }
    done(Status::Ok(), body.value().next_layout);
  };
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
  ps::KvRequest request = MakeRequest(ps::Op::kDeclare, HomeServer(tensor.key, link.num_servers),
                                      {.key = tensor.key,
                                       .tensor_bytes = tensor.size_bytes,
                                       .partition_bytes = tensor.partition_bytes,
                                       .dtype = static_cast<uint32_t>(tensor.dtype),
                                       .mode = static_cast<uint32_t>(tensor.mode)});
  auto servers = std::make_unique<const std::vector<std::byte>>(EncodeServers(tensor.partitions));
  request.payload = *servers;
  // The callback keeps the payload: it runs when the payload is out of use.
  link.requests->Send(std::move(request),
                      [done = std::move(done), kept = std::move(servers)](
                          const Status& status, const ps::Message&) { done(status); });
}

void Lookup(const Link& link, const Tensor& asked, UniqueFunction<void(Result<Tensor>)> done) {
  ps::KvRequest request = MakeRequest(ps::Op::kLookup, HomeServer(asked.key, link.num_servers),
                                      {.key = asked.key,
                                       .tensor_bytes = asked.size_bytes,
                                       .dtype = static_cast<uint32_t>(asked.dtype),
                                       .mode = static_cast<uint32_t>(asked.mode)});
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
    ps::KvRequest request = MakeRequest(
        ps::Op::kOptimizer, server, {.optimizer_call = number, .optimizer = round->optimizer.text});
    request.payload = std::as_bytes(std::span(round->optimizer.pickle));
    link.requests->Send(std::move(request), [round](const Status& status, const ps::Message&) {
      if (!status.ok() && round->refused.ok()) round->refused = status;
      if (--round->missing == 0) round->done(round->refused);
    });
  }
}

void Push(const Link& link, const Tensor& tensor, const Piece& piece,
          std::span<const std::byte> bytes, Answered done) {
  protocol::DataRequest body = BodyOfPush(tensor, piece);
  if (piece.round == 0) {
    body.hosted = tensor.hosted;
    body.about = tensor.about;
  }
  ps::KvRequest request = MakeRequest(ps::Op::kPush, piece, body);
  request.payload = bytes;
  link.requests->Send(
      std::move(request),
      [done = std::move(done)](const Status& status, const ps::Message&) { done(status); });
}

void PushCoded(const Link& link, const Tensor& tensor, const Piece& piece,
               std::span<const std::byte> bytes, const Coder& coder, Answered done) {
  BS_CHECK(bytes.size() == coder.residual.size_bytes());
  const codec::Codec& codec = link.codecs->Get(coder.coding);
  const CodecParameters& parameters = coder.coding.parameters;
  const size_t count = coder.residual.size();
  auto codes = std::make_unique<std::vector<std::byte>>(codec.encoded_bytes(parameters, count));
  const codec::Place place{.key = tensor.key,
                           .round = piece.round,
                           .first_element = piece.partition.offset_bytes / sizeof(float)};
  codec.encode(parameters, place, bytes.data(), coder.residual.data(), codes->data(), count);
  protocol::DataRequest body = BodyOfPush(tensor, piece);
  body.coding = coder.coding;
  ps::KvRequest request = MakeRequest(ps::Op::kPush, piece, body);
  request.payload = *codes;
  // The callback keeps the payload: it runs when the payload is out of use.
  link.requests->Send(std::move(request),
                      [done = std::move(done), kept = std::move(codes)](
                          const Status& status, const ps::Message&) { done(status); });
}

void Pull(const Link& link, const Tensor& tensor, const Piece& piece, std::span<std::byte> bytes,
          Pulled done) {
  ps::KvRequest request = MakeRequest(ps::Op::kPull, piece, BodyOf(tensor, piece));
  request.answer = bytes;
  link.requests->Send(std::move(request), IntoPlace(tensor.key, piece, bytes, std::move(done)));
}

void PushPull(const Link& link, const Tensor& tensor, const Piece& piece, BothWays ways,
              Pulled done) {
  protocol::DataRequest body = BodyOf(tensor, piece);
  body.next_layout = piece.next;
  ps::KvRequest request = MakeRequest(ps::Op::kPushPull, piece, body);
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
    ps::KvRequest request =
        MakeRequest(ps::Op::kRelease, server,
                    {.key = retired.key,
                     .num_partitions = static_cast<uint32_t>(retired.partitions.size()),
                     .oldest_layout = retired.layout_version + 1});
    link.requests->Send(std::move(request), [round](const Status& status, const ps::Message&) {
      if (!status.ok() && round->refused.ok()) round->refused = status;
      if (--round->missing == 0) round->done(round->refused);
    });
  }
}

}  // namespace bs::worker
