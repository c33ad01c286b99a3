// Roster: admission, texts about missing nodes, and how settings differ.
#include "membership/coordinator/roster.h"

#include <gtest/gtest.h>

namespace ps {
namespace {

Node At(Role role, const std::string& host, int32_t port, int32_t customer = 0) {
  return {role, kEmpty, host, port, false, customer};
}

TEST(Roster, NativeRepeatIsRecognisedAndKeepsTheLatestSequence) {
  Roster roster(2, 1);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), true, 5).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), true, 7).verdict, Roster::Verdict::kRepeated);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), true, 6).verdict, Roster::Verdict::kRepeated);
  ASSERT_EQ(roster.entries().size(), 1U);
  EXPECT_EQ(roster.entries().at(0).sequence, 6U);
}

TEST(Roster, OneAddressHasOneRoleAndOneKind) {
  Roster roster(3, 3);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), true, 1).verdict, Roster::Verdict::kAdded);
  const Roster::Outcome other_role = roster.Add(At(Role::kServer, "a", 1), true, 1);
  EXPECT_EQ(other_role.verdict, Roster::Verdict::kRefused);
  EXPECT_EQ(other_role.why.message(),
            "server a:1: this address has registered as worker a:1 already");
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), false, 0).verdict, Roster::Verdict::kRefused);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "b", 1, 0), false, 0).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "b", 1, 1), false, 0).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "b", 1, 1), false, 0).verdict, Roster::Verdict::kRepeated);
  EXPECT_EQ(roster.entries().size(), 3U);
}

TEST(Roster, NamesMissingAndRegisteredNodes) {
  Roster roster(2, 1);
  EXPECT_EQ(roster.Waiting(), "waiting for 2 of 2 workers, 1 of 1 server");
  EXPECT_EQ(roster.Missing(), "missing 2 of 2 workers, 1 of 1 server; registered: none");
  EXPECT_EQ(roster.Add(At(Role::kServer, "a", 1), true, 1).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Missing(), "missing 2 of 2 workers; registered: server a:1");
  EXPECT_FALSE(roster.complete());
}

TEST(Roster, ANodeThatIsGoneLeavesItsPlace) {
  Roster roster(1, 1);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), true, 5).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kServer, "b", 1), false, 0).verdict, Roster::Verdict::kAdded);
  roster.Remove({"a", 2});
  EXPECT_TRUE(roster.complete());
  roster.Remove({"b", 1});
  EXPECT_EQ(roster.Waiting(), "waiting for 1 of 1 server");
  EXPECT_EQ(roster.Add(At(Role::kServer, "b", 1), false, 0).verdict, Roster::Verdict::kAdded);
  roster.Remove({"a", 1});
  EXPECT_EQ(roster.Waiting(), "waiting for 1 of 1 worker");
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 2), true, 1).verdict, Roster::Verdict::kAdded);
}

TEST(Roster, HostsAreOrderedAsBytes) {
  Roster roster(3, 0);
  for (const char* host : {"127.0.0.1", "127.0.0.2", "127.0.0.10"}) {
    EXPECT_EQ(roster.Add(At(Role::kWorker, host, 1), true, 1).verdict, Roster::Verdict::kAdded);
  }
  ASSERT_TRUE(roster.complete());
  roster.AssignIds();
  EXPECT_EQ(roster.Find("127.0.0.2", 1)->node.id, 9);
  EXPECT_EQ(roster.Find("127.0.0.10", 1)->node.id, 11);
  EXPECT_EQ(roster.Find("127.0.0.1", 1)->node.id, 13);
  EXPECT_EQ(roster.Find("127.0.0.1", 2), nullptr);
}

TEST(Roster, NodesHaveTheRanksThatTheyAskForAndOtherNodesTheRest) {
  Roster roster(4, 2);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "z", 1), true, 1, 2).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), true, 1).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "c", 1), true, 1, 0).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "b", 1), true, 1).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kServer, "z", 2), true, 1, 1).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kServer, "a", 2), true, 1).verdict, Roster::Verdict::kAdded);
  roster.AssignIds();
  EXPECT_EQ(roster.Find("c", 1)->node.id, 9);
  EXPECT_EQ(roster.Find("b", 1)->node.id, 11);
  EXPECT_EQ(roster.Find("z", 1)->node.id, 13);
  EXPECT_EQ(roster.Find("a", 1)->node.id, 15);
  EXPECT_EQ(roster.Find("a", 2)->node.id, 8);
  EXPECT_EQ(roster.Find("z", 2)->node.id, 10);
}

TEST(Roster, ARankIsGivenOnce) {
  Roster roster(2, 2);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), true, 1, 1).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "a", 1), true, 2, 1).verdict, Roster::Verdict::kRepeated);
  EXPECT_EQ(roster.Add(At(Role::kServer, "a", 2), true, 1, 1).verdict, Roster::Verdict::kAdded);
  EXPECT_EQ(roster.Add(At(Role::kWorker, "b", 3), true, 1, 1).why.message(),
            "worker b:3 asks for rank 1, which worker a:1 has asked for: give each worker a rank "
            "of its own (DMLC_WORKER_ID)");
  EXPECT_EQ(roster.Add(At(Role::kServer, "b", 4), true, 1, 2).why.message(),
            "server b:4 asks for rank 2: the job has 2 servers");
  EXPECT_EQ(roster.Add(At(Role::kServer, "b", 4), true, 1, -7).verdict, Roster::Verdict::kRefused);
  roster.Remove({"a", 1});
  EXPECT_EQ(roster.Add(At(Role::kWorker, "b", 3), true, 1, 1).verdict, Roster::Verdict::kAdded);
}

TEST(Roster, SettingsDifferByLine) {
  EXPECT_EQ(DifferenceOf("a=1\nb=2\n", "b=2\na=1\n"), "");
  EXPECT_EQ(DifferenceOf("a=1\nb=2\n", "a=1\nb=3\n"), "b=2 instead of b=3");
  EXPECT_EQ(DifferenceOf("a=1\n", "a=1\nb=3\n"), "nothing instead of b=3");
  EXPECT_EQ(DifferenceOf("a=1\nb=2\nc=4", "a=1"), "b=2, c=4 instead of nothing");
}

TEST(Roster, AnotherNodeMayHaveThePlaceOfOne) {
  Roster roster(1, 1);
  roster.Add(At(Role::kWorker, "a", 1), true, 1);
  roster.Add(At(Role::kServer, "a", 2), true, 1);
  roster.AssignIds();
  Node next = At(Role::kWorker, "b", 3);
  next.id = 9;
  roster.Replace(next, 7);
  EXPECT_EQ(roster.Find("a", 1), nullptr);
  ASSERT_NE(roster.Find("b", 3), nullptr);
  EXPECT_EQ(roster.Find("b", 3)->sequence, 7U);
  EXPECT_EQ(roster.CountId(9), 1);
}

// Shares of servers are those of the beginning (server_shares.h).
TEST(Roster, APlaceKeepsItsFirstHostAndTheLinkRateOfThatHost) {
  Roster roster(1, 1);
  Node first = At(Role::kWorker, "a", 1);
  first.link_rate = 1000;
  first.first_hostname = "of another job";
  roster.Add(first, true, 1);
  roster.Add(At(Role::kServer, "a", 2), true, 1);
  roster.AssignIds();
  EXPECT_EQ(roster.Find("a", 1)->node.first_hostname, "");
  for (const char* host : {"b", "c"}) {
    Node next = At(Role::kWorker, host, 3);
    next.id = WorkerId(0);
    next.link_rate = 7;
    roster.Replace(next, 7);
    ASSERT_NE(roster.Find(host, 3), nullptr);
    EXPECT_EQ(roster.Find(host, 3)->node.first_hostname, "a");
    EXPECT_EQ(roster.Find(host, 3)->node.link_rate, 1000U);
  }
  Node back = At(Role::kWorker, "a", 4);
  back.id = WorkerId(0);
  roster.Replace(back, 8);
  EXPECT_EQ(roster.Find("a", 4)->node.first_hostname, "");
}

}  // namespace
}  // namespace ps
