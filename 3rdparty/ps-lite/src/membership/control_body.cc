// Encodes and decodes the bodies of native control messages.
#include "membership/control_body.h"

#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>

#include "wire/fields.h"

namespace ps {
namespace {

using protozero::pbf_reader;
using protozero::pbf_writer;

enum Field : protozero::pbf_tag_type {
  kJobNumber = 103,
  kIncarnation = 104,
  kNextIncarnation = 104,  // from the scheduler node, of kVacate
  kLostIncarnation = 105,  // from a member
  kNative = 105,           // from the scheduler node
  kRank = 111,
  kSettings = 113,
  kYields = 115,
};

constexpr int32_t kNoRank = -1;

void AddNumber(protozero::pbf_tag_type field, uint64_t value, pbf_writer* out) {
  if (value != 0) out->add_uint64(field, value);
}

// Reads the fields that both directions have.
template <typename T>
bool ReadCommon(pbf_reader* in, T* body) {
  switch (in->tag_and_type()) {
    case Varint(kJobNumber):
      body->job = in->get_uint64();
      return true;
    case Varint(kRank):
      body->rank = in->get_sint32();
      return true;
    default:
      return false;
  }
}

}  // namespace

Body Encode(const MemberBody& body) {
  std::string bytes;
  pbf_writer out(bytes);
  AddNumber(kJobNumber, body.job, &out);
  AddNumber(kIncarnation, body.incarnation, &out);
  AddNumber(kLostIncarnation, body.lost_incarnation, &out);
  if (body.rank != kNoRank) out.add_sint32(kRank, body.rank);
  if (!body.settings.empty()) out.add_string(kSettings, body.settings);
  AddNumber(kYields, body.yields ? 1 : 0, &out);
  return Body(bytes);
}

Body Encode(Op op, const SchedulerBody& body) {
  const bool vacate = op == Op::kVacate;
  std::string bytes;
  pbf_writer out(bytes);
  AddNumber(kJobNumber, body.job, &out);
  if (vacate) {
    AddNumber(kNextIncarnation, body.next_incarnation, &out);
    AddNumber(kNative, body.native ? 1 : 0, &out);
  } else {
    AddNumber(kIncarnation, body.incarnation, &out);
    if (op == Op::kRegister) AddNumber(kNative, body.native ? 1 : 0, &out);
  }
  if (body.rank != kNoRank) out.add_sint32(kRank, body.rank);
  return Body(bytes);
}

bs::Result<MemberBody> DecodeMemberBody(const Body& body) {
  MemberBody said;
  const bs::Status read = ForEachField(body, [&said](pbf_reader* in) {
    switch (in->tag_and_type()) {
      case Varint(kIncarnation):
        said.incarnation = in->get_uint64();
        return true;
      case Varint(kLostIncarnation):
        said.lost_incarnation = in->get_uint32();
        return true;
      case Bytes(kSettings):
        said.settings = in->get_string();
        return true;
      case Varint(kYields):
        said.yields = GetBool(in);
        return true;
      default:
        return ReadCommon(in, &said);
    }
  });
  if (!read.ok()) return read;
  return said;
}

bs::Result<SchedulerBody> DecodeSchedulerBody(Op op, const Body& body) {
  SchedulerBody said;
  const bool vacate = op == Op::kVacate;
  const bool has_native = vacate || op == Op::kRegister;
  const bs::Status read = ForEachField(body, [&said, vacate, has_native](pbf_reader* in) {
    switch (in->tag_and_type()) {
      case Varint(kIncarnation):
        (vacate ? said.next_incarnation : said.incarnation) = in->get_uint64();
        return true;
      case Varint(kNative):
        if (!has_native) return false;
        said.native = GetBool(in);
        return true;
      default:
        return ReadCommon(in, &said);
    }
  });
  if (!read.ok()) return read;
  return said;
}

}  // namespace ps
