// DeviceFolder: made-up RDMA devices in files, in place of the kernel's.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ps::test {

// Removed at the end.
class DeviceFolder {
 public:
  DeviceFolder() { std::filesystem::remove_all(root_); }
  DeviceFolder(const DeviceFolder&) = delete;
  DeviceFolder& operator=(const DeviceFolder&) = delete;
  ~DeviceFolder() { std::filesystem::remove_all(root_); }

  const std::string& root() const { return root_; }
  void Put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + "/sys/class/infiniband/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void PutPort(const std::string& device, int port, const std::string& state,
               const std::string& layer) const {
    const std::string folder = device + "/ports/" + std::to_string(port) + "/";
    Put(device + "/node_type", "1: CA");
    Put(folder + "state", state);
    Put(folder + "link_layer", layer);
    Put(folder + "lid", layer == "InfiniBand" ? "0x1a" : "0x0");
  }
  // A port of RoCE with an address: two entries for its link, two for the address.
  void PutRoce(const std::string& device, int port, const std::string& gid) const {
    PutPort(device, port, "4: ACTIVE", "Ethernet");
    const std::string link_local = "fe80:0000:0000:0000:0202:03ff:fe04:0506";
    PutGid(device, port, 0, link_local, "IB/RoCE v1");
    PutGid(device, port, 1, link_local, "RoCE v2");
    PutGid(device, port, 2, gid, "IB/RoCE v1");
    PutGid(device, port, 3, gid, "RoCE v2");
    PutGid(device, port, 4, "0000:0000:0000:0000:0000:0000:0000:0000", "");
  }
  void PutGid(const std::string& device, int port, int index, const std::string& gid,
              const std::string& type) const {
    const std::string folder = device + "/ports/" + std::to_string(port) + "/";
    Put(folder + "gids/" + std::to_string(index), gid);
    if (!type.empty()) Put(folder + "gid_attrs/types/" + std::to_string(index), type);
  }

 private:
  // For this process only: tests run side by side.
  const std::string root_ = ::testing::TempDir() + "rdma_devices-" + std::to_string(::getpid());
};

}  // namespace ps::test
