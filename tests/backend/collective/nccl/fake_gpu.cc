// Plays NVIDIA's driver and NCCL, for tests on machines without a GPU.
//
// The processor's memory plays that of GPUs, and a thread plays a stream.  Ranks of this process or
// of several processes meet in shared memory, which the unique id names.  Sums are made in the
// order of ranks, if all ranks call one sequence; else all fail.  Copies are counted.
//
// It is of GPU BS_FAKE_GPU, which has all memory that no test has given another GPU; without it the
// processor has it.
#include "backend/collective/nccl/fake_gpu.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reduce/reduce.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 22105
#endif

namespace {

constexpr int kInvalidValue = 1;
constexpr int kNotInitialized = 3;
constexpr int kIllegalAddress = 700;
constexpr int kCaptureUnsupported = 900;
constexpr int kNotReady = 600;
constexpr int kAlreadyRegistered = 712;
constexpr int kNotRegistered = 713;
constexpr int kRemoteError = 6;
constexpr int kInvalidUsage = 5;
constexpr int kInProgress = 7;
constexpr auto kPause = std::chrono::microseconds(20);
constexpr size_t kChunkBytes = size_t{1} << 16U;
constexpr uint32_t kMostRanks = 8;

// -- the driver ----------------------------------------------------------------------------------

class Stream {
 public:
  Stream() : thread_([this] { Run(); }) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    Put({});
    thread_.join();
  }
  // An empty task ends the stream.
  void Put(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_one();
  }

 private:
  void Run() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!work) return;
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

struct Event {
  std::shared_ptr<std::atomic<bool>> is_over = std::make_shared<std::atomic<bool>>(true);
};

struct Fault {
  int kind = kFakeNone;
  int operation = 0;
};

struct Memory {
  size_t size_bytes;
  int gpu;
};

// All that tests change.
struct World {
  std::mutex mutex;
  std::map<const char*, Memory> memory;  // by its begin
  std::map<int, Fault> faults;           // by rank
  int groups = 0;
  int aborts = 0;
  size_t copied_bytes = 0;
  std::map<const void*, size_t> locked;  // sizes of page-locked memory
  bool locks = true;
  std::set<void*> kept;  // streams, events and communicators, which nothing else may refer to
  std::atomic<bool> is_initialized = false;
  std::atomic<bool> captures = false;
  std::atomic<bool> holds = false;
  std::atomic<bool> is_broken = false;
};

World& TheWorld() {
  static World* const world = new World;
  return *world;
}

thread_local bool has_context = false;
thread_local int capture_mode = 0;  // all calls that are unsafe fail while some thread captures

void Keep(void* thing) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  world.kept.insert(thing);
}

void Forget(void* thing) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  world.kept.erase(thing);
}

Fault FaultOf(int rank) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  const auto found = world.faults.find(rank);
  return found == world.faults.end() ? Fault{} : found->second;
}

int GpuOfProcess() {
  const char* const gpu = std::getenv("BS_FAKE_GPU");
  return gpu == nullptr ? -1 : std::atoi(gpu);
}

int GpuOf(const char* address) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  const auto after = world.memory.upper_bound(address);
  if (after == world.memory.begin()) return GpuOfProcess();
  const auto& [begin, memory] = *std::prev(after);
  return address < begin + memory.size_bytes ? memory.gpu : GpuOfProcess();
}

// -- NCCL ----------------------------------------------------------------------------------------

// What ranks share: each contributes a chunk to a slot, and waits for the others.
struct Shared {
  std::atomic<uint64_t> arrived;
  std::atomic<uint32_t> failed;
  std::array<uint64_t, kMostRanks> described;
  std::array<std::array<char, kChunkBytes>, kMostRanks> chunks;
};

enum class Kind : uint8_t { kAllReduce, kReduce, kBroadcast };

struct Array {
  const char* in;
  char* out;
  size_t size_bytes;
  Kind kind = Kind::kAllReduce;
  int root = 0;
};

struct Id {
  char bytes[128];
};

bs::DType DTypeOf(int type) {
  switch (type) {
    case 6:
      return bs::DType::kFloat16;
    case 8:
      return bs::DType::kFloat64;
    case 9:
      return bs::DType::kBfloat16;
    default:
      return bs::DType::kFloat32;
  }
}

class Communicator {
 public:
  Communicator(const Id& id, int rank, int size) : rank_(rank), size_(size) {
    const std::string name = "/bs-fake-" + std::string(id.bytes);
    const int file = ::shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) std::abort();
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) std::abort();
    ::close(file);
    shared_ = static_cast<Shared*>(memory);
    connecting_ = std::thread([this, name] {
      if (FaultOf(rank_).kind == kFakeConnects) return WaitForAbort();
      if (!Meet()) return;
      if (rank_ == 0) ::shm_unlink(name.c_str());
      if (state_ == kInProgress) state_ = 0;
    });
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() {
    if (connecting_.joinable()) connecting_.join();
    ::munmap(shared_, sizeof(Shared));
  }

  // Each look lets a call that was begun come to the stream.
  int TakeState() {
    const int state = state_;
    if (state != kInProgress && connecting_.joinable()) connecting_.join();
    if (state != 0 || !call_) return state;
    if (FaultOf(rank_).kind == kFakeStays) return kInProgress;
    if (!std::exchange(was_seen_, true)) return kInProgress;
    was_seen_ = false;
    std::exchange(call_, {})();
    return 0;
  }
  int Sum(std::vector<Array> arrays, int type, Stream* stream) {
    if (state_ != 0 || call_) return kInvalidUsage;  // it was not at rest
    while (FaultOf(rank_).kind == kFakeKeeps) std::this_thread::sleep_for(kPause);
    ++num_open_;
    call_ = [this, arrays = std::move(arrays), type, stream, operation = operations_++]() mutable {
      stream->Put([this, arrays = std::move(arrays), type, operation] {
        Run(arrays, type, operation);
        --num_open_;
      });
    };
    return kInProgress;
  }
  void Abort() {
    while (FaultOf(rank_).kind == kFakeBlocks) std::this_thread::sleep_for(kPause);
    if (FaultOf(rank_).kind == kFakeFaults) TheWorld().is_broken = true;
    aborted_ = true;
    shared_->failed = 1;
    if (std::exchange(call_, {})) --num_open_;
    while (num_open_ > 0) std::this_thread::sleep_for(kPause);
  }
  std::string last_error() const { return last_error_; }

 private:
  void Fail(int state, const char* text) {
    last_error_ = text;
    shared_->failed = 1;
    state_ = state;
  }
  void WaitForAbort() const {
    while (!aborted_) std::this_thread::sleep_for(kPause);
  }
  // Waits until all ranks are here.  False: some rank has failed.
  bool Meet() {
    const auto size = static_cast<uint64_t>(size_);
    ++shared_->arrived;
    ++meetings_;
    while (shared_->arrived < meetings_ * size) {
      if (aborted_) return false;
      if (shared_->failed != 0) {
        Fail(kRemoteError, "another rank has gone");
        return false;
      }
      std::this_thread::sleep_for(kPause);
    }
    return true;
  }

  void Run(const std::vector<Array>& arrays, int type, int operation) {
    const Fault fault = FaultOf(rank_);
    const bool is_here = fault.operation == operation;
    if (is_here && fault.kind == kFakeFails) return Fail(kRemoteError, "a cable was cut");
    const bool waits = fault.kind == kFakeHangs || fault.kind == kFakeBlocks;
    if (is_here && (waits || fault.kind == kFakeFaults)) return WaitForAbort();
    uint64_t described = static_cast<uint64_t>(type) + 1;
    for (const Array& array : arrays) {
      described = described * 1000003 + array.size_bytes;
      described = described * 31 + static_cast<uint64_t>(array.root) * 4 +
                  static_cast<uint64_t>(array.kind);
    }
    if (is_here && fault.kind == kFakeOtherSum) ++described;
    const auto rank = static_cast<size_t>(rank_);
    shared_->described[rank] = described;
    if (!Meet()) return;
    for (size_t other = 0; other < static_cast<size_t>(size_); ++other) {
      if (shared_->described[other] == described) continue;
      return Fail(kInvalidUsage, "the ranks call other sequences of sums");
    }
    for (const Array& array : arrays) {
      for (size_t at = 0; at < array.size_bytes; at += kChunkBytes) {
        if (!SumChunk(array, at, DTypeOf(type))) return;
      }
    }
    static_cast<void>(Meet());  // `described` is free again
  }

  bool SumChunk(const Array& array, size_t at, bs::DType dtype) {
    const size_t size_bytes = std::min(kChunkBytes, array.size_bytes - at);
    char* const out = array.out + at;
    std::memcpy(shared_->chunks[static_cast<size_t>(rank_)].data(), array.in + at, size_bytes);
    if (!Meet()) return false;
    if (array.kind == Kind::kBroadcast) {
      std::memcpy(out, shared_->chunks[static_cast<size_t>(array.root)].data(), size_bytes);
      return Meet();
    }
    if (array.kind == Kind::kReduce && rank_ != array.root) return Meet();
    std::memcpy(out, shared_->chunks[0].data(), size_bytes);
    for (size_t other = 1; other < static_cast<size_t>(size_); ++other) {
      bs::reduce::Sum(bs::reduce::ScalarKernels(), dtype, out, shared_->chunks[other].data(),
                      size_bytes / bs::SizeOf(dtype));
    }
    return Meet();
  }

  const int rank_;
  const int size_;
  Shared* shared_ = nullptr;
  std::thread connecting_;
  uint64_t meetings_ = 0;  // of this rank; first by `connecting_`, then by the stream
  int operations_ = 0;
  std::function<void()> call_;
  bool was_seen_ = false;
  std::string last_error_;
  std::atomic<int> state_ = kInProgress;
  std::atomic<int> num_open_ = 0;
  std::atomic<bool> aborted_ = false;
};

// The group that this thread has begun.
struct Group {
  Communicator* communicator = nullptr;
  Stream* stream = nullptr;
  int type = 0;
  std::vector<Array> arrays;
};

Group& TheGroup() {
  thread_local Group group;
  return group;
}

void Join(const Array& array, int type, void* communicator, void* stream) {
  Group& group = TheGroup();
  group.communicator = static_cast<Communicator*>(communicator);
  group.stream = static_cast<Stream*>(stream);
  group.type = type;
  group.arrays.push_back(array);
}

std::atomic<int> ids = 0;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's
#pragma GCC visibility push(default)
extern "C" {

void fake_gpu_own(const void* begin, size_t size_bytes, int gpu) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  world.memory[static_cast<const char*>(begin)] = {size_bytes, gpu};
}

void fake_gpu_fault(int rank, int fault, int operation) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  world.faults[rank] = {fault, operation};
  world.is_broken = false;
}

void fake_gpu_forget() { TheWorld().is_initialized = false; }

void fake_gpu_capture(bool captures) { TheWorld().captures = captures; }

void fake_gpu_hold(bool holds) { TheWorld().holds = holds; }

int fake_gpu_aborts() {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  return world.aborts;
}

size_t fake_gpu_copied() {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  return world.copied_bytes;
}

size_t fake_gpu_locked() {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  size_t size_bytes = 0;
  for (const auto& [memory, size] : world.locked) size_bytes += size;
  return size_bytes;
}

void fake_gpu_forget_locked() {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  world.locked.clear();
}

void fake_gpu_locks(bool locks) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  world.locks = locks;
}

int fake_gpu_groups() {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  return world.groups;
}

int cuInit(unsigned int /*flags*/) {
  if (std::getenv("BS_FAKE_NO_GPU") != nullptr) return 100;
  TheWorld().is_initialized = true;
  return 0;
}

int cuGetErrorString(int error, const char** text) {
  *text = error == 100 ? "no CUDA-capable device is detected" : "the fake driver refuses";
  return 0;
}

int cuPointerGetAttribute(void* value, int attribute, unsigned long long address) {
  if (!TheWorld().is_initialized) return kNotInitialized;
  const int gpu = GpuOf(reinterpret_cast<const char*>(address));
  if (gpu < 0) return kInvalidValue;
  const int result = attribute == 2 ? 2 : gpu;
  std::memcpy(value, &result, sizeof(result));
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetUuid(char* uuid, int device) {
  std::snprintf(uuid, 16, "fake GPU %d", device);
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int /*device*/) {
  *context = &TheWorld();
  return 0;
}

#ifndef FAKE_LACKS_CAPTURE
int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return 0;
}
#endif

int cuCtxSetCurrent(void* context) {
  has_context = context != nullptr;
  return 0;
}

int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return 0;
}

int cuStreamCreateWithPriority(void** stream, unsigned int /*flags*/, int priority) {
  if (!has_context || priority != -5) return kInvalidValue;
  *stream = new Stream;
  Keep(*stream);
  return 0;
}

int cuMemHostRegister_v2(void* memory, size_t size_bytes, unsigned int flags) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  if (!has_context || flags != 0 || !world.locks) return kInvalidValue;
  return world.locked.emplace(memory, size_bytes).second ? 0 : kAlreadyRegistered;
}

int cuMemHostUnregister(void* memory) {
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  if (!has_context) return kInvalidValue;
  return world.locked.erase(memory) > 0 ? 0 : kNotRegistered;
}

int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t size_bytes, void* stream) {
  World& world = TheWorld();
  {
    const std::lock_guard lock(world.mutex);
    world.copied_bytes += size_bytes;
  }
  static_cast<Stream*>(stream)->Put([to, from, size_bytes] {
    while (TheWorld().holds) std::this_thread::sleep_for(kPause);
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size_bytes);
  });
  return 0;
}

int cuEventCreate(void** event, unsigned int /*flags*/) {
  if (!has_context) return kInvalidValue;
  *event = new Event;
  Keep(*event);
  return 0;
}

int cuEventRecord(void* event, void* stream) {
  auto& is_over = static_cast<Event*>(event)->is_over;
  *is_over = false;
  static_cast<Stream*>(stream)->Put([is_over] { *is_over = true; });
  return 0;
}

int cuEventQuery(void* event) {
  if (TheWorld().is_broken) return kIllegalAddress;
  if (TheWorld().captures && capture_mode == 0) return kCaptureUnsupported;
  return *static_cast<Event*>(event)->is_over ? 0 : kNotReady;
}

int cuEventDestroy_v2(void* event) {
  Forget(event);
  delete static_cast<Event*>(event);
  return 0;
}

int ncclGetVersion(int* version) {
  *version = FAKE_VERSION;
  return 0;
}

int ncclGetUniqueId(Id* id) {
  *id = {};
  // Ranks that never met leave their file, and another process may get the number of this one.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string begun = std::to_string(std::chrono::nanoseconds(now).count());
  std::snprintf(id->bytes, sizeof(id->bytes), "%d-%d-%s", ::getpid(), ids++, begun.c_str());
  return 0;
}

#ifndef FAKE_LACKS
int ncclCommInitRankConfig(void** communicator, int size, Id id, int rank, void* config) {
  const bool blocks = static_cast<const int*>(config)[4] != 0;
  if (!has_context || blocks) return kInvalidUsage;
  if (FaultOf(rank).kind == kFakeRefusesToConnect) return 2;
  *communicator = new Communicator(id, rank, size);
  Keep(*communicator);
  return kInProgress;
}
#endif

int ncclGroupStart() {
  TheGroup() = {};
  return 0;
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int operation,
                  void* communicator, void* stream) {
  if (operation != 0) return kInvalidUsage;
  Join({.in = static_cast<const char*>(in),
        .out = static_cast<char*>(out),
        .size_bytes = count * bs::SizeOf(DTypeOf(type))},
       type, communicator, stream);
  return 0;
}

int ncclReduce(const void* in, void* out, size_t count, int type, int operation, int root,
               void* communicator, void* stream) {
  if (operation != 0) return kInvalidUsage;
  Join({.in = static_cast<const char*>(in),
        .out = static_cast<char*>(out),
        .size_bytes = count * bs::SizeOf(DTypeOf(type)),
        .kind = Kind::kReduce,
        .root = root},
       type, communicator, stream);
  return 0;
}

int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* communicator,
                  void* stream) {
  Join({.in = static_cast<const char*>(in),
        .out = static_cast<char*>(out),
        .size_bytes = count * bs::SizeOf(DTypeOf(type)),
        .kind = Kind::kBroadcast,
        .root = root},
       type, communicator, stream);
  return 0;
}

int ncclGroupEnd() {
  World& world = TheWorld();
  {
    const std::lock_guard lock(world.mutex);
    ++world.groups;
  }
  Group group = std::exchange(TheGroup(), {});
  return group.communicator->Sum(std::move(group.arrays), group.type, group.stream);
}

int ncclCommGetAsyncError(void* communicator, int* state) {
  *state = static_cast<Communicator*>(communicator)->TakeState();
  return 0;
}

int ncclCommAbort(void* communicator) {
  auto* const aborted = static_cast<Communicator*>(communicator);
  aborted->Abort();
  Forget(aborted);
  delete aborted;
  World& world = TheWorld();
  const std::lock_guard lock(world.mutex);
  ++world.aborts;
  return 0;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case 2:
      return "unhandled system error";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown error";
  }
}

const char* ncclGetLastError(void* communicator) {
  thread_local std::string text;
  text = communicator == nullptr ? "" : static_cast<Communicator*>(communicator)->last_error();
  return text.c_str();
}

}  // extern "C"
#pragma GCC visibility pop
// NOLINTEND(readability-identifier-naming)
