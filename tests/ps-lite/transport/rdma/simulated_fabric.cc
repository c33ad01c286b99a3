// The interface of cards over the model, one lock around it, and the thread that moves packets.
#include "ps-lite/transport/rdma/simulated_fabric.h"

#include <utility>

#include "ps-lite/transport/rdma/fabric_model.h"

namespace ps::test {

struct SimulatedFabric::Shared {
  explicit Shared(const FabricOptions& options) : model(options) {}

  bs::Mutex mutex;
  bs::CondVar changed;
  bool ending BS_GUARDED_BY(mutex) = false;
  FabricModel model BS_GUARDED_BY(mutex);
};

namespace {

using SharedPtr = std::shared_ptr<SimulatedFabric::Shared>;

// An open device; what it makes shares it.
struct OpenDevice {
  OpenDevice(SharedPtr s, std::unique_ptr<ModelDevice> d)
      : shared(std::move(s)), device(std::move(d)) {}
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ~OpenDevice() {
    const bs::MutexLock lock(&shared->mutex);
    shared->model.Close(device.get());
  }

  const SharedPtr shared;
  const std::unique_ptr<ModelDevice> device;
};
using DevicePtr = std::shared_ptr<OpenDevice>;

class Region final : public RdmaRegion {
 public:
  Region(DevicePtr device, uint32_t key) : device_(std::move(device)), key_(key) {}
  ~Region() override {
    const bs::MutexLock lock(&device_->shared->mutex);
    device_->shared->model.Deregister(key_);
  }
  uint32_t local_key() const override { return key_; }
  uint32_t remote_key() const override { return FabricModel::RemoteKeyOf(key_); }

 private:
  const DevicePtr device_;
  const uint32_t key_;
};

class Pair final : public QueuePair {
 public:
  Pair(DevicePtr device, ModelQueuePair* pair)
      : device_(std::move(device)),
        pair_(pair),
        address_(pair->own),
        inline_bytes_(pair->limits.inline_bytes) {}
  ~Pair() override {
    const bs::MutexLock lock(&device_->shared->mutex);
    device_->shared->model.Destroy(pair_);
  }
  const QueuePairAddress& address() const override { return address_; }
  uint32_t inline_bytes() const override { return inline_bytes_; }
  bs::Status Receive(const QueuePairAddress& peer, const QueuePairTerms& terms) override {
    const bs::MutexLock lock(&device_->shared->mutex);
    return device_->shared->model.Receive(pair_, peer, terms);
  }
  bs::Status Activate() override {
    const bs::MutexLock lock(&device_->shared->mutex);
    return device_->shared->model.Activate(pair_);
  }
  void Abandon() override {
    const bs::MutexLock lock(&device_->shared->mutex);
    device_->shared->model.Abandon(pair_);
  }
  bs::Status PostReceive(uint64_t id, const RdmaPiece& memory) override {
    const bs::MutexLock lock(&device_->shared->mutex);
    return device_->shared->model.PostReceive(pair_, id, memory);
  }
  bs::Status PostSend(const Send& send) override {
    const bs::MutexLock lock(&device_->shared->mutex);
    device_->shared->changed.NotifyAll();
    return device_->shared->model.PostSend(pair_, send);
  }
  bs::Status PostRead(uint64_t id, const RdmaPiece& memory, uint64_t remote_address,
                      uint32_t remote_key) override {
    ModelWork read{.id = id, .kind = Completion::Kind::kRead};
    read.pieces[0] = memory;
    read.num_pieces = 1;
    read.remote_address = remote_address;
    read.remote_key = remote_key;
    const bs::MutexLock lock(&device_->shared->mutex);
    device_->shared->changed.NotifyAll();
    return device_->shared->model.PostRead(pair_, read);
  }

 private:
  const DevicePtr device_;
  ModelQueuePair* const pair_;
  const QueuePairAddress address_;
  const uint32_t inline_bytes_;
};

class Device final : public VerbsDevice {
 public:
  explicit Device(DevicePtr device)
      : device_(std::move(device)), facts_(device_->device->host->facts) {}
  const RdmaDevice& facts() const override { return facts_; }
  bs::Result<std::unique_ptr<RdmaRegion>> Register(std::span<std::byte> memory,
                                                   Access access) override {
    const bs::Result<uint32_t> key = KeyOf(memory, access);
    if (!key.ok()) return key.status();
    return std::unique_ptr<RdmaRegion>(std::make_unique<Region>(device_, key.value()));
  }
  bs::Result<std::unique_ptr<QueuePair>> Create(const RdmaPath& path,
                                                const QueuePairLimits& limits) override {
    const bs::Result<ModelQueuePair*> pair = PairOf(path, limits);
    if (!pair.ok()) return pair.status();
    return std::unique_ptr<QueuePair>(std::make_unique<Pair>(device_, pair.value()));
  }
  int completion_fd() const override { return device_->device->completion_fd.fd(); }
  bs::Status Rearm() override {
    const bs::MutexLock lock(&device_->shared->mutex);
    device_->shared->model.Rearm(device_->device.get());
    return bs::Status::Ok();
  }
  bs::Result<size_t> Poll(std::span<Completion> completions) override {
    const bs::MutexLock lock(&device_->shared->mutex);
    return device_->shared->model.Poll(device_->device.get(), completions);
  }
  int event_fd() const override { return device_->device->event_fd.fd(); }
  std::optional<RdmaEvent> TakeEvent() override {
    const bs::MutexLock lock(&device_->shared->mutex);
    return device_->shared->model.TakeEvent(device_->device.get());
  }

 private:
  bs::Result<uint32_t> KeyOf(std::span<std::byte> memory, Access access) {
    const bs::MutexLock lock(&device_->shared->mutex);
    return device_->shared->model.Register(device_->device.get(), memory, access);
  }
  bs::Result<ModelQueuePair*> PairOf(const RdmaPath& path, const QueuePairLimits& limits) {
    const bs::MutexLock lock(&device_->shared->mutex);
    return device_->shared->model.Create(device_->device.get(), path, limits);
  }

  const DevicePtr device_;
  const RdmaDevice facts_;
};

class Nic final : public SimulatedNic {
 public:
  Nic(SharedPtr shared, std::shared_ptr<ModelHost> host)
      : shared_(std::move(shared)), host_(std::move(host)) {}
  bs::Result<std::vector<RdmaDevice>> Devices() override {
    const bs::MutexLock lock(&shared_->mutex);
    if (host_->lost) return bs::Status::Unavailable("this host has no RDMA device any more");
    return std::vector<RdmaDevice>{host_->facts};
  }
  RdmaFork fork() override {
    const bs::MutexLock lock(&shared_->mutex);
    return host_->options.fork;
  }
  bs::Result<std::unique_ptr<VerbsDevice>> Open(const std::string& device,
                                                uint32_t most_completions) override {
    bs::Result<std::unique_ptr<ModelDevice>> opened = OpenModel(device, most_completions);
    if (!opened.ok()) return opened.status();
    auto shared = std::make_shared<OpenDevice>(shared_, std::move(opened.value()));
    return std::unique_ptr<VerbsDevice>(std::make_unique<Device>(std::move(shared)));
  }
  void SetPort(bool up) override {
    const bs::MutexLock lock(&shared_->mutex);
    shared_->model.SetPort(host_.get(), up);
  }
  void SetSilent(bool silent) override {
    const bs::MutexLock lock(&shared_->mutex);
    host_->silent = silent;
  }
  void LoseDevice() override {
    const bs::MutexLock lock(&shared_->mutex);
    shared_->model.LoseDevice(host_.get());
  }
  void FailNext(Completion::Result result) override {
    const bs::MutexLock lock(&shared_->mutex);
    host_->fail_next = result;
  }
  void LimitPinned(uint64_t most_bytes) override {
    const bs::MutexLock lock(&shared_->mutex);
    host_->options.most_pinned_bytes = most_bytes;
  }
  void RefuseQueuePairs(bool refuse) override {
    const bs::MutexLock lock(&shared_->mutex);
    host_->refuses_queue_pairs = refuse;
  }

 private:
  bs::Result<std::unique_ptr<ModelDevice>> OpenModel(const std::string& device, uint32_t most) {
    const bs::MutexLock lock(&shared_->mutex);
    if (device != host_->facts.name) {
      return bs::Status::Unavailable("there is no RDMA device " + device);
    }
    return shared_->model.Open(host_, most);
  }

  const SharedPtr shared_;
  const std::shared_ptr<ModelHost> host_;
};

}  // namespace

SimulatedFabric::SimulatedFabric(FabricOptions options)
    : threaded_(options.threaded), shared_(std::make_shared<Shared>(options)) {
  if (threaded_) thread_ = std::thread([this] { Run(); });
}

SimulatedFabric::~SimulatedFabric() {
  if (!threaded_) return;
  {
    const bs::MutexLock lock(&shared_->mutex);
    shared_->ending = true;
    shared_->changed.NotifyAll();
  }
  thread_.join();
}

void SimulatedFabric::Run() {
  const bs::MutexLock lock(&shared_->mutex);
  while (!shared_->ending) {
    shared_->model.RunDue();
    const std::optional<bs::TimePoint> next = shared_->model.NextDue();
    if (next) {
      shared_->changed.WaitFor(&shared_->mutex, *next - std::chrono::steady_clock::now());
    } else {
      shared_->changed.Wait(&shared_->mutex);
    }
  }
}

bool SimulatedFabric::Step() {
  const bs::MutexLock lock(&shared_->mutex);
  if (!shared_->model.NextDue()) return false;
  shared_->model.RunNext();
  return true;
}

std::shared_ptr<SimulatedNic> SimulatedFabric::Add(const std::string& name,
                                                   const NicOptions& options) {
  const bs::MutexLock lock(&shared_->mutex);
  return std::make_shared<Nic>(shared_, shared_->model.AddHost(name, options));
}

void SimulatedFabric::WatchReads(std::span<const std::byte> from, std::span<const std::byte> into) {
  const bs::MutexLock lock(&shared_->mutex);
  shared_->model.WatchReads(from, into);
}

FabricCounts SimulatedFabric::Counts() const {
  const bs::MutexLock lock(&shared_->mutex);
  return shared_->model.counts();
}

std::vector<std::string> SimulatedFabric::Violations() const {
  const bs::MutexLock lock(&shared_->mutex);
  return shared_->model.violations();
}

}  // namespace ps::test
