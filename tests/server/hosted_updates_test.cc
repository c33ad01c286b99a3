#include "server/hosted_updates.h"

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "server/support.h"
#include "sim/sim_executor.h"

namespace bs::server {
namespace {

using sim::SimClock;
using sim::SimExecutor;

// A hosting process that notes what it is asked for and adds gradients to weights.
class Host {
 public:
  Host() : hosted_(Functions()) {}

  void Load(const HostedUpdates::Optimizer& optimizer) {
    hosted_.Load(optimizer, &back_, [this](Status status) { Note(std::move(status)); });
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(1));
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
    hosted_.Update(optimizer, update, before, &back_,
                   [this](Status status) { Note(std::move(status)); });
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(1));
    return ToFloats(after);
  }
  static HostedUpdates::Optimizer Make(const std::string& pickle) {
    return std::make_shared<const HostedOptimizer>(HostedOptimizer{pickle});
  }

  bool throws = false;
  std::vector<std::string> calls;
  std::vector<Status> outcomes;

 private:
  ServerUpdater Functions() {
    return {.executor = &updater_,
            .set_optimizer =
                [this](std::string_view pickle) {
                  EXPECT_TRUE(updater_.IsCurrent());
                  calls.push_back("set " + std::string(pickle));
                  return pickle == "bad" ? Status::Internal("os.system is refused") : Status::Ok();
                },
            .update =
                [this](const ServerUpdate& update) {
                  EXPECT_TRUE(updater_.IsCurrent());
                  calls.push_back("update " + std::to_string(update.key));
                  if (throws) throw std::bad_alloc();
                  if (update.gradient.empty()) return Status::Internal("ValueError: nothing there");
                  auto* const weights = reinterpret_cast<float*>(update.weights.data());
                  const std::vector<float> gradient = ToFloats(update.gradient);
                  for (size_t i = 0; i < gradient.size(); ++i) weights[i] += gradient[i];
                  return Status::Ok();
                }};
  }
  void Note(Status status) {
    EXPECT_TRUE(back_.IsCurrent());
    outcomes.push_back(std::move(status));
  }

  SimClock clock_{1};
  SimExecutor updater_{&clock_};
  SimExecutor back_{&clock_};
  HostedUpdates hosted_;
};

TEST(HostedUpdatesTest, NobodyIsThereByDefault) { EXPECT_FALSE(HostedUpdates({}).present()); }

TEST(HostedUpdatesTest, AnUpdateBeginsWithWhatWasBefore) {
  Host host;
  const auto optimizer = Host::Make("sgd");
  EXPECT_EQ(host.Update(optimizer, {1, 2}, {10, 20}), (std::vector<float>{11, 22}));
  ASSERT_EQ(host.outcomes.size(), 1u);
  EXPECT_TRUE(host.outcomes[0].ok());
}

TEST(HostedUpdatesTest, AnOptimizerIsLoadedOnceHoweverItIsUsed) {
  Host host;
  const auto first = Host::Make("same");
  host.Load(first);
  host.Load(first);
  host.Update(first, {1}, {1});
  const auto second = Host::Make("same");  // set again: its state starts afresh
  host.Update(second, {1}, {1});
  host.Update(second, {1}, {1});
  EXPECT_EQ(host.calls,
            (std::vector<std::string>{"set same", "update 7", "set same", "update 7", "update 7"}));
}

TEST(HostedUpdatesTest, ARefusedOptimizerLeavesTheOneBefore) {
  Host host;
  const auto good = Host::Make("good");
  host.Load(good);
  host.Load(Host::Make("bad"));
  host.Update(good, {1}, {1});
  EXPECT_EQ(host.calls, (std::vector<std::string>{"set good", "set bad", "update 7"}));
  ASSERT_EQ(host.outcomes.size(), 3u);
  EXPECT_EQ(host.outcomes[1].code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(host.outcomes[1].message(), "os.system is refused");
  EXPECT_TRUE(host.outcomes[2].ok());
}

TEST(HostedUpdatesTest, AFailureIsToldAndNothingMore) {
  Host host;
  const auto optimizer = Host::Make("sgd");
  host.Update(optimizer, {}, {});
  host.throws = true;
  host.Update(optimizer, {1}, {1});
  host.throws = false;
  EXPECT_EQ(host.Update(optimizer, {1}, {1}), std::vector<float>{2});
  ASSERT_EQ(host.outcomes.size(), 3u);
  EXPECT_EQ(host.outcomes[0].code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(host.outcomes[0].message(), "ValueError: nothing there");
  EXPECT_EQ(host.outcomes[1].message(), "no memory");
  EXPECT_TRUE(host.outcomes[2].ok());
}

}  // namespace
}  // namespace bs::server
