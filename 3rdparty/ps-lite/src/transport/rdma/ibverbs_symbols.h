// IbverbsSymbols: the functions of libibverbs, found at run time.
//
// Nothing links the library, so that a machine without RDMA runs the same build.  All else that is
// called of it is inline in its header and goes through the device's own table.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/rdma/verbs.h"

// These would refer to functions of the library.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace ps {

struct IbverbsSymbols {
  // The library, which stays loaded until the process ends.
  std::shared_ptr<void> library;

  decltype(&::ibv_get_device_list) get_device_list;
  decltype(&::ibv_free_device_list) free_device_list;
  decltype(&::ibv_get_device_name) get_device_name;
  decltype(&::ibv_open_device) open_device;
  decltype(&::ibv_close_device) close_device;
  decltype(&::ibv_query_device) query_device;
  decltype(&::ibv_query_port) query_port;
  decltype(&::ibv_alloc_pd) alloc_pd;
  decltype(&::ibv_dealloc_pd) dealloc_pd;
  decltype(&::ibv_reg_mr) reg_mr;
  decltype(&::ibv_dereg_mr) dereg_mr;
  decltype(&::ibv_create_comp_channel) create_comp_channel;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel;
  decltype(&::ibv_create_cq) create_cq;
  decltype(&::ibv_destroy_cq) destroy_cq;
  decltype(&::ibv_get_cq_event) get_cq_event;
  decltype(&::ibv_ack_cq_events) ack_cq_events;
  decltype(&::ibv_create_qp) create_qp;
  decltype(&::ibv_modify_qp) modify_qp;
  decltype(&::ibv_destroy_qp) destroy_qp;
  decltype(&::ibv_get_async_event) get_async_event;
  decltype(&::ibv_ack_async_event) ack_async_event;
  decltype(&::ibv_event_type_str) event_type_str;
  decltype(&::ibv_fork_init) fork_init;
  // Null in old libraries.
  decltype(&::ibv_reg_mr_iova2) reg_mr_iova2;
  int (*is_fork_initialized)();  // an ibv_fork_status, which old headers lack
};

// Loads `library`, "libibverbs.so.1".  The message of kUnavailable names the package to install.
bs::Result<IbverbsSymbols> LoadIbverbs(const std::string& library);

// Protects memory from fork() for the whole process, unless that is not needed.  kUnavailable: the
// library refuses.
bs::Result<RdmaFork> DecideFork(const IbverbsSymbols& symbols);

}  // namespace ps
