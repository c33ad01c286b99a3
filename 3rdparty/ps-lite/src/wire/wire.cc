// Encodes and parses PBMeta; PROTOCOL.md is the table that this file follows.
#include "wire/wire.h"

#include <charconv>
#include <exception>
#include <protozero/pbf_message.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/count_of.h"
#include "wire/fields.h"

namespace ps {
namespace {

using protozero::pbf_reader;
using protozero::pbf_writer;

// One number a data frame; more than any node sends, few enough to keep.
constexpr size_t kMaxDataTypes = 1024;
constexpr size_t kMaxHostnameBytes = 255;  // as DNS has it

// Field numbers of PBMeta.
enum MetaField : protozero::pbf_tag_type {
  kHead = 1,
  kBody = 2,
  kControl = 3,
  kRequest = 4,
  kPush = 5,
  kSimpleApp = 6,
  kAppId = 7,
  kTimestamp = 8,
  kDataType = 9,
  kCustomerId = 10,
  kPull = 12,
  kPriority = 13,
  kVersion = 100,
  kOp = 101,
  kSequence = 102,
  kStatus = 110,
  kText = 112,
  kJob = 114,
};

// Fields from this number on are our extension's.
constexpr protozero::pbf_tag_type kFirstOfExtension = kVersion;

// Field 102 of data has the incarnation above the sequence.
constexpr unsigned kIncarnationShift = 48;
constexpr uint64_t kSequenceMask = (uint64_t{1} << kIncarnationShift) - 1;

// Fields of PBControl.
enum ControlField : protozero::pbf_tag_type {
  kCommand = 1,
  kNode = 2,
  kBarrierGroup = 3,
  kSignature = 4,
};

// Fields of PBNode.
enum NodeField : protozero::pbf_tag_type {
  kRole = 1,
  kId = 2,
  kHostname = 3,
  kPort = 4,
  kIsRecovery = 5,
  kNodeCustomerId = 10,
  kLinkRate = 100,
  kFirstHostname = 101,
};

// The reason for which bytes are no message; caught in ParseMeta, never leaves this file.
class Refused : public std::exception {
 public:
  explicit Refused(const char* why) : why_(why) {}
  const char* what() const noexcept override { return why_; }

 private:
  const char* why_;
};

void EncodeNode(const Node& node, pbf_writer* out) {
  out->add_int32(kRole, static_cast<int32_t>(node.role));
  out->add_int32(kId, node.id);
  out->add_string(kHostname, node.hostname);
  out->add_int32(kPort, node.port);
  out->add_bool(kIsRecovery, node.is_recovery);
  out->add_int32(kNodeCustomerId, node.customer_id);
  if (node.link_rate != 0) out->add_uint64(kLinkRate, node.link_rate);
  if (!node.first_hostname.empty()) out->add_string(kFirstHostname, node.first_hostname);
}

void EncodeControl(const Control& control, pbf_writer* out) {
  out->add_int32(kCommand, static_cast<int32_t>(control.command));
  for (const Node& node : control.nodes) {
    pbf_writer inner(*out, kNode);
    EncodeNode(node, &inner);
  }
  if (control.command == Command::kBarrier) out->add_int32(kBarrierGroup, control.barrier_group);
  if (control.command == Command::kAck) out->add_uint64(kSignature, control.signature);
}

// Writes the fields of a body where they belong between the envelope's fields.
class BodyWriter {
 public:
  BodyWriter(const Body& body, std::string* out) : rest_(ViewOf(body.bytes())), out_(out) {}
  // Writes the fields that come before `field` and have not been written.
  void WriteBefore(protozero::pbf_tag_type field) {
    const char* const begin = rest_.data().data();
    for (pbf_reader next = rest_; next.next() && next.tag() < field; rest_ = next) next.skip();
    out_->append(begin, rest_.data().data());
  }
  void WriteRest() { out_->append(rest_.data().data(), rest_.length()); }

 private:
  static protozero::data_view ViewOf(std::string_view bytes) {
    return {bytes.data(), bytes.size()};
  }

  pbf_reader rest_;
  std::string* const out_;
};

void EncodeExtension(const Extension& extension, bool is_control, std::string* bytes) {
  pbf_writer out(*bytes);
  const auto add = [&out](protozero::pbf_tag_type field, uint64_t value) {
    if (value != 0) out.add_uint64(field, value);
  };
  const uint64_t incarnation = uint64_t{extension.incarnation} << kIncarnationShift;
  add(kVersion, extension.version);
  add(kOp, static_cast<uint32_t>(extension.op));
  add(kSequence, is_control ? extension.sequence : extension.sequence | incarnation);
  BodyWriter body(extension.body, bytes);
  body.WriteBefore(kStatus);
  add(kStatus, extension.status);
  body.WriteBefore(kText);
  if (!extension.text.empty()) out.add_string(kText, extension.text);
  body.WriteBefore(kJob);
  if (extension.job != 0) out.add_fixed32(kJob, extension.job);
  body.WriteRest();
}

std::string GetHostname(pbf_reader* in) {
  const auto view = in->get_view();
  if (view.size() > kMaxHostnameBytes) throw Refused("a host name too long");
  return {view.data(), view.size()};
}

Role GetRole(pbf_reader* in) {
  const int32_t role = in->get_int32();
  if (role < 0 || role > static_cast<int32_t>(Role::kScheduler)) throw Refused("an unknown role");
  return static_cast<Role>(role);
}

Node ParseNode(pbf_reader in) {
  Node node;
  bool has_role = false;
  while (in.next()) {
    switch (in.tag_and_type()) {
      case Varint(kRole):
        node.role = GetRole(&in);
        has_role = true;
        break;
      case Varint(kId):
        node.id = in.get_int32();
        break;
      case Bytes(kHostname):
        node.hostname = GetHostname(&in);
        break;
      case Varint(kPort):
        node.port = in.get_int32();
        break;
      case Varint(kIsRecovery):
        node.is_recovery = GetBool(&in);
        break;
      case Varint(kNodeCustomerId):
        node.customer_id = in.get_int32();
        break;
      case Varint(kLinkRate):
        node.link_rate = in.get_uint64();
        break;
      case Bytes(kFirstHostname):
        node.first_hostname = GetHostname(&in);
        break;
      default:
        in.skip();  // unknown, or of the wrong wire type, which is the same
    }
  }
  if (!has_role) throw Refused("a node without a role");
  return node;
}

void ParseControl(pbf_reader in, Control* control) {
  bool has_command = false;
  while (in.next()) {
    switch (in.tag_and_type()) {
      case Varint(kCommand):
        control->command = static_cast<Command>(in.get_int32());
        has_command = true;
        break;
      case Bytes(kNode):
        if (control->nodes.size() == kMaxNodes) throw Refused("too many nodes");
        control->nodes.push_back(ParseNode(in.get_message()));
        break;
      case Varint(kBarrierGroup):
        control->barrier_group = in.get_int32();
        break;
      case Varint(kSignature):
        control->signature = in.get_uint64();
        break;
      default:
        in.skip();  // unknown, or of the wrong wire type, which is the same
    }
  }
  if (!has_command) throw Refused("control without a command");
}

void AddDataType(int32_t type, Meta* meta) {
  if (meta->data_types.size() == kMaxDataTypes) throw Refused("too many data types");
  meta->data_types.push_back(type);
}

// Returns whether it was a field of the envelope.
bool ParseEnvelopeField(pbf_reader* in, Extension* extension) {
  switch (in->tag_and_type()) {
    case Varint(kVersion):
      extension->version = in->get_uint32();
      return true;
    case Varint(kOp):
      extension->op = static_cast<Op>(in->get_uint32());
      return true;
    case Varint(kSequence):
      extension->sequence = in->get_uint64();
      return true;
    case Varint(kStatus):
      extension->status = in->get_uint32();
      return true;
    case Bytes(kText):
      extension->text = in->get_string();
      return true;
    case Fixed32(kJob):
      extension->job = in->get_fixed32();
      return true;
    default:
      return false;
  }
}

// Returns true if it was a field about the purpose of the message.
bool ParseFlag(pbf_reader* in, Meta* meta) {
  switch (in->tag_and_type()) {
    case Varint(kRequest):
      meta->request = GetBool(in);
      return true;
    case Varint(kPush):
      meta->push = GetBool(in);
      return true;
    case Varint(kPull):
      meta->pull = GetBool(in);
      return true;
    case Varint(kSimpleApp):
      meta->simple_app = GetBool(in);
      return true;
    default:
      return false;
  }
}

void ParseStockField(pbf_reader* in, Meta* meta) {
  switch (in->tag_and_type()) {
    case Varint(kHead):
      meta->head = in->get_int32();
      break;
    case Bytes(kBody):
      meta->body = in->get_string();
      break;
    case Bytes(kControl):
      meta->is_control = true;
      ParseControl(in->get_message(), &meta->control);
      break;
    case Varint(kAppId):
      meta->app_id = in->get_int32();
      break;
    case Varint(kTimestamp):
      meta->timestamp = in->get_int32();
      break;
    case Bytes(kDataType):
      for (const int32_t type : in->get_packed_int32()) AddDataType(type, meta);
      break;
    case Varint(kDataType):
      AddDataType(in->get_int32(), meta);
      break;
    case Varint(kCustomerId):
      meta->customer_id = in->get_int32();
      break;
    case Varint(kPriority):
      meta->priority = in->get_int32();
      break;
    default:
      in->skip();  // unknown, or of the wrong wire type, which is the same
  }
}

Meta ParseFields(pbf_reader in) {
  Meta meta;
  meta.head = 0;
  meta.customer_id = 0;
  Extension& extension = meta.extension;
  for (const char* field = in.data().data(); in.next(); field = in.data().data()) {
    if (ParseFlag(&in, &meta) || ParseEnvelopeField(&in, &extension)) continue;
    if (in.tag() < kFirstOfExtension) {
      ParseStockField(&in, &meta);
    } else {
      in.skip();
      extension.body.Append({field, in.data().data()});
    }
  }
  // Without a version the other numbers are not ours to understand.
  if (!meta.native()) extension = {};
  if (!meta.is_control) {
    extension.incarnation = static_cast<uint16_t>(extension.sequence >> kIncarnationShift);
    extension.sequence &= kSequenceMask;
  }
  return meta;
}

}  // namespace

std::string EncodeMeta(const Meta& meta) {
  std::string bytes;
  pbf_writer out(bytes);
  out.add_int32(kHead, meta.head);
  if (!meta.body.empty()) out.add_bytes(kBody, meta.body);
  if (meta.is_control) {
    pbf_writer inner(out, kControl);
    EncodeControl(meta.control, &inner);
  }
  out.add_bool(kRequest, meta.request);
  out.add_bool(kPush, meta.push);
  out.add_bool(kSimpleApp, meta.simple_app);
  if (meta.app_id != kEmpty) out.add_int32(kAppId, meta.app_id);
  if (meta.timestamp != kEmpty) out.add_int32(kTimestamp, meta.timestamp);
  if (!meta.data_types.empty()) {
    out.add_packed_int32(kDataType, meta.data_types.begin(), meta.data_types.end());
  }
  out.add_int32(kCustomerId, meta.customer_id);
  out.add_bool(kPull, meta.pull);
  out.add_int32(kPriority, meta.priority);
  if (meta.native()) EncodeExtension(meta.extension, meta.is_control, &bytes);
  return bytes;
}

bs::Result<Meta> ParseMeta(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxMetaBytes) {
    return bs::Status::InvalidArgument("meta of " + bs::CountOf(bytes.size(), "byte") +
                                       " is too long");
  }
  // protozero reports by throwing; nothing thrown passes this function.
  try {
    return ParseFields(pbf_reader(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  } catch (const protozero::exception& e) {
    return bs::Status::InvalidArgument(std::string("no PBMeta: ") + e.what());
  } catch (const Refused& refused) {
    return bs::Status::InvalidArgument(std::string("meta with ") + refused.what());
  }
}

std::string IdentityOf(int32_t id) { return id == kEmpty ? "" : "ps" + std::to_string(id); }

int32_t IdOfIdentity(std::string_view identity) {
  constexpr std::string_view kPrefix = "ps";
  if (!identity.starts_with(kPrefix)) return kEmpty;
  const std::string_view digits = identity.substr(kPrefix.size());
  if (digits.empty() || digits.front() < '0' || digits.front() > '9') return kEmpty;
  int32_t id = kEmpty;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole ? id : kEmpty;
}

}  // namespace ps
