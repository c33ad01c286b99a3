// Where threads and buffers live: cores and NUMA nodes as hwloc and libnuma see them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace bs {

struct NumaNode {
  int id = 0;              // the operating system's number
  std::vector<int> cores;  // logical CPUs this process may use on that node, ascending
};

// The NUMA nodes this process may use, at least one, each with at least one core.  Respects cpusets
// and taskset.  On a machine without NUMA: one node with all allowed CPUs.
std::vector<NumaNode> DiscoverNumaNodes();

// The node of this number; null where there is no choice: the process may use one node only, or may
// not use this node.  -1: the number is not known.  Pure.
const NumaNode* FindNode(const std::vector<NumaNode>& nodes, int id);

// True if memory of this process can be placed on the node.  The rules of a container may forbid
// it.
bool CanPlaceOn(int numa_node);

// Binds the calling thread to `core`.  Returns false, and changes nothing, if the system refuses.
bool PinThisThread(int core);
// The same for all of `cores`.
bool PinThisThread(const std::vector<int>& cores);

// Zeroed memory placed on a NUMA node if the system can, elsewhere otherwise.  From kWholePagesFrom
// bytes on it is whole pages.  Smaller memory comes from the heap, on any node: a page for each of
// 100,000 values of 4 bytes would take a thousand times their size.
// A resource: moved, not copied; freed by the destructor.  Not thread-safe.
class NodeBuffer {
 public:
  static constexpr size_t kWholePagesFrom = 16384;

  NodeBuffer() = default;
  // May throw std::bad_alloc.
  NodeBuffer(size_t size_bytes, int numa_node);
  NodeBuffer(NodeBuffer&& other) noexcept;
  NodeBuffer& operator=(NodeBuffer&& other) noexcept;
  NodeBuffer(const NodeBuffer&) = delete;
  NodeBuffer& operator=(const NodeBuffer&) = delete;
  ~NodeBuffer();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  // The pages that hold nothing else: all of the memory, to the end of its last page.  Empty if it
  // is of the heap.
  std::span<std::byte> pages() const;

 private:
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Lets a network device read pages until the handle is gone; null: bytes sent from there are
// copied.  Thread-safe.
using LendPagesFn = std::function<std::shared_ptr<void>(std::span<std::byte> pages)>;

}  // namespace bs
