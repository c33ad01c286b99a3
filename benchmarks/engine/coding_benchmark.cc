// Speed of codecs on one core: gradients to codes, and codes to values, beside plain copies.
//
// bytes_per_second counts float32, 4 bytes an element, however many a code takes.  `traffic` is the
// number of bytes that memory reads and writes for an element at least: a copy has 8.  So the
// product of elements a second and traffic is comparable with that of copy/streaming.
//
// encode/CODEC/kept has a residual, encode/CODEC/alone has none.  add/CODEC adds a unit's values to
// a sum in a cache, as a server does for each gradient; beside it stands add/float32, the sum of as
// many plain elements.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/codec.h"
#include "codec/units.h"
#include "reduce/reduce.h"

namespace bs::codec {
namespace {

constexpr size_t kCount = size_t{64} * 1024 * 1024;  // 256 MiB, beyond the caches
constexpr float kTrafficOfCopy = 8;                  // bytes an element
constexpr Place kFirst{.job = 1, .key = 1, .round = 1};

// A codec with the options that the benchmark gives it.
struct Method {
  std::string_view name;
  std::vector<Option> options;
};

const std::vector<Method>& Methods() {
  static const std::vector<Method> methods = {
      {"bf16", {}},
      {"fp16", {}},
      {"2bit", {{"threshold", "0.5"}}},
      {"onebit", {{"scaling", "True"}}},
      {"topk", {{"k", "0.01"}}},
      {"randomk", {{"k", "0.03125"}}},
      {"dithering", {{"k", "7"}}},
      {"int8", {}},
  };
  return methods;
}

// The memory of all benchmarks.
class CodingArrays {
 public:
  CodingArrays() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < kUnitElements; ++i) gradient_[i] = normal(random);
    for (size_t i = kUnitElements; i < kCount; ++i) gradient_[i] = gradient_[i - kUnitElements];
  }
  const float* gradient() const { return gradient_.data(); }
  float* target() { return target_.data(); }
  // Zeros.
  float* residual() {
    std::memset(residual_.data(), 0, kCount * sizeof(float));
    return residual_.data();
  }

 private:
  std::vector<float> gradient_ = std::vector<float>(kCount);
  std::vector<float> residual_ = std::vector<float>(kCount);
  std::vector<float> target_ = std::vector<float>(kCount);
};

struct Row {
  CodingArrays* arrays;
  const Codec* codec;
  CodecParameters parameters;

  std::vector<std::byte> CodesOf(size_t count) const {
    std::vector<std::byte> codes(codec->encoded_bytes(parameters, count));
    codec->encode(parameters, kFirst, arrays->gradient(),
                  codec->keeps == Keeps::kResidual ? arrays->residual() : nullptr, codes.data(),
                  count);
    return codes;
  }
  float code_bytes() const {  // of an element
    return static_cast<float>(codec->encoded_bytes(parameters, kCount)) / kCount;
  }
};

void ReportElements(benchmark::State& state, size_t count, float traffic) {
  const int64_t elements = static_cast<int64_t>(state.iterations() * count);
  state.SetItemsProcessed(elements);
  state.SetBytesProcessed(elements * static_cast<int64_t>(sizeof(float)));
  if (traffic > 0) state.counters["traffic"] = traffic;
}

void BenchmarkCopies(benchmark::State& state, CodingArrays* arrays, bool is_streaming) {
  for (auto unused : state) {
    if (is_streaming) {
      reduce::Copy(arrays->target(), arrays->gradient(), kCount * sizeof(float));
    } else {
      std::memcpy(arrays->target(), arrays->gradient(), kCount * sizeof(float));
    }
    benchmark::ClobberMemory();
  }
  ReportElements(state, kCount, kTrafficOfCopy);
}

void BenchmarkEncode(benchmark::State& state, const Row& row, bool is_kept) {
  float* const residual = is_kept ? row.arrays->residual() : nullptr;
  std::vector<std::byte> codes(row.codec->encoded_bytes(row.parameters, kCount));
  Place place = kFirst;
  for (auto unused : state) {
    row.codec->encode(row.parameters, place, row.arrays->gradient(), residual, codes.data(),
                      kCount);
    ++place.round;
    benchmark::ClobberMemory();
  }
  ReportElements(state, kCount, (is_kept ? 12 : 4) + row.code_bytes());
}

void BenchmarkDecode(benchmark::State& state, const Row& row) {
  const std::vector<std::byte> codes = row.CodesOf(kCount);
  for (auto unused : state) {
    row.codec->decode(row.parameters, kFirst, codes.data(), row.arrays->target(), kCount);
    benchmark::ClobberMemory();
  }
  ReportElements(state, kCount, 4 + row.code_bytes());
}

void BenchmarkAdd(benchmark::State& state, const Row& row) {
  const std::vector<std::byte> codes = row.CodesOf(kUnitElements);
  std::memset(row.arrays->target(), 0, kUnitElements * sizeof(float));
  for (auto unused : state) {
    row.codec->add(row.parameters, kFirst, codes.data(), row.arrays->target(), kUnitElements);
    benchmark::ClobberMemory();
  }
  ReportElements(state, kUnitElements, 0);
}

void BenchmarkPlainAdd(benchmark::State& state, CodingArrays* arrays) {
  std::memset(arrays->target(), 0, kUnitElements * sizeof(float));
  for (auto unused : state) {
    reduce::Sum(reduce::BestKernels(), DType::kFloat32, arrays->target(), arrays->gradient(),
                kUnitElements);
    benchmark::ClobberMemory();
  }
  ReportElements(state, kUnitElements, 0);
}

void RegisterMethod(const Row& row, const std::string& name) {
  if (row.codec->keeps != Keeps::kNoResidual) {
    benchmark::RegisterBenchmark(("encode/" + name + "/kept").c_str(), BenchmarkEncode, row, true);
  }
  if (row.codec->keeps != Keeps::kResidual) {
    benchmark::RegisterBenchmark(("encode/" + name + "/alone").c_str(), BenchmarkEncode, row,
                                 false);
  }
  benchmark::RegisterBenchmark(("decode/" + name).c_str(), BenchmarkDecode, row);
  benchmark::RegisterBenchmark(("add/" + name).c_str(), BenchmarkAdd, row);
}

void RegisterAll(CodingArrays* arrays) {
  benchmark::RegisterBenchmark("copy/streaming", BenchmarkCopies, arrays, true);
  benchmark::RegisterBenchmark("copy/memcpy", BenchmarkCopies, arrays, false);
  benchmark::RegisterBenchmark("add/float32", BenchmarkPlainAdd, arrays);
  for (const Method& method : Methods()) {
    const Coding coding = Builtin().Parse(&method.name, method.options).value();
    const Row row{arrays, &Builtin().Get(coding), coding.parameters};
    RegisterMethod(row, std::string(method.name));
  }
}

}  // namespace
}  // namespace bs::codec

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  bs::codec::CodingArrays arrays;
  bs::codec::RegisterAll(&arrays);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
