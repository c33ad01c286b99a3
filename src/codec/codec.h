// Codec: a way to code gradients, and their sums.  A codec is one file and one row of a table.
//
// Workers and servers know codecs by their rows alone: they find a row by the number that a push
// carries, and hand it the parameters, which they do not read.  Plug-ins and Python hand on a name
// and options, and carry the coding that comes of them.  So a new codec is a new file here and a
// row in builtin.cc.
//
// The functions of a row are pure but for the memory that they are given; any alignment;
// thread-safe; they never fail and never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/coding.h"

namespace bs::codec {

// A parameter as a user gives it: {"threshold", "0.5"}.
struct Option {
  std::string_view name;
  std::string_view value;
};

// The rank of a server that codes a sum.
inline constexpr uint32_t kServerRank = UINT32_MAX;

// Where in the job the elements at hand are.  A codec whose codes depend on it (random numbers,
// units) needs no state of its own: repeats, losses and new partitions cannot get out of step.  A
// seed is one of its parameters.
struct Place {
  uint64_t job = 0;  // a number that no other job has: the seed where a user gives none
  uint64_t key = 0;
  uint64_t round = 0;
  uint64_t first_element = 0;  // of the tensor; a multiple of the codec's unit_elements
  float ratio = 1;             // factor of the kept residual in this round
  // That of the worker that coded a gradient, or the lowest on a host that coded its sum.
  // kServerRank: the sum of all is coded.
  uint32_t rank = 0;
  uint32_t num_workers = 1;  // whose gradients are in a sum
};

// The residual of a coder: a float32 for each element.
enum class Keeps : uint8_t {
  kNoResidual,
  kResidual,
  kResidualIfAsked,  // by the user's option `ef`
};

// Elements are float32.  REQUIRES of all functions: the parameters passed `check`, and memory does
// not overlap.
struct Codec {
  uint32_t id = 0;          // on the wire (PROTOCOL.md), not 0
  std::string_view name{};  // a user's `type` of gradient compression
  // Each unit of so many elements is coded by itself, so that codes do not depend on how the tensor
  // is cut: partitions are whole units.
  uint64_t unit_elements = 1;
  // True: keys get partitions of whole units.  A key that was
  // declared without the coding travels plain once more, and is cut behind that round.  Where the
  // workers of a host add up, their sum is coded.  False: keys keep the partitions that they have,
  // which must be whole units, and each worker codes its own gradients.
  bool cuts_keys = false;
  Keeps keeps = Keeps::kResidual;
  // All gradients of a sum have the same elements in their codes, and so has the sum.  It loses
  // nothing when it is coded, so servers keep no residual, unless its values are rounded.
  bool is_linear = false;
  // True if the values of codes have fewer digits than float32; absent: none has.
  bool (*rounds)(const CodecParameters& parameters) = nullptr;
  bool codes_sums = false;               // a server may code sums in it
  SumsTravel sums = SumsTravel::kPlain;  // unless a user says otherwise
  // The parameters that pass `check` for a user's options.  kInvalidArgument, with the fault and
  // the remedy, for an option that the codec does not have or a value that makes no sense.
  Result<CodecParameters> (*parse)(std::span<const Option> options) = nullptr;
  // kInvalidArgument, with the fault, for parameters that make no sense.
  Status (*check)(const CodecParameters& parameters) = nullptr;
  // "two bits with threshold 0.5".  Any parameters.
  std::string (*describe)(const CodecParameters& parameters) = nullptr;
  // Bytes of the codes of `count` elements.  Any parameters.
  uint64_t (*encoded_bytes)(const CodecParameters& parameters, uint64_t count) = nullptr;
  // kInvalidArgument, with the fault, for bytes of that size that are no codes.  Null: any bytes
  // are codes.
  Status (*check_codes)(const CodecParameters& parameters, std::span<const std::byte> codes,
                        uint64_t count) = nullptr;
  // residual = place.ratio * residual + in; its codes go to `codes`, and their values are
  // subtracted from it.  A worker codes its gradients with a residual of its own, and a server its
  // sums.  `residual` is null where none is kept.
  void (*encode)(const CodecParameters& parameters, const Place& place, const void* in,
                 float* residual, void* codes, size_t count) = nullptr;
  // sum += the values of the codes.
  void (*add)(const CodecParameters& parameters, const Place& place, const void* codes, void* sum,
              size_t count) = nullptr;
  // values = the values of the codes.
  void (*decode)(const CodecParameters& parameters, const Place& place, const void* codes,
                 void* values, size_t count) = nullptr;
};

// Codecs by their number and name.  Constant; thread-safe.
class Table {
 public:
  // REQUIRES: every row is complete, and no two have the same number or name.
  explicit Table(std::vector<Codec> rows);
  // Null: unknown.
  const Codec* Find(uint32_t id) const;
  // That of a coding that is not plain.  REQUIRES: it is known.
  const Codec& Get(const Coding& coding) const;
  // The coding that a user asks for by the codec's name (null: none was given) and its options.
  // The option `pull` is every codec's: how sums travel.  `ef` is that of codecs whose residual a
  // user may ask for, and "sparse" that of linear codecs.
  // kInvalidArgument, in a user's words, if there is no such codec or its `parse` refuses.
  Result<Coding> Parse(const std::string_view* type, std::span<const Option> options) const;
  // kInvalidArgument, with the fault, unless the coding is plain, or known with parameters that
  // make sense.
  Status Check(const Coding& coding) const;
  // "not compressed", "compressed to two bits with threshold 0.5", "compressed to bf16, pull
  // plain". Any coding.
  std::string Describe(const Coding& coding) const;
  // Bytes that travel for `size_bytes` of float32; `size_bytes` itself if the coding is plain.
  // REQUIRES: the coding passed Check.
  uint64_t SentBytes(const Coding& coding, uint64_t size_bytes) const;
  // Bytes that `size_bytes` of float32 count against a credit: those that travel, and an eighth of
  // `size_bytes` at least.  Else the time to make many small codes would be in front of a more
  // urgent tensor.  REQUIRES: the coding passed Check.
  uint64_t CreditBytes(const Coding& coding, uint64_t size_bytes) const;
  // How the sum of gradients in `coding` travels.  REQUIRES: the coding passed Check.
  Coding OfSums(const Coding& coding) const;
  // True if coders of gradients, or of sums, in that coding keep a residual.  REQUIRES: it passed
  // Check.
  bool KeepsResidual(const Coding& coding) const;
  // True if workers of a host add up first where they can.  The sum of coded gradients is coded by
  // the worker that adds up, with a residual of the host: so the codec cuts keys, whose partitions
  // stay.  REQUIRES: the coding passed Check.
  bool AddsUpOnHosts(const Coding& coding) const;
  // Bytes of float32 in a partition: the whole units of `most_bytes`, at least one.  They are of
  // gradients and not of codes, because a more urgent tensor waits while a partition is coded.
  // REQUIRES: the coding passed Check, and its codec cuts keys.
  uint64_t PartitionBytes(const Coding& coding, uint64_t most_bytes) const;

 private:
  const Codec* FindName(std::string_view name) const;
  // kInvalidArgument unless sums of the codec can travel so.
  Status CheckSums(const Codec& codec, SumsTravel sums) const;
  // kInvalidArgument unless the rest of the coding, but for the parameters, makes sense.
  Status CheckCommon(const Codec& codec, const Coding& coding) const;

  std::vector<Codec> rows_;
};

// The codecs of this engine.  Alone in builtin.cc, so that a program that defines it has a table of
// its own: the linker then takes nothing from there.
const Table& Builtin();

}  // namespace bs::codec
