// Encodes and decodes readiness and grants; PROTOCOL.md has the tables that this file follows.
#include "protocol/grants.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "protocol/tensor.h"
#include "ps/body.h"
#include "ps/message.h"
#include "wire/control.h"
#include "wire/fields.h"

namespace bs::protocol {
namespace {

using protozero::pbf_reader;
using protozero::pbf_tag_type;
using protozero::pbf_writer;
using ps::Bytes;
using ps::Varint;

enum ReadinessField : pbf_tag_type {
  kTensor = 1,
  kReceived = 2,
  kFinished = 3,
  kCode = 4,
  kText = 5,
  kJoined = 6,
  kLate = 7,
  kDivision = 8,
};
enum DivisionField : pbf_tag_type { kPartitionBytes = 1, kCreditBytes = 2, kInOrder = 3 };
enum GrantsField : pbf_tag_type { kFirst = 1, kOperation = 2 };
enum OperationField : pbf_tag_type { kPiece = 1 };
// The fields of a tensor and of a piece.
enum Field : pbf_tag_type {
  kKey = 1,
  kRound = 2,
  kSizeBytes = 3,
  kDtype = 4,
  kPriority = 5,
  kNextLayout = 6,
  kOffsetBytes = 7,
  kPart = 8,
  kCoded = 9,
};

void Add(pbf_tag_type field, uint64_t value, pbf_writer* out) {
  if (value != 0) out->add_uint64(field, value);
}

void Add(const ReadyTensor& tensor, std::string* bytes) {
  pbf_writer outer(*bytes);
  pbf_writer out(outer, kTensor);
  Add(kKey, tensor.key, &out);
  Add(kRound, tensor.round, &out);
  Add(kSizeBytes, tensor.size_bytes, &out);
  Add(kDtype, static_cast<uint64_t>(tensor.dtype), &out);
  if (tensor.priority != 0) out.add_sint32(kPriority, tensor.priority);
  if (!tensor.next_layout.empty()) out.add_bytes(kNextLayout, tensor.next_layout);
  Add(kPart, tensor.part, &out);
  if (!tensor.coded.empty()) out.add_bytes(kCoded, tensor.coded);
}

void Add(const Division& division, pbf_writer* outer) {
  pbf_writer out(*outer, kDivision);
  Add(kPartitionBytes, division.partition_bytes, &out);
  Add(kCreditBytes, division.credit_bytes, &out);
  Add(kInOrder, division.priority_order ? 0 : 1, &out);
}

void Add(const GrantedPiece& piece, std::string* bytes) {
  pbf_writer outer(*bytes);
  pbf_writer out(outer, kPiece);
  Add(kKey, piece.key, &out);
  Add(kRound, piece.round, &out);
  Add(kSizeBytes, piece.size_bytes, &out);
  Add(kOffsetBytes, piece.offset_bytes, &out);
  if (!piece.next_layout.empty()) out.add_bytes(kNextLayout, piece.next_layout);
  Add(kPart, piece.part, &out);
}

std::string_view ViewIn(pbf_reader* in) {
  const protozero::data_view view = in->get_view();
  return {view.data(), view.size()};
}

// Reads the fields that a tensor and a piece both have.
template <typename T>
bool ReadBoth(pbf_reader* in, T* to) {
  switch (in->tag_and_type()) {
    case Varint(kKey):
      to->key = in->get_uint64();
      return true;
    case Varint(kRound):
      to->round = in->get_uint64();
      return true;
    case Varint(kSizeBytes):
      to->size_bytes = in->get_uint64();
      return true;
    case Varint(kPart):
      to->part = in->get_uint32();
      return true;
    case Bytes(kNextLayout):
      to->next_layout = in->get_bytes();
      return true;
    default:
      return false;
  }
}

Result<ReadyTensor> DecodeTensor(std::string_view bytes) {
  ReadyTensor tensor;
  uint32_t code = 0;
  const Status read = ps::ForEachField(bytes, [&](pbf_reader* in) {
    if (in->tag_and_type() == Varint(kDtype)) {
      code = in->get_uint32();
      return true;
    }
    if (in->tag_and_type() == Varint(kPriority)) {
      tensor.priority = in->get_sint32();
      return true;
    }
    if (in->tag_and_type() == Bytes(kCoded)) {
      tensor.coded = in->get_bytes();
      return true;
    }
    return ReadBoth(in, &tensor);
  });
  if (!read.ok()) return read;
  const std::optional<DType> dtype = DTypeFromCode(code);
  const bool whole = dtype && tensor.size_bytes % SizeOf(*dtype) == 0;
  if (!whole || tensor.round == 0 || tensor.size_bytes == 0 ||
      tensor.size_bytes > std::numeric_limits<int64_t>::max() ||
      tensor.coded.size() > ReadyTensor::kMostCodedBytes) {
    return Status::InvalidArgument("key=" + std::to_string(tensor.key) +
                                   " round=" + std::to_string(tensor.round) + " is ready with " +
                                   std::to_string(tensor.size_bytes) + " bytes of dtype " +
                                   std::to_string(code));
  }
  tensor.dtype = *dtype;
  return tensor;
}

Result<Division> DecodeDivision(std::string_view bytes) {
  Division division{.partition_bytes = 0, .credit_bytes = 0};
  const Status read = ps::ForEachField(bytes, [&](pbf_reader* in) {
    switch (in->tag_and_type()) {
      case Varint(kPartitionBytes):
        division.partition_bytes = in->get_uint64();
        return true;
      case Varint(kCreditBytes):
        division.credit_bytes = in->get_uint64();
        return true;
      case Varint(kInOrder):
        division.priority_order = in->get_uint64() == 0;
        return true;
      default:
        return false;
    }
  });
  if (!read.ok()) return read;
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (division.partition_bytes < kAlignBytes || division.credit_bytes == 0 ||
      std::max(division.partition_bytes, division.credit_bytes) > kMost) {
    return Status::InvalidArgument("operations have " + std::to_string(division.partition_bytes) +
                                   " bytes in a credit of " +
                                   std::to_string(division.credit_bytes));
  }
  return division;
}

Result<GrantedOperation> DecodeOperation(std::string_view bytes) {
  GrantedOperation operation;
  Status wrong;
  const Status read = ps::ForEachField(bytes, [&](pbf_reader* in) {
    if (in->tag_and_type() != Bytes(kPiece)) return false;
    GrantedPiece piece;
    const Status inner = ps::ForEachField(ViewIn(in), [&](pbf_reader* field) {
      if (field->tag_and_type() != Varint(kOffsetBytes)) return ReadBoth(field, &piece);
      piece.offset_bytes = field->get_uint64();
      return true;
    });
    if (!inner.ok()) wrong = inner;
    operation.push_back(std::move(piece));
    return true;
  });
  if (!read.ok() || !wrong.ok()) return read.ok() ? wrong : read;
  return operation;
}

}  // namespace

std::string Encode(const Readiness& readiness) {
  std::string bytes;
  for (const ReadyTensor& tensor : readiness.tensors) Add(tensor, &bytes);
  pbf_writer out(bytes);
  Add(kReceived, readiness.received, &out);
  Add(kFinished, readiness.finished, &out);
  if (!readiness.failure.ok()) {
    out.add_uint32(kCode, static_cast<uint32_t>(readiness.failure.code()));
    out.add_bytes(kText, readiness.failure.message());
  }
  Add(kJoined, readiness.joined, &out);
  Add(kLate, readiness.late ? 1 : 0, &out);
  if (readiness.division) Add(*readiness.division, &out);
  return bytes;
}

namespace {

struct ReadinessFields {
  Readiness readiness{};
  ps::Extension failure{};  // its status and text
  Status wrong{};           // of the last part that cannot be read
};

// Returns false if the field is unknown.
bool ReadField(pbf_reader* in, ReadinessFields* fields) {
  switch (in->tag_and_type()) {
    case Bytes(kTensor): {
      Result<ReadyTensor> tensor = DecodeTensor(ViewIn(in));
      if (tensor.ok()) fields->readiness.tensors.push_back(std::move(tensor.value()));
      if (!tensor.ok()) fields->wrong = tensor.status();
      return true;
    }
    case Bytes(kDivision): {
      const Result<Division> division = DecodeDivision(ViewIn(in));
      if (division.ok()) fields->readiness.division = division.value();
      if (!division.ok()) fields->wrong = division.status();
      return true;
    }
    case Varint(kReceived):
      fields->readiness.received = in->get_uint64();
      return true;
    case Varint(kFinished):
      fields->readiness.finished = in->get_uint64();
      return true;
    case Varint(kJoined):
      fields->readiness.joined = in->get_uint64();
      return true;
    case Varint(kLate):
      fields->readiness.late = in->get_uint64() != 0;
      return true;
    case Varint(kCode):
      fields->failure.status = in->get_uint32();
      return true;
    case Bytes(kText):
      fields->failure.text = in->get_bytes();
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<Readiness> DecodeReadiness(std::string_view bytes) {
  ReadinessFields fields;
  const Status read =
      ps::ForEachField(bytes, [&](pbf_reader* in) { return ReadField(in, &fields); });
  if (!read.ok() || !fields.wrong.ok()) return read.ok() ? fields.wrong : read;
  fields.readiness.failure = ps::StatusOf(fields.failure);
  return std::move(fields.readiness);
}

std::string Encode(const GrantedOperation& operation) {
  std::string bytes;
  for (const GrantedPiece& piece : operation) Add(piece, &bytes);
  return bytes;
}

std::string EncodeGrants(uint64_t first, std::span<const std::string> operations) {
  if (operations.empty()) return {};
  std::string bytes;
  pbf_writer out(bytes);
  Add(kFirst, first, &out);
  for (const std::string& operation : operations) out.add_bytes(kOperation, operation);
  return bytes;
}

Result<Grants> DecodeGrants(std::string_view bytes) {
  Grants grants;
  Status wrong;
  const Status read = ps::ForEachField(bytes, [&](pbf_reader* in) {
    if (in->tag_and_type() == Varint(kFirst)) {
      grants.first = in->get_uint64();
      return true;
    }
    if (in->tag_and_type() != Bytes(kOperation)) return false;
    Result<GrantedOperation> operation = DecodeOperation(ViewIn(in));
    if (operation.ok()) grants.operations.push_back(std::move(operation.value()));
    if (!operation.ok()) wrong = operation.status();
    return true;
  });
  if (!read.ok() || !wrong.ok()) return read.ok() ? wrong : read;
  return grants;
}

}  // namespace bs::protocol
