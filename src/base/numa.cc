// NUMA through hwloc (which cores, which node) and libnuma's mbind (where memory goes).
#include "base/numa.h"

#include <hwloc.h>
#include <numaif.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace bs {
namespace {

struct TopologyFree {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyFree>;

struct BitmapFree {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

Topology LoadTopology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

// The CPUs that both the container and the caller's affinity allow.
Bitmap UsableCpus(hwloc_topology_t topology) {
  Bitmap cpus(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)));
  const Bitmap bound(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_THREAD) == 0) {
    hwloc_bitmap_and(cpus.get(), cpus.get(), bound.get());
  }
  return cpus;
}

std::vector<NumaNode> NodesOf(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  const Bitmap left = UsableCpus(topology);
  // Memory-only nodes (HBM, CXL) share the CPUs of a node before them: each CPU counts once.
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr;) {
    NumaNode node{.id = static_cast<int>(object->os_index), .cores = {}};
    for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(object->cpuset, cpu)) {
      if (hwloc_bitmap_isset(left.get(), static_cast<unsigned>(cpu)) == 0) continue;
      node.cores.push_back(cpu);
      hwloc_bitmap_clr(left.get(), static_cast<unsigned>(cpu));
    }
    if (!node.cores.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

bool Contains(const cpu_set_t& set, int cpu) { return CPU_ISSET(static_cast<size_t>(cpu), &set); }

// Where hwloc sees nothing (no /sys): one node with the CPUs of the affinity mask.
NumaNode FallbackNode() {
  NumaNode node;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (Contains(set, cpu)) node.cores.push_back(cpu);
    }
  }
  if (node.cores.empty()) node.cores.push_back(0);
  return node;
}

constexpr size_t kLineBytes = 64;  // of the caches: summing kernels load whole lines

// A wish, not a demand: a full node or a forbidden system call must not stop a server.  False: the
// system does not take it.
bool PreferNode(void* data, size_t size_bytes, int numa_node) {
  constexpr size_t kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 16> mask{};
  const auto node = static_cast<size_t>(numa_node);
  if (numa_node < 0 || node >= mask.size() * kBitsPerWord) return false;
  mask.at(node / kBitsPerWord) |= 1UL << (node % kBitsPerWord);
  // The kernel takes one bit less than it is told.
  return mbind(data, size_bytes, MPOL_PREFERRED, mask.data(), mask.size() * kBitsPerWord + 1, 0) ==
         0;
}

}  // namespace

std::vector<NumaNode> DiscoverNumaNodes() {
  std::vector<NumaNode> nodes;
  if (const Topology topology = LoadTopology()) nodes = NodesOf(topology.get());
  if (nodes.empty()) nodes.push_back(FallbackNode());
  return nodes;
}

const NumaNode* FindNode(const std::vector<NumaNode>& nodes, int id) {
  const auto found = std::ranges::find(nodes, id, &NumaNode::id);
  return nodes.size() < 2 || found == nodes.end() ? nullptr : &*found;
}

bool CanPlaceOn(int numa_node) {
  const NodeBuffer probe(NodeBuffer::kWholePagesFrom, -1);
  return PreferNode(probe.data(), probe.size_bytes(), numa_node);
}

bool PinThisThread(int core) { return PinThisThread(std::vector<int>{core}); }

bool PinThisThread(const std::vector<int>& cores) {
  if (cores.empty() || std::ranges::min(cores) < 0) return false;
  const size_t count = static_cast<size_t>(std::ranges::max(cores)) + 1;
  cpu_set_t* const set = CPU_ALLOC(count);
  if (set == nullptr) return false;
  const size_t size_bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(size_bytes, set);
  for (const int core : cores) CPU_SET_S(static_cast<size_t>(core), size_bytes, set);
  const bool done = sched_setaffinity(0, size_bytes, set) == 0;
  CPU_FREE(set);
  return done;
}

NodeBuffer::NodeBuffer(size_t size_bytes, int numa_node) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  if (size_bytes < kWholePagesFrom) {
    const size_t alignment = size_bytes < kLineBytes ? alignof(std::max_align_t) : kLineBytes;
    const size_t whole_bytes = (size_bytes + alignment - 1) / alignment * alignment;
    data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, whole_bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_, 0, whole_bytes);
    return;
  }
  void* const data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw std::bad_alloc();  // as every allocation does; the server refuses that request
  static_cast<void>(PreferNode(data, size_bytes, numa_node));
  data_ = static_cast<std::byte*>(data);
}

NodeBuffer::NodeBuffer(NodeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

NodeBuffer& NodeBuffer::operator=(NodeBuffer&& other) noexcept {
  NodeBuffer taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_bytes_, taken.size_bytes_);
  return *this;
}

std::span<std::byte> NodeBuffer::pages() const {
  if (size_bytes_ < kWholePagesFrom) return {};
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return {data_, (size_bytes_ + page - 1) / page * page};
}

NodeBuffer::~NodeBuffer() {
  if (size_bytes_ < kWholePagesFrom) {
    std::free(data_);
  } else {
    munmap(data_, size_bytes_);
  }
}

}  // namespace bs
