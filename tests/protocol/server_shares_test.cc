// Shares against all shares of a grid, with loads that are counted byte by byte.
#include "protocol/server_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "base/snapshot.h"

namespace bs::protocol {
namespace {

using Hosts = std::vector<LinkHost>;

// Sends a byte of each worker to the servers and back, and counts what crosses each link.
std::vector<double> CountedLoads(const Hosts& hosts, const std::vector<double>& shares) {
  std::vector<double> out(hosts.size(), 0);
  std::vector<double> in(hosts.size(), 0);
  for (size_t from = 0; from < hosts.size(); ++from) {
    for (size_t to = 0; to < hosts.size(); ++to) {
      if (from == to) continue;
      const double bytes = hosts[from].workers * shares[to];
      out[from] += bytes / hosts[from].rate;  // pushes
      in[to] += bytes / hosts[to].rate;
      out[to] += bytes / hosts[to].rate;  // sums
      in[from] += bytes / hosts[from].rate;
    }
  }
  for (size_t i = 0; i < hosts.size(); ++i) out[i] = std::max(out[i], in[i]);
  return out;
}

double Busiest(const Hosts& hosts, const std::vector<double>& shares) {
  const std::vector<double> loads = CountedLoads(hosts, shares);
  return *std::max_element(loads.begin(), loads.end());
}

// The least busiest load over all shares that are multiples of 1/steps.
double BestOfGrid(const Hosts& hosts, int steps) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<double> shares(hosts.size(), 0);
  const std::function<void(size_t, int)> give = [&](size_t host, int left) {
    if (host == hosts.size()) {
      if (left == 0) best = std::min(best, Busiest(hosts, shares));
      return;
    }
    const int most = hosts[host].servers.empty() ? 0 : left;
    for (int parts = 0; parts <= most; ++parts) {
      shares[host] = static_cast<double>(parts) / steps;
      give(host + 1, left - parts);
    }
    shares[host] = 0;
  };
  give(0, steps);
  return best;
}

// Hosts with a worker and a server, then with a worker alone, then with a server alone.
Hosts Make(int together, int workers, int servers) {
  Hosts hosts;
  int32_t rank = 0;
  for (int i = 0; i < together; ++i) hosts.push_back({.workers = 1, .servers = {rank++}});
  for (int i = 0; i < workers; ++i) hosts.push_back({.workers = 1});
  for (int i = 0; i < servers; ++i) hosts.push_back({.servers = {rank++}});
  return hosts;
}

std::vector<uint32_t> WeightsOf(const Hosts& hosts) {
  size_t servers = 0;
  for (const LinkHost& host : hosts) servers += host.servers.size();
  return ServerWeights(hosts, static_cast<int32_t>(servers));
}

TEST(ServerShares, NoOtherSharesMakeTheBusiestLinkLessBusy) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    Hosts hosts(2 + random() % 3);
    int32_t rank = 0;
    for (LinkHost& host : hosts) {
      host.workers = static_cast<int32_t>(random() % 3);
      for (auto i = random() % 3; i > 0; --i) host.servers.push_back(rank++);
      host.rate = 1.0 / static_cast<double>(1 + random() % 3);
    }
    hosts.front().workers += 1;
    hosts.back().servers.push_back(rank++);
    const std::vector<double> shares = HostShares(hosts);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-6);
    for (size_t i = 0; i < hosts.size(); ++i) {
      EXPECT_GE(shares[i], 0);
      if (hosts[i].servers.empty()) {
        EXPECT_EQ(shares[i], 0);
      }
      EXPECT_NEAR(LoadsOf(hosts, shares)[i], CountedLoads(hosts, shares)[i], 1e-6);
    }
    EXPECT_LE(Busiest(hosts, shares), BestOfGrid(hosts, 24) + 1e-6) << "round " << round;
  }
}

TEST(ServerShares, HostsThatAreAlikeHaveThePlacementOfEqualServers) {
  for (int n = 1; n <= 16; ++n) {
    EXPECT_TRUE(WeightsOf(Make(n, 0, 0)).empty()) << n << " together";
    for (int servers = 1; servers <= 16; ++servers) {
      EXPECT_TRUE(WeightsOf(Make(0, n, servers)).empty()) << n << " and " << servers << " apart";
    }
  }
  EXPECT_TRUE(WeightsOf({{.workers = 4, .servers = {0, 1, 2}}}).empty());
  // Both links are busy for a byte, whatever the shares.
  EXPECT_TRUE(WeightsOf(Make(2, 0, 2)).empty());
}

// n hosts with both and k with a server: the closed forms of two equations, 1 + (n - 2) x = n y and
// n x + k y = 1.
TEST(ServerShares, ServersBesideWorkersGetLessThanServersApart) {
  for (int n = 3; n <= 8; ++n) {
    for (int k = 1; k < n; ++k) {
      const std::vector<double> shares = HostShares(Make(n, 0, k));
      const double whole = n * n + k * n - 2 * k;
      EXPECT_NEAR(shares.front(), (n - k) / whole, 1e-6) << n << ", " << k;
      EXPECT_NEAR(shares.back(), 2 * (n - 1) / whole, 1e-6) << n << ", " << k;
    }
  }
  const std::vector<double> shares = HostShares(Make(2, 2, 2));
  EXPECT_NEAR(shares[0], 1.0 / 6, 1e-6);
  EXPECT_NEAR(shares[2], 0, 1e-6);
  EXPECT_NEAR(shares[5], 1.0 / 3, 1e-6);
}

TEST(ServerShares, AServerApartAtHalfRateGetsHalf) {
  Hosts hosts = Make(0, 4, 4);
  hosts.back().rate = 0.5;
  const std::vector<double> shares = HostShares(hosts);
  EXPECT_NEAR(shares[7], 1.0 / 7, 1e-6);
  EXPECT_NEAR(shares[6], 2.0 / 7, 1e-6);
  // A worker at half rate is the limit; its host can serve nothing besides.
  hosts = Make(3, 0, 0);
  hosts[0].rate = 0.5;
  EXPECT_NEAR(HostShares(hosts)[0], 0, 1e-6);
  EXPECT_EQ(WeightsOf(hosts), (std::vector<uint32_t>{0, 32768, 32768}));
}

TEST(ServerShares, ServersOfOneHostShareItsPart) {
  Hosts hosts = {{.workers = 1}, {.workers = 1}, {.servers = {2, 0}}, {.servers = {1}}};
  hosts.push_back({.workers = 1});
  EXPECT_EQ(WeightsOf(hosts), (std::vector<uint32_t>{16384, 32768, 16384}));
  // The link of the only worker is the limit, so all servers are alike.
  hosts = {{.workers = 1}, {.servers = {2, 0}}, {.servers = {1}}};
  EXPECT_TRUE(WeightsOf(hosts).empty());
}

TEST(ServerShares, AHostWithMostWorkersKeepsAllBytes) {
  EXPECT_EQ(WeightsOf(Make(1, 0, 1)), (std::vector<uint32_t>{65536, 0}));
  EXPECT_EQ(WeightsOf({{.workers = 3, .servers = {1}}, {.workers = 1, .servers = {0}}}),
            (std::vector<uint32_t>{0, 65536}));
}

TEST(ServerShares, AnIncompleteListMeansEqualShares) {
  EXPECT_TRUE(ServerWeights(Make(3, 0, 1), 5).empty());
  EXPECT_TRUE(ServerWeights(Make(3, 0, 1), 3).empty());
  EXPECT_TRUE(ServerWeights(Hosts{{.workers = 1, .servers = {0, 0}}}, 2).empty());
}

TEST(ServerShares, HostsComeFromTheView) {
  job::View view = job::MakeView({}, 2, 3);
  view.hosts = {{}, {}};
  view.workers = {{.host = 1}, {.host = 1}};
  view.servers = {{.host = 1}, {.host = 0}, {.host = 1}};
  EXPECT_EQ(HostsOf(view), (Hosts{{.servers = {1}}, {.workers = 2, .servers = {0, 2}}}));
  view.workers[1].host = 7;
  view.servers[2].host = 8;
  EXPECT_EQ(HostsOf(view), (Hosts{{.servers = {1}}, {.workers = 1, .servers = {0}}}))
      << "nodes whose host is not known are left out";
  EXPECT_EQ(HostsOf({}), Hosts());
}

TEST(ServerShares, AHostThatAddsUpCountsAsOneWorker) {
  job::View view = job::MakeView({}, 3, 2);
  view.hosts.resize(2);
  view.workers = {{.host = 1}, {.host = 0}, {.host = 1}};
  view.servers = {{.host = 0}, {.host = 1}};
  EXPECT_EQ(HostsOf(view, true),
            (Hosts{{.workers = 1, .servers = {0}}, {.workers = 1, .servers = {1}}}));
  EXPECT_TRUE(AddsUpOnHosts(view));
  view.workers = {{.host = 0}, {.host = 0}};
  view.servers = {{.host = 0}, {.host = 0}};
  EXPECT_FALSE(AddsUpOnHosts(view)) << "one host";
  view.workers = {{.host = 0}, {.host = 1}};
  EXPECT_FALSE(AddsUpOnHosts(view)) << "each worker is alone";
}

TEST(ServerShares, HostsWithoutARateAreAsFastAsTheFastest) {
  job::View view = job::MakeView({}, 1, 2);
  view.hosts = {{.link_rate = 500}, {.link_rate = 2000}, {}};
  const Hosts hosts = HostsOf(view);
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].rate, 0.25);
  EXPECT_EQ(hosts[1].rate, 1);
  EXPECT_EQ(hosts[2].rate, 1);
}

TEST(ServerShares, AreDescribedByServer) {
  EXPECT_SNAPSHOT(DescribeShares(std::vector<uint32_t>{21845, 10923, 10923, 21845}),
                  "17 % to each of servers 1, 2; 33 % to each of servers 0, 3");
  EXPECT_EQ(DescribeShares(std::vector<uint32_t>{0, 65536}), "0 % to server 0; 100 % to server 1");
}

}  // namespace
}  // namespace bs::protocol
