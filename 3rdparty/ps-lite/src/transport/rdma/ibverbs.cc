// The library and its devices.
#include "transport/rdma/ibverbs.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "transport/rdma/ibverbs_device.h"
#include "transport/rdma/ibverbs_symbols.h"
#include "transport/rdma/rdma_choice.h"
#include "transport/rdma/sysfs_devices.h"

namespace ps {
namespace {

class VerbsLibrary final : public Verbs {
 public:
  VerbsLibrary(IbverbsSymbols symbols, RdmaFork fork, std::string root)
      : symbols_(std::make_shared<const IbverbsSymbols>(std::move(symbols))),
        fork_(fork),
        root_(std::move(root)) {}

  bs::Result<std::vector<RdmaDevice>> Devices() override;
  RdmaFork fork() override { return fork_; }
  bs::Result<std::unique_ptr<VerbsDevice>> Open(const std::string& device,
                                                uint32_t most_completions) override;

 private:
  bs::Result<IbverbsContext> OpenContext(const std::string& name);

  const std::shared_ptr<const IbverbsSymbols> symbols_;
  const RdmaFork fork_;
  const std::string root_;
};

bs::Result<IbverbsContext> VerbsLibrary::OpenContext(const std::string& name) {
  int count = 0;
  ibv_device** const list = symbols_->get_device_list(&count);
  const std::unique_ptr<ibv_device*, decltype(symbols_->free_device_list)> owned(
      list, symbols_->free_device_list);
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (name != symbols_->get_device_name(list[i])) continue;
    ibv_context* const context = symbols_->open_device(list[i]);
    if (context == nullptr) {
      return bs::Status::Unavailable(
          name + ": ibv_open_device: " + std::generic_category().message(errno) +
          " (a container needs --device /dev/infiniband)");
    }
    return IbverbsContext(context, symbols_->close_device);
  }
  struct stat there{};
  const bool container = ::stat((root_ + "/dev/infiniband").c_str(), &there) != 0;
  return bs::Status::Unavailable(
      name + " cannot be opened: " +
      (container ? "/dev/infiniband is not there: load ib_uverbs, or start the container with "
                   "--device /dev/infiniband"
                 : "libibverbs has no driver for it: install ibverbs-providers"));
}

bs::Result<std::vector<RdmaDevice>> VerbsLibrary::Devices() {
  std::vector<RdmaDevice> devices = DevicesInFiles(root_);
  if (devices.empty()) return NoRdmaDevice();
  std::vector<RdmaDevice> usable;
  bs::Status failed;
  for (RdmaDevice& device : devices) {
    const bs::Result<IbverbsContext> context = OpenContext(device.name);
    if (!context.ok()) {
      failed = context.status();
      continue;
    }
    AddFacts(*symbols_, context.value().get(), &device);
    usable.push_back(std::move(device));
  }
  if (usable.empty()) return failed;
  return usable;
}

bs::Result<std::unique_ptr<VerbsDevice>> VerbsLibrary::Open(const std::string& device,
                                                            uint32_t most_completions) {
  const std::vector<RdmaDevice> devices = DevicesInFiles(root_);
  const auto found = std::ranges::find(devices, device, &RdmaDevice::name);
  if (found == devices.end()) {
    return devices.empty() ? NoRdmaDevice()
                           : bs::Status::Unavailable("there is no RDMA device " + device);
  }
  bs::Result<IbverbsContext> context = OpenContext(device);
  if (!context.ok()) return context.status();
  RdmaDevice facts = *found;
  AddFacts(*symbols_, context.value().get(), &facts);
  return OpenIbverbsDevice(symbols_, std::move(context.value()), std::move(facts),
                           most_completions);
}

}  // namespace

bs::Result<std::shared_ptr<Verbs>> LoadVerbsLibrary(const VerbsLibraryOptions& options) {
  bs::Result<IbverbsSymbols> symbols = LoadIbverbs(options.library);
  if (!symbols.ok()) return symbols.status();
  const bs::Result<RdmaFork> fork = DecideFork(symbols.value());
  if (!fork.ok()) return fork.status();
  return std::shared_ptr<Verbs>(
      std::make_shared<VerbsLibrary>(std::move(symbols.value()), fork.value(), options.root));
}

}  // namespace ps
