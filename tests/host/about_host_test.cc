// The facts about this host agree with the layers below.
#include "host/about_host.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/numa.h"
#include "host/on_loopback.h"
#include "reduce/reduce.h"

namespace bs::host {
namespace {

std::vector<HostFact> Rows(const std::vector<HostFact>& facts, const std::string& what) {
  std::vector<HostFact> rows;
  std::copy_if(facts.begin(), facts.end(), std::back_inserter(rows),
               [&](const HostFact& fact) { return fact.what == what; });
  return rows;
}

TEST(AboutHost, NamesTheKernelsThatServersUse) {
  const std::vector<HostFact> rows = Rows(AboutHost(OnLoopback()), "kernels");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].name, reduce::BestKernels().name);
}

TEST(AboutHost, ListsEveryNumaNodeWithItsCores) {
  const std::vector<NumaNode> nodes = DiscoverNumaNodes();
  const std::vector<HostFact> rows = Rows(AboutHost(OnLoopback()), "numa");
  ASSERT_EQ(rows.size(), nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(rows[i].name, std::to_string(nodes[i].id));
    EXPECT_EQ(std::count(rows[i].value.begin(), rows[i].value.end(), ' ') + 1,
              static_cast<ptrdiff_t>(nodes[i].cores.size()));
  }
}

TEST(AboutHost, ListsTheLoopbackInterface) {
  const std::vector<HostFact> rows = Rows(AboutHost(OnLoopback()), "interface");
  EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](const HostFact& fact) {
    return fact.name == "lo" && fact.value == "127.0.0.1";
  }));
}

TEST(AboutHost, NamesTheAddressThatOtherNodesWillSee) {
  Config config = OnLoopback();
  EXPECT_EQ(Rows(AboutHost(config), "address").at(0).name, "127.0.0.1");
  config.node_host = "node7.example";
  EXPECT_EQ(Rows(AboutHost(config), "address").at(0).name, "node7.example");
}

TEST(AboutHost, SaysWhyThereIsNoAddress) {
  Config config = OnLoopback();
  config.interface = "nosuch";
  const std::vector<HostFact> rows = Rows(AboutHost(config), "address");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].name, "");
  EXPECT_TRUE(rows[0].value.starts_with("DMLC_INTERFACE=nosuch: ")) << rows[0].value;
}

}  // namespace
}  // namespace bs::host
