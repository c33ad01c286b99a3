// The server's request path: any sequence of messages from anybody and of losses of workers, whose
// places may be taken again, then the end of the job.
//
// Every native request must have been answered by then, once: finally, or as "still waiting"; one
// of a worker that was lost once at most.  A stock one is answered once at most: a failure has no
// answer.
#include <fuzzer/FuzzedDataProvider.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "codec/picks.h"
#include "protocol/data_body.h"
#include "protocol/exchange_terms.h"
#include "protocol/grants.h"
#include "ps-lite/wire/golden.h"
#include "server/server.h"
#include "sim/sim_executor.h"

namespace {

constexpr int32_t kWorkers = 3;
constexpr size_t kMostMessages = 200;

// Ids of workers, attached workers, servers, the scheduler node, and nobody.
int32_t DrawPeer(FuzzedDataProvider* input) {
  const int32_t rank = input->ConsumeIntegralInRange<int32_t>(0, kWorkers);
  switch (input->ConsumeIntegralInRange<int>(0, 7)) {
    case 0:
      return ps::AttachedId(rank);
    case 1:
      return ps::ServerId(rank);
    case 2:
      return input->ConsumeIntegral<int32_t>();
    default:
      return ps::WorkerId(rank);
  }
}

uint64_t DrawSize(FuzzedDataProvider* input) {
  return input->ConsumeBool() ? input->PickValueInArray<uint64_t>({0, 4, 8, 64, 4096, 4097})
                              : input->ConsumeIntegral<uint64_t>();
}

// An optimizer, or anything.
std::string DrawText(FuzzedDataProvider* input) {
  const std::string name = input->PickValueInArray<std::string>(
      {"", "sgd ", "adam ", "nag momentum=0.9 ", "rmsprop ", "ftrl ", "signum ", "hosted "});
  return name + input->ConsumeRandomLengthString(30);
}

// Tensors that are ready, and numbers of operations.
std::string DrawReadiness(FuzzedDataProvider* input) {
  if (input->ConsumeIntegralInRange<int>(0, 7) == 0) return input->ConsumeRandomLengthString(24);
  bs::protocol::Readiness readiness;
  for (int n = input->ConsumeIntegralInRange<int>(0, 3); n > 0; --n) {
    readiness.tensors.push_back({.key = input->ConsumeIntegralInRange<uint64_t>(0, 3),
                                 .round = input->ConsumeIntegralInRange<uint64_t>(1, 2),
                                 .size_bytes = input->ConsumeBool() ? 64U : DrawSize(input),
                                 .priority = input->ConsumeIntegral<int8_t>()});
  }
  readiness.received = input->ConsumeIntegralInRange<uint64_t>(0, 4);
  readiness.finished = input->ConsumeIntegralInRange<uint64_t>(0, 4);
  if (input->ConsumeIntegralInRange<int>(0, 31) == 0) {
    readiness.failure = bs::Status::Internal("it cannot go on");
  }
  return bs::protocol::Encode(readiness);
}

// Fifteen bytes that make sense, which drawn bytes hardly ever do.
bs::Coding DrawDithering(FuzzedDataProvider* input) {
  const std::string levels = std::to_string(input->ConsumeIntegralInRange<int>(1, 30));
  const bs::codec::Option options[] = {
      {.name = "k", .value = levels},
      {.name = "partition", .value = input->ConsumeBool() ? "linear" : "natural"},
      {.name = "normalize", .value = input->ConsumeBool() ? "max" : "l2"},
      {.name = "ef", .value = input->ConsumeBool() ? "vanilla" : "corrected"}};
  const std::string_view name = "dithering";
  return bs::codec::Builtin().Parse(&name, options).value();
}

// Parameters that topk and randomk take.
std::string DrawPicks(FuzzedDataProvider* input) {
  const bs::codec::Picks picks{
      .halves = input->ConsumeBool(),
      .share = input->ConsumeIntegralInRange<uint64_t>(1, uint64_t{1} << 32U)};
  const auto bytes = bs::codec::ParametersOf(picks);
  return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
}

bs::Coding DrawCoding(FuzzedDataProvider* input) {
  if (input->ConsumeIntegralInRange<int>(0, 3) == 0) return DrawDithering(input);
  // Sizes of parameters that codecs have, and any.
  const size_t sizes[] = {0, 1, sizeof(float), 15, 21};
  const auto kind = input->ConsumeIntegralInRange<size_t>(0, std::size(sizes));
  std::string parameters = kind < std::size(sizes) ? input->ConsumeBytesAsString(sizes[kind])
                                                   : input->ConsumeRandomLengthString(24);
  const auto codec = input->ConsumeIntegralInRange<uint32_t>(0, 9);
  if ((codec == 5 || codec == 7) && input->ConsumeBool()) parameters = DrawPicks(input);
  return {.codec = codec,
          .parameters = bs::CodecParameters(std::as_bytes(std::span(parameters))),
          .sums = static_cast<bs::SumsTravel>(input->ConsumeIntegralInRange<uint32_t>(0, 3)),
          .feedback = static_cast<bs::Feedback>(input->ConsumeIntegralInRange<uint32_t>(0, 4)),
          .later = input->ConsumeBool()};
}

bs::protocol::DataRequest DrawBody(FuzzedDataProvider* input) {
  bs::protocol::DataRequest body;
  body.key = input->ConsumeIntegralInRange<uint64_t>(0, 3);
  body.round = body.push_count = body.optimizer_call = body.turn =
      input->ConsumeIntegralInRange<uint64_t>(0, 4);
  body.partition = body.num_partitions = input->ConsumeIntegralInRange<uint32_t>(0, 2);
  body.size_bytes = body.tensor_bytes = DrawSize(input);
  body.partition_bytes = DrawSize(input);
  if (input->ConsumeBool()) body.offset_bytes = DrawSize(input);
  if (input->ConsumeBool()) body.dtype = input->ConsumeIntegralInRange<uint32_t>(0, 14);
  if (input->ConsumeIntegralInRange<int>(0, 3) == 0) {
    body.mode = input->ConsumeIntegralInRange<uint32_t>(0, 2);
    body.hosted = input->ConsumeBool();
    if (input->ConsumeBool()) body.learning_rate = input->ConsumeFloatingPoint<double>();
  }
  if (input->ConsumeIntegralInRange<int>(0, 2) == 0) {
    body.layout_version = body.oldest_layout = input->ConsumeIntegralInRange<uint32_t>(0, 3);
    if (input->ConsumeBool()) body.next_layout = input->ConsumeRandomLengthString(8);
    body.given_back = input->ConsumeBool();
    if (input->ConsumeIntegralInRange<int>(0, 7) == 0) {
      body.partition = body.num_partitions = input->ConsumeIntegral<uint32_t>();
      body.round = body.push_count = body.optimizer_call = body.turn =
          input->ConsumeIntegral<uint64_t>();
    }
  }
  if (input->ConsumeIntegralInRange<int>(0, 3) == 0) body.coding = DrawCoding(input);
  if (body.coding.codec >= 4) body.ratio = input->ConsumeFloatingPoint<float>();
  return body;
}

// Of few kinds, so that requests of several workers meet.
void DrawExchange(FuzzedDataProvider* input, bs::protocol::DataRequest* body) {
  const auto draw_ranks = [input] {
    std::vector<int32_t> ranks;
    for (int32_t rank = 0; rank <= kWorkers; ++rank) {
      if (input->ConsumeIntegralInRange<int>(0, rank < kWorkers ? 1 : 31) == 0) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  };
  bs::protocol::ExchangeTerms terms{.size_bytes = input->PickValueInArray<uint64_t>({4, 0, 100}),
                                    .partition_bytes = 64,
                                    .givers = draw_ranks(),
                                    .takers = draw_ranks()};
  if (input->ConsumeIntegralInRange<int>(0, 7) == 0) {
    terms.dtype = input->PickValueInArray({bs::DType::kFloat64, bs::DType::kInt8});
    terms.reduction = input->PickValueInArray({bs::Reduction::kMin, bs::Reduction::kProduct});
    terms.label = input->ConsumeRandomLengthString(8);
  }
  body->terms = bs::protocol::Encode(terms);
  const bs::protocol::TakenPartition taken{.key = body->key, .partition = body->partition};
  body->taken = bs::protocol::Encode(std::span(&taken, 1));
  if (input->ConsumeIntegralInRange<int>(0, 15) == 0) {
    body->terms = body->taken = input->ConsumeRandomLengthString(24);
  }
}

// The partition that the terms say, if it is one.
void FitExchange(bs::protocol::DataRequest* body) {
  const auto terms = bs::protocol::DecodeTerms(body->terms);
  if (!terms.ok() || body->partition >= bs::protocol::NumPartitions(terms.value())) return;
  const bs::Partition cut = bs::protocol::PartitionOf(terms.value(), body->partition);
  body->offset_bytes = cut.offset_bytes;
  body->size_bytes = cut.size_bytes;
  body->coding = {};
}

void DrawExtension(FuzzedDataProvider* input, bs::protocol::DataRequest body,
                   ps::Extension* extension) {
  extension->version = input->ConsumeIntegralInRange<uint32_t>(1, 2);
  extension->op = static_cast<ps::Op>(input->ConsumeIntegralInRange<uint32_t>(0, 22));
  extension->sequence = input->ConsumeIntegralInRange<uint64_t>(0, 30);
  if (input->ConsumeIntegralInRange<int>(0, 7) == 0) {
    extension->incarnation = input->ConsumeIntegralInRange<uint16_t>(1, 2);
  }
  if (input->ConsumeBool()) body.about = body.optimizer = DrawText(input);
  if (extension->op == ps::Op::kReady) {
    body.ready_number = input->ConsumeIntegralInRange<uint64_t>(0, 8);
    body.ready = DrawReadiness(input);
  }
  extension->body = bs::protocol::Encode(extension->op, body);
  if (input->ConsumeIntegralInRange<int>(0, 15) == 0) {
    extension->body = ps::Body(input->ConsumeRandomLengthString(40));
  }
}

constexpr int32_t kProfiler = 5;  // head of its commands

void DrawCommand(FuzzedDataProvider* input, ps::Meta* meta) {
  meta->simple_app = true;
  meta->head = input->ConsumeIntegralInRange<int32_t>(-1, 6);
  meta->body = input->ConsumeBool() ? "1,0.5" : input->ConsumeRandomLengthString(40);
  if (meta->head == kProfiler) {  // which is configured and begins, but writes no files here
    meta->body = input->ConsumeBool() ? "11" : meta->body + "0";
  }
}

// The key's own and those of rows or of the number of codes, mostly as many as there should be.
std::string DrawKeys(FuzzedDataProvider* input) {
  std::string keys;
  const int most = input->ConsumeIntegralInRange<int>(0, 31) == 0 ? 400 : 4;
  for (int n = input->ConsumeIntegralInRange<int>(0, most); n >= 0; --n) {
    const uint64_t key = input->ConsumeIntegralInRange<int>(0, 31) == 0
                             ? input->ConsumeIntegral<uint64_t>()
                             : input->ConsumeIntegralInRange<uint64_t>(0, 4);
    keys.append(reinterpret_cast<const char*>(&key), sizeof(key));
  }
  if (input->ConsumeIntegralInRange<int>(0, 63) == 0) keys += input->ConsumeRandomLengthString(9);
  return keys;
}

// As stock nodes send.
void DrawStock(FuzzedDataProvider* input, ps::Message* message) {
  ps::Meta& meta = message->meta;
  meta.customer_id = input->ConsumeIntegralInRange<int32_t>(0, 1);
  if (input->ConsumeIntegralInRange<int>(0, 7) == 0) return DrawCommand(input, &meta);
  // Float32 dense, rows and codes; float64, float16; or any.
  meta.head = input->ConsumeBool() ? input->PickValueInArray<int32_t>({0, 1, 3, 2, 5})
                                   : input->ConsumeIntegralInRange<int32_t>(-1, 200);
  meta.push = input->ConsumeBool();
  meta.pull = input->ConsumeBool();
  message->data.push_back(ps::Frame::Copy(DrawKeys(input)));
  const std::string values(meta.push ? 4 * input->ConsumeIntegralInRange<size_t>(0, 8) : 0,
                           static_cast<char>(input->ConsumeIntegral<uint8_t>()));
  message->data.push_back(ps::Frame::Copy(values));
  if (input->ConsumeIntegralInRange<int>(0, 15) == 0) {
    message->data.push_back(ps::Frame::Copy(input->ConsumeRandomLengthString(16)));
  }
}

// As a stock node was seen to send, with any data.
ps::Message DrawGolden(FuzzedDataProvider* input) {
  static const std::vector<ps::Meta> kGolden = [] {
    std::vector<ps::Meta> data;
    for (const ps::test::Golden& golden : ps::test::AllGolden()) {
      if (!golden.meta.is_control) data.push_back(golden.meta);
    }
    return data;
  }();
  ps::Message message;
  message.peer = DrawPeer(input);
  message.meta = kGolden[input->ConsumeIntegralInRange<size_t>(0, kGolden.size() - 1)];
  message.data.push_back(ps::Frame::Copy(DrawKeys(input)));
  const std::string values(4 * input->ConsumeIntegralInRange<size_t>(0, 8), '\0');
  message.data.push_back(ps::Frame::Copy(values));
  return message;
}

ps::Message DrawMessage(FuzzedDataProvider* input) {
  if (input->ConsumeIntegralInRange<int>(0, 15) == 0) return DrawGolden(input);
  ps::Message message;
  message.peer = DrawPeer(input);
  ps::Meta& meta = message.meta;
  meta.request = input->ConsumeIntegralInRange<int>(0, 15) != 0;
  meta.priority = input->ConsumeIntegral<int8_t>();
  if (input->ConsumeIntegralInRange<int>(0, 2) == 0) {
    DrawStock(input, &message);
    return message;
  }
  bs::protocol::DataRequest body = DrawBody(input);
  if (input->ConsumeIntegralInRange<int>(0, 3) == 0) {
    DrawExchange(input, &body);
    FitExchange(&body);
  }
  DrawExtension(input, body, &meta.extension);
  const bool fits = input->ConsumeBool() && body.size_bytes <= 4097;
  const bool is_coded = fits && bs::codec::Builtin().Check(body.coding).ok();
  const size_t whole =
      is_coded ? bs::codec::Builtin().SentBytes(body.coding, body.size_bytes) : body.size_bytes;
  const size_t size = fits ? whole : input->ConsumeIntegralInRange<size_t>(0, 100);
  std::string payload(size, static_cast<char>(input->ConsumeIntegral<uint8_t>()));
  // Ascending indices and other codes are not one byte repeated.
  if (is_coded && size <= 100 && input->ConsumeBool()) {
    const std::string begin = input->ConsumeBytesAsString(size);
    payload.replace(0, begin.size(), begin);
  }
  if (size > 0 || input->ConsumeBool()) message.data.push_back(ps::Frame::Copy(payload));
  if (input->ConsumeIntegralInRange<int>(0, 31) == 0) message.data.emplace_back();
  return message;
}

// Takes pickles and updates that begin with an even byte.
bs::ServerUpdater MakeUpdater(bs::Executor* executor) {
  const auto judge = [](bool even) {
    return even ? bs::Status::Ok() : bs::Status::Internal("it is odd");
  };
  return {
      .executor = executor,
      .set_optimizer =
          [judge](std::string_view pickle) { return judge(pickle.empty() || pickle[0] % 2 == 0); },
      .update =
          [judge](const bs::ServerUpdate& update) {
            const bool even =
                update.gradient.empty() || std::to_integer<int>(update.gradient[0]) % 2 == 0;
            return judge(even);
          }};
}

// Takes what is sent, and counts it.
struct Answers {
  std::map<int32_t, size_t> native;  // by peer
  size_t stock = 0;                  // but for those that end a process

  void Take(const ps::Message& message) {
    if (message.meta.request) std::abort();
    // And why: a word that nobody asked for.
    const bool end = message.meta.is_control || (message.meta.pull && message.data.empty());
    if (message.meta.native()) {
      ++native[message.peer];
    } else if (!end) {
      ++stock;
    }
  }
};

// Must be answered: the others are dropped, or belong to the stock protocol.
bool IsQuestion(const ps::Message& message) {
  return message.meta.native() && message.meta.request && message.peer != ps::kEmpty;
}

// A worker is lost, for good or not.
void DrawLoss(FuzzedDataProvider* input, bs::Server* server, std::set<int32_t>* lost) {
  const int32_t rank = input->ConsumeIntegralInRange<int32_t>(0, kWorkers);
  lost->insert({ps::WorkerId(rank), ps::AttachedId(rank)});
  const bool native = input->ConsumeBool();
  const int32_t id = native && input->ConsumeBool() ? ps::AttachedId(rank) : ps::WorkerId(rank);
  if (input->ConsumeIntegralInRange<int>(0, 3) == 0) {
    server->OnWorkerGone(rank, bs::Status::Unavailable("it is gone"));
  } else if (const bs::Status status = server->OnWorkerVacant(id, native); !status.ok()) {
    server->Fail(status);
  }
}

// As servers have them, or so small that they are reached.
bs::ServerOptions DrawOptions(FuzzedDataProvider* input, bs::Executor* updater) {
  bs::ServerOptions options;
  options.max_partition_bytes = 4096;
  options.straggler_timeout = std::chrono::milliseconds(3);
  options.dispatcher_bytes = input->PickValueInArray<uint64_t>({0, 16, 16384});
  if (input->ConsumeBool()) options.adopted_bytes = 1;
  options.max_staleness = input->ConsumeIntegralInRange<int64_t>(-1, 1);
  const int32_t servers = input->ConsumeBool() ? 2 : 1;
  options.view =
      bs::job::ShareView({.role = bs::job::Role::kServer, .rank = servers - 1}, kWorkers, servers);
  if (input->ConsumeBool()) options.hold_bytes = 16;
  if (input->ConsumeBool()) options.max_stock_keys = 3;
  if (input->ConsumeBool()) options.available_bytes = [] { return uint64_t{6000}; };
  if (input->ConsumeBool()) options.grants = {.partition_bytes = 64, .credit_bytes = 128};
  options.timed = input->ConsumeBool();
  options.deterministic = input->ConsumeBool();
  if (input->ConsumeBool()) options.max_backlog_bytes = 8192;
  if (input->ConsumeBool()) options.updater = MakeUpdater(updater);
  return options;
}

// Whether all were answered, but for those of workers that were lost.
bool AllAnswered(const std::map<int32_t, size_t>& questions, const Answers& answers,
                 const std::set<int32_t>& lost) {
  for (const auto& [peer, count] : answers.native) {
    const auto asked = questions.find(peer);
    if (asked == questions.end() || count > asked->second) return false;
  }
  for (const auto& [peer, count] : questions) {
    const auto got = answers.native.find(peer);
    if ((got == answers.native.end() || got->second != count) && !lost.contains(peer)) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  bs::sim::SimClock clock(1);
  bs::sim::SimExecutor dispatcher(&clock);
  bs::sim::SimExecutor shard(&clock);
  bs::sim::SimExecutor second(&clock);
  bs::sim::SimExecutor updater(&clock);
  std::map<int32_t, size_t> questions;  // native ones, by peer
  std::set<int32_t> lost;               // nobody waits for their answers
  size_t stock_questions = 0;
  Answers answers;
  std::vector<bs::ServerShard> shards = {{&shard, 0}};
  if (input.ConsumeBool()) shards.push_back({&second, 0});
  const bs::ServerOptions options = DrawOptions(&input, &updater);
  bs::Server server(options, &dispatcher, shards,
                    {.send = [&answers](const ps::Message& message) { answers.Take(message); },
                     .on_stop = [] {},
                     .on_failure = [](const bs::Status&) {},
                     .on_violation = [](int32_t, const std::string&) {}},
                    bs::Logger("", bs::LogLevel::kOff));
  for (size_t i = 0; i < kMostMessages && input.remaining_bytes() > 0; ++i) {
    ps::Message message = DrawMessage(&input);
    if (IsQuestion(message)) ++questions[message.peer];
    if (!message.meta.native()) ++stock_questions;
    server.OnMessage(std::move(message));
    if (input.ConsumeIntegralInRange<int>(0, 31) == 0) DrawLoss(&input, &server, &lost);
    if (input.ConsumeBool()) clock.RunUntil(clock.Now() + std::chrono::milliseconds(1));
  }
  server.Fail(bs::Status::Cancelled("the end"));
  clock.RunUntil(clock.Now() + std::chrono::seconds(1));
  if (!AllAnswered(questions, answers, lost) || answers.stock > stock_questions) std::abort();
  return 0;
}
