// Writes what the fuzzers start from, one a file: fuzz_corpus META ZMTP SERVER BODY writes the
// golden messages and a native one with every field as they are to one folder, and as a connection
// carries them to another; and bodies behind their ops.  server_fuzz makes messages of any bytes,
// golden ones among them; it begins with drawn ones of up to 4096 bytes, which are many messages;
// from nothing it would stay with few.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "codec/picks.h"
#include "codec/two_bit.h"
#include "membership/control_body.h"
#include "protocol/data_body.h"
#include "protocol/exchange_terms.h"
#include "protocol/grants.h"
#include "protocol/next_layout.h"
#include "ps-lite/wire/golden.h"
#include "transport/tcp/zmtp.h"
#include "wire/fusion.h"
#include "wire/wire.h"

namespace {

bool Write(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (file.flush()) return true;
  std::cerr << "cannot write " << path << "\n";
  return false;
}

std::string Readiness() {
  return bs::protocol::Encode(
      bs::protocol::Readiness{.tensors = {{.key = 7,
                                           .round = 1,
                                           .size_bytes = 300,
                                           .dtype = bs::DType::kFloat32,
                                           .priority = -1,
                                           .next_layout = "1"},
                                          {.key = 8, .round = 1, .size_bytes = 4}},
                              .received = 3,
                              .finished = 2,
                              .failure = bs::Status::Internal("why")});
}

std::string Grants() {
  const bs::protocol::GrantedOperation operation = {
      {.key = 7, .round = 1, .offset_bytes = 64, .size_bytes = 236, .next_layout = "1"},
      {.key = 8, .round = 1, .size_bytes = 4}};
  const std::vector<std::string> operations(2, bs::protocol::Encode(operation));
  return bs::protocol::EncodeGrants(3, operations);
}

std::string Terms() {
  return bs::protocol::Encode(bs::protocol::ExchangeTerms{.size_bytes = 300,
                                                          .partition_bytes = 128,
                                                          .dtype = bs::DType::kInt32,
                                                          .reduction = bs::Reduction::kMax,
                                                          .givers = {0, 1, 4},
                                                          .takers = {2},
                                                          .label = "all"});
}

std::string Taken() {
  const bs::protocol::TakenPartition taken{.key = 7, .partition = 3};
  return bs::protocol::Encode(std::span(&taken, 1));
}

bs::protocol::DataRequest Request() {
  return {.key = 7,
          .push_count = 12,
          .optimizer_call = 12,
          .turn = 12,
          .partition = 3,
          .num_partitions = 3,
          .offset_bytes = 4096,
          .size_bytes = 300,
          .tensor_bytes = 300,
          .partition_bytes = 4096,
          .dtype = 12,
          .mode = 1,
          .coding = bs::codec::TwoBitCoding(0.5F),
          .learning_rate = 0.1,
          .weight_decay = 0.0,
          .rescale_grad = 1.0,
          .hosted = true,
          .layout_version = 1,
          .oldest_layout = 1,
          .next_layout = "1",
          .about = "{}",
          .optimizer = "sgd momentum=0.9",
          .given_back = true,
          .ready = Readiness(),
          .terms = Terms(),
          .taken = Taken()};
}

std::string Native() {
  ps::Meta meta;
  meta.request = true;
  meta.push = true;
  meta.customer_id = 0;
  meta.timestamp = 5;
  meta.extension = {.version = ps::kExtensionVersion,
                    .op = ps::Op::kPush,
                    .sequence = 3,
                    .incarnation = 1,
                    .job = 0x89abcdef,
                    .status = 4,
                    .text = "why",
                    .body = bs::protocol::Encode(ps::Op::kPush, Request())};
  return ps::EncodeMeta(meta);
}

// A request, a response and control, each behind its op, and a next layout.
bool WriteBodies(const std::filesystem::path& folder) {
  const auto behind = [](ps::Op op, const ps::Body& body) {
    return std::string(1, static_cast<char>(op)) + std::string(body.bytes());
  };
  bool written = true;
  for (uint32_t number = 1; number <= 15; ++number) {
    const auto op = static_cast<ps::Op>(number);
    const std::string bytes = behind(op, bs::protocol::Encode(op, Request()));
    written = Write(folder / ("request-" + std::to_string(number)), bytes) && written;
  }
  bs::protocol::DataRequest synchronous = Request();
  synchronous.mode = 0;
  synchronous.round = 12;
  synchronous.coding = {.codec = 2, .sums = bs::SumsTravel::kSame, .later = true};
  const ps::Body pull = bs::protocol::Encode(ps::Op::kPull, synchronous);
  written = Write(folder / "request-synchronous", behind(ps::Op::kPull, pull)) && written;
  const std::byte scaled{1};
  synchronous.coding = {.codec = 4,
                        .parameters = bs::CodecParameters(std::span(&scaled, 1)),
                        .sums = bs::SumsTravel::kSame,
                        .feedback = bs::Feedback::kCorrected};
  synchronous.ratio = 0.5F;
  const ps::Body push = bs::protocol::Encode(ps::Op::kPush, synchronous);
  written = Write(folder / "request-onebit", behind(ps::Op::kPush, push)) && written;
  const std::string_view dithering = "dithering";
  const bs::codec::Option levels{.name = "k", .value = "7"};
  synchronous.coding = bs::codec::Builtin().Parse(&dithering, std::span(&levels, 1)).value();
  const ps::Body dithered = bs::protocol::Encode(ps::Op::kPush, synchronous);
  written = Write(folder / "request-dithering", behind(ps::Op::kPush, dithered)) && written;
  const auto picking = [&](uint32_t codec, const bs::codec::Picks& picks) {
    synchronous.coding = {.codec = codec,
                          .parameters = bs::codec::ParametersOf(picks),
                          .sums = bs::SumsTravel::kSame,
                          .feedback = bs::Feedback::kVanilla};
    return behind(ps::Op::kPush, bs::protocol::Encode(ps::Op::kPush, synchronous));
  };
  const bs::codec::Picks hundredth{.share = 42949673};
  written = Write(folder / "request-topk", picking(5, hundredth)) && written;
  const bs::codec::Picks halves{.halves = true, .whole = 20, .share = 1 << 20U, .seed = 7};
  written = Write(folder / "request-randomk", picking(7, halves)) && written;
  const bs::protocol::DataResponse response{.identity = {.key = 7, .count = 12, .index = 3},
                                            .offset_bytes = 4096,
                                            .size_bytes = 300,
                                            .tensor_bytes = 300,
                                            .partition_bytes = 4096,
                                            .dtype = 12,
                                            .coding = {.codec = 3},
                                            .layout_version = 1,
                                            .next_layout = "1",
                                            .given_back = true,
                                            .grants = Grants()};
  const auto answer = [&](ps::Op op) { return behind(op, bs::protocol::Encode(op, response)); };
  const ps::MemberBody member{
      .job = 7, .incarnation = 1, .lost_incarnation = 1, .rank = 1, .settings = "a=b\n"};
  const ps::SchedulerBody scheduler{
      .job = 7, .incarnation = 1, .next_incarnation = 1, .native = true, .rank = 1};
  const auto from_scheduler = [&](ps::Op op) { return behind(op, ps::Encode(op, scheduler)); };
  const std::string next = bs::protocol::Encode(
      {.decision = 1, .credit_bytes = 64, .partition_bytes = 512, .partitions = {}});
  return Write(folder / "response", answer(ps::Op::kPull)) &&
         Write(folder / "response-lookup", answer(ps::Op::kLookup)) &&
         Write(folder / "response-give-back", answer(ps::Op::kGiveBack)) &&
         Write(folder / "response-ready", answer(ps::Op::kReady)) &&
         Write(folder / "readiness", behind(ps::Op::kReady, ps::Body(Readiness()))) &&
         Write(folder / "grants", behind(ps::Op::kReady, ps::Body(Grants()))) &&
         Write(folder / "terms", behind(ps::Op::kGive, ps::Body(Terms()))) &&
         Write(folder / "taken", behind(ps::Op::kTaken, ps::Body(Taken()))) &&
         Write(folder / "member", behind(ps::Op::kVacate, ps::Encode(member))) &&
         Write(folder / "scheduler", from_scheduler(ps::Op::kRegister)) &&
         Write(folder / "scheduler-vacate", from_scheduler(ps::Op::kVacate)) &&
         Write(folder / "next", '\3' + next + std::string(4, '\0')) && written;
}

// What zmtp_fuzz takes for a message behind a good greeting, with a frame of data.
std::string OnAConnection(const std::string& meta) {
  const std::string data(300, 'x');
  std::string bytes(1, '\1');
  ps::AppendFrameHeader(meta.size(), true, &bytes);
  bytes += meta;
  ps::AppendFrameHeader(data.size(), false, &bytes);
  return bytes + data;
}

// Twice in one message.
std::string Fused(const std::string& meta) {
  std::vector<ps::Message> two(2);
  for (ps::Message& message : two) {
    const auto parsed = ps::ParseMeta(std::as_bytes(std::span(meta)));
    if (parsed.ok()) message.meta = parsed.value();
    message.data.push_back(ps::Frame::Copy(std::string(150, 'x')));
  }
  std::string bytes = OnAConnection(ps::EncodeMeta(ps::FusedMeta(two)));
  bytes[0] = '\2';  // of a node of the job
  return bytes;
}

// The same with the data in shared memory, behind an introduction of its own.
std::string ThroughMemory(const std::string& meta) {
  std::string bytes(1, '\x10');
  bytes += ps::ZmtpGreeting() + ps::ZmtpReady("DEALER", "ps9", {.memory = true});
  bytes += ps::ZmtpMemory("1 1 0 65536 00ff") + ps::ZmtpMemoryAnswer(true);
  ps::AppendFrameHeader(meta.size(), true, &bytes);
  bytes += meta;
  ps::AppendReference(32U << 10U, 300, false, &bytes);
  return bytes;
}

bool WriteDrawn(const std::filesystem::path& folder) {
  constexpr uint32_t kSeeds = 64;
  constexpr size_t kStepBytes = 64;  // the longest has 4096
  std::mt19937 random(1);            // the same on every machine
  for (uint32_t i = 1; i <= kSeeds; ++i) {
    std::string bytes(i * kStepBytes, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() >> 24U);
    if (!Write(folder / ("drawn-" + std::to_string(i)), bytes)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr
        << "usage: fuzz_corpus META_FOLDER ZMTP_FOLDER SERVER_FOLDER BODY_FOLDER RDMA_FOLDER\n";
    return 2;
  }
  std::map<std::string, std::string> seeds = {{"native", Native()}};
  for (const ps::test::Golden& golden : ps::test::AllGolden()) {
    seeds.emplace(golden.name, ps::test::FromHex(golden.hex));
  }
  const std::filesystem::path zmtp = argv[2];
  for (const auto& [name, meta] : seeds) {
    const bool written = Write(std::filesystem::path(argv[1]) / name, meta) &&
                         Write(zmtp / name, OnAConnection(meta)) &&
                         Write(zmtp / (name + "-fused"), Fused(meta)) &&
                         Write(zmtp / (name + "-shared"), ThroughMemory(meta));
    if (!written) return 1;
  }
  return WriteDrawn(argv[3]) && WriteBodies(argv[4]) && WriteDrawn(argv[5]) ? 0 : 1;
}
