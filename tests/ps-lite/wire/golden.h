// Meta data captured from stock nodes: the bytes, and what they mean.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ps/message.h"

namespace ps::test {

inline std::string FromHex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

inline std::string ToHex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    hex += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return hex;
}

struct Golden {
  std::string name;
  std::string hex;
  Meta meta;
};

inline Node NodeAt(Role role, int32_t id, int32_t port, int32_t customer_id = 0) {
  return {.role = role,
          .id = id,
          .hostname = "127.0.0.1",
          .port = port,
          .is_recovery = false,
          .customer_id = customer_id};
}

inline Meta ControlMeta(Control control, int32_t timestamp) {
  Meta meta;
  meta.is_control = true;
  meta.control = std::move(control);
  meta.timestamp = timestamp;
  return meta;
}

inline Meta AppMeta(int32_t head, int32_t timestamp, bool request) {
  Meta meta;
  meta.head = head;
  meta.request = request;
  meta.app_id = 0;
  meta.timestamp = timestamp;
  meta.customer_id = 0;
  return meta;
}

struct DataFlags {
  bool request = false;
  bool push = false;
  bool pull = false;
};

inline Meta DataMeta(int32_t timestamp, DataFlags flags, std::vector<int32_t> types) {
  Meta meta = AppMeta(0, timestamp, flags.request);
  meta.push = flags.push;
  meta.pull = flags.pull;
  meta.data_types = std::move(types);
  return meta;
}

inline Meta BarrierMeta(int32_t group, int32_t timestamp, bool request) {
  Meta meta = ControlMeta({.command = Command::kBarrier, .barrier_group = group}, timestamp);
  meta.request = request;
  meta.app_id = 0;
  meta.customer_id = 0;
  return meta;
}

inline Meta CommandMeta(int32_t head, int32_t timestamp, bool request, std::string body = "") {
  Meta meta = AppMeta(head, timestamp, request);
  meta.simple_app = true;
  meta.body = std::move(body);
  return meta;
}

inline Meta TerminateMeta() {
  Meta meta = ControlMeta({.command = Command::kTerminate}, kEmpty);
  meta.customer_id = 0;
  return meta;
}

inline Meta UrgentLessPull() {
  Meta meta = DataMeta(2, {.request = true, .pull = true}, {8, 11});
  meta.priority = -1;
  return meta;
}

inline std::vector<Golden> GoldenControl() {
  const Node server = NodeAt(Role::kServer, kEmpty, 43271);
  const Node worker = NodeAt(Role::kWorker, 9, 37373);
  const Node far_worker = NodeAt(Role::kWorker, WorkerId(129), 38601);
  const std::vector<Node> everyone = {
      NodeAt(Role::kWorker, 9, 33761), NodeAt(Role::kWorker, 11, 35123),
      NodeAt(Role::kServer, 8, 43271), NodeAt(Role::kScheduler, 1, 19091, 376)};
  return {
      {"ADD_NODE from a server",
       "08ffffffff071a1f0802121b080010ffffffff071a093132372e302e302e312087d20228005000"
       "200028003000400050ffffffff0760006800",
       ControlMeta({.command = Command::kAddNode, .nodes = {server}}, 0)},
      {"BARRIER request", "08ffffffff071a040803180720012800300038004001500060006800",
       BarrierMeta(7, 1, true)},
      {"BARRIER response with a garbage group",
       "08ffffffff071a0d0803188095bfdbfeffffffff0120002800300038004004500060006800",
       BarrierMeta(-344995200, 4, false)},
      {"TERMINATE to oneself", "08ffffffff071a020801200028003000500060006800", TerminateMeta()},
      {"HEARTBEAT from worker 0",
       "08ffffffff071a1b08051217080110091a093132372e302e302e3120fda30228005000"
       "200028003000400350ffffffff0760006800",
       ControlMeta({.command = Command::kHeartbeat, .nodes = {worker}}, 3)},
      {"HEARTBEAT from worker 129",
       "08ffffffff071a1c080512180801108b021a093132372e302e302e3120c9ad0228005000"
       "200028003000400250ffffffff0760006800",
       ControlMeta({.command = Command::kHeartbeat, .nodes = {far_worker}}, 2)},
      {"ACK", "08ffffffff071a0a0804208380808090800220002800300050ffffffff0760006800",
       ControlMeta({.command = Command::kAck, .barrier_group = 0, .signature = 0x80100000003},
                   kEmpty)},
      {"ADD_NODE to everyone",
       "08ffffffff071a6708021217080110091a093132372e302e302e3120e1870228005000121708"
       "01100b1a093132372e302e302e3120b39202280050001217080010081a093132372e302e302e"
       "312087d202280050001218080210011a093132372e302e302e3120939501280050f802200028"
       "003000400050ffffffff0760006800",
       ControlMeta({.command = Command::kAddNode, .nodes = everyone}, 0)},
  };
}

inline std::vector<Golden> GoldenData() {
  return {
      {"command 3 request", "080320012800300138004000500060006800", CommandMeta(3, 0, true)},
      {"command 3 response", "080320002800300138004000500060006800", CommandMeta(3, 0, false)},
      {"command 4 with a body", "0804120a312c302e35303030303020012800300138004001500060006800",
       CommandMeta(4, 1, true, "1,0.500000")},
      {"push request", "0800200128013000380040014a03080b03500060006800",
       DataMeta(1, {.request = true, .push = true}, {8, 11, 3})},
      {"push response", "080020002801300038004001500060006800", DataMeta(1, {.push = true}, {})},
      {"pull request", "0800200128003000380040004a02080b500060016800",
       DataMeta(0, {.request = true, .pull = true}, {8, 11})},
      {"pull response", "0800200028003000380040004a03080b03500060016800",
       DataMeta(0, {.pull = true}, {8, 11, 3})},
      {"push_pull request", "0800200128013000380040034a03080b03500060016800",
       DataMeta(3, {.request = true, .push = true, .pull = true}, {8, 11, 3})},
      {"push_pull response", "0800200028013000380040034a03080b03500060016800",
       DataMeta(3, {.push = true, .pull = true}, {8, 11, 3})},
      {"pull request with priority -1",
       "0800200128003000380040024a02080b5000600168ffffffffffffffffff01", UrgentLessPull()},
  };
}

inline std::vector<Golden> AllGolden() {
  std::vector<Golden> all = GoldenControl();
  for (Golden& golden : GoldenData()) all.push_back(std::move(golden));
  return all;
}

}  // namespace ps::test
