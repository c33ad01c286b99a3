// BackendBefore: a back end before another one, to which it hands every call.
//
// A subclass takes over the calls that it serves itself.  The back end behind is its own, and ends
// after the subclass's members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/executor.h"

namespace bs::backend {

class BackendBefore : public Backend {
 public:
  explicit BackendBefore(std::unique_ptr<Backend> behind) : behind_(std::move(behind)) {}

  void Prepare(Done done) override { behind_->Prepare(std::move(done)); }
  Status CheckExtra(const std::string& what) const override { return behind_->CheckExtra(what); }
  uint32_t num_destinations() const override { return behind_->num_destinations(); }
  Shares shares() const override { return behind_->shares(); }
  Carriers CarriersOf(const protocol::Tensor& tensor, const Coding& coding,
                      const Partition& partition) const override {
    return behind_->CarriersOf(tensor, coding, partition);
  }
  bool AddsUp(const protocol::Tensor& tensor, const Coding& coding) const override {
    return behind_->AddsUp(tensor, coding);
  }
  void Place(std::span<Partition> partitions, std::span<const Partition> replaced) override {
    behind_->Place(partitions, replaced);
  }
  uint32_t DestinationOf(Key key) const override { return behind_->DestinationOf(key); }
  void Declare(const protocol::Tensor& tensor, Done done) override {
    behind_->Declare(tensor, std::move(done));
  }
  void Lookup(const protocol::Tensor& asked,
              UniqueFunction<void(Result<protocol::Tensor>)> done) override {
    behind_->Lookup(asked, std::move(done));
  }
  std::shared_ptr<void> LendSent(std::span<const std::byte> memory) override {
    return behind_->LendSent(memory);
  }
  std::shared_ptr<void> LendFilled(std::span<std::byte> memory) override {
    return behind_->LendFilled(memory);
  }
  void Start(const protocol::Tensor& tensor, Exchange exchange) override {
    behind_->Start(tensor, std::move(exchange));
  }
  void StartPartition(ExchangePartition part) override { behind_->StartPartition(std::move(part)); }
  void Quit(Key key, const std::string& terms, uint32_t destination, const Status& why,
            Done done) override {
    behind_->Quit(key, terms, destination, why, std::move(done));
  }
  void Release(const protocol::Tensor& retired, bool given_back, Done done) override {
    behind_->Release(retired, given_back, std::move(done));
  }
  void GiveBack(const protocol::Tensor& tensor, uint64_t turn,
                UniqueFunction<void(Result<bool>)> done) override {
    behind_->GiveBack(tensor, turn, std::move(done));
  }
  void SetOptimizer(OptimizerText optimizer, uint64_t number, Done done) override {
    behind_->SetOptimizer(std::move(optimizer), number, std::move(done));
  }
  void Leave(const std::string& reason, Done done) override {
    behind_->Leave(reason, std::move(done));
  }
  std::optional<PartitionAndCredit> TakeFitting() override { return behind_->TakeFitting(); }
  void Fail(const Status& status) override { behind_->Fail(status); }
  void Measure(Metrics* metrics) const override { behind_->Measure(metrics); }

 protected:
  Backend* behind() const { return behind_.get(); }

 private:
  const std::unique_ptr<Backend> behind_;
};

// Ends the exchange with `why`, after this call, on `executor`.
inline void RefuseLater(Executor* executor, Exchange exchange, const Status& why) {
  executor->Post([exchange = std::move(exchange), why] {
    if (exchange.released) exchange.released(why);
    if (exchange.sent) exchange.sent(why);
    if (exchange.summed) exchange.summed(why, {});
  });
}

}  // namespace bs::backend
