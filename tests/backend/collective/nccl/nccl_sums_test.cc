// NcclSums: its cards, and what it refuses before NCCL has a call.
#include "backend/collective/nccl/nccl_sums.h"

#include <gtest/gtest.h>

#include "backend/collective/nccl/fake_gpu_world.h"

namespace bs::backend::collective {
namespace {

class NcclSumsTest : public testing::Test {
 protected:
  // The card of a rank whose memory is on `gpu`.
  std::string CardOf(int32_t rank, int gpu, const std::string& kind = "whole") {
    libraries_.push_back(std::move(LoadFakeNccl(kind).value()));
    sums_.push_back(std::make_unique<NcclSums>(libraries_.back().get(), driver_.get(), rank, 3));
    memory_.emplace_back(4);
    world_.Own(memory_.back(), gpu);
    return sums_.back()->TakeGpu(memory_.back().data()).value();
  }
  // What all ranks say of these cards.
  std::string Connect(const std::vector<std::string>& cards,
                      const std::vector<int32_t>& workers = {}) {
    std::string text;
    for (const auto& sums : sums_) {
      const Status status = sums->Connect(cards, workers);
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      EXPECT_TRUE(text.empty() || text == status.message()) << status.message();
      text = status.message();
    }
    return text;
  }

  FakeGpuWorld world_;
  const std::unique_ptr<CudaDriver> driver_ = std::move(LoadFakeDriver("whole").value());
  std::vector<std::unique_ptr<NcclLibrary>> libraries_;
  std::vector<std::unique_ptr<NcclSums>> sums_;
  std::deque<std::vector<float>> memory_;
};

TEST_F(NcclSumsTest, TwoRanksOnOneGpuAreNamed) {
  const std::vector<std::string> cards = {CardOf(0, 0), CardOf(1, 4), CardOf(2, 4)};
  EXPECT_EQ(Connect(cards),
            "worker 1 and worker 2 have tensors on one GPU, and NCCL needs a GPU for each: call "
            "torch.cuda.set_device(bps.local_rank()) before the first tensor");
}

TEST_F(NcclSumsTest, RanksHaveTheNamesOfTheJob) {
  const std::vector<std::string> cards = {CardOf(0, 0), CardOf(1, 0)};
  EXPECT_EQ(Connect(cards, {4, 6}),
            "worker 4 and worker 6 have tensors on one GPU, and NCCL needs a GPU for each: call "
            "torch.cuda.set_device(bps.local_rank()) before the first tensor");
}

TEST_F(NcclSumsTest, VersionsThatDifferAreNamed) {
  const std::vector<std::string> cards = {CardOf(0, 0), CardOf(1, 1), CardOf(2, 2, "newer")};
  EXPECT_EQ(Connect(cards),
            "worker 0 has NCCL 2.21.5, and worker 2 has NCCL 2.23.4: install one version on all "
            "hosts");
}

TEST_F(NcclSumsTest, ATensorOnAnotherGpuIsRefused) {
  CardOf(0, 1);
  std::vector<float> other(4);
  world_.Own(other, 2);
  const Status status = sums_.back()->Add({{.in = std::as_bytes(std::span(memory_.back())),
                                            .out = std::as_writable_bytes(std::span(other))}},
                                          DType::kFloat32, 0);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "this tensor is on GPU 2, and this worker's first one was on GPU 1: NCCL sums tensors "
            "of one GPU in each worker");
}

}  // namespace
}  // namespace bs::backend::collective
