// Residuals of a worker, and their factors from round to round.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

constexpr size_t kFew = 3;

Coding OnebitCoding(Feedback feedback, SumsTravel sums = SumsTravel::kPlain) {
  const std::byte scaled{1};
  return {.codec = 4,
          .parameters = CodecParameters(std::span(&scaled, 1)),
          .sums = sums,
          .feedback = feedback};
}

// A worker alone whose pushes a test decodes.
class FeedbackWorker {
 public:
  explicit FeedbackWorker(Feedback feedback) : FeedbackWorker(OnebitCoding(feedback)) {}
  explicit FeedbackWorker(const Coding& coding) : coding_(coding), bench_(PsWorkerOptions{}) {
    bench_.worker()->Broadcast(7, {.coding = coding_}, std::as_writable_bytes(std::span(out_)),
                               [](const Status&) {});
    bench_.Run();
    while (!bench_.sent.empty()) bench_.Answer(bench_.Next());
  }
  // Pushes {3, -1, 1}, and returns the values that were sent.
  std::vector<float> Round(const PushRates& rates = {}) {
    bench_.worker()->PushPull(
        7, {.coding = coding_, .rates = rates}, std::as_bytes(std::span(in_)),
        std::as_writable_bytes(std::span(out_)), [](const Status&) {},
        [](const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); });
    ps::Message push = bench_.Next();
    ps::Message pull = bench_.Next();
    ratio = test::RequestIn(push).ratio;
    EXPECT_FALSE(test::RequestIn(push).learning_rate) << "the factor says all";
    std::vector<float> sent(kFew);
    codec::Builtin().Get(coding_).decode(coding_.parameters, {}, push.data.at(0).bytes().data(),
                                         sent.data(), kFew);
    bench_.Answer(std::move(push));
    Answer(std::move(pull));
    return sent;
  }
  // Gives the key back, as the last worker that does, and returns the log.
  std::vector<std::string> GiveBack() {
    bench_.worker()->GiveBack(7, /*for_good=*/true, [](const Status&) {});
    ps::Message request = bench_.Next();
    ps::Message answer = Bench::ResponseTo(request);
    test::ChangeResponse(&answer, [](auto* body) { body->given_back = true; });
    request = {};
    bench_.Tell(std::move(answer));
    bench_.Answer(bench_.Next());
    return bench_.lines;
  }
  float ratio = 0;  // of the latest push

 private:
  // With a sum that is the gradient, or its codes.
  void Answer(ps::Message pull) {
    const Coding of_sum = codec::Builtin().OfSums(coding_);
    if (of_sum.plain()) return bench_.Answer(std::move(pull), std::as_bytes(std::span(in_)));
    std::vector<std::byte> codes(codec::Builtin().SentBytes(of_sum, kFew * sizeof(float)));
    codec::Builtin().Get(of_sum).encode(of_sum.parameters, {}, in_.data(), nullptr, codes.data(),
                                        kFew);
    ps::Message answer = Bench::ResponseTo(pull);
    test::ChangeResponse(&answer, [&](auto* body) { body->coding = of_sum; });
    answer.data.push_back(ps::Frame::Copy(codes));
    pull = {};
    bench_.Tell(std::move(answer));
  }

  const Coding coding_;
  std::vector<float> in_ = {3, -1, 2};
  std::vector<float> out_ = {0, 0, 0};
  Bench bench_;
};

PushRates RatesOf(double learning_rate, double rescale_grad) {
  return {.learning_rate = learning_rate, .weight_decay = 0, .rescale_grad = rescale_grad};
}

TEST(WorkerFeedback, TheRestOfAGradientComesWithTheNextRound) {
  FeedbackWorker worker(Feedback::kVanilla);
  EXPECT_EQ(worker.Round(), (std::vector<float>{2, -2, 2}));
  // The residual is {1, 1, 0}: {4, 0, 2} is sent.
  EXPECT_EQ(worker.Round(), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(worker.ratio, 1);
}

TEST(WorkerFeedback, WithoutItEachRoundIsCodedAlone) {
  FeedbackWorker worker(Feedback::kNone);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(worker.Round(RatesOf(1, round + 1)), (std::vector<float>{2, -2, 2}));
    EXPECT_EQ(worker.ratio, 1);
  }
}

TEST(WorkerFeedback, AResidualFollowsTheRatesOnWorkersAndServers) {
  FeedbackWorker corrected(Feedback::kCorrected);
  corrected.Round(RatesOf(0.5, 1));
  EXPECT_EQ(corrected.ratio, 1);
  // Four times the residual {1, 1, 0}.
  EXPECT_EQ(corrected.Round(RatesOf(0.25, 0.5)), (std::vector<float>{4, 4, 4}));
  EXPECT_EQ(corrected.ratio, 4);
  FeedbackWorker vanilla(Feedback::kVanilla);
  vanilla.Round(RatesOf(0.5, 1));
  vanilla.Round(RatesOf(0.25, 0.5));
  EXPECT_EQ(vanilla.ratio, 2) << "it does not follow the learning rate";
}

TEST(WorkerFeedback, AKeyThatIsGivenBackSaysThatTheServersLoseAResidual) {
  FeedbackWorker kept(OnebitCoding(Feedback::kVanilla, SumsTravel::kSame));
  kept.Round();
  EXPECT_THAT(kept.GiveBack(), ::testing::ElementsAre(::testing::HasSubstr(
                                   "key=7: all workers have given it back, and with that goes "
                                   "the servers' residual of its coded sums")));
}

TEST(WorkerFeedback, SumsWithoutAResidualLoseNone) {
  FeedbackWorker worker(OnebitCoding(Feedback::kVanilla));
  worker.Round();
  EXPECT_THAT(worker.GiveBack(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace bs::worker
