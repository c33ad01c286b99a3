// Speed of sums for each kernel and dtype, in a core's cache and in memory, beside plain copies.
//
// bytes_per_second counts what is read and written: three arrays for target = a + b, the
// accumulator twice for accumulator += addend, two arrays for a copy, n + 1 for a sum of n inputs.
// items are elements.  stream/copy and stream/add are loops of STREAM (McCalpin, 1995).
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "reduce/reduce.h"

namespace bs::reduce {
namespace {

constexpr size_t kCacheBytes = size_t{128} * 1024;  // of one array; three fit in a 512 KiB L2
constexpr size_t kMemoryBytes =
    size_t{128} * 1024 * 1024;  // of one array; larger than common L3 caches

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
                             DType::kInt8,    DType::kUint8,   DType::kInt32,   DType::kInt64};

// Every byte 0x3c: an ordinary small number in every dtype, so that sums stay ordinary for long.
std::vector<unsigned char> Array(size_t size_bytes) {
  return std::vector<unsigned char>(size_bytes, 0x3c);
}

void Report(benchmark::State& state, size_t array_bytes, size_t num_streams, size_t element_bytes) {
  const auto iterations = static_cast<int64_t>(state.iterations());
  state.SetBytesProcessed(iterations * static_cast<int64_t>(array_bytes * num_streams));
  state.SetItemsProcessed(iterations * static_cast<int64_t>(array_bytes / element_bytes));
}

void BenchmarkSum(benchmark::State& state, const Kernels& kernels, DType dtype, size_t size_bytes) {
  std::vector<unsigned char> accumulator = Array(size_bytes);
  const std::vector<unsigned char> addend = Array(size_bytes);
  for (auto unused : state) {
    Sum(kernels, dtype, accumulator.data(), addend.data(), size_bytes / SizeOf(dtype));
    benchmark::ClobberMemory();
  }
  Report(state, size_bytes, 3, SizeOf(dtype));
}

void BenchmarkSum2(benchmark::State& state, const Kernels& kernels, DType dtype,
                   size_t size_bytes) {
  const std::vector<unsigned char> a = Array(size_bytes);
  const std::vector<unsigned char> b = Array(size_bytes);
  std::vector<unsigned char> target = Array(size_bytes);
  for (auto unused : state) {
    Sum(kernels, dtype, target.data(), a.data(), b.data(), size_bytes / SizeOf(dtype));
    benchmark::ClobberMemory();
  }
  Report(state, size_bytes, 3, SizeOf(dtype));
}

// As a server sums what n workers pushed: a partition at a time, the first two at once.
void BenchmarkInputs(benchmark::State& state, DType dtype, size_t num_inputs) {
  constexpr size_t kPartitionBytes = kCacheBytes;
  const std::vector<std::vector<unsigned char>> inputs(num_inputs, Array(kMemoryBytes));
  std::vector<unsigned char> target = Array(kMemoryBytes);
  const size_t count = kPartitionBytes / SizeOf(dtype);
  for (auto unused : state) {
    for (size_t at = 0; at < kMemoryBytes; at += kPartitionBytes) {
      Sum(BestKernels(), dtype, &target[at], &inputs[0][at], &inputs[1][at], count);
      for (size_t i = 2; i < num_inputs; ++i) {
        Sum(BestKernels(), dtype, &target[at], &inputs[i][at], count);
      }
    }
    benchmark::ClobberMemory();
  }
  Report(state, kMemoryBytes, num_inputs + 1, SizeOf(dtype));
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

void RegisterInputs() {
  for (const size_t num_inputs : {2U, 4U, 8U}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      const std::string name =
          "inputs/" + std::to_string(num_inputs) + "/" + std::string(NameOf(dtype)) + "/memory";
      benchmark::RegisterBenchmark(name.c_str(), BenchmarkInputs, dtype, num_inputs);
    }
  }
}

template <typename Function>
void BenchmarkCopy(benchmark::State& state, Function copy, size_t size_bytes) {
  const std::vector<unsigned char> source = Array(size_bytes);
  std::vector<unsigned char> target = Array(size_bytes);
  for (auto unused : state) {
    copy(target.data(), source.data(), size_bytes);
    benchmark::ClobberMemory();
  }
  Report(state, size_bytes, 2, 1);
}

void RegisterSums(const std::string& place, size_t size_bytes) {
  for (const Kernels* kernels : AvailableKernels()) {
    for (const DType dtype : kDTypes) {
      const std::string rest =
          "/" + std::string(kernels->name) + "/" + std::string(NameOf(dtype)) + "/" + place;
      benchmark::RegisterBenchmark(("sum" + rest).c_str(), BenchmarkSum, *kernels, dtype,
                                   size_bytes);
      benchmark::RegisterBenchmark(("sum2" + rest).c_str(), BenchmarkSum2, *kernels, dtype,
                                   size_bytes);
    }
  }
}

void RegisterCopies(const std::string& place, size_t size_bytes) {
  const auto plain = [](void* target, const void* source, size_t count) {
    std::memcpy(target, source, count);
  };
  benchmark::RegisterBenchmark(("memcpy/" + place).c_str(), BenchmarkCopy<decltype(plain)>, plain,
                               size_bytes);
  benchmark::RegisterBenchmark(("Copy/" + place).c_str(), BenchmarkCopy<decltype(&Copy)>, &Copy,
                               size_bytes);
}

}  // namespace
}  // namespace bs::reduce

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  bs::reduce::RegisterStream();
  bs::reduce::RegisterInputs();
  for (const bool in_memory : {false, true}) {
    const char* place = in_memory ? "memory" : "cache";
    const size_t size_bytes = in_memory ? bs::reduce::kMemoryBytes : bs::reduce::kCacheBytes;
    bs::reduce::RegisterCopies(place, size_bytes);
    bs::reduce::RegisterSums(place, size_bytes);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
