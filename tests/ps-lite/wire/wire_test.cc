// The wire: bytes captured from stock nodes, in both directions, and anything a peer may send.
#include "wire/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <protozero/pbf_writer.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/wire/golden.h"

namespace ps {
namespace {

using test::AllGolden;
using test::AppMeta;
using test::FromHex;
using test::Golden;
using test::ToHex;

// On memory that ends where the bytes end, so that the sanitizer sees a step beyond.
bs::Result<Meta> Parse(std::string_view bytes) {
  const std::vector<char> exact(bytes.begin(), bytes.end());
  return ParseMeta(std::as_bytes(std::span<const char>(exact)));
}

TEST(Wire, EncodesTheBytesOfStockNodes) {
  for (const Golden& golden : AllGolden()) {
    EXPECT_EQ(ToHex(EncodeMeta(golden.meta)), golden.hex) << golden.name;
  }
}

TEST(Wire, ParsesTheBytesOfStockNodes) {
  for (const Golden& golden : AllGolden()) {
    const auto parsed = Parse(FromHex(golden.hex));
    ASSERT_TRUE(parsed.ok()) << golden.name << ": " << parsed.status().ToString();
    EXPECT_EQ(parsed.value(), golden.meta) << golden.name;
  }
}

TEST(Wire, MissingFieldsTakeTheProtocolsDefaults) {
  const auto parsed = Parse("");
  ASSERT_TRUE(parsed.ok());
  Meta expected;
  expected.head = 0;
  expected.customer_id = 0;
  expected.app_id = kEmpty;
  expected.timestamp = kEmpty;
  EXPECT_EQ(parsed.value(), expected);
  // control { cmd 2, node { role 1 } }
  const auto control =
      Parse(FromHex("1a06"
                    "0802"
                    "1202"
                    "0801"));
  ASSERT_TRUE(control.ok());
  ASSERT_EQ(control.value().control.nodes.size(), 1u);
  EXPECT_EQ(control.value().control.nodes[0].id, kEmpty);
  EXPECT_EQ(control.value().control.nodes[0].customer_id, 0);
}

// control { cmd 2, node { role 1, link_rate 300, first_hostname "a" } }
TEST(Wire, ANodeMayStateItsLinkAndItsFirstHost) {
  const auto control =
      Parse(FromHex("1a0e"
                    "0802"
                    "120a"
                    "0801"
                    "a006ac02"
                    "aa060161"));
  ASSERT_TRUE(control.ok()) << control.status().message();
  const Node& node = control.value().control.nodes.at(0);
  EXPECT_EQ(node.link_rate, 300U);
  EXPECT_EQ(node.first_hostname, "a");
}

// A body of fields with numbers below and between those of the envelope, and above them; and its
// three parts.
const std::string kLowFields = FromHex(
    "b80607"
    "d006808080808020");
const std::string kMiddleField = FromHex("f80603");
const std::string kHighFields = FromHex(
    "8a0704613d620a"
    "900801"
    "c00701");

Meta FullExtension() {
  Meta meta = AppMeta(kEmpty, 5, true);
  meta.extension = {.version = kExtensionVersion,
                    .op = Op::kPush,
                    .sequence = 12,
                    .incarnation = 3,
                    .job = 0x89abcdef,
                    .status = 4,
                    .text = "why",
                    .body = Body(kLowFields + kMiddleField + kHighFields)};
  return meta;
}

TEST(Wire, ExtensionUsesItsFieldNumbersAfterTheStockNumbers) {
  Meta meta = FullExtension();
  const std::string native = EncodeMeta(meta);
  meta.extension.version = 0;
  const std::string stock = EncodeMeta(meta);
  ASSERT_TRUE(native.starts_with(stock));
  EXPECT_EQ(ToHex(native.substr(stock.size())),
            "a00601"
            "a80603"
            "b0068c8080808080c001"  // the incarnation above 48 bits of the sequence
            "b80607"
            "d006808080808020"
            "f00604"
            "f80603"
            "82070377"
            "6879"
            "8a0704613d620a"
            "9507efcdab89"
            "900801"
            "c00701");
  const auto parsed = Parse(native);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value(), FullExtension());
}

TEST(Wire, ABodyIsKeptAsItIsWhateverLiesBetweenItsFields) {
  const Meta meta = FullExtension();
  Meta envelope = meta;
  envelope.extension.body = {};
  const std::string without = EncodeMeta(envelope);
  const std::string body(meta.extension.body.bytes());
  for (const std::string& bytes :
       {kLowFields + without + kMiddleField + kHighFields, without + body, body + without}) {
    const auto parsed = Parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed.value(), meta);
  }
}

TEST(Wire, ASequenceOfAControlMessageHasAllBits) {
  Meta meta = AppMeta(kEmpty, 5, true);
  meta.is_control = true;
  meta.control.command = Command::kHeartbeat;
  meta.extension.version = kExtensionVersion;
  meta.extension.sequence = ~uint64_t{0};
  const auto parsed = Parse(EncodeMeta(meta));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value(), meta);
}

// Longer than what lies in the object itself.
TEST(Wire, ALongBodyComesBackAsItWas) {
  Meta meta = FullExtension();
  for (int i = 0; i < 100; ++i) meta.extension.body.Append(FromHex("b80607"));
  const auto parsed = Parse(EncodeMeta(meta));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().extension.body.size(), meta.extension.body.size());
}

TEST(Wire, ExtensionWritesOnlyFieldsThatDifferFromTheDefault) {
  Meta meta = AppMeta(0, 0, true);
  const size_t stock_bytes = EncodeMeta(meta).size();
  meta.extension.version = 1;
  EXPECT_EQ(EncodeMeta(meta).size(), stock_bytes + 3);
}

TEST(Wire, ExtensionWithoutAVersionIsIgnored) {
  std::string bytes = EncodeMeta(FullExtension());
  const size_t version = bytes.find(FromHex("a00601"));
  ASSERT_NE(version, std::string::npos);
  bytes.erase(version, 3);
  const auto parsed = Parse(bytes);
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE(parsed.value().native());
  EXPECT_EQ(parsed.value().extension, Extension{});
}

TEST(Wire, UnknownFieldsAreSkipped) {
  const std::string stock = FromHex("080320012800300138004000500060006800");
  // varint 200, 64 bits 201, bytes 202, 32 bits 203; data_size (11)
  const std::string unknown = FromHex(
      "c00c05"
      "c90c0102030405060708"
      "d20c03616263"
      "dd0c01020304"
      "587b");
  const auto expected = Parse(stock);
  for (const std::string& bytes : {unknown + stock, stock + unknown}) {
    const auto parsed = Parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed.value(), expected.value());
  }
}

TEST(Wire, KnownFieldsOfAnotherWireTypeAreSkipped) {
  // head as bytes, body as varint, control as 32 bits, request as 64 bits, rank as bytes
  const auto parsed =
      Parse(FromHex("0a0141"
                    "1005"
                    "1d01020304"
                    "210102030405060708"
                    "fa06020304"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed.value(), Parse("").value());
}

TEST(Wire, UnknownNumbersOfOpAndCommandAreKept) {
  Meta meta = FullExtension();
  // NOLINTBEGIN(clang-analyzer-optin.core.EnumCastOutOfRange): that is what is tested
  meta.extension.op = static_cast<Op>(4000000000u);
  meta.is_control = true;
  meta.extension.incarnation = 0;  // of data only
  meta.control.command = static_cast<Command>(-9);
  // NOLINTEND(clang-analyzer-optin.core.EnumCastOutOfRange)
  const auto parsed = Parse(EncodeMeta(meta));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value(), meta);
}

TEST(Wire, DataTypesMayComeUnpacked) {
  const auto parsed =
      Parse(FromHex("4808"
                    "480b"
                    "4803"));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().data_types, (std::vector<int32_t>{8, 11, 3}));
}

TEST(Wire, ABoolIsTrueWhateverItsLength) {
  EXPECT_TRUE(Parse(FromHex("208002")).value().request);
  EXPECT_FALSE(Parse(FromHex("208000")).value().request);
  EXPECT_FALSE(Parse(FromHex("20")).ok());
}

struct BadInput {
  std::string name;
  std::string bytes;
};

std::string Field(std::string_view tag_hex, const std::string& content) {
  std::string length;
  size_t rest = content.size();
  for (; rest >= 128; rest >>= 7) length.push_back(static_cast<char>((rest & 127) | 128));
  length.push_back(static_cast<char>(rest));
  return FromHex(tag_hex) + length + content;
}

std::string ManyNodes(size_t count) {
  std::string nodes = FromHex("0802");
  for (size_t i = 0; i < count; ++i) nodes += FromHex("12020801");
  return Field("1a", nodes);
}

TEST(Wire, RefusesBytesThatAreNoMeta) {
  const std::string node_of_long_name =
      Field("12", FromHex("0801") + Field("1a", std::string(256, 'h')));
  const std::vector<BadInput> inputs = {
      {"varint without an end", FromHex("08ffffff")},
      {"varint of eleven bytes", FromHex("08ffffffffffffffffffffff01")},
      {"field number 0", FromHex("0000")},
      {"a group", FromHex("0b0c")},
      {"wire type 7", FromHex("0f")},
      {"length past the end", FromHex("1205414243")},
      {"huge length", FromHex("12ffffffff0f")},
      {"length of 64 bits", FromHex("12ffffffffffffffffff01")},
      {"control without a command", FromHex("1a00")},
      {"node without a role", FromHex("1a0408021200")},
      {"role 3", FromHex("1a06080212020803")},
      {"role -1", FromHex("1a0f0802120b08ffffffffffffffffff01")},
      {"too many nodes", ManyNodes(kMaxNodes + 1)},
      {"long host name", Field("1a", FromHex("0802") + node_of_long_name)},
      {"too many data types", Field("4a", std::string(2000, '\x01'))},
      {"packed data types without an end", FromHex("4a0180")},
      {"too long", std::string(kMaxMetaBytes + 1, '\0')},
      {"text", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
  };
  for (const BadInput& input : inputs) {
    const auto parsed = Parse(input.bytes);
    ASSERT_FALSE(parsed.ok()) << input.name;
    EXPECT_EQ(parsed.status().code(), bs::StatusCode::kInvalidArgument) << input.name;
    EXPECT_FALSE(parsed.status().message().empty()) << input.name;
  }
  EXPECT_TRUE(Parse(ManyNodes(kMaxNodes)).ok());
}

TEST(Wire, DeepNestingIsOnlyBytes) {
  std::string nested;
  for (int i = 0; i < 10000; ++i) nested = Field("1a", nested).substr(0, 1 << 15);
  static_cast<void>(Parse(nested));
  std::string unknown;
  for (int i = 0; i < 1000; ++i) unknown = Field("d20c", unknown);
  EXPECT_TRUE(Parse(unknown).ok());
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t Below(uint64_t end) {
    return std::uniform_int_distribution<uint64_t>(0, end - 1)(engine_);
  }
  bool Chance() { return Below(2) == 0; }
  // Short numbers and long ones are equally likely.
  uint64_t Number() { return engine_() >> Below(64); }
  int32_t Int() { return static_cast<int32_t>(Chance() ? Number() : ~Number()); }
  std::string Text() {
    std::string text(Below(40), '\0');
    for (char& c : text) c = static_cast<char>(Below(256));
    return text;
  }

 private:
  std::mt19937_64 engine_;
};

Control RandomControl(Random* random) {
  Control control;
  control.command = static_cast<Command>(random->Below(7));
  for (uint64_t i = random->Below(4); i > 0; --i) {
    control.nodes.push_back({.role = static_cast<Role>(random->Below(3)),
                             .id = random->Int(),
                             .hostname = random->Text(),
                             .port = random->Int(),
                             .is_recovery = random->Chance(),
                             .customer_id = random->Int(),
                             .link_rate = random->Chance() ? random->Number() : 0,
                             .first_hostname = random->Chance() ? random->Text() : ""});
  }
  if (control.command == Command::kBarrier) control.barrier_group = random->Int();
  if (control.command == Command::kAck) control.signature = random->Number();
  return control;
}

// Fields with numbers of a body, in any order.
Body RandomBody(Random* random) {
  std::string bytes;
  protozero::pbf_writer out(bytes);
  for (uint64_t i = random->Below(12); i > 0; --i) {
    const auto above = static_cast<protozero::pbf_tag_type>(115 + random->Below(100));
    const auto below = static_cast<protozero::pbf_tag_type>(103 + random->Below(7));
    const auto field = random->Chance() ? above : below;
    random->Chance() ? out.add_uint64(field, random->Number())
                     : out.add_string(field, random->Text());
  }
  return Body(bytes);
}

Extension RandomExtension(Random* random, bool is_control) {
  const uint64_t sequence = random->Number();
  return {.version = static_cast<uint32_t>(1 + random->Below(3)),
          .op = static_cast<Op>(random->Below(30)),
          .sequence = is_control ? sequence : sequence >> 16U,
          .incarnation = static_cast<uint16_t>(is_control ? 0 : random->Number()),
          .job = static_cast<uint32_t>(random->Number()),
          .status = static_cast<uint32_t>(random->Number()),
          .text = random->Text(),
          .body = RandomBody(random)};
}

Meta RandomMeta(Random* random) {
  Meta meta;
  meta.head = random->Int();
  meta.body = random->Text();
  meta.is_control = random->Chance();
  if (meta.is_control) meta.control = RandomControl(random);
  meta.request = random->Chance();
  meta.push = random->Chance();
  meta.pull = random->Chance();
  meta.simple_app = random->Chance();
  if (random->Chance()) meta.app_id = random->Int();
  if (random->Chance()) meta.timestamp = random->Int();
  for (uint64_t i = random->Below(4); i > 0; --i) meta.data_types.push_back(random->Int());
  meta.customer_id = random->Int();
  meta.priority = random->Int();
  if (random->Chance()) meta.extension = RandomExtension(random, meta.is_control);
  return meta;
}

TEST(Wire, RandomMetasComeBackAsTheyWere) {
  Random random(20240731);
  for (int i = 0; i < 20000; ++i) {
    const Meta meta = RandomMeta(&random);
    const auto parsed = Parse(EncodeMeta(meta));
    ASSERT_TRUE(parsed.ok()) << "round " << i << ": " << parsed.status().ToString();
    ASSERT_EQ(parsed.value(), meta) << "round " << i;
  }
}

// What was parsed can be written and parsed again: nothing out of range came in.
void ExpectHarmless(const std::string& bytes) {
  const auto parsed = Parse(bytes);
  if (!parsed.ok()) {
    EXPECT_EQ(parsed.status().code(), bs::StatusCode::kInvalidArgument);
    return;
  }
  EXPECT_TRUE(Parse(EncodeMeta(parsed.value())).ok());
}

TEST(Wire, SurvivesTruncationAtEveryByte) {
  std::vector<std::string> inputs = {EncodeMeta(FullExtension())};
  for (const Golden& golden : AllGolden()) inputs.push_back(FromHex(golden.hex));
  Random random(5);
  for (int i = 0; i < 200; ++i) inputs.push_back(EncodeMeta(RandomMeta(&random)));
  for (const std::string& input : inputs) {
    for (size_t size = 0; size < input.size(); ++size) ExpectHarmless(input.substr(0, size));
  }
}

void Mutate(Random* random, std::string* bytes) {
  if (bytes->empty()) return;
  const auto at = static_cast<size_t>(random->Below(bytes->size()));
  switch (random->Below(4)) {
    case 0:
      (*bytes)[at] = static_cast<char>(random->Below(256));
      break;
    case 1:
      (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << random->Below(8)));
      break;
    case 2:
      bytes->erase(at, 1 + random->Below(4));
      break;
    default:
      bytes->insert(at, random->Text());
  }
}

TEST(Wire, SurvivesRandomMutations) {
  Random random(1);
  std::vector<std::string> seeds;
  for (const Golden& golden : AllGolden()) seeds.push_back(FromHex(golden.hex));
  for (int i = 0; i < 100; ++i) seeds.push_back(EncodeMeta(RandomMeta(&random)));
  for (int i = 0; i < 300000; ++i) {
    std::string bytes = seeds[random.Below(seeds.size())];
    for (uint64_t n = 1 + random.Below(4); n > 0; --n) Mutate(&random, &bytes);
    ExpectHarmless(bytes);
  }
}

TEST(Identity, IsPsAndTheId) {
  EXPECT_EQ(IdentityOf(1), "ps1");
  EXPECT_EQ(IdentityOf(9), "ps9");
  EXPECT_EQ(IdentityOf(WorkerId(129)), "ps267");
  EXPECT_EQ(IdentityOf(kEmpty), "");
  for (const int32_t id : {0, 1, 8, 9, 255, 256, 267, 1048585, 2147483646}) {
    EXPECT_EQ(IdOfIdentity(IdentityOf(id)), id);
  }
}

TEST(Identity, OfAnythingElseIsAnonymous) {
  const std::string router_given("\0\x11\x22\x33\x44", 5);
  for (const std::string& identity :
       {std::string(), std::string("ps"), std::string("p9"), std::string("ps-1"),
        std::string("ps+1"), std::string("ps9x"), std::string("ps 9"), std::string("PS9"),
        std::string("ps99999999999"), std::string("ps2147483647"), std::string("ps9\0", 4),
        router_given}) {
    EXPECT_EQ(IdOfIdentity(identity), kEmpty) << ToHex(identity);
  }
}

}  // namespace
}  // namespace ps
