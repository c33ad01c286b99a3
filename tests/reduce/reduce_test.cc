// Every kernel of this machine against the specification: bits, lengths, addresses, surroundings.
#include "reduce/reduce.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <set>

#include "reduce/arrays.h"

namespace bs::reduce {
namespace {

std::string NameOfParam(const testing::TestParamInfo<DType>& info) {
  return std::string(NameOf(info.param));
}

class KernelsTest : public testing::TestWithParam<DType> {
 protected:
  // Both forms of every kernel against the specification, for operands at these misalignments.
  static void ExpectAllEqual(const Bytes& a, const Bytes& b, size_t a_offset, size_t b_offset) {
    const size_t count = a.size() / SizeOf(GetParam());
    Guarded expected(a, 0);
    Sum(ScalarKernels(), GetParam(), expected.data(), Guarded(b, 0).data(), count);
    for (const Kernels* kernels : AvailableKernels()) {
      SCOPED_TRACE(testing::Message() << kernels->name << " count=" << count << " offsets "
                                      << a_offset << " and " << b_offset);
      Guarded accumulator(a, a_offset);
      Guarded addend(b, b_offset);
      Sum(*kernels, GetParam(), accumulator.data(), addend.data(), count);
      ASSERT_EQ(accumulator.Content(), expected.Content());
      ASSERT_TRUE(accumulator.GuardsIntact());

      Guarded left(a, a_offset);
      Guarded target(Bytes(a.size(), 0x5a), (a_offset * 5 + b_offset) % 64);
      Sum(*kernels, GetParam(), target.data(), left.data(), addend.data(), count);
      ASSERT_EQ(target.Content(), expected.Content());
      ASSERT_TRUE(target.GuardsIntact());
      ASSERT_EQ(left.Content(), a);
      ASSERT_EQ(addend.Content(), b);
    }
  }

  std::mt19937_64 random_{20191027};
};

INSTANTIATE_TEST_SUITE_P(DTypes, KernelsTest, testing::ValuesIn(kAllDTypes), NameOfParam);

TEST_P(KernelsTest, EqualTheSpecificationAtEveryShortLength) {
  for (size_t count = 0; count <= 200; ++count) {
    const Bytes a = RandomArray(GetParam(), count, random_);
    const Bytes b = RandomArray(GetParam(), count, random_);
    ASSERT_NO_FATAL_FAILURE(ExpectAllEqual(a, b, 0, 0));
    ASSERT_NO_FATAL_FAILURE(ExpectAllEqual(a, b, random_() % 64, random_() % 64));
  }
}

TEST_P(KernelsTest, EqualTheSpecificationAtEveryMisalignment) {
  const size_t count = 150 / SizeOf(GetParam());  // two wide vectors and a tail
  const Bytes a = RandomArray(GetParam(), count, random_);
  const Bytes b = RandomArray(GetParam(), count, random_);
  for (size_t a_offset = 0; a_offset < 64; ++a_offset) {
    for (size_t b_offset = 0; b_offset < 64; ++b_offset) {
      ASSERT_NO_FATAL_FAILURE(ExpectAllEqual(a, b, a_offset, b_offset));
    }
  }
}

TEST_P(KernelsTest, EqualTheSpecificationOnLongArrays) {
  for (const size_t count : {size_t{4096}, size_t{65537}, size_t{300'001}}) {
    const Bytes a = RandomArray(GetParam(), count, random_);
    const Bytes b = RandomArray(GetParam(), count, random_);
    ASSERT_NO_FATAL_FAILURE(ExpectAllEqual(a, b, 0, 0));
    ASSERT_NO_FATAL_FAILURE(ExpectAllEqual(a, b, 1, 6));
  }
}

TEST_P(KernelsTest, GiveTheSameBitsWhenTheOperandsAreSwapped) {
  constexpr size_t kCount = 20'000;
  const Bytes a = RandomArray(GetParam(), kCount, random_);
  const Bytes b = RandomArray(GetParam(), kCount, random_);
  for (const Kernels* kernels : AvailableKernels()) {
    Bytes forwards(a.size());
    Bytes backwards(a.size());
    Sum(*kernels, GetParam(), forwards.data(), a.data(), b.data(), kCount);
    Sum(*kernels, GetParam(), backwards.data(), b.data(), a.data(), kCount);
    EXPECT_EQ(forwards, backwards) << kernels->name;
  }
}

// The sum of several arrays must have the bits of adding one after the other, also of the types
// that round every partial sum, in whatever groups and blocks a kernel adds them.
void ExpectSumsInTurn(DType dtype, const std::vector<Bytes>& arrays, size_t misalignment) {
  const size_t count = arrays[0].size() / SizeOf(dtype);
  Bytes expected = arrays[0];
  for (size_t i = 1; i < arrays.size(); ++i) {
    Sum(ScalarKernels(), dtype, expected.data(), arrays[i].data(), count);
  }
  for (const Kernels* kernels : AvailableKernels()) {
    SCOPED_TRACE(testing::Message() << kernels->name << " inputs=" << arrays.size()
                                    << " count=" << count << " misalignment=" << misalignment);
    std::vector<Guarded> guarded;
    std::vector<const void*> inputs;
    for (const Bytes& array : arrays) {
      guarded.emplace_back(array, misalignment * (guarded.size() + 1) % 64);
      inputs.push_back(guarded.back().data());
    }
    Guarded target(Bytes(arrays[0].size(), 0x5a), misalignment * 7 % 64);
    SumInputs(*kernels, dtype, target.data(), inputs, count);
    ASSERT_TRUE(target.Content() == expected);
    ASSERT_TRUE(target.GuardsIntact());
    for (size_t i = 0; i < arrays.size(); ++i) ASSERT_TRUE(guarded[i].Content() == arrays[i]);

    SumInputs(*kernels, dtype, guarded[0].data(), inputs, count);
    ASSERT_TRUE(guarded[0].Content() == expected) << "in place";
    ASSERT_TRUE(guarded[0].GuardsIntact());
  }
}

TEST_P(KernelsTest, SumsOfSeveralInputsEqualAddingOneAfterTheOther) {
  for (size_t num_inputs = 2; num_inputs <= 11; ++num_inputs) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{31}, size_t{64}, size_t{200},
                               size_t{8191}, size_t{8193}, size_t{20'000}}) {
      std::vector<Bytes> arrays;
      for (size_t i = 0; i < num_inputs; ++i) {
        arrays.push_back(RandomArray(GetParam(), count, random_));
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSumsInTurn(GetParam(), arrays, 0));
      ASSERT_NO_FATAL_FAILURE(ExpectSumsInTurn(GetParam(), arrays, random_() % 64));
    }
  }
}

class FloatKernelsTest : public KernelsTest {};

INSTANTIATE_TEST_SUITE_P(DTypes, FloatKernelsTest,
                         testing::Values(DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                         DType::kBfloat16),
                         NameOfParam);

// Kernels ask for many elements at once whether one is a NaN; random arrays have one nearly
// everywhere.
TEST_P(FloatKernelsTest, FindTheOnlyNanWhereverItIs) {
  constexpr size_t kCount = 200;
  const size_t element_bytes = SizeOf(GetParam());
  const FloatLayout layout = LayoutOf(GetParam());
  std::vector<Bytes> arrays(3, Bytes(kCount * element_bytes));
  for (Bytes& array : arrays) {
    for (size_t i = 0; i < array.size(); i += element_bytes) {
      // Below the largest exponent of all, so that no sum is infinite.
      const uint64_t top = uint64_t{1} << (layout.exponent_bits + layout.fraction_bits - 1);
      const uint64_t element = random_() & ~top;
      std::memcpy(&array[i], &element, element_bytes);
    }
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSumsInTurn(GetParam(), arrays, 0));
  const uint64_t negative_nan = ~uint64_t{0};
  for (size_t at = 0; at < kCount; ++at) {
    std::vector<Bytes> with_nan = arrays;
    std::memcpy(&with_nan[at % 3][at * element_bytes], &negative_nan, element_bytes);
    ASSERT_NO_FATAL_FAILURE(ExpectAllEqual(with_nan[0], with_nan[at % 2 + 1], 0, 0));
    ASSERT_NO_FATAL_FAILURE(ExpectSumsInTurn(GetParam(), with_nan, 0));
  }
}

class SixteenBitKernelsTest : public KernelsTest {};

INSTANTIATE_TEST_SUITE_P(DTypes, SixteenBitKernelsTest,
                         testing::Values(DType::kFloat16, DType::kBfloat16), NameOfParam);

TEST_P(SixteenBitKernelsTest, AddEveryPatternToManyPatterns) {
  Bytes all(size_t{2} * 65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    std::memcpy(all.data() + size_t{2} * bits, &pattern, 2);
  }
  for (int i = 0; i < 40; ++i) {
    const Bytes others = RandomArray(GetParam(), 65536, random_);
    ASSERT_NO_FATAL_FAILURE(ExpectAllEqual(all, others, 0, 2));
  }
}

TEST(AvailableKernelsTest, BeginWithTheSpecificationAndEndWithTheBest) {
  const auto available = AvailableKernels();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front(), &ScalarKernels());
  EXPECT_EQ(available.back(), &BestKernels());
  std::set<std::string_view> names;
  for (const Kernels* kernels : available) names.insert(kernels->name);
  EXPECT_EQ(names.size(), available.size());
  EXPECT_EQ(ScalarKernels().name, "scalar");
}

TEST(AvailableKernelsTest, HaveAFunctionForExactlyTheCodesThatAreDTypes) {
  for (const Kernels* kernels : AvailableKernels()) {
    for (uint32_t code = 0; code < 16; ++code) {
      EXPECT_EQ(kernels->sum[code] != nullptr, DTypeFromCode(code).has_value()) << code;
    }
  }
}

TEST(SumDeathTest, AbortsOnACodeThatIsNoDType) {
  float x = 1;
  const float y = 2;
  EXPECT_DEATH(Sum(ScalarKernels(), static_cast<DType>(7), &x, &y, 1), "check failed");
  EXPECT_DEATH(Sum(ScalarKernels(), static_cast<DType>(200), &x, &y, 1), "check failed");
}

TEST(SumDeathTest, AbortsOnFewerThanTwoInputs) {
  float x = 1;
  const void* const inputs[] = {&x};
  EXPECT_DEATH(SumInputs(ScalarKernels(), DType::kFloat32, &x, inputs, 1), "check failed");
}

TEST(SumTest, RoundsEveryPartialSum) {
  // Between 2048 and 4096 float16 has the even numbers only, and 2049 rounds to 2048.
  const uint16_t many = 0x6800;
  const uint16_t one = 0x3c00;
  const void* const inputs[] = {&many, &one, &one, &one, &one, &one, &one};
  for (const Kernels* kernels : AvailableKernels()) {
    uint16_t sum = 0;
    SumInputs(*kernels, DType::kFloat16, &sum, inputs, 1);
    EXPECT_EQ(sum, many) << kernels->name;
  }
}

TEST(SumTest, RoundsToNearestWhateverTheThreadRoundsToAndPutsThatBack) {
  for (const Kernels* kernels : AvailableKernels()) {
    float x = 1;
    const float y = 0x1p-30F;
    uint16_t half = 0x3c00;            // 1
    const uint16_t smallest = 0x0001;  // 2^-24
    ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
    Sum(*kernels, DType::kFloat32, &x, &y, 1);
    Sum(*kernels, DType::kFloat16, &half, &smallest, 1);
    const void* const inputs[] = {&y, &y, &y, &x, &y};
    float of_five = 0;
    SumInputs(*kernels, DType::kFloat32, &of_five, inputs, 1);
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
    EXPECT_EQ(x, 1.0F) << kernels->name;
    EXPECT_EQ(of_five, 1.0F) << kernels->name;
    EXPECT_EQ(half, 0x3c00) << kernels->name;
  }
}

TEST(CopyTest, CopiesAnyLengthToAnyAddressAndNothingElse) {
  std::mt19937_64 random(1);
  for (const size_t size_bytes : std::initializer_list<size_t>{0, 1, 63, 64, 4097}) {
    const Bytes content = RandomArray(DType::kUint8, size_bytes, random);
    for (size_t misalignment = 0; misalignment < 64; ++misalignment) {
      Guarded source(content, 3);
      Guarded target(Bytes(size_bytes, 0), misalignment);
      Copy(target.data(), source.data(), size_bytes);
      ASSERT_EQ(target.Content(), content);
      ASSERT_TRUE(target.GuardsIntact());
    }
  }
}

TEST(CopyTest, CopiesBlocksThatAreStreamedAtAnyAddress) {
  constexpr size_t kStreamedBytes = size_t{16} * 1024 * 1024;
  std::mt19937_64 random(2);
  for (const size_t extra : std::initializer_list<size_t>{0, 1, 63, 100}) {
    const Bytes content = RandomArray(DType::kInt64, (kStreamedBytes + extra) / 8 + 1, random);
    const Bytes part(content.begin(),
                     content.begin() + static_cast<std::ptrdiff_t>(kStreamedBytes + extra));
    for (const size_t misalignment : std::initializer_list<size_t>{0, 1, 16, 63}) {
      Guarded source(part, extra % 64);
      Guarded target(Bytes(part.size(), 0), misalignment);
      Copy(target.data(), source.data(), part.size());
      ASSERT_TRUE(target.Content() == part) << extra << " at " << misalignment;
      ASSERT_TRUE(target.GuardsIntact());
    }
  }
}

TEST(CopyTest, CopiesAlsoWhereTheTargetIsAFewBytesAheadInThePage) {
  constexpr size_t kPageBytes = 4096;
  std::mt19937_64 random(3);
  for (const size_t size_bytes : std::initializer_list<size_t>{100, 2048, 5000, 70'001}) {
    const Bytes content = RandomArray(DType::kUint8, size_bytes, random);
    for (size_t ahead = 0; ahead <= 66; ++ahead) {
      Bytes memory(2 * (size_bytes + 2 * kPageBytes), 0);
      const size_t from = kPageBytes;
      const size_t to = (from + size_bytes + 2 * kPageBytes) / kPageBytes * kPageBytes + ahead;
      std::copy(content.begin(), content.end(), memory.begin() + from);
      Copy(&memory[to], &memory[from], size_bytes);
      const auto copied = memory.begin() + static_cast<std::ptrdiff_t>(to);
      ASSERT_TRUE(std::equal(content.begin(), content.end(), copied)) << size_bytes << ' ' << ahead;
      ASSERT_EQ(memory[to - 1], 0);
      ASSERT_EQ(memory[to + size_bytes], 0);
    }
  }
}

TEST(CopyTest, TakesNoBytesFromNowhere) { Copy(nullptr, nullptr, 0); }

}  // namespace
}  // namespace bs::reduce
