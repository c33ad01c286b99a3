// Words and control messages that membership and requests share.
//
// Pure functions, thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "ps/message.h"
#include "ps/text.h"
#include "ps/transport.h"

namespace ps {

// The remedy for nodes that came to the wrong scheduler node.
inline constexpr const char* kOfAnotherJob = "nodes of another job need another DMLC_PS_ROOT_PORT";

// Why a message is dropped.
inline constexpr const char* kFromAnotherJob = "it is of another job";

// How long a goodbye may take when the job has failed anyway, and nodes to confirm that they heard
// of its end.
inline constexpr bs::Duration kFarewell = std::chrono::seconds(2);
// A goodbye is sent again so soon because the node that has heard it waits only for kFarewell.
inline constexpr bs::Duration kFarewellRetry = std::chrono::milliseconds(250);

// "127.0.0.1:4711".
std::string TextOf(const Address& address);

Address AddressOf(const Node& node);
// Before ids are known: "worker 127.0.0.1:4711".
std::string DescribeUnranked(const Node& node);
// "worker 1 (127.0.0.1:4711)", "the scheduler node (...)".
std::string Describe(const Node& node);
// For logs about messages of a peer: "worker 1", "an anonymous peer".
std::string DescribeSender(int32_t peer);
// "the workers", "all nodes".
std::string DescribeGroup(int32_t group);

// The status that names a lost peer: "lost worker 1 (127.0.0.1:4711): connection closed".  With
// `in_worker` a server is named by the worker of its rank, in whose process it is.
bs::Status LostStatus(const Node& node, const std::string& why, bool in_worker = false);
// The why of a peer that said nothing within `heartbeat_timeout`.
std::string SilentFor(bs::Duration heartbeat_timeout);

// The outcome that a native message carries; a code that is none of ours becomes kInternal.
bs::Status StatusOf(const Extension& extension);
void SetStatus(const bs::Status& status, Extension* extension);

// Which way values travel, in the words of stock nodes.
void SetDirections(Op op, Meta* meta);

// Ok if a stranger's node entry can be connected to.
bs::Status CheckNode(const Node& node);
// True if a node of `role` can have `id`.
bool IdFitsRole(int32_t id, Role role);

// A control message between native nodes.
Meta NativeControl(Command command, Op op, uint64_t sequence);

}  // namespace ps
