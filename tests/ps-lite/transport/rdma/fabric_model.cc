// Simulated cards: devices, memory, queue pairs as their owner uses them.  fabric_packets.cc moves
// what was posted.
#include "ps-lite/transport/rdma/fabric_model.h"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

namespace ps::test {
namespace {

constexpr uint64_t kPage = 4096;

GidBytes GidOf(const std::string& address) {
  GidBytes gid{};
  gid[10] = gid[11] = std::byte{0xff};
  ::inet_pton(AF_INET, address.c_str(), &gid[12]);
  return gid;
}

void Wake(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof(one));
}

void Drain(int fd) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd, &count, sizeof(count));
}

Descriptor MakeEventDescriptor() { return Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

std::string Failed(const ModelDevice& device, const char* call, const char* why) {
  return device.host->facts.name + ": " + call + ": " + why;
}

size_t HashOf(std::span<const RdmaPiece> pieces) {
  size_t hash = 0;
  for (const RdmaPiece& piece : pieces) {
    const std::string_view bytes(reinterpret_cast<const char*>(piece.data), piece.size_bytes);
    hash = hash * 31 + std::hash<std::string_view>()(bytes);
  }
  return hash;
}

}  // namespace

void FabricModel::Violate(const ModelDevice& device, const std::string& what) {
  violations_.push_back(device.host->facts.name + ": " + what);
}

void FabricModel::UsedHere(ModelDevice* device) {
  if (!device->user) device->user = std::this_thread::get_id();
  if (*device->user != std::this_thread::get_id()) Violate(*device, "two threads use the device");
}

std::shared_ptr<ModelHost> FabricModel::AddHost(const std::string& name,
                                                const NicOptions& options) {
  auto host = std::make_shared<ModelHost>();
  host->options = options;
  GidBytes link_local{};
  link_local[0] = std::byte{0xfe};
  link_local[1] = std::byte{0x80};
  RdmaPort port{.layer = RdmaLayer::kEthernet, .active = true, .state = "ACTIVE"};
  port.mtu_bytes = 4096;
  port.gids = {{.index = 0, .bytes = link_local, .type = RdmaGid::Type::kRoceV2},
               {.index = 1, .bytes = GidOf(options.address), .type = RdmaGid::Type::kRoceV2}};
  host->facts = {.name = name,
                 .ports = {port},
                 .numa_node = options.numa_node,
                 .most_reads = options.most_reads,
                 .most_answered_reads = options.most_reads,
                 .most_completions = options.most_completions,
                 .most_queue_entries = options.most_queue_entries,
                 .most_region_bytes = uint64_t{1} << 40U};
  return host;
}

void FabricModel::SetPort(ModelHost* host, bool up) {
  RdmaPort& port = host->facts.ports[0];
  if (port.active == up) return;
  port.active = up;
  port.state = up ? "ACTIVE" : "DOWN";
  for (ModelDevice* device : devices_) {
    if (device->host.get() != host) continue;
    Tell(device, {.kind = up ? RdmaEvent::Kind::kPortUp : RdmaEvent::Kind::kPortDown,
                  .port = 1,
                  .text = up ? "port active" : "port error"});
  }
}

void FabricModel::LoseDevice(ModelHost* host) {
  host->lost = true;
  for (ModelDevice* device : devices_) {
    if (device->host.get() != host) continue;
    Tell(device, {.kind = RdmaEvent::Kind::kDeviceLost, .text = "local catastrophic error"});
    for (const auto& [number, pair] : pairs_) {
      if (pair->device == device) Fail(pair.get());
    }
  }
}

bs::Result<std::unique_ptr<ModelDevice>> FabricModel::Open(std::shared_ptr<ModelHost> host,
                                                           uint32_t most_completions) {
  auto device = std::make_unique<ModelDevice>();
  device->host = std::move(host);
  device->most_completions = std::min(most_completions, device->host->facts.most_completions);
  if (device->host->lost) {
    return bs::Status::Unavailable(Failed(*device, "ibv_open_device", "No such device"));
  }
  if (most_completions == 0) {
    return bs::Status::InvalidArgument(Failed(*device, "ibv_create_cq", "Invalid argument"));
  }
  device->completion_fd = MakeEventDescriptor();
  device->event_fd = MakeEventDescriptor();
  devices_.push_back(device.get());
  ++counts_.devices;
  return device;
}

void FabricModel::Close(ModelDevice* device) {
  std::erase(devices_, device);
  --counts_.devices;
}

bs::Result<uint32_t> FabricModel::Register(ModelDevice* device, std::span<std::byte> memory,
                                           VerbsDevice::Access access) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data()) / kPage * kPage;
  const uintptr_t end =
      (reinterpret_cast<uintptr_t>(memory.data()) + memory.size() + kPage - 1) / kPage * kPage;
  if (memory.empty() || memory.size() > device->host->facts.most_region_bytes) {
    return bs::Status::InvalidArgument(Failed(*device, "ibv_reg_mr", "Invalid argument"));
  }
  std::vector<unsigned char> in_core((end - begin) / kPage);
  if (::mincore(reinterpret_cast<void*>(begin), end - begin, in_core.data()) != 0) {
    return bs::Status::InvalidArgument(Failed(*device, "ibv_reg_mr", "Bad address"));
  }
  ModelHost& host = *device->host;
  if (host.pinned_bytes + (end - begin) > host.options.most_pinned_bytes) {
    return bs::Status::ResourceExhausted(Failed(*device, "ibv_reg_mr", "Cannot allocate memory"));
  }
  uint32_t key = 0;
  do key = static_cast<uint32_t>(random_());
  while (key == 0 || regions_.contains(key) || regions_.contains(RemoteKeyOf(key)));
  regions_[key] = {device, memory.data(), memory.size(), end - begin, access};
  host.pinned_bytes += end - begin;
  counts_.pinned_bytes += end - begin;
  ++counts_.regions;
  ++counts_.registrations;
  return key;
}

void FabricModel::Deregister(uint32_t local_key) {
  const ModelRegion& region = regions_.at(local_key);
  const auto uses = [&](const RdmaPiece& piece) { return piece.local_key == local_key; };
  for (const auto& [number, pair] : pairs_) {
    if (pair->device != region.device) continue;
    const bool sends = std::ranges::any_of(pair->sends, [&](const ModelWork& work) {
      return !work.in_line && std::ranges::any_of(work.all(), uses);
    });
    if (sends ||
        std::ranges::any_of(pair->receives, [&](const auto& r) { return uses(r.piece); })) {
      Violate(*region.device, "a region ended that posted work of a queue pair needs");
    }
  }
  region.device->host->pinned_bytes -= region.pinned_bytes;
  counts_.pinned_bytes -= region.pinned_bytes;
  --counts_.regions;
  regions_.erase(local_key);
}

bool FabricModel::MayUse(const ModelDevice& device, const RdmaPiece& piece, bool fill) const {
  const auto found = regions_.find(piece.local_key);
  if (found == regions_.end()) return false;
  const ModelRegion& region = found->second;
  if (region.device != &device) return false;
  if (fill && region.access == VerbsDevice::Access::kLend) return false;
  return piece.data >= region.begin &&
         piece.data + piece.size_bytes <= region.begin + region.size_bytes;
}

const std::byte* FabricModel::Lent(const ModelDevice& device, const ModelWork& read) const {
  const auto found = regions_.find(RemoteKeyOf(read.remote_key));
  if (found == regions_.end()) return nullptr;
  const ModelRegion& region = found->second;
  if (region.device != &device || region.access == VerbsDevice::Access::kFill) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(region.begin);
  const uint64_t size = read.pieces[0].size_bytes;
  if (read.remote_address < begin || size > region.size_bytes) return nullptr;
  const uint64_t offset = read.remote_address - begin;
  return offset > region.size_bytes - size ? nullptr : region.begin + offset;
}

bs::Result<ModelQueuePair*> FabricModel::Create(ModelDevice* device, const RdmaPath& path,
                                                const QueuePairLimits& limits) {
  const ModelHost& host = *device->host;
  if (host.refuses_queue_pairs) {
    return bs::Status::ResourceExhausted(
        Failed(*device, "ibv_create_qp", "Cannot allocate memory"));
  }
  const uint32_t most = host.facts.most_queue_entries;
  if (limits.sends == 0 || limits.sends > most || limits.receives > most) {
    return bs::Status::InvalidArgument(Failed(*device, "ibv_create_qp", "Invalid argument"));
  }
  const auto& gids = host.facts.ports[0].gids;
  if (path.port != 1 || path.gid_index < 0 || static_cast<size_t>(path.gid_index) >= gids.size() ||
      path.service_level > 7) {
    return bs::Status::InvalidArgument(Failed(*device, "ibv_modify_qp", "Invalid argument"));
  }
  const uint32_t number = next_number_;
  next_number_ = (next_number_ + 1 + static_cast<uint32_t>(random_() % 7)) & 0xffffffU;
  auto pair = std::make_unique<ModelQueuePair>();
  pair->device = device;
  pair->limits = limits;
  pair->limits.inline_bytes = std::min(limits.inline_bytes, host.options.most_inline_bytes);
  pair->own = {.layer = RdmaLayer::kEthernet,
               .gid = gids[static_cast<size_t>(path.gid_index)].bytes,
               .number = number,
               .first_packet = static_cast<uint32_t>(random_()) & 0xffffffU};
  ++counts_.queue_pairs;
  return (pairs_[number] = std::move(pair)).get();
}

void FabricModel::Destroy(ModelQueuePair* pair) {
  const uint32_t number = pair->own.number;
  // Some cards drop its completions, others leave them to be polled.
  if (random_() % 2 == 0) {
    std::erase_if(pair->device->completions, [&](const ModelDevice::Waiting& waiting) {
      return waiting.completion.queue_pair == number;
    });
  }
  --counts_.queue_pairs;
  pairs_.erase(number);
}

bs::Status FabricModel::Receive(ModelQueuePair* pair, const QueuePairAddress& peer,
                                const QueuePairTerms& terms) {
  const RdmaDevice& facts = pair->device->host->facts;
  const bool good = pair->state == ModelQueuePair::State::kInit && peer.layer == pair->own.layer &&
                    peer.number < (1U << 24U) && peer.first_packet < (1U << 24U) &&
                    std::has_single_bit(terms.mtu_bytes) && terms.mtu_bytes >= 256 &&
                    terms.mtu_bytes <= facts.ports[0].mtu_bytes &&
                    terms.reads <= facts.most_reads &&
                    terms.answered_reads <= facts.most_answered_reads;
  if (!good) {
    return bs::Status::InvalidArgument(Failed(*pair->device, "ibv_modify_qp", "Invalid argument"));
  }
  pair->peer = peer;
  pair->terms = terms;
  pair->state = ModelQueuePair::State::kReceiving;
  return bs::Status::Ok();
}

bs::Status FabricModel::Activate(ModelQueuePair* pair) {
  if (pair->state != ModelQueuePair::State::kReceiving) {
    return bs::Status::InvalidArgument(Failed(*pair->device, "ibv_modify_qp", "Invalid argument"));
  }
  pair->state = ModelQueuePair::State::kActive;
  return bs::Status::Ok();
}

void FabricModel::Abandon(ModelQueuePair* pair) { Fail(pair); }

bs::Status FabricModel::PostReceive(ModelQueuePair* pair, uint64_t id, const RdmaPiece& memory) {
  UsedHere(pair->device);
  if (pair->receives_taken >= pair->limits.receives) {
    return bs::Status::ResourceExhausted(
        Failed(*pair->device, "ibv_post_recv", "Cannot allocate memory"));
  }
  ++pair->receives_taken;
  if (options_.watch_memory && MayUse(*pair->device, memory, true)) {
    std::memset(memory.data, 0xb7, memory.size_bytes);
  }
  pair->receives.push_back({id, memory});
  if (pair->state == ModelQueuePair::State::kError) Fail(pair);
  return bs::Status::Ok();
}

bool FabricModel::MayPost(const ModelQueuePair& pair, const char* call, bs::Status* why) const {
  if (pair.state == ModelQueuePair::State::kInit ||
      pair.state == ModelQueuePair::State::kReceiving) {
    *why = bs::Status::InvalidArgument(Failed(*pair.device, call, "Invalid argument"));
  } else if (pair.sends_taken >= pair.limits.sends) {
    *why = bs::Status::ResourceExhausted(Failed(*pair.device, call, "Cannot allocate memory"));
  }
  return why->ok();
}

bs::Status FabricModel::PostSend(ModelQueuePair* pair, const QueuePair::Send& send) {
  UsedHere(pair->device);
  bs::Status why;
  if (!MayPost(*pair, "ibv_post_send", &why)) return why;
  uint64_t size = 0;
  for (const RdmaPiece& piece : send.pieces) size += piece.size_bytes;
  if (send.pieces.size() > 2 || (send.in_line && size > pair->limits.inline_bytes)) {
    return bs::Status::InvalidArgument(Failed(*pair->device, "ibv_post_send", "Invalid argument"));
  }
  ModelWork& work = pair->sends.emplace_back();
  work.id = send.id;
  work.num_pieces = send.pieces.size();
  std::ranges::copy(send.pieces, work.pieces.begin());
  work.signalled = send.signalled;
  work.in_line = send.in_line;
  if (send.in_line) {
    size_t at = 0;
    for (RdmaPiece& piece : std::span(work.pieces).first(work.num_pieces)) {
      if (piece.size_bytes != 0) std::memcpy(&work.in_line_bytes[at], piece.data, piece.size_bytes);
      piece.data = &work.in_line_bytes[at];  // a deque does not move what it holds
      at += piece.size_bytes;
    }
  } else if (options_.watch_memory) {
    work.hash = HashOf(work.all());
  }
  ++pair->sends_taken;
  if (pair->state == ModelQueuePair::State::kError) Fail(pair);
  MoveLater(pair, Delay());
  return bs::Status::Ok();
}

bs::Status FabricModel::PostRead(ModelQueuePair* pair, ModelWork read) {
  UsedHere(pair->device);
  bs::Status why;
  if (!MayPost(*pair, "ibv_post_send", &why)) return why;
  if (pair->reads >= pair->terms.reads) Violate(*pair->device, "more READs than agreed");
  ++pair->reads;
  counts_.most_reads_under_way = std::max<uint64_t>(counts_.most_reads_under_way, pair->reads);
  if (options_.watch_memory && MayUse(*pair->device, read.pieces[0], true)) {
    std::memset(read.pieces[0].data, 0xb8, read.pieces[0].size_bytes);
  }
  pair->sends.push_back(read);
  ++pair->sends_taken;
  if (pair->state == ModelQueuePair::State::kError) Fail(pair);
  MoveLater(pair, Delay());
  return bs::Status::Ok();
}

void FabricModel::Rearm(ModelDevice* device) {
  UsedHere(device);
  Drain(device->completion_fd.fd());
  device->armed = true;
}

size_t FabricModel::Poll(ModelDevice* device, std::span<Completion> completions) {
  UsedHere(device);
  size_t count = 0;
  for (; count < completions.size() && !device->completions.empty(); ++count) {
    const ModelDevice::Waiting& waiting = device->completions.front();
    completions[count] = waiting.completion;
    const auto pair = pairs_.find(waiting.completion.queue_pair);
    if (pair != pairs_.end()) {
      pair->second->sends_taken -= waiting.frees_sends;
      if (waiting.frees_sends == 0) --pair->second->receives_taken;
    }
    device->completions.pop_front();
  }
  return count;
}

std::optional<RdmaEvent> FabricModel::TakeEvent(ModelDevice* device) {
  Drain(device->event_fd.fd());
  if (device->events.empty()) return std::nullopt;
  RdmaEvent event = device->events.front();
  device->events.pop_front();
  if (!device->events.empty()) Wake(device->event_fd.fd());
  return event;
}

void FabricModel::Push(ModelDevice* device, const Completion& completion, uint32_t frees_sends) {
  if (device->completions.size() >= device->most_completions) {
    Violate(*device, "more completions wait than the queue holds");
  }
  device->completions.push_back({completion, frees_sends});
  if (!std::exchange(device->armed, false)) return;
  Wake(device->completion_fd.fd());
}

void FabricModel::Tell(ModelDevice* device, const RdmaEvent& event) {
  device->events.push_back(event);
  Wake(device->event_fd.fd());
}

void FabricModel::Complete(ModelQueuePair* pair, size_t count, Result result) {
  const uint64_t id = pair->sends[count - 1].id;
  const Completion::Kind kind = pair->sends[count - 1].kind;
  for (size_t i = 0; i < count; ++i) {
    const ModelWork& work = pair->sends.front();
    if (work.kind == Completion::Kind::kRead) {
      --pair->reads;
    } else if (options_.watch_memory && !work.in_line && HashOf(work.all()) != work.hash) {
      Violate(*pair->device, "memory of a SEND changed before it was complete");
    }
    pair->sends.pop_front();
    ++pair->first;
    if (pair->arrived > 0) --pair->arrived;
  }
  Push(pair->device,
       {.id = id,
        .kind = kind,
        .result = result,
        .vendor_code = result == Result::kOk ? 0U : 0x51U,
        .queue_pair = pair->own.number},
       static_cast<uint32_t>(count));
}

void FabricModel::Fail(ModelQueuePair* pair) {
  pair->state = ModelQueuePair::State::kError;
  while (!pair->sends.empty()) {
    const ModelWork& work = pair->sends.front();
    const bool read = work.kind == Completion::Kind::kRead;
    if (read && options_.watch_memory && MayUse(*pair->device, work.pieces[0], true)) {
      std::memset(work.pieces[0].data, 0xb9, work.pieces[0].size_bytes);
    }
    Complete(pair, 1, Result::kFlushed);
  }
  for (const ModelQueuePair::Receive& receive : std::exchange(pair->receives, {})) {
    Push(pair->device,
         {.id = receive.id,
          .kind = Completion::Kind::kReceive,
          .result = Result::kFlushed,
          .queue_pair = pair->own.number},
         0);
  }
}

}  // namespace ps::test
