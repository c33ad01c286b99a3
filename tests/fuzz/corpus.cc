// Writes what the fuzzers start from, one a file: fuzz_corpus META ZMTP SERVER writes the golden
// messages and a native one with every field as they are to one folder, and as a connection carries
// them to another.  server_fuzz makes messages of any bytes, golden ones among them; it begins with
// drawn ones of up to 4096 bytes, which are many messages; from nothing it would stay with few.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

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

std::string Native() {
  ps::Meta meta;
  meta.request = true;
  meta.push = true;
  meta.customer_id = 0;
  meta.timestamp = 5;
  meta.extension = {.version = ps::kExtensionVersion,
                    .op = ps::Op::kPush,
                    .sequence = 3,
                    .key = 7,
                    .round = 12,
                    .part = 3,
                    .offset_bytes = 4096,
                    .size_bytes = 300,
                    .part_bytes = 4096,
                    .dtype = 12,
                    .status = 4,
                    .rank = 1,
                    .text = "why",
                    .settings = "a=b\n",
                    .job = 0x89abcdef,
                    .codec = ps::Codec::kTwoBit,
                    .threshold = 0.5F,
                    .cut = 1,
                    .next = "1",
                    .mode = 1,
                    .learning_rate = 0.1,
                    .weight_decay = 0.0,
                    .rescale_grad = 1.0,
                    .hosted = true};
  return ps::EncodeMeta(meta);
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
  bytes += ps::ZmtpGreeting() + ps::ZmtpReady("DEALER", "ps9", true);
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
  if (argc != 4) {
    std::cerr << "usage: fuzz_corpus META_FOLDER ZMTP_FOLDER SERVER_FOLDER\n";
    return 2;
  }
  std::map<std::string, std::string> seeds = {{"native", Native()}};
  for (const ps::testing::Golden& golden : ps::testing::AllGolden()) {
    seeds.emplace(golden.name, ps::testing::FromHex(golden.hex));
  }
  const std::filesystem::path zmtp = argv[2];
  for (const auto& [name, meta] : seeds) {
    const bool written = Write(std::filesystem::path(argv[1]) / name, meta) &&
                         Write(zmtp / name, OnAConnection(meta)) &&
                         Write(zmtp / (name + "-fused"), Fused(meta)) &&
                         Write(zmtp / (name + "-shared"), ThroughMemory(meta));
    if (!written) return 1;
  }
  return WriteDrawn(argv[3]) ? 0 : 1;
}
