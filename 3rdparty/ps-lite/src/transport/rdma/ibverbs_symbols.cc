// Finds the functions of libibverbs by name and version.
#include "transport/rdma/ibverbs_symbols.h"

#include <dlfcn.h>

#include <system_error>

namespace ps {
namespace {

constexpr int kForkUnneeded = 2;  // IBV_FORK_UNNEEDED

// Finds functions until a function is missing.
class Finder {
 public:
  Finder(void* library, std::string name) : library_(library), name_(std::move(name)) {}

  template <typename F>
  void Find(F* function, const char* name, const char* version = "IBVERBS_1.1") {
    if (!FindIfThere(function, name, version) && missing_.empty()) missing_ = name;
  }
  template <typename F>
  bool FindIfThere(F* function, const char* name, const char* version) {
    *function = reinterpret_cast<F>(::dlvsym(library_, name, version));
    return *function != nullptr;
  }
  bs::Status status() const {
    if (missing_.empty()) return bs::Status::Ok();
    return bs::Status::Unavailable(name_ + " lacks " + missing_ +
                                   ": install libibverbs1 of rdma-core 28 or newer");
  }

 private:
  void* const library_;
  const std::string name_;
  std::string missing_;
};

}  // namespace

bs::Result<IbverbsSymbols> LoadIbverbs(const std::string& library) {
  void* opened = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (opened == nullptr) {
    return bs::Status::Unavailable(library + " is not there: install ibverbs-providers");
  }
  IbverbsSymbols symbols{};
  symbols.library = std::shared_ptr<void>(opened, [](void* handle) { ::dlclose(handle); });
  Finder finder(opened, library);
  finder.Find(&symbols.get_device_list, "ibv_get_device_list");
  finder.Find(&symbols.free_device_list, "ibv_free_device_list");
  finder.Find(&symbols.get_device_name, "ibv_get_device_name");
  finder.Find(&symbols.open_device, "ibv_open_device");
  finder.Find(&symbols.close_device, "ibv_close_device");
  finder.Find(&symbols.query_device, "ibv_query_device");
  finder.Find(&symbols.query_port, "ibv_query_port");
  finder.Find(&symbols.alloc_pd, "ibv_alloc_pd");
  finder.Find(&symbols.dealloc_pd, "ibv_dealloc_pd");
  finder.Find(&symbols.reg_mr, "ibv_reg_mr");
  finder.Find(&symbols.dereg_mr, "ibv_dereg_mr");
  finder.Find(&symbols.create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0");
  finder.Find(&symbols.destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0");
  finder.Find(&symbols.create_cq, "ibv_create_cq");
  finder.Find(&symbols.destroy_cq, "ibv_destroy_cq");
  finder.Find(&symbols.get_cq_event, "ibv_get_cq_event");
  finder.Find(&symbols.ack_cq_events, "ibv_ack_cq_events");
  finder.Find(&symbols.create_qp, "ibv_create_qp");
  finder.Find(&symbols.modify_qp, "ibv_modify_qp");
  finder.Find(&symbols.destroy_qp, "ibv_destroy_qp");
  finder.Find(&symbols.get_async_event, "ibv_get_async_event");
  finder.Find(&symbols.ack_async_event, "ibv_ack_async_event");
  finder.Find(&symbols.event_type_str, "ibv_event_type_str");
  finder.Find(&symbols.fork_init, "ibv_fork_init");
  finder.FindIfThere(&symbols.reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8");
  finder.FindIfThere(&symbols.is_fork_initialized, "ibv_is_fork_initialized", "IBVERBS_1.13");
  const bs::Status status = finder.status();
  if (!status.ok()) return status;
  return symbols;
}

bs::Result<RdmaFork> DecideFork(const IbverbsSymbols& symbols) {
  const auto initialized = symbols.is_fork_initialized;
  if (initialized != nullptr && initialized() == kForkUnneeded) return RdmaFork::kHarmless;
  const int error = symbols.fork_init();
  if (error == 0) {
    // With a kernel that copies pinned pages the call did nothing.
    if (initialized != nullptr && initialized() == kForkUnneeded) return RdmaFork::kHarmless;
    return RdmaFork::kProtected;
  }
  return bs::Status::Unavailable(
      std::string("ibv_fork_init: ") + std::generic_category().message(error) +
      ": another library of this process uses RDMA already: set RDMAV_FORK_SAFE=1");
}

}  // namespace ps
