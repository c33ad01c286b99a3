// Server shares: which part of all bytes each server gets, so that the busiest link is least busy.
//
// Pure functions of the nodes of a job and of the rates of their links: every node finds the same
// shares.  docs/design/placement.md derives them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "job/view.h"

namespace bs::protocol {

// A host: its workers and servers share one link, each way.
struct LinkHost {
  int32_t workers = 0;
  std::vector<int32_t> servers{};  // ranks
  double rate = 1;                 // of the link, in any unit that all hosts have

  bool operator==(const LinkHost&) const = default;
};

// True if the job has several hosts, and several workers on at least one of them: their
// contributions can be added up there, and one copy crosses the link.
bool AddsUpOnHosts(const job::View& view);

// The hosts of a job, in the order of the view.  `adds_up`: the workers of a host send one copy, so
// they count as one worker.  A host without a stated rate counts as fast as the
// fastest host that states a rate.  Nodes whose host is not known are left out.
std::vector<LinkHost> HostsOf(const job::View& view, bool adds_up = false);

// Returns how long each link is busy, each way, for a byte that each worker pushes and pulls.  The
// servers of a host get `shares` of that byte (by host; they add up to 1).
std::vector<double> LoadsOf(std::span<const LinkHost> hosts, std::span<const double> shares);

// Returns the shares of each host's servers.  With these shares the busiest link is least busy.
// Among all such shares they are nearest to shares in proportion to the rates of the servers'
// links.
std::vector<double> HostShares(std::span<const LinkHost> hosts);

// Returns the share of each server, by rank, in 1/65,536; empty if all have the same, or if the
// hosts do not have each server exactly once.
std::vector<uint32_t> ServerWeights(std::span<const LinkHost> hosts, int32_t num_servers);

// "17 % to each of servers 0, 1; 33 % to each of servers 2, 3".  REQUIRES: a weight is not 0.
std::string DescribeShares(std::span<const uint32_t> weights);

}  // namespace bs::protocol
