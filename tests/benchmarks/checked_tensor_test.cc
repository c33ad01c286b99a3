#include "checked_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace bench {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPieceBytes = 64 * 1024;
constexpr size_t kPiece = kPieceBytes / sizeof(float);
constexpr size_t kPieces = 3;

std::vector<float> GradientOf(const CheckedTensor& tensor) {
  return {tensor.in(), tensor.in() + tensor.size_bytes() / sizeof(float)};
}

void Receive(const std::vector<float>& sum, CheckedTensor* tensor) {
  std::copy(sum.begin(), sum.end(), tensor->out());
}

TEST(CheckedTensorTest, SumsOfAllWorkersAreRight) {
  for (const size_t bytes : {size_t{4}, size_t{1024}, kPieceBytes, kPieces * kPieceBytes + 28}) {
    CheckedTensor first(7, bytes, 0, 2), second(7, bytes, 1, 2);
    for (int round = 0; round < 3; ++round) {
      first.Change();
      second.Change();
      EXPECT_NE(first.Wrong(), "");  // nothing has come yet
      std::vector<float> sum = GradientOf(first);
      const std::vector<float> other = GradientOf(second);
      std::transform(sum.begin(), sum.end(), other.begin(), sum.begin(), std::plus<>());
      for (CheckedTensor* tensor : {&first, &second}) {
        Receive(sum, tensor);
        EXPECT_EQ(tensor->Wrong(), "");
        EXPECT_EQ(tensor->WrongAnywhere(), "");
      }
    }
  }
}

TEST(CheckedTensorTest, ASumThatLosesSomethingIsThereOrMissing) {
  CheckedTensor tensor(7, kPieces * kPieceBytes, 0, 2);
  tensor.Change();
  EXPECT_NE(tensor.Missing(), "");  // nothing has come yet
  std::vector<float> sum(kPieces * kPiece, 0.5F);
  Receive(sum, &tensor);
  EXPECT_EQ(tensor.Missing(), "");
  tensor.Change();
  sum.resize(kPieces * kPiece - 1 - kPiece);
  Receive(sum, &tensor);  // without the last piece
  EXPECT_THAT(tensor.Missing(), HasSubstr("number " + std::to_string(2 * kPiece)));
}

TEST(CheckedTensorTest, TheSameWorkerTwiceIsNoSum) {
  CheckedTensor tensor(7, kPieceBytes, 0, 2);
  tensor.Change();
  std::vector<float> twice = GradientOf(tensor);
  for (float& value : twice) value *= 2;
  Receive(twice, &tensor);
  EXPECT_NE(tensor.Wrong(), "");
}

TEST(CheckedTensorTest, APieceOfTheRoundBeforeIsFound) {
  CheckedTensor tensor(7, kPieces * kPieceBytes, 0, 1);
  tensor.Change();
  const std::vector<float> before = GradientOf(tensor);
  tensor.Change();
  for (size_t piece = 0; piece < kPieces; ++piece) {
    std::vector<float> sum = GradientOf(tensor);
    const auto from = static_cast<ptrdiff_t>(piece * kPiece);
    std::copy_n(before.begin() + from, kPiece, sum.begin() + from);
    Receive(sum, &tensor);
    EXPECT_THAT(tensor.Wrong(), HasSubstr("the sum of key 7 is wrong in its round 3: number " +
                                          std::to_string(from)));
  }
}

TEST(CheckedTensorTest, AnotherKeyAndAnotherPlaceAreFound) {
  CheckedTensor tensor(7, kPieces * kPieceBytes, 0, 1), other(8, kPieces * kPieceBytes, 0, 1);
  tensor.Change();
  other.Change();
  Receive(GradientOf(other), &tensor);
  EXPECT_NE(tensor.Wrong(), "");
  std::vector<float> turned = GradientOf(tensor);
  std::rotate(turned.begin(), turned.begin() + kPiece, turned.end());
  Receive(turned, &tensor);
  EXPECT_NE(tensor.Wrong(), "");
}

TEST(CheckedTensorTest, OneNumberThatIsStaleIsFoundWhenAllAreNew) {
  CheckedTensor tensor(7, kPieces * kPieceBytes, 0, 1);
  const std::vector<float> before = GradientOf(tensor);
  tensor.ChangeAll();
  std::vector<float> sum = GradientOf(tensor);
  sum[100] = before[100];
  Receive(sum, &tensor);
  EXPECT_EQ(tensor.Wrong(), "");
  EXPECT_THAT(tensor.WrongAnywhere(), HasSubstr("number 100 is "));
}

}  // namespace
}  // namespace bench
