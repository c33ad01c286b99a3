#include "server/optimizer/hosted_updates.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/fake_host.h"

namespace bs::server {
namespace {

// Asks a hosting process, and notes what came of it.
class Bench : private HostedBench {
 public:
  void Load(const HostedUpdates::Optimizer& optimizer) {
    hosted_.Load(optimizer, &executor, [this](Status status) { Note(std::move(status)); });
    Settle();
  }
  std::vector<float> Update(const HostedUpdates::Optimizer& optimizer,
                            const std::vector<float>& weights, const std::vector<float>& gradient) {
    const std::vector<std::byte> before = Floats(weights);
    const std::vector<std::byte> pushed = Floats(gradient);
    std::vector<std::byte> after(before.size());
    const ServerUpdate update{.key = 7,
                              .about = "about",
                              .dtype = DType::kFloat32,
                              .gradient = pushed,
                              .weights = after,
                              .rates = {}};
    hosted_.Update(optimizer, update, before, &executor,
                   [this](Status status) { Note(std::move(status)); });
    Settle();
    return ToFloats(after);
  }

  using HostedBench::host;
  std::vector<Status> outcomes;

 private:
  void Note(Status status) {
    EXPECT_TRUE(executor.IsCurrent());
    outcomes.push_back(std::move(status));
  }

  HostedUpdates hosted_{host.Updater()};
};

TEST(HostedUpdatesTest, NobodyIsThereByDefault) { EXPECT_FALSE(HostedUpdates({}).present()); }

TEST(HostedUpdatesTest, AnUpdateBeginsWithWhatWasBefore) {
  Bench bench;
  const auto optimizer = MakePickle("sgd");
  EXPECT_EQ(bench.Update(optimizer, {1, 2}, {10, 20}), (std::vector<float>{11, 22}));
  ASSERT_EQ(bench.outcomes.size(), 1u);
  EXPECT_TRUE(bench.outcomes[0].ok());
}

TEST(HostedUpdatesTest, AnOptimizerIsLoadedOnceHoweverItIsUsed) {
  Bench bench;
  const auto first = MakePickle("same");
  bench.Load(first);
  bench.Load(first);
  bench.Update(first, {1}, {1});
  const auto second = MakePickle("same");  // set again: its state starts afresh
  bench.Update(second, {1}, {1});
  bench.Update(second, {1}, {1});
  EXPECT_EQ(bench.host.calls,
            (std::vector<std::string>{"set same", "update 7", "set same", "update 7", "update 7"}));
}

TEST(HostedUpdatesTest, ARefusedOptimizerLeavesTheOneBefore) {
  Bench bench;
  const auto good = MakePickle("good");
  bench.Load(good);
  bench.Load(MakePickle("bad"));
  bench.Update(good, {1}, {1});
  EXPECT_EQ(bench.host.calls, (std::vector<std::string>{"set good", "set bad", "update 7"}));
  ASSERT_EQ(bench.outcomes.size(), 3u);
  EXPECT_EQ(bench.outcomes[1].code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(bench.outcomes[1].message(), "no such class");
  EXPECT_TRUE(bench.outcomes[2].ok());
}

TEST(HostedUpdatesTest, AFailureIsToldAndNothingMore) {
  Bench bench;
  const auto optimizer = MakePickle("sgd");
  bench.host.fails = "ValueError: nothing there";
  bench.Update(optimizer, {}, {});
  bench.host.throws = true;
  bench.Update(optimizer, {1}, {1});
  bench.host.throws = false;
  EXPECT_EQ(bench.Update(optimizer, {1}, {1}), std::vector<float>{2});
  ASSERT_EQ(bench.outcomes.size(), 3u);
  EXPECT_EQ(bench.outcomes[0].code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(bench.outcomes[0].message(), "ValueError: nothing there");
  EXPECT_EQ(bench.outcomes[1].message(), "no memory");
  EXPECT_TRUE(bench.outcomes[2].ok());
}

}  // namespace
}  // namespace bs::server
