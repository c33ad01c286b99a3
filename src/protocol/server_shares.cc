// ServerShares: the load of each link as a function of the shares, and its least maximum.
#include "protocol/server_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"

namespace bs::protocol {
namespace {

constexpr double kWhole = 65536;
constexpr int kHalvings = 60;  // more than a double has bits to find
constexpr double kNearly = 1e-9;

// The shares of a host with which its link is not busier than a bound.
struct Range {
  double least = 0;
  double most = 0;
};

double WorkersOf(std::span<const LinkHost> hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0.0,
                         [](double sum, const LinkHost& host) { return sum + host.workers; });
}

// The link of a host is busy for (w + share * (all - 2 w)) / rate.
double LoadOf(const LinkHost& host, double all, double share) {
  const double own = host.workers;
  return (own + share * (all - 2 * own)) / host.rate;
}

// REQUIRES: `load` is no less than any share gives.
Range RangeOf(const LinkHost& host, double all, double load) {
  if (host.servers.empty()) return {};
  const double growth = all - 2.0 * host.workers;
  if (growth == 0) return {.least = 0, .most = 1};
  const double share = (load * host.rate - host.workers) / growth;
  return growth > 0 ? Range{.least = 0, .most = std::clamp(share, 0.0, 1.0)}
                    : Range{.least = std::clamp(share, 0.0, 1.0), .most = 1};
}

std::vector<Range> RangesOf(std::span<const LinkHost> hosts, double load) {
  const double all = WorkersOf(hosts);
  std::vector<Range> ranges;
  ranges.reserve(hosts.size());
  for (const LinkHost& host : hosts) ranges.push_back(RangeOf(host, all, load));
  return ranges;
}

bool HoldOne(std::span<const Range> ranges) {
  double least = 0;
  double most = 0;
  for (const Range& range : ranges) {
    least += range.least;
    most += range.most;
  }
  return least <= 1 && most >= 1;
}

// Each server gets bytes in proportion to the rate of its link.
std::vector<double> PlainShares(std::span<const LinkHost> hosts) {
  std::vector<double> shares;
  shares.reserve(hosts.size());
  for (const LinkHost& host : hosts) {
    shares.push_back(host.rate * static_cast<double>(host.servers.size()));
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

double BusiestOf(std::span<const LinkHost> hosts, std::span<const double> shares) {
  const std::vector<double> loads = LoadsOf(hosts, shares);
  return *std::max_element(loads.begin(), loads.end());
}

double LeastBusiest(std::span<const LinkHost> hosts, std::span<const double> plain) {
  const double all = WorkersOf(hosts);
  double low = 0;
  for (const LinkHost& host : hosts) {
    const double without = LoadOf(host, all, 0);
    low = std::max(low, host.servers.empty() ? without : std::min(without, LoadOf(host, all, 1)));
  }
  if (HoldOne(RangesOf(hosts, low))) return low;
  double high = BusiestOf(hosts, plain);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (HoldOne(RangesOf(hosts, middle)) ? high : low) = middle;
  }
  return high;
}

// Returns plain shares times one factor, each as far as its range allows.
std::vector<double> Within(std::span<const Range> ranges, std::span<const double> plain,
                           double factor) {
  std::vector<double> shares;
  shares.reserve(plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    shares.push_back(std::clamp(factor * plain[i], ranges[i].least, ranges[i].most));
  }
  return shares;
}

}  // namespace

bool AddsUpOnHosts(const job::View& view) {
  std::set<int32_t> hosts;
  std::set<int32_t> of_workers;
  for (const job::Peer& worker : view.workers) of_workers.insert(worker.host);
  for (const job::Peer& server : view.servers) hosts.insert(server.host);
  hosts.insert(of_workers.begin(), of_workers.end());
  return hosts.size() > 1 && of_workers.size() < view.workers.size();
}

std::vector<LinkHost> HostsOf(const job::View& view, bool adds_up) {
  std::vector<LinkHost> hosts(view.hosts.size());
  for (const job::Peer& worker : view.workers) {
    if (!view.HostOf(worker)) continue;
    int32_t& workers = hosts[static_cast<size_t>(worker.host)].workers;
    workers = adds_up ? 1 : workers + 1;
  }
  for (int32_t rank = 0; rank < view.num_servers(); ++rank) {
    const job::Peer& server = view.servers[static_cast<size_t>(rank)];
    if (view.HostOf(server)) hosts[static_cast<size_t>(server.host)].servers.push_back(rank);
  }
  uint64_t fastest = 0;
  for (const job::Host& host : view.hosts) fastest = std::max(fastest, host.link_rate);
  for (size_t i = 0; i < hosts.size() && fastest > 0; ++i) {
    const uint64_t rate = view.hosts[i].link_rate > 0 ? view.hosts[i].link_rate : fastest;
    hosts[i].rate = static_cast<double>(rate) / static_cast<double>(fastest);
  }
  return hosts;
}

std::vector<double> LoadsOf(std::span<const LinkHost> hosts, std::span<const double> shares) {
  BS_CHECK(hosts.size() == shares.size());
  const double all = WorkersOf(hosts);
  std::vector<double> loads;
  loads.reserve(hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) loads.push_back(LoadOf(hosts[i], all, shares[i]));
  return loads;
}

std::vector<double> HostShares(std::span<const LinkHost> hosts) {
  std::vector<double> plain = PlainShares(hosts);
  const double load = LeastBusiest(hosts, plain);
  if (BusiestOf(hosts, plain) <= load * (1 + kNearly)) return plain;
  const std::vector<Range> ranges = RangesOf(hosts, load);
  const auto sum_with = [&](double factor) {
    const std::vector<double> shares = Within(ranges, plain, factor);
    return std::accumulate(shares.begin(), shares.end(), 0.0);
  };
  double low = 0;
  double high = 1;
  while (sum_with(high) < 1 - kNearly && std::isfinite(high)) high *= 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (sum_with(middle) < 1 ? low : high) = middle;
  }
  return Within(ranges, plain, high);
}

std::vector<uint32_t> ServerWeights(std::span<const LinkHost> hosts, int32_t num_servers) {
  std::vector<uint32_t> weights(static_cast<size_t>(num_servers), 0);
  std::set<int32_t> seen;
  for (const LinkHost& host : hosts) {
    for (const int32_t rank : host.servers) {
      if (rank < 0 || rank >= num_servers || !seen.insert(rank).second) return {};
    }
  }
  if (seen.size() != weights.size()) return {};
  const std::vector<double> shares = HostShares(hosts);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const double each = shares[i] / static_cast<double>(hosts[i].servers.size());
    for (const int32_t rank : hosts[i].servers) {
      weights[static_cast<size_t>(rank)] = static_cast<uint32_t>(std::llround(kWhole * each));
    }
  }
  const auto differs = [&](uint32_t weight) { return weight != weights.front(); };
  return std::any_of(weights.begin(), weights.end(), differs) ? weights : std::vector<uint32_t>();
}

std::string DescribeShares(std::span<const uint32_t> weights) {
  std::map<uint32_t, std::string> ranks;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    std::string& same = ranks[weights[rank]];
    same += (same.empty() ? "" : ", ") + std::to_string(rank);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::string text;
  for (const auto& [weight, same] : ranks) {
    const bool one = same.find(',') == std::string::npos;
    text += (text.empty() ? "" : "; ") + std::to_string(std::llround(100 * weight / sum)) +
            " % to " + (one ? "server " : "each of servers ") + same;
  }
  return text;
}

}  // namespace bs::protocol
