// ServerShares: the load of each link as a function of the shares, and its least maximum.
#include "protocol/server_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"

namespace bs::worker {
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
                         [](double sum, const LinkHost& host) { return sum + host.num_workers; });
}

// The link of a host is busy for (w + share * (all - 2 w)) / rate.
double LoadOf(const LinkHost& host, double all, double share) {
  const double own = host.num_workers;
  return (own + share * (all - 2 * own)) / host.rate;
}

// REQUIRES: `load` is no less than any share gives.
Range RangeOf(const LinkHost& host, double all, double load) {
  if (host.servers.empty()) return {};
  const double growth = all - 2.0 * host.num_workers;
  if (growth == 0) return {.least = 0, .most = 1};
  const double share = (load * host.rate - host.num_workers) / growth;
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

// Each server gets bytes as its link has rate.
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

// The address by which a host is known for the whole job.
std::string HostOf(const ps::Node& node) {
  const std::string& host = node.first_hostname.empty() ? node.hostname : node.first_hostname;
  const bool loopback = host.starts_with("127.") || host == "::1" || host == "localhost";
  return loopback ? "127.0.0.1" : host;
}

// Calls `visit` with each worker and server, and with the number of its host; a new host's number
// is that of the hosts before it.
template <typename F>
void ForEachPlace(std::span<const ps::Node> nodes, F visit) {
  std::map<std::string, size_t> places;
  std::set<int32_t> known;  // the stores of one stock process share an id
  for (const ps::Node& node : nodes) {
    const bool counts = node.role != ps::Role::kScheduler && !ps::IsAttachedId(node.id);
    if (!counts || !known.insert(node.id).second) continue;
    visit(node, places.try_emplace(HostOf(node), places.size()).first->second);
  }
}

}  // namespace

std::vector<LinkHost> HostsOf(std::span<const ps::Node> nodes) {
  std::vector<LinkHost> hosts;
  std::vector<uint64_t> rates;  // 0: none is stated
  ForEachPlace(nodes, [&](const ps::Node& node, size_t place) {
    if (place == hosts.size()) {
      hosts.emplace_back();
      rates.push_back(0);
    }
    LinkHost& host = hosts[place];
    if (node.role == ps::Role::kServer) {
      host.servers.push_back(ps::RankOf(node.id));
    } else {
      ++host.num_workers;
    }
    uint64_t& rate = rates[place];
    if (node.link_rate > 0 && (rate == 0 || node.link_rate < rate)) rate = node.link_rate;
  });
  const uint64_t fastest = rates.empty() ? 0 : *std::max_element(rates.begin(), rates.end());
  for (size_t i = 0; i < hosts.size() && fastest > 0; ++i) {
    const uint64_t rate = rates[i] > 0 ? rates[i] : fastest;
    hosts[i].rate = static_cast<double>(rate) / static_cast<double>(fastest);
  }
  return hosts;
}

std::vector<int32_t> HostsOfWorkers(std::span<const ps::Node> nodes, int32_t num_workers) {
  std::vector<int32_t> hosts(static_cast<size_t>(num_workers));
  std::iota(hosts.begin(), hosts.end(), static_cast<int32_t>(nodes.size()));
  ForEachPlace(nodes, [&](const ps::Node& node, size_t place) {
    const int32_t rank = ps::RankOf(node.id);
    if (node.role != ps::Role::kWorker || rank < 0 || rank >= num_workers) return;
    hosts[static_cast<size_t>(rank)] = static_cast<int32_t>(place);
  });
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

}  // namespace bs::worker
