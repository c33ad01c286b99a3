// Encodes and decodes the bodies of data requests; PROTOCOL.md has the table that this file
// follows.
#include "protocol/data_body.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <protozero/buffer_fixed.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <utility>

#include "base/types.h"
#include "wire/fields.h"

namespace bs::protocol {
namespace {

using protozero::pbf_reader;
using protozero::pbf_tag_type;
using ps::Bytes;
using ps::Fixed32;
using ps::Fixed64;
using ps::ForEachField;
using ps::Varint;

enum Field : pbf_tag_type {
  kKey = 103,
  kRound = 104,
  kPushCount = 104,      // of an asynchronous key
  kOptimizerCall = 104,  // of kOptimizer
  kTurn = 104,           // of kGiveBack
  kReadyNumber = 104,    // of kReady
  kPartition = 105,
  kNumPartitions = 105,  // of kRelease
  kOffsetBytes = 106,
  kSizeBytes = 107,
  kTensorBytes = 107,  // of kDeclare and kLookup
  kPartitionBytes = 108,
  kDtype = 109,
  kMode = 120,
  kLearningRate = 121,
  kWeightDecay = 122,
  kRescaleGrad = 123,
  kHosted = 124,
  kCodec = 130,
  kShortParameters = 131,  // of a codec, where they have four bytes; a fixed32 on the wire
  kParameters = 132,       // of any other length
  kSums = 133,             // how sums travel, a SumsTravel
  kLater = 134,            // the coding is that of later rounds
  kFeedback = 135,         // a Feedback
  kRatio = 136,            // of residuals; a float on the wire
  kLayoutVersion = 140,
  kOldestLayout = 140,  // of kRelease
  kNextLayout = 141,
  kAbout = 142,
  kOptimizer = 143,
  kGivenBack = 144,
  kStandsFor = 145,
  kAnsweredBelow = 146,
  kReady = 147,
  kGrants = 148,
  kTerms = 149,
  kTakenPartitions = 150,
};

bool IsOfTensor(ps::Op op) { return op == ps::Op::kDeclare || op == ps::Op::kLookup; }

bool IsOfExchange(ps::Op op) { return op == ps::Op::kGive || op == ps::Op::kTake; }
bool HasTerms(ps::Op op) { return IsOfExchange(op) || op == ps::Op::kQuit; }

bool IsAsynchronous(const DataRequest& request) {
  return request.mode == static_cast<uint32_t>(Mode::kAsynchronous);
}

// Returns the member of `request` that the field of RequestIdentity::count stands for.
template <typename Request>
auto& CountIn(ps::Op op, Request& request) {
  if (op == ps::Op::kOptimizer) return request.optimizer_call;
  if (op == ps::Op::kGiveBack) return request.turn;
  if (op == ps::Op::kReady) return request.ready_number;
  return IsAsynchronous(request) ? request.push_count : request.round;
}
template <typename Request>
auto& IndexIn(ps::Op op, Request& request) {
  return op == ps::Op::kRelease ? request.num_partitions : request.partition;
}
template <typename Request>
auto& LayoutOf(ps::Op op, Request& request) {
  return op == ps::Op::kRelease ? request.oldest_layout : request.layout_version;
}
template <typename T>
auto& BytesOf(ps::Op op, T& body) {
  return IsOfTensor(op) ? body.tensor_bytes : body.size_bytes;
}

// Fields of a body, without an allocation where they are few.
class BodyWriter {
 public:
  BodyWriter() : buffer_(memory_.data(), memory_.size()), out_(buffer_) {}
  BodyWriter(const BodyWriter&) = delete;
  BodyWriter& operator=(const BodyWriter&) = delete;
  ~BodyWriter() = default;

  void Add(pbf_tag_type field, uint64_t value) {
    if (value != 0) out_.add_uint64(field, value);
  }
  void Add(pbf_tag_type field, const std::optional<double>& value) {
    if (value) out_.add_double(field, *value);
  }
  void Add(const Coding& coding) {
    Add(kCodec, coding.codec);
    const std::span<const std::byte> bytes = coding.parameters.bytes();
    uint32_t four = 0;
    if (bytes.size() == sizeof(four)) {
      std::memcpy(&four, bytes.data(), sizeof(four));
      out_.add_fixed32(kShortParameters, four);
    } else if (!bytes.empty()) {
      out_.add_bytes(kParameters, reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    Add(kSums, static_cast<uint64_t>(coding.sums));
    Add(kLater, coding.later ? 1 : 0);
    Add(kFeedback, static_cast<uint64_t>(coding.feedback));
  }
  void AddRatio(float ratio) {
    if (ratio != 1) out_.add_float(kRatio, ratio);
  }
  // Adds the field behind all other fields.
  void Add(pbf_tag_type field, const std::string& bytes) {
    if (!bytes.empty()) protozero::pbf_writer(last_).add_bytes(field, bytes);
  }
  ps::Body End() const {
    ps::Body body({memory_.data(), buffer_.size()});
    body.Append(last_);
    return body;
  }

 private:
  std::string last_;
  // All other fields together have less.
  std::array<char, 256> memory_;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  protozero::fixed_size_buffer_adaptor buffer_;
  protozero::basic_pbf_writer<protozero::fixed_size_buffer_adaptor> out_;
};

void Add(const RequestIdentity& identity, BodyWriter* out) {
  out->Add(kKey, identity.key);
  out->Add(kRound, identity.count);
  out->Add(kPartition, identity.index);
}

bool ReadIdentity(pbf_reader* in, RequestIdentity* identity) {
  switch (in->tag_and_type()) {
    case Varint(kKey):
      identity->key = in->get_uint64();
      return true;
    case Varint(kRound):
      identity->count = in->get_uint64();
      return true;
    case Varint(kPartition):
      identity->index = in->get_uint32();
      return true;
    default:
      return false;
  }
}

// Reads the fields that requests and responses both have.
template <typename T>
bool ReadArray(ps::Op op, pbf_reader* in, T* body) {
  switch (in->tag_and_type()) {
    case Varint(kOffsetBytes):
      body->offset_bytes = in->get_uint64();
      return true;
    case Varint(kSizeBytes):
      BytesOf(op, *body) = in->get_uint64();
      return true;
    case Varint(kPartitionBytes):
      body->partition_bytes = in->get_uint64();
      return true;
    case Varint(kDtype):
      body->dtype = in->get_uint32();
      return true;
    case Bytes(kNextLayout):
      body->next_layout = in->get_bytes();
      return true;
    case Varint(kGivenBack):
      body->given_back = ps::GetBool(in);
      return true;
    default:
      return false;
  }
}

bool ReadCoding(pbf_reader* in, Coding* coding) {
  switch (in->tag_and_type()) {
    case Varint(kCodec):
      coding->codec = in->get_uint32();
      return true;
    case Fixed32(kShortParameters): {
      const uint32_t four = in->get_fixed32();
      coding->parameters = CodecParameters(std::as_bytes(std::span(&four, 1)));
      return true;
    }
    case Bytes(kParameters): {
      const auto view = in->get_view();
      if (view.size() > CodecParameters::kMostBytes) return true;  // no codec has so many
      coding->parameters = CodecParameters(std::as_bytes(std::span(view.data(), view.size())));
      return true;
    }
    case Varint(kSums):
      coding->sums = static_cast<SumsTravel>(std::min(in->get_uint32(), uint32_t{UINT8_MAX}));
      return true;
    case Varint(kLater):
      coding->later = ps::GetBool(in);
      return true;
    case Varint(kFeedback):
      coding->feedback = static_cast<Feedback>(std::min(in->get_uint32(), uint32_t{UINT8_MAX}));
      return true;
    default:
      return false;
  }
}

// Reads the fields of a push to an asynchronous key, and the mode.
bool ReadAsynchronous(pbf_reader* in, DataRequest* request) {
  switch (in->tag_and_type()) {
    case Varint(kMode):
      request->mode = in->get_uint32();
      return true;
    case Fixed64(kLearningRate):
      request->learning_rate = in->get_double();
      return true;
    case Fixed64(kWeightDecay):
      request->weight_decay = in->get_double();
      return true;
    case Fixed64(kRescaleGrad):
      request->rescale_grad = in->get_double();
      return true;
    case Varint(kHosted):
      request->hosted = ps::GetBool(in);
      return true;
    default:
      return false;
  }
}

bool ReadRest(ps::Op op, pbf_reader* in, DataRequest* request) {
  switch (in->tag_and_type()) {
    case Varint(kLayoutVersion):
      LayoutOf(op, *request) = in->get_uint32();
      return true;
    case Fixed32(kRatio):
      request->ratio = in->get_float();
      return true;
    case Varint(kStandsFor):
      request->stands_for = in->get_uint32();
      return true;
    case Varint(kAnsweredBelow):
      request->answered_below = in->get_uint64();
      return true;
    case Bytes(kAbout):
      if (op != ps::Op::kPush) return false;
      request->about = in->get_bytes();
      return true;
    case Bytes(kOptimizer):
      if (op != ps::Op::kOptimizer) return false;
      request->optimizer = in->get_bytes();
      return true;
    case Bytes(kReady):
      if (op != ps::Op::kReady) return false;
      request->ready = in->get_bytes();
      return true;
    case Bytes(kTerms):
      if (!HasTerms(op)) return false;
      request->terms = in->get_bytes();
      return true;
    case Bytes(kTakenPartitions):
      if (op != ps::Op::kTaken) return false;
      request->taken = in->get_bytes();
      return true;
    default:
      return false;
  }
}

// Nothing if the bytes are no body.
std::optional<RequestIdentity> IdentityIn(const ps::Body& body) {
  RequestIdentity identity;
  const Status read =
      ForEachField(body, [&](pbf_reader* in) { return ReadIdentity(in, &identity); });
  return read.ok() ? std::optional(identity) : std::nullopt;
}

bool Answers(const ps::Body& response, const ps::Body& request) {
  const std::optional<RequestIdentity> identity = IdentityIn(response);
  return identity && identity == IdentityIn(request);
}

std::string Describe(ps::Op op, const ps::Body& body) {
  const Result<DataRequest> read = DecodeRequest(op, body);
  const DataRequest request = read.ok() ? read.value() : DataRequest{};
  if (op == ps::Op::kReady) return "number=" + std::to_string(request.ready_number);
  std::string key = "key=" + std::to_string(request.key);
  if (IsOfExchange(op)) return key + " partition=" + std::to_string(request.partition);
  if (op != ps::Op::kPush && op != ps::Op::kPull && op != ps::Op::kPushPull) return key;
  return key + " " + DescribeCount(request) + " partition=" + std::to_string(request.partition);
}

// A pull says nothing about the next layout.
ps::Body AsPull(const ps::Body& push_pull) {
  Result<DataRequest> request = DecodeRequest(ps::Op::kPushPull, push_pull);
  if (!request.ok() || request.value().next_layout.empty()) return push_pull;
  request.value().next_layout.clear();
  return Encode(ps::Op::kPull, request.value());
}

}  // namespace

RequestIdentity IdentityOf(ps::Op op, const DataRequest& request) {
  return {.key = request.key, .count = CountIn(op, request), .index = IndexIn(op, request)};
}

std::string DescribeCount(const DataRequest& request) {
  return IsAsynchronous(request) ? "push_count=" + std::to_string(request.push_count)
                                 : "round=" + std::to_string(request.round);
}

ps::Body Encode(ps::Op op, const DataRequest& request) {
  BodyWriter out;
  Add(IdentityOf(op, request), &out);
  out.Add(kOffsetBytes, request.offset_bytes);
  out.Add(kSizeBytes, BytesOf(op, request));
  out.Add(kPartitionBytes, request.partition_bytes);
  out.Add(kDtype, request.dtype);
  out.Add(request.coding);
  out.AddRatio(request.ratio);
  out.Add(kMode, request.mode);
  out.Add(kLearningRate, request.learning_rate);
  out.Add(kWeightDecay, request.weight_decay);
  out.Add(kRescaleGrad, request.rescale_grad);
  out.Add(kHosted, request.hosted ? 1 : 0);
  out.Add(kLayoutVersion, LayoutOf(op, request));
  out.Add(kNextLayout, request.next_layout);
  if (op == ps::Op::kPush) out.Add(kAbout, request.about);
  if (op == ps::Op::kOptimizer) out.Add(kOptimizer, request.optimizer);
  if (op == ps::Op::kReady) out.Add(kReady, request.ready);
  out.Add(kGivenBack, request.given_back ? 1 : 0);
  out.Add(kStandsFor, request.stands_for);
  out.Add(kAnsweredBelow, request.answered_below);
  if (HasTerms(op)) out.Add(kTerms, request.terms);
  if (op == ps::Op::kTaken) out.Add(kTakenPartitions, request.taken);
  return out.End();
}

ps::Body Encode(ps::Op op, const DataResponse& response) {
  BodyWriter out;
  Add(response.identity, &out);
  out.Add(kOffsetBytes, response.offset_bytes);
  out.Add(kSizeBytes, BytesOf(op, response));
  out.Add(kPartitionBytes, response.partition_bytes);
  out.Add(kDtype, response.dtype);
  out.Add(response.coding);
  out.Add(kLayoutVersion, response.layout_version);
  out.Add(kNextLayout, response.next_layout);
  if (op == ps::Op::kReady) out.Add(kGrants, response.grants);
  out.Add(kGivenBack, response.given_back ? 1 : 0);
  return out.End();
}

Result<DataRequest> DecodeRequest(ps::Op op, const ps::Body& body) {
  DataRequest request;
  RequestIdentity identity;
  const Status read = ForEachField(body, [&](pbf_reader* in) {
    return ReadIdentity(in, &identity) || ReadArray(op, in, &request) ||
           ReadCoding(in, &request.coding) || ReadAsynchronous(in, &request) ||
           ReadRest(op, in, &request);
  });
  if (!read.ok()) return read;
  request.key = identity.key;
  CountIn(op, request) = identity.count;
  IndexIn(op, request) = identity.index;
  return request;
}

Result<DataResponse> DecodeResponse(ps::Op op, const ps::Body& body) {
  DataResponse response;
  const Status read = ForEachField(body, [&](pbf_reader* in) {
    if (in->tag_and_type() == Varint(kLayoutVersion)) {
      response.layout_version = in->get_uint32();
      return true;
    }
    if (op == ps::Op::kReady && in->tag_and_type() == Bytes(kGrants)) {
      response.grants = in->get_bytes();
      return true;
    }
    return ReadIdentity(in, &response.identity) || ReadArray(op, in, &response) ||
           ReadCoding(in, &response.coding);
  });
  if (!read.ok()) return read;
  return response;
}

ps::BodyRules DataBodyRules() {
  return {.answers = Answers, .describe = Describe, .as_pull = AsPull};
}

}  // namespace bs::protocol
