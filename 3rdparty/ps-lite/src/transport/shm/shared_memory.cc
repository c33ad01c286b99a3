// Sealed memfds, opened through /proc.
#include "transport/shm/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/count_of.h"
#include "base/descriptors.h"

namespace ps {
namespace {

// The head of the file: the secret, then a flag for each slot.
constexpr size_t kHeadBytes = 64U << 10U;
constexpr size_t kSecretBytes = 16;
constexpr size_t kFlagsAt = 64;
constexpr size_t kOfferParts = 5;
constexpr std::string_view kVersion = "1";
constexpr const char* kName = "bytescheduler";
// MADV_POPULATE_WRITE, which older headers lack.
constexpr int kPopulateWrite = 23;
constexpr std::string_view kShownAs = "/memfd:bytescheduler";

static_assert(kFlagsAt + SharedMapping::kMostBytes / SharedMapping::kSlotBytes * sizeof(uint32_t) <=
              kHeadBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

bs::Status NoMemory(const std::string& what) {
  return bs::Status::Unavailable(what + ": " + bs::SystemError(errno));
}
bs::Status Wrong(const std::string& what) {
  return bs::Status::InvalidArgument("shared memory: " + what);
}

uint64_t SlotsOf(uint64_t size_bytes) {
  return (size_bytes + SharedMapping::kSlotBytes - 1) / SharedMapping::kSlotBytes;
}

std::string HexOf(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::byte byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    hex.push_back(kDigits[value >> 4U]);
    hex.push_back(kDigits[value & 15U]);
  }
  return hex;
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(' ');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos || parts.size() > kOfferParts) return parts;
    text.remove_prefix(end + 1);
  }
}

// Nothing unless the whole text is a number.
std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t number = 0;
  const char* const begin = std::to_address(text.begin());
  const char* const end = begin + text.size();
  const auto [at, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

// Opens only a memory file that a SharedOutbox of this user has made.  To open another file could
// have effects, and its name in /proc can be forged.  So O_PATH pins the file without opening it,
// and the checks read the pinned file.
Descriptor OpenOutbox(const std::string& path) {
  std::array<char, 64> shown{};
  const ssize_t size = ::readlink(path.c_str(), shown.data(), shown.size());
  const Descriptor pinned(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status{};
  struct statfs system{};
  if (size <= 0 || !pinned || ::fstat(pinned.fd(), &status) != 0 ||
      ::fstatfs(pinned.fd(), &system) != 0 ||
      !std::string_view(shown.data(), static_cast<size_t>(size)).starts_with(kShownAs) ||
      !S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || system.f_type != TMPFS_MAGIC) {
    return {};
  }
  const std::string same = "/proc/self/fd/" + std::to_string(pinned.fd());
  return Descriptor(::open(same.c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace

SharedMapping::SharedMapping(int fd, uint64_t slots_bytes) {
  const size_t size = FileBytes(slots_bytes);
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return;
  all_ = {static_cast<std::byte*>(memory), size};
  // A child that executes no other program would keep the memory after this process has ended.
  ::madvise(memory, size, MADV_DONTFORK);
}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(all_, other.all_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (!all_.empty()) ::munmap(all_.data(), all_.size());
}

bs::Status SharedMapping::PopulateHead(int fd) const {
  return Populate(fd, all_.first(kHeadBytes));
}
bs::Status SharedMapping::PopulateSlot(int fd, size_t slot) const {
  return Populate(fd, slots().subspan(slot * kSlotBytes, kSlotBytes));
}

bool SharedMapping::PopulatesMappings() { return ::madvise(nullptr, 0, kPopulateWrite) == 0; }

bs::Status SharedMapping::Populate(int fd, std::span<std::byte> part) const {
  if (::madvise(part.data(), part.size(), kPopulateWrite) == 0) return bs::Status::Ok();
  const auto offset = static_cast<off_t>(part.data() - all_.data());
  const auto size = static_cast<off_t>(part.size());
  if (errno == EINVAL && ::fallocate(fd, 0, offset, size) == 0) return bs::Status::Ok();
  return NoMemory(bs::CountOf(part.size(), "byte"));
}

uint64_t SharedMapping::FileBytes(uint64_t slots_bytes) { return kHeadBytes + slots_bytes; }
std::span<std::byte> SharedMapping::secret() const { return all_.first(kSecretBytes); }
std::span<std::byte> SharedMapping::slots() const { return all_.subspan(kHeadBytes); }

std::atomic<uint32_t>& SharedMapping::taken(size_t slot) const {
  return reinterpret_cast<std::atomic<uint32_t>*>(all_.data() + kFlagsAt)[slot];
}

bs::Result<std::unique_ptr<SharedOutbox>> SharedOutbox::Create(uint64_t size_bytes) {
  const uint64_t num_slots =
      std::max<uint64_t>(SlotsOf(std::min(size_bytes, SharedMapping::kMostBytes)), 1);
  const uint64_t slots_bytes = num_slots * SharedMapping::kSlotBytes;
  std::unique_ptr<SharedOutbox> outbox(new SharedOutbox);
  outbox->file_ = Descriptor(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = outbox->file_.fd();
  if (fd < 0) return NoMemory("memfd_create");
  // Without the seals the sender could cut the file short while the receiver reads it.
  if (::ftruncate(fd, static_cast<off_t>(SharedMapping::FileBytes(slots_bytes))) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return NoMemory("a memfd");
  }
  outbox->mapping_ = SharedMapping(fd, slots_bytes);
  if (!outbox->mapping_) return NoMemory("mmap");
  if (bs::Status head = outbox->mapping_.PopulateHead(fd); !head.ok()) return head;
  const std::span<std::byte> secret = outbox->mapping_.secret();
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    return NoMemory("getrandom");
  }
  outbox->used_.resize(num_slots);
  outbox->offer_ = std::string(kVersion) + " " + std::to_string(::getpid()) + " " +
                   std::to_string(fd) + " " + std::to_string(slots_bytes) + " " + HexOf(secret);
  return outbox;
}

void SharedOutbox::Taken() {
  if (SharedMapping::PopulatesMappings()) file_ = Descriptor();
}

std::optional<uint64_t> SharedOutbox::Put(std::span<const std::byte> bytes) {
  const uint64_t unread_bytes = TakeBack();
  if (unread_bytes > 0 && unread_bytes + bytes.size() > kMostUnreadBytes) return std::nullopt;
  const size_t num_slots = SlotsOf(bytes.size());
  const std::optional<size_t> first = FindRoom(num_slots);
  if (!first || !Populate(*first + num_slots)) return std::nullopt;
  const auto begin = used_.begin() + static_cast<std::ptrdiff_t>(*first);
  std::fill(begin, begin + static_cast<std::ptrdiff_t>(num_slots), true);
  kept_.push_back({*first, num_slots, bytes.size()});
  mapping_.taken(*first).store(SharedMapping::kPut, std::memory_order_relaxed);
  const uint64_t offset_bytes = *first * SharedMapping::kSlotBytes;
  std::memcpy(mapping_.slots().subspan(offset_bytes).data(), bytes.data(), bytes.size());
  return offset_bytes;
}

bool SharedOutbox::Populate(size_t end_slot) {
  for (; num_populated_ < end_slot; ++num_populated_) {
    memory_ = mapping_.PopulateSlot(file_.fd(), num_populated_);
    if (!memory_.ok()) {
      used_.resize(num_populated_);
      return false;
    }
  }
  return true;
}

uint64_t SharedOutbox::TakeBack() {
  uint64_t unread_bytes = 0;
  kept_.remove_if([&](const Kept& kept) {
    const uint32_t state = mapping_.taken(kept.first_slot).load(std::memory_order_acquire);
    if (state == SharedMapping::kPut) unread_bytes += kept.size_bytes;
    if (state != SharedMapping::kFree) return false;
    const auto begin = used_.begin() + static_cast<std::ptrdiff_t>(kept.first_slot);
    std::fill(begin, begin + static_cast<std::ptrdiff_t>(kept.num_slots), false);
    return true;
  });
  return unread_bytes;
}

// The first range that is long enough: recently used slots are still in the caches.
std::optional<size_t> SharedOutbox::FindRoom(size_t num_slots) const {
  const auto at = std::search_n(used_.begin(), used_.end(), num_slots, false);
  if (num_slots == 0 || at == used_.end()) return std::nullopt;
  return static_cast<size_t>(at - used_.begin());
}

bs::Result<std::shared_ptr<SharedInbox>> SharedInbox::Open(std::string_view offer) {
  const std::vector<std::string_view> parts = Split(offer);
  if (parts.size() != kOfferParts || parts[0] != kVersion) return Wrong("an offer of another kind");
  const auto pid = NumberOf(parts[1]);
  const auto number = NumberOf(parts[2]);
  const auto slots_bytes = NumberOf(parts[3]);
  if (!pid || !number || !slots_bytes) return Wrong("an offer without numbers");
  if (*slots_bytes == 0 || *slots_bytes > SharedMapping::kMostBytes ||
      *slots_bytes % SharedMapping::kSlotBytes != 0) {
    return Wrong(bs::CountOf(*slots_bytes, "byte"));
  }
  const std::string path = "/proc/" + std::to_string(*pid) + "/fd/" + std::to_string(*number);
  const Descriptor file = OpenOutbox(path);
  if (!file) return Wrong(path + " is none, or another user's");
  struct stat status{};
  const int seals = ::fcntl(file.fd(), F_GET_SEALS);
  if (seals < 0 || (static_cast<unsigned>(seals) & F_SEAL_SHRINK) == 0 ||
      ::fstat(file.fd(), &status) != 0 ||
      static_cast<uint64_t>(status.st_size) != SharedMapping::FileBytes(*slots_bytes)) {
    return Wrong(path + " is not sealed, or of another size");
  }
  SharedMapping mapping(file.fd(), *slots_bytes);
  if (!mapping) return NoMemory("mmap");
  // The process id may belong to another process: in a container, or after the sender's end.
  if (HexOf(mapping.secret()) != parts[4]) return Wrong(path + " is not what was offered");
  return std::make_shared<SharedInbox>(std::move(mapping));
}

bs::Result<Frame> SharedInbox::Take(uint64_t offset_bytes, uint64_t size_bytes) {
  const std::span<std::byte> slots = mapping_.slots();
  if (offset_bytes % SharedMapping::kSlotBytes != 0 || offset_bytes >= slots.size() ||
      size_bytes == 0 || size_bytes > slots.size() - offset_bytes) {
    return Wrong(bs::CountOf(size_bytes, "byte") + " at " + std::to_string(offset_bytes) + " of " +
                 std::to_string(slots.size()));
  }
  const size_t slot = offset_bytes / SharedMapping::kSlotBytes;
  mapping_.taken(slot).store(SharedMapping::kRead, std::memory_order_relaxed);
  return Frame::Borrow(slots.subspan(offset_bytes, size_bytes), [self = shared_from_this(), slot] {
    self->mapping_.taken(slot).store(SharedMapping::kFree, std::memory_order_release);
  });
}

}  // namespace ps
