// Makes requests, and checks that the responses fit them.
#include "backend/ps/ps_backend.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "backend/ps/exchange_body.h"
#include "backend/traffic.h"
#include "base/check.h"
#include "base/count_of.h"
#include "protocol/data_body.h"

namespace bs::backend {
namespace {

ps::KvWorkerOptions WithRules(ps::KvWorkerOptions options) {
  options.bodies = protocol::DataBodyRules();
  return options;
}

Result<protocol::Tensor> ReadLookup(const ps::Message& response, protocol::Tensor asked,
                                    uint32_t num_servers) {
  const std::string what = "lookup key=" + std::to_string(asked.key) + " to server " +
                           std::to_string(protocol::HomeServer(asked.key, num_servers));
  const Result<protocol::DataResponse> read =
      protocol::DecodeResponse(ps::Op::kLookup, response.meta.extension.body);
  if (!read.ok()) return Status::Internal(what + ": answered " + read.status().message());
  const protocol::DataResponse& body = read.value();
  if (body.tensor_bytes != asked.size_bytes || body.dtype != static_cast<uint32_t>(asked.dtype) ||
      body.partition_bytes < protocol::kAlignBytes ||
      body.partition_bytes % protocol::kAlignBytes != 0 ||
      body.layout_version != asked.layout_version) {
    return Status::Internal(what + ": answered " + CountOf(body.tensor_bytes, "byte") +
                            " of dtype " + std::to_string(body.dtype) + " in partitions of " +
                            std::to_string(body.partition_bytes) + ", layout version " +
                            std::to_string(body.layout_version));
  }
  asked.partition_bytes = body.partition_bytes;
  asked.partitions =
      protocol::SplitIntoPartitions(asked.size_bytes, asked.partition_bytes, protocol::kAlignBytes);
  const Status fits = protocol::DecodeServers(PayloadOf(response), num_servers, asked.partitions);
  if (!fits.ok()) return Status::Internal(what + ": answered " + fits.message());
  return asked;
}

protocol::DataRequest BodyOfPush(const protocol::Tensor& tensor, const Exchange& exchange) {
  protocol::DataRequest body = BodyOf(tensor, exchange);
  body.learning_rate = exchange.rates.learning_rate;
  body.weight_decay = exchange.rates.weight_decay;
  body.rescale_grad = exchange.rates.rescale_grad;
  body.next_layout = exchange.next_layout;
  body.stands_for = exchange.stands_for;
  body.coding = exchange.coder.coding;
  body.ratio = exchange.coder.ratio;
  if (exchange.round == 0) {
    body.hosted = tensor.hosted;
    body.about = tensor.about;
  }
  return body;
}

ps::KvRequest MakeRequest(ps::Op op, uint32_t server, const protocol::DataRequest& body) {
  ps::KvRequest request;
  request.server = static_cast<int32_t>(server);
  request.extension.op = op;
  request.extension.body = protocol::Encode(op, body);
  return request;
}

ps::KvRequest MakeRequest(ps::Op op, const Exchange& exchange, const protocol::DataRequest& body) {
  ps::KvRequest request = MakeRequest(op, exchange.partition.server, body);
  request.priority = exchange.priority;
  return request;
}

std::vector<std::byte> EncodeContribution(const protocol::Tensor& tensor, const Exchange& exchange,
                                          const job::View& view) {
  const Coder& coder = exchange.coder;
  const CodecParameters& parameters = coder.coding.parameters;
  const size_t count = exchange.in.size() / sizeof(float);
  BS_CHECK(coder.residual.empty() || coder.residual.size() == count);
  std::vector<std::byte> codes(coder.codec->encoded_bytes(parameters, count));
  const bool is_sum = exchange.stands_for > 0;
  const int32_t rank = is_sum ? view.WorkersBeside(view.own.rank).front() : view.own.rank;
  const codec::Place place{.job = view.job,
                           .key = tensor.key,
                           .round = exchange.round,
                           .first_element = exchange.partition.offset_bytes / sizeof(float),
                           .ratio = coder.ratio,
                           .rank = static_cast<uint32_t>(rank),
                           .num_workers = is_sum ? exchange.stands_for : 1};
  coder.codec->encode(parameters, place, exchange.in.data(),
                      coder.residual.empty() ? nullptr : coder.residual.data(), codes.data(),
                      count);
  return codes;
}

Traffic TrafficOf(const ps::KvTraffic& traffic) {
  const auto direction = [](const ps::KvTraffic::Direction& counted) {
    return Traffic::Direction{counted.count, counted.bytes, counted.time};
  };
  return {direction(traffic.pushed), direction(traffic.pulled), traffic.repeats};
}

}  // namespace

PsBackend::PsBackend(const PsBackendOptions& options, Executor* executor, SendFn send,
                     const Logger& log)
    : options_(options),
      executor_(executor),
      log_(log),
      requests_(WithRules(options.requests), executor, std::move(send), log),
      estimator_(executor, num_servers()),
      loads_(num_servers(), options.server_weights),
      taken_(num_servers()) {
  BS_CHECK(options.view->num_servers() > 0);
  if (!options.measures_bandwidth) estimator_.Stop();
}

void PsBackend::OnMessage(ps::Message message) {
  executor_->Post(
      [this, message = std::move(message)]() mutable { requests_.OnMessage(std::move(message)); });
}

std::shared_ptr<ps::Landing> PsBackend::LandingFor(int32_t peer, const ps::Meta& meta,
                                                   uint64_t size_bytes) {
  return requests_.Place(peer, meta, size_bytes);
}

void PsBackend::Place(std::span<Partition> partitions, std::span<const Partition> replaced) {
  loads_.Remove(replaced);
  loads_.Place(partitions);
}

void PsBackend::Declare(const protocol::Tensor& tensor, Done done) {
  const uint32_t server = protocol::HomeServer(tensor.key, num_servers());
  ps::KvRequest request = MakeRequest(ps::Op::kDeclare, server,
                                      {.key = tensor.key,
                                       .tensor_bytes = tensor.size_bytes,
                                       .partition_bytes = tensor.partition_bytes,
                                       .dtype = static_cast<uint32_t>(tensor.dtype),
                                       .mode = static_cast<uint32_t>(tensor.mode),
                                       .layout_version = tensor.layout_version});
  auto servers =
      std::make_unique<const std::vector<std::byte>>(protocol::EncodeServers(tensor.partitions));
  request.payload = *servers;
  // The callback keeps the payload: it runs when the payload is out of use.
  requests_.Send(std::move(request),
                 [this, server, sent = estimator_.RequestSent(), done = std::move(done),
                  kept = std::move(servers)](const Status& status, const ps::Message&) {
                   if (status.ok()) estimator_.ResponseCame(server, sent);
                   done(status);
                 });
}

void PsBackend::Lookup(const protocol::Tensor& asked,
                       UniqueFunction<void(Result<protocol::Tensor>)> done) {
  ps::KvRequest request =
      MakeRequest(ps::Op::kLookup, protocol::HomeServer(asked.key, num_servers()),
                  {.key = asked.key,
                   .tensor_bytes = asked.size_bytes,
                   .dtype = static_cast<uint32_t>(asked.dtype),
                   .mode = static_cast<uint32_t>(asked.mode),
                   .layout_version = asked.layout_version});
  requests_.Send(std::move(request), [asked, num_servers = num_servers(), done = std::move(done)](
                                         const Status& status, const ps::Message& response) {
    status.ok() ? done(ReadLookup(response, asked, num_servers)) : done(status);
  });
}

std::shared_ptr<void> PsBackend::LendSent(std::span<const std::byte> memory) {
  if (!options_.lend || memory.size() < kLeastLentBytes) return nullptr;
  // The device only reads it.
  auto* const begin = const_cast<std::byte*>(memory.data());
  return options_.lend({begin, memory.size()}, ps::Lending::kSent);
}

std::shared_ptr<void> PsBackend::LendFilled(std::span<std::byte> memory) {
  if (!options_.lend || memory.size() < kLeastLentBytes) return nullptr;
  return options_.lend(memory, ps::Lending::kFilled);
}

void PsBackend::Start(const protocol::Tensor& tensor, Exchange exchange) {
  if (GoesTogether(tensor, exchange)) return PushPull(tensor, std::move(exchange));
  Summed summed = std::move(exchange.summed);
  if (exchange.sent) Push(tensor, &exchange);
  if (summed) Pull(tensor, exchange, std::move(summed));
}

bool PsBackend::GoesTogether(const protocol::Tensor& tensor, const Exchange& exchange) const {
  // An empty partition sends nothing.
  return exchange.sent && exchange.summed && !exchange.in.empty() &&
         tensor.size_bytes <= options_.together_bytes && exchange.coder.coding.plain() &&
         tensor.mode == Mode::kSynchronous;
}

void PsBackend::PushPull(const protocol::Tensor& tensor, Exchange exchange) {
  protocol::DataRequest body = BodyOf(tensor, exchange);
  body.next_layout = exchange.next_layout;
  body.stands_for = exchange.stands_for;
  body.coding = exchange.coder.coding;
  ps::KvRequest request = MakeRequest(ps::Op::kPushPull, exchange, body);
  request.payload = exchange.in;
  request.answer = exchange.out;
  request.left = [released = std::move(exchange.released)] { released(Status::Ok()); };
  requests_.Send(
      std::move(request),
      [pull = MakePull(tensor, exchange), sent = std::move(exchange.sent),
       summed = std::move(exchange.summed)](const Status& status, const ps::Message& response) {
        const Result<std::string> next =
            status.ok() ? TakeSum(pull, response) : Result<std::string>(status);
        sent(next.status());
        summed(next.status(), next.ok() ? next.value() : std::string());
      });
}

void PsBackend::Push(const protocol::Tensor& tensor, Exchange* exchange) {
  ps::KvRequest request = MakeRequest(ps::Op::kPush, *exchange, BodyOfPush(tensor, *exchange));
  // The callback keeps the codes, so a repeat sends the same codes.
  std::vector<std::byte> codes;
  if (!exchange->coder.coding.plain()) {
    const TimePoint began = executor_->Now();
    codes = EncodeContribution(tensor, *exchange, *options_.view);
    coding_time_ += executor_->Now() - began;
  }
  request.payload = exchange->coder.coding.plain() ? exchange->in : std::span(std::as_const(codes));
  const uint64_t size_bytes = request.payload.size();
  estimator_.PartitionSent(size_bytes);
  requests_.Send(std::move(request), [this, size_bytes, released = std::move(exchange->released),
                                      sent = std::move(exchange->sent), kept = std::move(codes)](
                                         const Status& status, const ps::Message&) {
    estimator_.PartitionAcknowledged(size_bytes);
    released(status);
    sent(status);
  });
}

void PsBackend::Pull(const protocol::Tensor& tensor, const Exchange& exchange, Summed summed) {
  ps::KvRequest request = MakeRequest(ps::Op::kPull, exchange, BodyOf(tensor, exchange));
  PullOf pull = MakePull(tensor, exchange);
  pull.sum_coding = exchange.coder.sum_coding;
  pull.sum_codec = exchange.coder.sum_codec;
  pull.num_workers = static_cast<uint32_t>(options_.view->num_workers());
  pull.job = options_.view->job;
  std::vector<std::byte> codes;  // kept by the callback
  if (pull.sum_codec != nullptr) codes.resize(SumBytes(pull));
  request.answer = pull.sum_codec != nullptr ? std::span(codes) : exchange.out;
  requests_.Send(std::move(request),
                 [this, pull, summed = std::move(summed), kept = std::move(codes)](
                     const Status& status, const ps::Message& response) {
                   if (!status.ok()) return summed(status, {});
                   const Result<std::string> next = Receive(pull, response);
                   summed(next.status(), next.ok() ? next.value() : std::string());
                 });
}

Result<std::string> PsBackend::Receive(const PullOf& pull, const ps::Message& response) {
  if (pull.sum_codec == nullptr) return TakeSum(pull, response);
  const TimePoint began = executor_->Now();
  Result<std::string> next = TakeSum(pull, response);
  coding_time_ += executor_->Now() - began;
  return next;
}

void PsBackend::SendToEach(std::vector<ps::KvRequest> requests, Done done) {
  struct Call {
    size_t missing;
    Status refused;
    Done done;
  };
  // Owned by the callbacks of all requests.
  const auto call = std::make_shared<Call>(
      Call{.missing = requests.size(), .refused = {}, .done = std::move(done)});
  for (ps::KvRequest& request : requests) {
    requests_.Send(std::move(request), [call](const Status& status, const ps::Message&) {
      if (!status.ok() && call->refused.ok()) call->refused = status;
      if (--call->missing == 0) call->done(call->refused);
    });
  }
}

void PsBackend::Release(const protocol::Tensor& retired, bool given_back, Done done) {
  std::set<uint32_t> servers;
  for (const Partition& partition : retired.partitions) servers.insert(partition.server);
  std::vector<ps::KvRequest> requests;
  requests.reserve(servers.size());
  for (const uint32_t server : servers) {
    requests.push_back(
        MakeRequest(ps::Op::kRelease, server,
                    {.key = retired.key,
                     .num_partitions = static_cast<uint32_t>(retired.partitions.size()),
                     .oldest_layout = retired.layout_version + 1,
                     .given_back = given_back}));
  }
  SendToEach(std::move(requests), std::move(done));
}

void PsBackend::GiveBack(const protocol::Tensor& tensor, uint64_t turn,
                         UniqueFunction<void(Result<bool>)> done) {
  ps::KvRequest request =
      MakeRequest(ps::Op::kGiveBack, protocol::HomeServer(tensor.key, num_servers()),
                  {.key = tensor.key, .turn = turn, .layout_version = tensor.first_layout});
  const std::string what = "give-back key=" + std::to_string(tensor.key);
  requests_.Send(std::move(request),
                 [what, done = std::move(done)](const Status& status, const ps::Message& response) {
                   if (!status.ok()) return done(status);
                   const Result<protocol::DataResponse> body =
                       protocol::DecodeResponse(ps::Op::kGiveBack, response.meta.extension.body);
                   if (!body.ok())
                     return done(Status::Internal(what + ": answered " + body.status().message()));
                   done(body.value().given_back);
                 });
}

void PsBackend::SetOptimizer(OptimizerText optimizer, uint64_t number, Done done) {
  auto kept = std::make_unique<const OptimizerText>(std::move(optimizer));
  std::vector<ps::KvRequest> requests;
  requests.reserve(num_servers());
  for (uint32_t server = 0; server < num_servers(); ++server) {
    requests.push_back(MakeRequest(ps::Op::kOptimizer, server,
                                   {.optimizer_call = number, .optimizer = kept->text}));
    requests.back().payload = std::as_bytes(std::span(kept->pickle));
  }
  // The callback keeps the payload of all requests.
  SendToEach(std::move(requests), [done = std::move(done),
                                   kept = std::move(kept)](const Status& status) { done(status); });
}

Carriers PsBackend::CarriersOf(const protocol::Tensor& /*tensor*/, const Coding& /*coding*/,
                               const Partition& partition) const {
  if (!options_.carriers) return {};
  return options_.carriers(ps::ServerId(static_cast<int32_t>(partition.server)));
}

std::optional<PartitionAndCredit> PsBackend::TakeFitting() {
  if (estimator_.stopped()) return std::nullopt;
  std::optional<Bandwidth> found = estimator_.measured();
  if (!found) return std::nullopt;
  estimator_.Stop();
  const uint64_t shared_bytes = options_.shared_bytes ? options_.shared_bytes() : 0;
  found->shares_memory = shared_bytes / 3 > estimator_.acknowledged_bytes() / 4;
  found->adds_up = options_.adds_up;
  log_.Debug([&] {
    const auto round_trip =
        std::chrono::duration_cast<std::chrono::microseconds>(found->round_trip).count();
    return "what is pushed is acknowledged at " +
           std::to_string(std::llround(found->bytes_per_second / 1e6)) +
           " MB/s; an idle network answers after " + std::to_string(round_trip) + " us";
  });
  return PartitionAndCreditFor(*found, num_servers());
}

void PsBackend::Measure(Metrics* metrics) const {
  const std::vector<ps::KvTraffic>& traffic = requests_.traffic();
  for (uint32_t i = 0; i < num_servers(); ++i) {
    AddTraffic(i < traffic.size() ? TrafficOf(traffic[i]) : Traffic(), i, metrics);
  }
  metrics->Add("pending_requests", static_cast<double>(requests_.pending()));
  metrics->Add("coding_seconds_total", std::chrono::duration<double>(coding_time_).count());
  if (options_.measure_network) options_.measure_network(metrics);
}

}  // namespace bs::backend
