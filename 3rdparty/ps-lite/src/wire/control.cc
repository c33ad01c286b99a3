// Texts for people about nodes, and the small control messages.
#include "wire/control.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace ps {
namespace {

constexpr size_t kMaxHostBytes = 255;
constexpr int32_t kMaxPort = 65535;
constexpr std::string_view kLeft = " left the job";

std::string_view WordFor(Role role) {
  switch (role) {
    case Role::kServer:
      return "server";
    case Role::kWorker:
      return "worker";
    case Role::kScheduler:
      return "scheduler node";
  }
  return "node of an unknown role";
}

}  // namespace

std::string TextOf(bs::Duration duration) {
  const bool in_seconds = duration >= std::chrono::seconds(1) || duration == bs::Duration(0);
  const double unit = in_seconds ? 1e9 : 1e6;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.6g %s", static_cast<double>(duration.count()) / unit,
                in_seconds ? "s" : "ms");
  return text.data();
}

std::string TextOf(const Address& address) {
  const bool bare = address.host.find(':') != std::string::npos && !address.host.starts_with('[');
  return (bare ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

Address AddressOf(const Node& node) { return {node.hostname, node.port}; }

std::string DescribeUnranked(const Node& node) {
  return std::string(WordFor(node.role)) + " " + TextOf(AddressOf(node));
}

std::string Describe(const Node& node) {
  const std::string who = node.id == kSchedulerId ? "the scheduler node" : DescribeId(node.id);
  return who + " (" + TextOf(AddressOf(node)) + ")";
}

std::string DescribeSender(int32_t peer) {
  return peer == kEmpty ? "an anonymous peer" : DescribeId(peer);
}

std::string DescribeGroup(int32_t group) {
  switch (group) {
    case kServerGroup:
      return "the servers";
    case kWorkerGroup:
      return "the workers";
    case kEveryone:
      return "all nodes";
    default:
      return "group " + std::to_string(group);
  }
}

std::string ShortReason(const std::string& reason) {
  if (reason.size() <= kMaxReasonBytes) return reason;
  size_t end = kMaxReasonBytes;
  const auto continues = [&](size_t at) { return (static_cast<uint8_t>(reason[at]) >> 6U) == 2; };
  while (end > 0 && continues(end)) --end;
  return reason.substr(0, end);
}

bs::Status LeftStatus(int32_t id, const std::string& reason) {
  return bs::Status::Unavailable(DescribeId(id) +
                                 (reason.empty() ? std::string(kLeft) : " gave up: " + reason));
}

bool IsLeftStatus(const bs::Status& status) {
  return status.code() == bs::StatusCode::kUnavailable && status.message().ends_with(kLeft);
}

bs::Status LostStatus(const Node& node, const std::string& why, bool in_worker) {
  const bool hosted = in_worker && node.role == Role::kServer;
  const std::string name =
      hosted ? DescribeId(WorkerId(RankOf(node.id))) + " (its " + DescribeUnranked(node) + ")"
             : Describe(node);
  return bs::Status::Unavailable("lost " + name + ": " + why);
}

std::string SilentFor(bs::Duration heartbeat_timeout) {
  return "silent for " + TextOf(heartbeat_timeout) + " (BYTESCHEDULER_HEARTBEAT_TIMEOUT)";
}

bs::Status StatusOf(const Extension& extension) {
  if (extension.status == 0) return bs::Status::Ok();
  if (extension.status > static_cast<uint32_t>(bs::StatusCode::kInternal)) {
    return bs::Status::Internal("unknown status " + std::to_string(extension.status) + ": " +
                                extension.text);
  }
  return {static_cast<bs::StatusCode>(extension.status), extension.text};
}

void SetStatus(const bs::Status& status, Extension* extension) {
  extension->status = static_cast<uint32_t>(status.code());
  if (!status.ok()) extension->text = status.message();
}

void SetDirections(Op op, Meta* meta) {
  meta->push = op == Op::kPush || op == Op::kDeclare || op == Op::kPushPull || op == Op::kGive;
  meta->pull = !meta->push || op == Op::kPushPull;
}

bs::Status CheckNode(const Node& node) {
  const auto odd = [](char c) { return c <= ' ' || c > '~'; };
  if (node.hostname.empty() || node.hostname.size() > kMaxHostBytes ||
      std::any_of(node.hostname.begin(), node.hostname.end(), odd)) {
    return bs::Status::InvalidArgument("a node entry without a usable host name");
  }
  if (node.port < 1 || node.port > kMaxPort) {
    return bs::Status::InvalidArgument("node " + node.hostname + " has port " +
                                       std::to_string(node.port));
  }
  if (node.role != Role::kServer && node.role != Role::kWorker && node.role != Role::kScheduler) {
    return bs::Status::InvalidArgument("node " + TextOf(AddressOf(node)) + " has role " +
                                       std::to_string(static_cast<int32_t>(node.role)));
  }
  return bs::Status::Ok();
}

bool IdFitsRole(int32_t id, Role role) {
  if (role == Role::kScheduler) return id == kSchedulerId;
  if (id < ServerId(0) || id == kEmpty) return false;
  const bool odd = id % 2 != 0;  // attached ids too, their base is even
  return role == Role::kWorker ? odd : !odd && !IsAttachedId(id);
}

Meta NativeControl(Command command, Op op, uint64_t sequence) {
  Meta meta;
  meta.is_control = true;
  meta.control.command = command;
  meta.extension.version = kExtensionVersion;
  meta.extension.op = op;
  meta.extension.sequence = sequence;
  return meta;
}

}  // namespace ps
