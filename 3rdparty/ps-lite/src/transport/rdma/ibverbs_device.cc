// Calls of libibverbs behind VerbsDevice, QueuePair and RdmaRegion.
#include "transport/rdma/ibverbs_device.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "transport/rdma/locked_memory.h"

namespace ps {
namespace {

// 4.096 us * 2^14 = 67 ms, and each try takes up to four times as long: a vanished peer is noticed
// in 0.5 to 2 s.  Soft-RoCE takes 7 retries as for ever.
constexpr uint8_t kTimeout = 14;
constexpr uint8_t kRetries = 6;
// 7 would be for ever.  Credits keep receives ready, so this ends only faulty connections.
constexpr uint8_t kReceiverRetries = 6;
constexpr uint8_t kReceiverTimer = 12;  // 0.64 ms
constexpr uint8_t kHops = 64;
constexpr uint32_t kMask24 = (1U << 24U) - 1;

bs::Status Failed(const std::string& device, const char* call, int error) {
  std::string text = device + ": " + call + ": " + std::generic_category().message(error);
  if (error == ENOMEM || error == EAGAIN) {
    return bs::Status::ResourceExhausted(std::move(text));
  }
  const bool unreachable = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
                           error == ENODEV || error == EIO;
  if (unreachable) return bs::Status::Unavailable(std::move(text));
  return bs::Status::InvalidArgument(std::move(text));
}

template <typename T>
using Owned = std::unique_ptr<T, int (*)(T*)>;

// State that the device and all that is made by it share.  Destroyed in reverse order.
struct Opened {
  std::shared_ptr<const IbverbsSymbols> symbols;
  RdmaDevice facts;
  IbverbsContext context;
  Owned<ibv_pd> domain;
  Owned<ibv_comp_channel> channel;
  Owned<ibv_cq> completions;
};
using OpenedPtr = std::shared_ptr<const Opened>;

class Region final : public RdmaRegion {
 public:
  Region(OpenedPtr device, Owned<ibv_mr> region)
      : device_(std::move(device)), region_(std::move(region)) {}
  uint32_t local_key() const override { return region_->lkey; }
  uint32_t remote_key() const override { return region_->rkey; }

 private:
  const OpenedPtr device_;
  const Owned<ibv_mr> region_;
};

ibv_mtu MtuOf(uint32_t bytes) {
  const int known = std::clamp(static_cast<int>(std::bit_width(bytes)) - 8, 1, 5);  // 256 is 1
  return static_cast<ibv_mtu>(known);
}

class Pair final : public QueuePair {
 public:
  Pair(OpenedPtr device, Owned<ibv_qp> pair, const RdmaPath& path, QueuePairAddress address,
       uint32_t inline_bytes)
      : device_(std::move(device)),
        pair_(std::move(pair)),
        path_(path),
        address_(address),
        inline_bytes_(inline_bytes) {}

  const QueuePairAddress& address() const override { return address_; }
  uint32_t inline_bytes() const override { return inline_bytes_; }
  bs::Status Begin();  // to INIT
  bs::Status Receive(const QueuePairAddress& peer, const QueuePairTerms& terms) override;
  bs::Status Activate() override;
  void Abandon() override;
  bs::Status PostReceive(uint64_t id, const RdmaPiece& memory) override;
  bs::Status PostSend(const Send& send) override;
  bs::Status PostRead(uint64_t id, const RdmaPiece& memory, uint64_t remote_address,
                      uint32_t remote_key) override;

 private:
  bs::Status Modify(ibv_qp_attr* attributes, int mask) const;
  bs::Status Post(ibv_send_wr* work) const;

  const OpenedPtr device_;
  const Owned<ibv_qp> pair_;
  const RdmaPath path_;
  const QueuePairAddress address_;
  const uint32_t inline_bytes_;
  QueuePairTerms terms_;
};

ibv_sge PieceOf(const RdmaPiece& piece) {
  return {.addr = reinterpret_cast<uintptr_t>(piece.data),
          .length = piece.size_bytes,
          .lkey = piece.local_key};
}

bs::Status Pair::Modify(ibv_qp_attr* attributes, int mask) const {
  const int error = device_->symbols->modify_qp(pair_.get(), attributes, mask);
  if (error == 0) return bs::Status::Ok();
  return Failed(device_->facts.name, "ibv_modify_qp", error);
}

bs::Status Pair::Begin() {
  ibv_qp_attr attributes{};  // NOLINT(bugprone-invalid-enum-default-initialization)
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<uint8_t>(path_.port);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  return Modify(&attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

bs::Status Pair::Receive(const QueuePairAddress& peer, const QueuePairTerms& terms) {
  terms_ = terms;
  ibv_qp_attr attributes{};  // NOLINT(bugprone-invalid-enum-default-initialization)
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = MtuOf(std::clamp(terms.mtu_bytes, 256U, 4096U));
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.first_packet & kMask24;
  attributes.max_dest_rd_atomic = static_cast<uint8_t>(std::min(terms.answered_reads, 255U));
  attributes.min_rnr_timer = kReceiverTimer;
  ibv_ah_attr& route = attributes.ah_attr;
  route.is_global = 1;
  std::memcpy(route.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  route.grh.sgid_index = static_cast<uint8_t>(path_.gid_index);
  route.grh.hop_limit = kHops;
  route.grh.traffic_class = path_.traffic_class;
  route.dlid = peer.lid;
  route.sl = path_.service_level;
  route.port_num = static_cast<uint8_t>(path_.port);
  return Modify(&attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

bs::Status Pair::Activate() {
  ibv_qp_attr attributes{};  // NOLINT(bugprone-invalid-enum-default-initialization)
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kReceiverRetries;
  attributes.sq_psn = address_.first_packet;
  attributes.max_rd_atomic = static_cast<uint8_t>(std::min(terms_.reads, 255U));
  return Modify(&attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void Pair::Abandon() {
  ibv_qp_attr attributes{};  // NOLINT(bugprone-invalid-enum-default-initialization)
  attributes.qp_state = IBV_QPS_ERR;
  // A device that is gone refuses; it has flushed the queues already.
  [[maybe_unused]] const bs::Status status = Modify(&attributes, IBV_QP_STATE);
}

bs::Status Pair::PostReceive(uint64_t id, const RdmaPiece& memory) {
  ibv_sge piece = PieceOf(memory);
  ibv_recv_wr work{};
  work.wr_id = id;
  work.sg_list = &piece;
  work.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_recv(pair_.get(), &work, &refused);
  return error == 0 ? bs::Status::Ok() : Failed(device_->facts.name, "ibv_post_recv", error);
}

bs::Status Pair::Post(ibv_send_wr* work) const {
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(pair_.get(), work, &refused);
  return error == 0 ? bs::Status::Ok() : Failed(device_->facts.name, "ibv_post_send", error);
}

bs::Status Pair::PostSend(const Send& send) {
  std::array<ibv_sge, 2> pieces{};
  if (send.pieces.size() > pieces.size()) {
    return bs::Status::InvalidArgument("a SEND has at most two pieces");
  }
  std::ranges::transform(send.pieces, pieces.begin(), &PieceOf);
  ibv_send_wr work{};
  work.wr_id = send.id;
  work.sg_list = pieces.data();
  work.num_sge = static_cast<int>(send.pieces.size());
  work.opcode = IBV_WR_SEND;
  if (send.in_line) work.send_flags |= IBV_SEND_INLINE;
  if (send.signalled) work.send_flags |= IBV_SEND_SIGNALED;
  return Post(&work);
}

bs::Status Pair::PostRead(uint64_t id, const RdmaPiece& memory, uint64_t remote_address,
                          uint32_t remote_key) {
  ibv_sge piece = PieceOf(memory);
  ibv_send_wr work{};
  work.wr_id = id;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_READ;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma.remote_addr = remote_address;
  work.wr.rdma.rkey = remote_key;
  return Post(&work);
}

Completion CompletionOf(const ibv_wc& from) {
  Completion to{.id = from.wr_id,
                .result = static_cast<Completion::Result>(from.status),
                .vendor_code = from.vendor_err,
                .queue_pair = from.qp_num};
  if (!to.ok()) return to;
  if ((from.opcode & IBV_WC_RECV) != 0) {
    to.kind = Completion::Kind::kReceive;
    to.size_bytes = from.byte_len;
  } else if (from.opcode == IBV_WC_RDMA_READ) {
    to.kind = Completion::Kind::kRead;
  }
  return to;
}

RdmaEvent EventOf(const IbverbsSymbols& symbols, const ibv_async_event& from) {
  RdmaEvent to{.text = symbols.event_type_str(from.event_type)};
  switch (from.event_type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
      to.kind = from.event_type == IBV_EVENT_PORT_ACTIVE ? RdmaEvent::Kind::kPortUp
                                                         : RdmaEvent::Kind::kPortDown;
      to.port = from.element.port_num;
      break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:  // all queue pairs share the queue that is lost
      to.kind = RdmaEvent::Kind::kDeviceLost;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      to.kind = RdmaEvent::Kind::kQueuePairLost;
      to.queue_pair = from.element.qp->qp_num;
      break;
    default:
      break;
  }
  return to;
}

class Device final : public VerbsDevice {
 public:
  explicit Device(OpenedPtr opened) : opened_(std::move(opened)) {}

  const RdmaDevice& facts() const override { return opened_->facts; }
  bs::Result<std::unique_ptr<RdmaRegion>> Register(std::span<std::byte> memory,
                                                   Access access) override;
  bs::Result<std::unique_ptr<QueuePair>> Create(const RdmaPath& path,
                                                const QueuePairLimits& limits) override;
  int completion_fd() const override { return opened_->channel->fd; }
  bs::Status Rearm() override;
  bs::Result<size_t> Poll(std::span<Completion> completions) override;
  int event_fd() const override { return opened_->context->async_fd; }
  std::optional<RdmaEvent> TakeEvent() override;

 private:
  ibv_mr* RegionOf(std::span<std::byte> memory, Access access) const;
  bs::Status Refused(const char* call, int error) const {
    return Failed(opened_->facts.name, call, error);
  }

  const OpenedPtr opened_;
};

ibv_mr* Device::RegionOf(std::span<std::byte> memory, Access access) const {
  const IbverbsSymbols& symbols = *opened_->symbols;
  unsigned flags = 0;
  if (access != Access::kLend) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (access != Access::kFill) flags |= IBV_ACCESS_REMOTE_READ;
  ibv_pd* const domain = opened_->domain.get();
  // The completion of a READ comes behind its data in any case, so their order is free.
  if (access == Access::kFill && symbols.reg_mr_iova2 != nullptr) {
    return symbols.reg_mr_iova2(domain, memory.data(), memory.size(),
                                reinterpret_cast<uintptr_t>(memory.data()),
                                flags | IBV_ACCESS_RELAXED_ORDERING);
  }
  return symbols.reg_mr(domain, memory.data(), memory.size(), static_cast<int>(flags));
}

bs::Result<std::unique_ptr<RdmaRegion>> Device::Register(std::span<std::byte> memory,
                                                         Access access) {
  ibv_mr* const region = RegionOf(memory, access);
  if (region == nullptr) {
    const bs::Status refused = Refused("ibv_reg_mr", errno);
    const std::string limit = TextOfLockedMemory(LockedMemoryLimit());
    if (refused.code() != bs::StatusCode::kResourceExhausted || limit.empty()) return refused;
    return bs::Status::ResourceExhausted(refused.message() + "; " + limit);
  }
  return std::unique_ptr<RdmaRegion>(
      std::make_unique<Region>(opened_, Owned<ibv_mr>(region, opened_->symbols->dereg_mr)));
}

bs::Result<std::unique_ptr<QueuePair>> Device::Create(const RdmaPath& path,
                                                      const QueuePairLimits& limits) {
  const RdmaDevice& facts = opened_->facts;
  const auto port = std::ranges::find(facts.ports, path.port, &RdmaPort::number);
  if (port == facts.ports.end()) return Refused("ibv_modify_qp", EINVAL);
  const auto gid = std::ranges::find(port->gids, path.gid_index, &RdmaGid::index);
  if (gid == port->gids.end()) return Refused("ibv_modify_qp", EINVAL);

  ibv_qp_init_attr wish{};  // NOLINT(bugprone-invalid-enum-default-initialization)
  wish.send_cq = wish.recv_cq = opened_->completions.get();
  wish.qp_type = IBV_QPT_RC;
  ibv_qp* made = nullptr;
  // Devices refuse more inline bytes than they have; none tells how many these are.
  for (const uint32_t inline_bytes : {limits.inline_bytes, limits.inline_bytes / 2, 0U}) {
    wish.cap = {.max_send_wr = limits.sends,
                .max_recv_wr = limits.receives,
                .max_send_sge = 2,
                .max_recv_sge = 1,
                .max_inline_data = inline_bytes};
    made = opened_->symbols->create_qp(opened_->domain.get(), &wish);
    if (made != nullptr || errno != EINVAL) break;
  }
  if (made == nullptr) return Refused("ibv_create_qp", errno);
  Owned<ibv_qp> owned(made, opened_->symbols->destroy_qp);
  uint32_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return Refused("getrandom", errno);
  const QueuePairAddress address{.layer = port->layer,
                                 .gid = gid->bytes,
                                 .lid = port->lid,
                                 .number = made->qp_num,
                                 .first_packet = random & kMask24};
  auto pair =
      std::make_unique<Pair>(opened_, std::move(owned), path, address, wish.cap.max_inline_data);
  const bs::Status begun = pair->Begin();
  if (!begun.ok()) return begun;
  return std::unique_ptr<QueuePair>(std::move(pair));
}

bs::Status Device::Rearm() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned count = 0;
  while (opened_->symbols->get_cq_event(opened_->channel.get(), &queue, &context) == 0) ++count;
  if (count != 0) opened_->symbols->ack_cq_events(opened_->completions.get(), count);
  const int error = ibv_req_notify_cq(opened_->completions.get(), 0);
  return error == 0 ? bs::Status::Ok() : Refused("ibv_req_notify_cq", error);
}

bs::Result<size_t> Device::Poll(std::span<Completion> completions) {
  std::array<ibv_wc, 32> raw{};
  size_t filled = 0;
  while (filled < completions.size()) {
    const size_t room = std::min(completions.size() - filled, raw.size());
    const int count = ibv_poll_cq(opened_->completions.get(), static_cast<int>(room), raw.data());
    if (count < 0) return Refused("ibv_poll_cq", EIO);
    for (int i = 0; i < count; ++i)
      completions[filled++] = CompletionOf(raw[static_cast<size_t>(i)]);
    if (static_cast<size_t>(count) < room) break;
  }
  return filled;
}

std::optional<RdmaEvent> Device::TakeEvent() {
  ibv_async_event raw{};
  if (opened_->symbols->get_async_event(opened_->context.get(), &raw) != 0) return std::nullopt;
  RdmaEvent event = EventOf(*opened_->symbols, raw);
  opened_->symbols->ack_async_event(&raw);
  return event;
}

bool NeverBlocks(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace

void AddFacts(const IbverbsSymbols& symbols, ibv_context* context, RdmaDevice* device) {
  ibv_device_attr facts{};
  if (symbols.query_device(context, &facts) == 0) {
    device->most_reads = static_cast<uint32_t>(facts.max_qp_init_rd_atom);
    device->most_answered_reads = static_cast<uint32_t>(facts.max_qp_rd_atom);
    device->most_completions = static_cast<uint32_t>(facts.max_cqe);
    device->most_queue_entries = static_cast<uint32_t>(facts.max_qp_wr);
    device->most_region_bytes = facts.max_mr_size;
  }
  device->relaxed_ordering = symbols.reg_mr_iova2 != nullptr;
  for (RdmaPort& port : device->ports) {
    ibv_port_attr state{};  // NOLINT(bugprone-invalid-enum-default-initialization)
    // The function fills the front of it, as long as the library's oldest version was.
    auto* const front = reinterpret_cast<_compat_ibv_port_attr*>(&state);
    if (symbols.query_port(context, static_cast<uint8_t>(port.number), front) != 0) continue;
    port.mtu_bytes = 128U << static_cast<unsigned>(state.active_mtu);
  }
}

bs::Result<std::unique_ptr<VerbsDevice>> OpenIbverbsDevice(
    std::shared_ptr<const IbverbsSymbols> symbols, IbverbsContext context, RdmaDevice facts,
    uint32_t most_completions) {
  const auto failed = [&](const char* call) { return Failed(facts.name, call, errno); };
  const IbverbsSymbols& calls = *symbols;
  Owned<ibv_pd> domain(calls.alloc_pd(context.get()), calls.dealloc_pd);
  if (!domain) return failed("ibv_alloc_pd");
  Owned<ibv_comp_channel> channel(calls.create_comp_channel(context.get()),
                                  calls.destroy_comp_channel);
  if (!channel) return failed("ibv_create_comp_channel");
  if (!NeverBlocks(channel->fd) || !NeverBlocks(context->async_fd)) return failed("fcntl");
  const auto entries = static_cast<int>(std::min(most_completions, facts.most_completions));
  Owned<ibv_cq> completions(calls.create_cq(context.get(), entries, nullptr, channel.get(), 0),
                            calls.destroy_cq);
  if (!completions) return failed("ibv_create_cq");
  auto opened = std::make_shared<const Opened>(Opened{std::move(symbols), std::move(facts),
                                                      std::move(context), std::move(domain),
                                                      std::move(channel), std::move(completions)});
  return std::unique_ptr<VerbsDevice>(std::make_unique<Device>(std::move(opened)));
}

}  // namespace ps
