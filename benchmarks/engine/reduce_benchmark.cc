// Speed of sums for each kernel and dtype, in a core's cache and in memory, beside plain copies.
//
// bytes_per_second counts what is read and written: three arrays for target = a + b, the
// accumulator twice for accumulator += addend, two arrays for a copy, n + 1 for a sum of n inputs,
// however it is made.  items are elements.  stream/copy and stream/add are loops of STREAM
// (McCalpin, 1995); copy/streaming stores past the cache, which saves reading the target first.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

constexpr size_t kCacheBytes = size_t{128} * 1024;  // of one array; three fit in a 512 KiB L2
constexpr size_t kMemoryBytes =
    size_t{128} * 1024 * 1024;  // of one array; larger than common L3 caches
constexpr size_t kMostInputs = 8;

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
                             DType::kInt8,    DType::kUint8,   DType::kInt32,   DType::kInt64};

// Every byte of an array: an ordinary small number in every dtype, so that sums stay ordinary for
// long.
constexpr unsigned char kByte = 0x3c;

// The arrays that all benchmarks sum and copy: the target at a page, as sums have theirs, inputs 16
// bytes behind a line, as what is allocated for a message, each a line further into its page than
// the one before: loads wait for stores at the same distance.
class Arrays {
 public:
  unsigned char* target(size_t size_bytes) {
    std::memset(At(0), kByte, size_bytes);  // what another dtype left there may be no number
    return At(0);
  }
  const unsigned char* input(size_t index) { return At(index + 1) + kLineBytes * index + 16; }

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kLineBytes = 64;
  static constexpr size_t kApartBytes = kMemoryBytes + kPageBytes;

  unsigned char* At(size_t index) {
    const size_t ahead = reinterpret_cast<uintptr_t>(memory_.data()) % kPageBytes;
    return memory_.data() + kPageBytes - ahead + index * kApartBytes;
  }

  std::vector<unsigned char> memory_ =
      std::vector<unsigned char>((kMostInputs + 1) * kApartBytes + kPageBytes, kByte);
};

void Report(benchmark::State& state, size_t array_bytes, size_t num_streams, size_t element_bytes) {
  const auto iterations = static_cast<int64_t>(state.iterations());
  state.SetBytesProcessed(iterations * static_cast<int64_t>(array_bytes * num_streams));
  state.SetItemsProcessed(iterations * static_cast<int64_t>(array_bytes / element_bytes));
}

struct What {
  Arrays* arrays;
  const Kernels* kernels;
  DType dtype;
  size_t size_bytes;
};

void BenchmarkSum(benchmark::State& state, const What& what) {
  unsigned char* const accumulator = what.arrays->target(what.size_bytes);
  const unsigned char* const addend = what.arrays->input(0);
  for (auto unused : state) {
    Sum(*what.kernels, what.dtype, accumulator, addend, what.size_bytes / SizeOf(what.dtype));
    benchmark::ClobberMemory();
  }
  Report(state, what.size_bytes, 3, SizeOf(what.dtype));
}

void BenchmarkSum2(benchmark::State& state, const What& what) {
  unsigned char* const target = what.arrays->target(what.size_bytes);
  const unsigned char* const a = what.arrays->input(0);
  const unsigned char* const b = what.arrays->input(1);
  for (auto unused : state) {
    Sum(*what.kernels, what.dtype, target, a, b, what.size_bytes / SizeOf(what.dtype));
    benchmark::ClobberMemory();
  }
  Report(state, what.size_bytes, 3, SizeOf(what.dtype));
}

// How a sum of several inputs is made.  Of each: target = the sum of `inputs`.
using SumFn = void (*)(const Kernels& kernels, DType dtype, unsigned char* target,
                       const std::vector<const void*>& inputs, size_t size_bytes);

// A copy, and the other inputs added to it one after the other.
void Pairwise(const Kernels& kernels, DType dtype, unsigned char* target,
              const std::vector<const void*>& inputs, size_t size_bytes) {
  Copy(target, inputs[0], size_bytes);
  for (size_t i = 1; i < inputs.size(); ++i) {
    Sum(kernels, dtype, target, inputs[i], size_bytes / SizeOf(dtype));
  }
}

void Fused(const Kernels& kernels, DType dtype, unsigned char* target,
           const std::vector<const void*>& inputs, size_t size_bytes) {
  SumInputs(kernels, dtype, target, inputs, size_bytes / SizeOf(dtype));
}

// The same in partitions, as a server has them, that stay in a cache from one input to the next.
template <SumFn sum>
void InPartitions(const Kernels& kernels, DType dtype, unsigned char* target,
                  const std::vector<const void*>& inputs, size_t size_bytes) {
  std::vector<const void*> parts(inputs.size());
  for (size_t at = 0; at < size_bytes; at += kCacheBytes) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      parts[i] = static_cast<const unsigned char*>(inputs[i]) + at;
    }
    sum(kernels, dtype, target + at, parts, kCacheBytes);
  }
}

void BenchmarkInputs(benchmark::State& state, const What& what, SumFn sum, size_t num_inputs) {
  unsigned char* const target = what.arrays->target(what.size_bytes);
  std::vector<const void*> inputs;
  for (size_t i = 0; i < num_inputs; ++i) inputs.push_back(what.arrays->input(i));
  for (auto unused : state) {
    sum(*what.kernels, what.dtype, target, inputs, what.size_bytes);
    benchmark::ClobberMemory();
  }
  Report(state, what.size_bytes, num_inputs + 1, SizeOf(what.dtype));
}

template <typename Loop>
void BenchmarkStream(benchmark::State& state, Loop loop, size_t num_streams) {
  constexpr size_t kCount = kMemoryBytes / sizeof(double);
  const std::vector<double> a(kCount, 1);
  const std::vector<double> b(kCount, 2);
  std::vector<double> c(kCount, 0);
  for (auto unused : state) {
    for (size_t i = 0; i < kCount; ++i) c[i] = loop(a[i], b[i]);
    benchmark::ClobberMemory();
  }
  Report(state, kMemoryBytes, num_streams, sizeof(double));
}

void RegisterStream() {
  const auto copy = [](double a, double) { return a; };
  const auto add = [](double a, double b) { return a + b; };
  benchmark::RegisterBenchmark("stream/copy/memory", BenchmarkStream<decltype(copy)>, copy, 2);
  benchmark::RegisterBenchmark("stream/add/memory", BenchmarkStream<decltype(add)>, add, 3);
}

void RegisterInputs(Arrays* arrays, const std::string& way, SumFn sum, size_t num_inputs) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    const std::string name = "inputs/" + way + '/' + std::to_string(num_inputs) + '/' +
                             std::string(NameOf(dtype)) + "/memory";
    const What what{arrays, &BestKernels(), dtype, kMemoryBytes};
    benchmark::RegisterBenchmark(name.c_str(), BenchmarkInputs, what, sum, num_inputs);
  }
}

void RegisterInputs(Arrays* arrays) {
  const std::pair<const char*, SumFn> ways[] = {
      {"pairwise", Pairwise},
      {"fused", Fused},
      {"pairwise-partitions", InPartitions<Pairwise>},
      {"fused-partitions", InPartitions<Fused>},
  };
  for (const auto& [way, sum] : ways) {
    for (const size_t num_inputs : {size_t{2}, size_t{4}, kMostInputs}) {
      RegisterInputs(arrays, way, sum, num_inputs);
    }
  }
}

using CopyFn = void (*)(void* target, const void* source, size_t size_bytes);

void PlainCopy(void* target, const void* source, size_t size_bytes) {
  std::memcpy(target, source, size_bytes);
}

void BenchmarkCopy(benchmark::State& state, Arrays* arrays, CopyFn copy, size_t size_bytes) {
  unsigned char* const target = arrays->target(size_bytes);
  const unsigned char* const source = arrays->input(0);
  for (auto unused : state) {
    copy(target, source, size_bytes);
    benchmark::ClobberMemory();
  }
  Report(state, size_bytes, 2, 1);
}

void RegisterCopies(Arrays* arrays) {
  benchmark::RegisterBenchmark("copy/memcpy/memory", BenchmarkCopy, arrays, PlainCopy,
                               kMemoryBytes);
  benchmark::RegisterBenchmark("copy/streaming/memory", BenchmarkCopy, arrays, Copy, kMemoryBytes);
  benchmark::RegisterBenchmark("copy/memcpy/cache", BenchmarkCopy, arrays, PlainCopy, kCacheBytes);
  benchmark::RegisterBenchmark("copy/ours/cache", BenchmarkCopy, arrays, Copy, kCacheBytes);
}

void RegisterSums(Arrays* arrays, const std::string& place, size_t size_bytes) {
  for (const Kernels* kernels : AvailableKernels()) {
    for (const DType dtype : kDTypes) {
      const What what{arrays, kernels, dtype, size_bytes};
      const std::string rest =
          "/" + std::string(kernels->name) + "/" + std::string(NameOf(dtype)) + "/" + place;
      benchmark::RegisterBenchmark(("sum" + rest).c_str(), BenchmarkSum, what);
      benchmark::RegisterBenchmark(("sum2" + rest).c_str(), BenchmarkSum2, what);
    }
  }
}

}  // namespace
}  // namespace bs::reduce

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  bs::reduce::Arrays arrays;
  bs::reduce::RegisterStream();
  bs::reduce::RegisterCopies(&arrays);
  bs::reduce::RegisterInputs(&arrays);
  bs::reduce::RegisterSums(&arrays, "memory", bs::reduce::kMemoryBytes);
  bs::reduce::RegisterSums(&arrays, "cache", bs::reduce::kCacheBytes);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
