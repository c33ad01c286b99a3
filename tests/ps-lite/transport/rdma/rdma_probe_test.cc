// Measurements of READs over simulated cards: what they find, and what each failure says.
#include "transport/rdma/rdma_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/loop_thread.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr bs::Duration kLimit = seconds(60);

class RdmaProbeTest : public ::testing::Test {
 protected:
  ~RdmaProbeTest() override {
    here_.reset();
    there_.reset();
    EXPECT_THAT(fabric_.Violations(), IsEmpty());
    EXPECT_EQ(fabric_.Counts().regions, 0U);
  }
  std::unique_ptr<RdmaProbe> Open(const std::shared_ptr<SimulatedNic>& nic,
                                  const std::string& device) const {
    auto probe = RdmaProbe::Open(OptionsOf(nic, device), &clock_);
    EXPECT_TRUE(probe.ok()) << probe.status().ToString();
    return probe.ok() ? std::move(probe.value()) : nullptr;
  }
  static RdmaOptions OptionsOf(const std::shared_ptr<SimulatedNic>& nic,
                               const std::string& device) {
    RdmaOptions options{.verbs = nic, .device = device};
    options.path.gid_index = 1;
    return options;
  }
  std::string WhyNot(const std::shared_ptr<SimulatedNic>& nic, const std::string& device) const {
    return RdmaProbe::Open(OptionsOf(nic, device), &clock_).status().message();
  }
  void Join() {
    here_ = Open(nic_here_, "here");
    there_ = Open(nic_there_, "there");
    ASSERT_TRUE(there_->Join(here_->offer()).ok());
    ASSERT_TRUE(here_->Join(there_->offer()).ok());
  }

  const bs::LoopThread clock_{"clock"};
  SimulatedFabric fabric_{{.retry_time = milliseconds(50)}};
  std::shared_ptr<SimulatedNic> nic_here_ = fabric_.Add("here");
  std::shared_ptr<SimulatedNic> nic_there_ = fabric_.Add("there");
  std::unique_ptr<RdmaProbe> here_;
  std::unique_ptr<RdmaProbe> there_;
};

TEST_F(RdmaProbeTest, ReadsFewBytesAndManyAndTakesTheirTime) {
  Join();
  for (const uint32_t size_bytes : {4U, RdmaProbe::kBlockBytes}) {
    const auto found = here_->Read(size_bytes, 10, kLimit);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found.value().reads, 10U);
    EXPECT_GT(found.value().median, bs::Duration::zero());
  }
  EXPECT_TRUE(there_->Read(4, 1, kLimit).ok()) << "either end may";
  EXPECT_EQ(fabric_.Counts().reads, 21U);
}

TEST_F(RdmaProbeTest, TextThatIsNoOfferIsRefused) {
  Join();
  const std::string good = there_->offer();
  const std::string cut = good.substr(0, good.rfind(' '));
  for (const std::string& offer : {std::string(), std::string(" "), cut, good + "x", "x" + good,
                                   cut + " 4294967296", good + " 1"}) {
    EXPECT_THAT(here_->Join(offer).message(), HasSubstr("is no offer: run the same version"));
  }
}

TEST_F(RdmaProbeTest, HostsOnInfiniBandAndOnEthernetDoNotJoin) {
  Join();
  std::string offer = there_->offer();
  offer.replace(offer.find(" eth "), 5, " ib ");
  EXPECT_THAT(here_->Join(offer).message(),
              StartsWith("one host is on InfiniBand and the other on Ethernet: name devices of"));
}

TEST_F(RdmaProbeTest, AHostThatIsSilentEndsTheWait) {
  Join();
  nic_there_->SetSilent(true);
  const bs::Status exceeded = here_->Read(4, 1, kLimit).status();
  EXPECT_EQ(exceeded.code(), bs::StatusCode::kUnavailable);
  EXPECT_THAT(exceeded.message(), StartsWith("here: transport retry counter exceeded (status 12"));
  EXPECT_THAT(exceeded.message(), HasSubstr("let packets of RDMA pass (for RoCE UDP port 4791)"));
  EXPECT_THAT(exceeded.message(), HasSubstr("BYTESCHEDULER_RDMA_GID"));
}

TEST_F(RdmaProbeTest, ACardThatSaysNothingEndsTheWaitToo) {
  Join();
  nic_here_->SetSilent(true);
  nic_there_->SetSilent(true);
  const bs::Status late = here_->Read(4, 1, milliseconds(1)).status();
  EXPECT_EQ(late.code(), bs::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.message(),
              StartsWith("here: a READ has not ended in time: let packets of RDMA"));
}

TEST_F(RdmaProbeTest, AReadThatIsRefusedNamesItsStatus) {
  Join();
  nic_here_->FailNext(Completion::Result::kRemoteAccess);
  EXPECT_THAT(here_->Read(4, 1, kLimit).status().message(),
              HasSubstr("(status 10, vendor code 81): run both ends again"));
}

TEST_F(RdmaProbeTest, ADeviceThatCannotBeUsedNamesTheRemedy) {
  EXPECT_THAT(WhyNot(fabric_.Add("none", {.most_reads = 0}), "none"),
              StartsWith("none allows no READs (max_qp_rd_atom), which RDMA needs here: "));
  nic_here_->SetPort(false);
  EXPECT_THAT(WhyNot(nic_here_, "here"), HasSubstr("bring its link up"));
  nic_there_->LimitPinned(RdmaProbe::kBlockBytes);
  EXPECT_NE(WhyNot(nic_there_, "there"), "");
}

}  // namespace
}  // namespace ps::test
