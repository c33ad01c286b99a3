// Writes and reads fused messages.
#include "wire/fusion.h"

#include <algorithm>
#include <memory>
#include <protozero/pbf_message.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>

#include "base/check.h"
#include "wire/wire.h"

namespace ps {
namespace {

// Fields of the body; one pair for each message.
enum FusedField : protozero::pbf_tag_type { kMeta = 1, kDataBytes = 2 };

struct Entry {
  std::span<const std::byte> meta;
  uint64_t data_bytes = 0;
};

bs::Status Wrong(const std::string& what) {
  return bs::Status::InvalidArgument("a fused message " + what);
}

// Parses a field; false if it makes the list too long.
bool ParseField(protozero::pbf_reader* in, std::vector<Entry>* entries) {
  using protozero::pbf_wire_type;
  const auto tag = in->tag();
  if (tag == kMeta && in->wire_type() == pbf_wire_type::length_delimited) {
    const auto view = in->get_view();
    entries->push_back({.meta = std::as_bytes(std::span(view.data(), view.size()))});
  } else if (tag == kDataBytes && in->wire_type() == pbf_wire_type::varint && !entries->empty()) {
    entries->back().data_bytes = in->get_uint64();
  } else {
    in->skip();
  }
  return entries->size() <= kMostFused;
}

bs::Result<std::vector<Entry>> ParseEntries(const std::string& body) {
  std::vector<Entry> entries;
  // protozero reports by throwing; nothing thrown passes this function.
  try {
    protozero::pbf_reader in(body);
    while (in.next()) {
      if (!ParseField(&in, &entries)) return Wrong("of too many");
    }
  } catch (const protozero::exception& e) {
    return Wrong(std::string("that is no list: ") + e.what());
  }
  return entries;
}

// The message of `entry`, whose data is the beginning of `rest`, a part of `whole`.
bs::Result<Message> TakeOne(const Entry& entry, const std::shared_ptr<Frame>& whole,
                            std::span<const std::byte>* rest) {
  auto meta = ParseMeta(entry.meta);
  if (!meta.ok()) return meta.status();
  if (entry.data_bytes > rest->size()) return Wrong("that lacks data");
  Message one;
  one.meta = std::move(meta.value());
  if (entry.data_bytes > 0) {
    one.data.push_back(Frame::PartOf(whole, rest->first(entry.data_bytes)));
    *rest = rest->subspan(entry.data_bytes);
  }
  if (!CanFuse(one)) return Wrong("of what may not be fused");
  return one;
}

}  // namespace

bool CanFuse(const Message& message) {
  const Meta& meta = message.meta;
  const Op op = meta.extension.op;
  return meta.native() && !meta.is_control && message.data.size() <= 1 &&
         (op == Op::kPush || op == Op::kPull || op == Op::kPushPull || op == Op::kGive ||
          op == Op::kTake);
}

uint64_t DataBytes(const Message& message) {
  uint64_t bytes = 0;
  for (const Frame& frame : message.data) bytes += frame.size();
  return bytes;
}

Meta FusedMeta(std::span<const Message> messages) {
  BS_CHECK(messages.size() >= 2 && messages.size() <= kMostFused);
  Meta meta;
  meta.head = 0;
  meta.app_id = 0;
  meta.customer_id = 0;
  meta.extension.version = kExtensionVersion;
  meta.extension.op = Op::kFused;
  protozero::pbf_writer out(meta.body);
  for (const Message& message : messages) {
    out.add_bytes(kMeta, EncodeMeta(message.meta));
    if (const uint64_t bytes = DataBytes(message); bytes > 0) out.add_uint64(kDataBytes, bytes);
  }
  return meta;
}

bool IsFused(const Meta& meta) { return meta.native() && meta.extension.op == Op::kFused; }

bs::Result<std::vector<Message>> TakeApart(Message message) {
  BS_CHECK(IsFused(message.meta));
  if (message.meta.is_control || message.data.size() > 1)
    return Wrong("has one data frame at most");
  const auto entries = ParseEntries(message.meta.body);
  if (!entries.ok()) return entries.status();
  if (DataBytes(message) > kMostFusedBytes) return Wrong("with too much data");
  const auto whole =
      std::make_shared<Frame>(message.data.empty() ? Frame() : std::move(message.data.front()));
  std::span<const std::byte> rest = whole->bytes();
  std::vector<Message> messages;
  messages.reserve(entries.value().size());
  for (const Entry& entry : entries.value()) {
    auto one = TakeOne(entry, whole, &rest);
    if (!one.ok()) return one.status();
    one.value().peer = message.peer;
    messages.push_back(std::move(one.value()));
  }
  if (!rest.empty()) return Wrong("with data of no message");
  return messages;
}

size_t HandOut(Message message, bool known, const std::function<void(bs::Result<Message>)>& take) {
  if (!IsFused(message.meta)) {
    take(std::move(message));
    return 1;
  }
  auto messages = known ? TakeApart(std::move(message)) : Wrong("of one that is not in the job");
  if (!messages.ok()) {
    take(messages.status());
    return 1;
  }
  for (Message& one : messages.value()) take(std::move(one));
  return std::max<size_t>(messages.value().size(), 1);
}

}  // namespace ps
