// Carrier: the means by which bytes move between two nodes.
#pragma once

#include <cstdint>
#include <string_view>

namespace bs {

enum class Carrier : uint8_t { kUnknown, kTcp, kSharedMemory, kRdma };

// The text that timelines have; empty for kUnknown.
constexpr std::string_view NameOf(Carrier carrier) {
  switch (carrier) {
    case Carrier::kTcp:
      return "tcp";
    case Carrier::kSharedMemory:
      return "shm";
    case Carrier::kRdma:
      return "rdma";
    case Carrier::kUnknown:
      break;
  }
  return "";
}

// Each direction between this node and a peer has its own.
struct Carriers {
  Carrier to = Carrier::kUnknown;
  Carrier from = Carrier::kUnknown;

  bool operator==(const Carriers&) const = default;
};

}  // namespace bs
