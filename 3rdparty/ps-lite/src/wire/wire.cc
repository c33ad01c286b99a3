// Encodes and parses PBMeta; PROTOCOL.md is the table that this file follows.
#include "wire/wire.h"

#include <charconv>
#include <exception>
#include <protozero/pbf_message.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>

#include "wire/wire_async.h"

namespace ps {
namespace {

using protozero::pbf_reader;
using protozero::pbf_writer;

// One number a data frame; more than anybody sends, few enough to keep.
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
  kKey = 103,
  kRound = 104,
  kPart = 105,
  kOffsetBytes = 106,
  kSizeBytes = 107,
  kPartBytes = 108,
  kDtype = 109,
  kStatus = 110,
  kRank = 111,
  kText = 112,
  kSettings = 113,
  kJob = 114,
  kCodec = 130,
  kThreshold = 131,
  kCut = 140,
  kNext = 141,
};

// Of PBControl.
enum ControlField : protozero::pbf_tag_type {
  kCommand = 1,
  kNode = 2,
  kBarrierGroup = 3,
  kSignature = 4,
};

// Of PBNode.
enum NodeField : protozero::pbf_tag_type {
  kRole = 1,
  kId = 2,
  kHostname = 3,
  kPort = 4,
  kIsRecovery = 5,
  kNodeCustomerId = 10,
};

// What the bytes are not; caught in ParseMeta, never leaves this file.
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

void EncodeExtension(const Extension& extension, pbf_writer* out) {
  const auto add = [out](protozero::pbf_tag_type field, uint64_t value) {
    if (value != 0) out->add_uint64(field, value);
  };
  add(kVersion, extension.version);
  add(kOp, static_cast<uint32_t>(extension.op));
  add(kSequence, extension.sequence);
  add(kKey, extension.key);
  add(kRound, extension.round);
  add(kPart, extension.part);
  add(kOffsetBytes, extension.offset_bytes);
  add(kSizeBytes, extension.size_bytes);
  add(kPartBytes, extension.part_bytes);
  add(kDtype, extension.dtype);
  add(kStatus, extension.status);
  if (extension.rank != Extension{}.rank) out->add_sint32(kRank, extension.rank);
  if (!extension.text.empty()) out->add_string(kText, extension.text);
  if (!extension.settings.empty()) out->add_string(kSettings, extension.settings);
  if (extension.job != 0) out->add_fixed32(kJob, extension.job);
  add(kCodec, static_cast<uint32_t>(extension.codec));
  if (extension.threshold != 0) out->add_float(kThreshold, extension.threshold);
  EncodeAsyncFields(extension, out);
  add(kCut, extension.cut);
  if (!extension.next.empty()) out->add_bytes(kNext, extension.next);
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

// How the payload is coded, and how its tensor is cut.
bool ParseCoding(pbf_reader* in, Extension* extension) {
  switch (in->tag_and_type()) {
    case Varint(kCodec):
      extension->codec = static_cast<Codec>(in->get_uint32());
      return true;
    case Fixed32(kThreshold):
      extension->threshold = in->get_float();
      return true;
    case Varint(kCut):
      extension->cut = in->get_uint32();
      return true;
    case Bytes(kNext):
      extension->next = in->get_bytes();
      return true;
    default:
      return false;
  }
}

// Returns whether it was a field of the extension.
bool ParseExtensionField(pbf_reader* in, Extension* extension) {
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
    case Varint(kKey):
      extension->key = in->get_uint64();
      return true;
    case Varint(kRound):
      extension->round = in->get_uint64();
      return true;
    case Varint(kPart):
      extension->part = in->get_uint32();
      return true;
    case Varint(kOffsetBytes):
      extension->offset_bytes = in->get_uint64();
      return true;
    case Varint(kSizeBytes):
      extension->size_bytes = in->get_uint64();
      return true;
    case Varint(kPartBytes):
      extension->part_bytes = in->get_uint64();
      return true;
    case Varint(kDtype):
      extension->dtype = in->get_uint32();
      return true;
    case Varint(kStatus):
      extension->status = in->get_uint32();
      return true;
    case Varint(kRank):
      extension->rank = in->get_sint32();
      return true;
    case Bytes(kText):
      extension->text = in->get_string();
      return true;
    case Bytes(kSettings):
      extension->settings = in->get_string();
      return true;
    case Fixed32(kJob):
      extension->job = in->get_fixed32();
      return true;
    default:
      return ParseCoding(in, extension) || ParseAsyncField(in, extension);
  }
}

// Returns whether it was a field that says what the message is for.
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
  while (in.next()) {
    if (ParseFlag(&in, &meta) || ParseExtensionField(&in, &meta.extension)) continue;
    ParseStockField(&in, &meta);
  }
  // Without a version the other numbers are not ours to understand.
  if (!meta.native()) meta.extension = {};
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
  if (meta.native()) EncodeExtension(meta.extension, &out);
  return bytes;
}

bs::Result<Meta> ParseMeta(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxMetaBytes) {
    return bs::Status::InvalidArgument("meta of " + std::to_string(bytes.size()) +
                                       " bytes is too long");
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
