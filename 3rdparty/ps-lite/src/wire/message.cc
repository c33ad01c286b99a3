// Frames, and how roles and ids are told to people.
#include "ps/message.h"

#include <cstring>
#include <memory>
#include <utility>

namespace ps {

std::string_view NameOf(Role role) {
  switch (role) {
    case Role::kServer:
      return "server";
    case Role::kWorker:
      return "worker";
    case Role::kScheduler:
      return "scheduler";
  }
  return "unknown role";
}

std::string DescribeId(int32_t id) {
  if (id == kEmpty) return "an anonymous node";
  if (id == kSchedulerId) return "the scheduler";
  if (id >= kFirstTemporaryId) return "a node without an id";
  const int32_t base = IsAttachedId(id) ? id - kAttachedIdBase : id;
  if (base < ServerId(0)) return "node " + std::to_string(id);
  const bool is_server = base % 2 == 0;
  return (is_server ? "server " : "worker ") + std::to_string(RankOf(id));
}

Frame Frame::Copy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  const std::span<std::byte> view(copy.get(), bytes.size());
  return Own(view, [owned = std::move(copy)] {});
}

Frame Frame::Copy(std::string_view bytes) {
  return Copy(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())));
}

Frame Frame::Borrow(std::span<const std::byte> bytes, bs::UniqueFunction<void()> release) {
  Frame frame;
  frame.bytes_ = bytes;
  frame.release_ = std::move(release);
  return frame;
}

Frame Frame::Own(std::span<std::byte> bytes, bs::UniqueFunction<void()> release) {
  Frame frame = Borrow(bytes, std::move(release));
  frame.writable_ = bytes;
  return frame;
}

Frame Frame::PartOf(std::shared_ptr<const Frame> whole, std::span<const std::byte> bytes) {
  Frame frame = Borrow(bytes, [kept = std::move(whole)] {});
  frame.shares_ = true;
  return frame;
}

Frame Frame::Alone(Frame&& frame) {
  Frame alone = frame.shares_ ? Copy(frame.bytes_) : std::move(frame);
  frame = Frame();
  return alone;
}

Frame::Frame(Frame&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      writable_(std::exchange(other.writable_, {})),
      release_(std::move(other.release_)),
      shares_(std::exchange(other.shares_, false)) {}

Frame& Frame::operator=(Frame&& other) noexcept {
  if (this == &other) return *this;
  // The old bytes are given back last, when this frame is whole again: `release` may look at it.
  const Frame old = std::move(*this);
  bytes_ = std::exchange(other.bytes_, {});
  writable_ = std::exchange(other.writable_, {});
  release_ = std::move(other.release_);
  shares_ = std::exchange(other.shares_, false);
  return *this;
}

Frame::~Frame() {
  if (release_) release_();
}

}  // namespace ps
