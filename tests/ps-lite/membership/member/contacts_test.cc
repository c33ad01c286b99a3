// Contacts: connections to the nodes of the job, news of them, and losses.
#include "membership/member/contacts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "ps-lite/membership/member/member_parts.h"

namespace ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Ids = std::set<int32_t>;

class ContactsTest : public test::MemberParts {
 protected:
  ContactsTest() : ContactsTest(Options(Role::kServer), kServer) {}
  ContactsTest(const MembershipOptions& options, int32_t own_id) : MemberParts(options, own_id) {
    context_.handler.on_worker_left = [this](int32_t rank, const bs::Status& why) {
      left_.push_back(std::to_string(rank) + ": " + why.message());
    };
    context_.handler.on_worker_vacant = [this](int32_t id, bool native) {
      vacant_.push_back((native ? "native " : "stock ") + std::to_string(id));
    };
  }

  // The connections to all nodes come up.
  void ConnectAll() {
    contacts_.Connect();
    for (const int32_t id : Ids(transport_.connected)) contacts_.OnConnected(id);
  }
  void Break(int32_t id) {
    contacts_.OnDisconnected(id);
    Run(seconds(2));
  }
  // A message of the scheduler node about a worker.
  void Tell(Command command, Op op, uint64_t sequence, const SchedulerBody& said,
            const std::string& text = "", int32_t worker = kWorker0) {
    Meta meta = NativeControl(command, op, sequence);
    meta.control.nodes = {NodeOf(worker)};
    meta.extension.text = text;
    contacts_.OnNews(meta, said);
    Run(bs::Duration(0));
  }
  void TellLoss(uint64_t sequence) {
    Tell(Command::kNone, Op::kVacate, sequence, {.next_incarnation = 1, .native = true});
  }
  void TellNewcomer(uint64_t sequence, uint64_t incarnation) {
    Tell(Command::kAddNode, Op::kRegister, sequence, {.incarnation = incarnation});
  }
  // The first message of a worker that is MXNet's own.
  static Message FirstPush() {
    Message push;
    push.peer = kWorker0;
    push.meta.timestamp = 1;
    return push;
  }
  void Violate(int32_t id, uint32_t times) {
    for (uint32_t i = 0; i < times; ++i) contacts_.OnViolation(id, "an odd key");
  }
  // How many confirmations the scheduler node was sent.
  int64_t Confirmations() const {
    return std::ranges::count_if(transport_.sent, [](const Message& message) {
      return message.peer == kSchedulerId && message.meta.control.command == Command::kAck;
    });
  }

  std::vector<std::string> failed_;          // why the job failed
  std::vector<std::string> scheduler_lost_;  // why the scheduler node is lost
  std::vector<std::string> left_;            // "0: why"
  std::vector<std::string> vacant_;          // "native 9"
  Contacts contacts_{
      &context_,
      NeighbourTable(),
      {.fail_job = [this](const bs::Status& why) { failed_.push_back(why.message()); },
       .scheduler_lost = [this](const std::string& why) { scheduler_lost_.push_back(why); }}};
};

TEST_F(ContactsTest, ServerConnectsToWorkersAndTheSchedulerNode) {
  EXPECT_FALSE(contacts_.Knows(kWorker0));
  contacts_.Connect();
  EXPECT_EQ(transport_.connected, (Ids{kSchedulerId, kWorker0, kWorker1}));
  EXPECT_EQ(transport_.addresses[kSchedulerId], context_.options.root);
  EXPECT_TRUE(contacts_.Knows(kWorker0) && contacts_.IsKnown(kWorker0));
  EXPECT_TRUE(contacts_.Knows(kSchedulerId));
  EXPECT_FALSE(contacts_.Knows(ServerId(1)));
  contacts_.DisconnectAll();
  EXPECT_EQ(transport_.connected, Ids{kSchedulerId});
}

TEST_F(ContactsTest, BrokenConnectionIsALossUnlessItComesBack) {
  ConnectAll();
  contacts_.OnDisconnected(kWorker0);
  Run(milliseconds(500));
  contacts_.OnConnected(kWorker0);
  Run(seconds(100));
  EXPECT_THAT(failed_, IsEmpty());
  Break(kWorker0);
  EXPECT_THAT(failed_, ElementsAre("lost worker 0 (10.0.0.9:4711): connection closed"));
  EXPECT_FALSE(transport_.connected.contains(kWorker0));
  EXPECT_FALSE(contacts_.IsKnown(kWorker0));
  EXPECT_TRUE(contacts_.Knows(kWorker0)) << "until another has the place";
}

TEST_F(ContactsTest, NodeThatIsNotReachedIsLostWithItsLatestAttempt) {
  contacts_.Connect();
  contacts_.OnConnected(kWorker1);
  contacts_.OnConnected(kSchedulerId);
  contacts_.OnAttempt(kWorker0, "10.0.0.9:4711: Connection refused");
  Run(context_.options.timeout + seconds(1));
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_THAT(failed_.front(), HasSubstr("no connection to 10.0.0.9:4711 (Connection refused)"));
}

TEST_F(ContactsTest, LossIsNotMissedAfterTheJobOrTheGoodbye) {
  ConnectAll();
  context_.state = MemberState::kLeaving;
  Break(kWorker0);
  context_.state = MemberState::kOver;
  Break(kWorker1);
  EXPECT_THAT(failed_, IsEmpty());
  EXPECT_EQ(transport_.connected, Ids{kSchedulerId});
}

TEST_F(ContactsTest, LossOfTheSchedulerNodeIsReported) {
  ConnectAll();
  Break(kSchedulerId);
  EXPECT_THAT(scheduler_lost_, ElementsAre("connection closed"));
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(ContactsTest, SilentSchedulerNodeIsLostOnce) {
  ConnectAll();
  contacts_.Lose(kSchedulerId, "silent for 30 s");
  Break(kSchedulerId);
  EXPECT_THAT(scheduler_lost_, ElementsAre("silent for 30 s"));
}

TEST_F(ContactsTest, NodeThatReadsTooLittleIsLost) {
  ConnectAll();
  contacts_.OnOverflow(kWorker0, "1 GiB waits");
  EXPECT_THAT(failed_, ElementsAre("lost worker 0 (10.0.0.9:4711): 1 GiB waits"));
}

TEST_F(ContactsTest, TooManyViolationsDismissANode) {
  ConnectAll();
  Violate(kWorker0, ViolationLimiter::kMost);
  EXPECT_THAT(failed_, IsEmpty());
  Violate(kWorker0, 1);
  EXPECT_THAT(failed_, ElementsAre(HasSubstr("it sends what makes no sense: an odd key")));
  EXPECT_FALSE(contacts_.Knows(kWorker0));
}

TEST_F(ContactsTest, ViolationsOfALostSchedulerNodeDoNotCount) {
  ConnectAll();
  context_.scheduler_lost = true;
  Violate(kSchedulerId, ViolationLimiter::kMost + 1);
  EXPECT_THAT(scheduler_lost_, IsEmpty());
  context_.scheduler_lost = false;
  Violate(kSchedulerId, ViolationLimiter::kMost + 1);
  EXPECT_EQ(scheduler_lost_.size(), 1U);
}

TEST_F(ContactsTest, NewsIsConfirmedEachTimeAndTakenOnce) {
  ConnectAll();
  TellLoss(4);
  EXPECT_THAT(vacant_, ElementsAre("native 9"));
  EXPECT_FALSE(transport_.connected.contains(kWorker0));
  TellLoss(4);
  TellLoss(3);
  EXPECT_EQ(vacant_.size(), 1U);
  EXPECT_EQ(Confirmations(), 3);
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(ContactsTest, NewcomerIsTakenForAVacantPlaceAlone) {
  ConnectAll();
  TellNewcomer(1, 0);
  EXPECT_TRUE(Logged("news of an impossible worker"));
  TellLoss(2);
  EXPECT_FALSE(contacts_.IsKnown(kWorker0));
  TellNewcomer(3, 1);
  EXPECT_TRUE(contacts_.IsKnown(kWorker0));
  EXPECT_TRUE(transport_.connected.contains(kWorker0));
}

TEST_F(ContactsTest, NewcomerIsNotDismissedForItsPredecessor) {
  ConnectAll();
  Violate(kWorker0, ViolationLimiter::kMost + 1);
  TellLoss(1);
  EXPECT_FALSE(contacts_.Knows(kWorker0));
  TellNewcomer(2, 1);
  EXPECT_TRUE(contacts_.Knows(kWorker0));
}

TEST_F(ContactsTest, MessagesOfANewcomerAreNoRepeatsOfItsPredecessor) {
  ConnectAll();
  EXPECT_TRUE(contacts_.stock()->Take(FirstPush()));
  EXPECT_FALSE(contacts_.stock()->Take(FirstPush()));
  TellLoss(1);
  TellNewcomer(2, 1);
  EXPECT_TRUE(contacts_.stock()->Take(FirstPush()));
}

TEST_F(ContactsTest, DataOfAnEarlierHolderIsRecognised) {
  ConnectAll();
  Message message;
  message.peer = kWorker0;
  EXPECT_FALSE(contacts_.IsOfFormer(message));
  TellLoss(1);
  TellNewcomer(2, 1);
  EXPECT_TRUE(contacts_.IsOfFormer(message));
  message.meta.extension.incarnation = 1;
  EXPECT_FALSE(contacts_.IsOfFormer(message));
}

TEST_F(ContactsTest, ImpossibleLossIsAViolation) {
  ConnectAll();
  Tell(Command::kNone, Op::kVacate, 1, {.next_incarnation = 0});
  EXPECT_TRUE(Logged("news of an impossible loss"));
  EXPECT_THAT(vacant_, IsEmpty());
  EXPECT_TRUE(contacts_.IsKnown(kWorker0));
}

TEST_F(ContactsTest, WorkerThatLeavesIsNoLoss) {
  ConnectAll();
  Tell(Command::kNone, Op::kLeave, 1, {}, "KeyError: 'x'");
  EXPECT_THAT(left_, ElementsAre("0: worker 0 gave up: KeyError: 'x'"));
  EXPECT_FALSE(transport_.connected.contains(kWorker0));
  Break(kWorker0);
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(ContactsTest, StockWorkerThatFallsSilentIsToldToEnd) {
  ConnectAll();
  contacts_.stock()->Take(FirstPush());
  contacts_.stock()->OnInbound(kWorker0);
  contacts_.stock()->OnInboundEnded(kWorker0, false);
  Run(seconds(2));
  const std::string why = "connection closed, and no other opened in 1 s";
  EXPECT_THAT(failed_, ElementsAre(HasSubstr(why)));
  ASSERT_EQ(transport_.sent.size(), 2U);
  EXPECT_THAT(transport_.sent.front().meta.body, HasSubstr(why));
}

// A worker of ours, beside another worker of its host.
class ContactsOfWorkerTest : public ContactsTest {
 protected:
  explicit ContactsOfWorkerTest(const MembershipOptions& options = JoinsHost())
      : ContactsTest(options, kWorker0) {
    context_.view.all_native = true;
    context_.view.nodes[2].hostname = NodeOf(kWorker0).hostname;
  }
  static MembershipOptions JoinsHost() {
    MembershipOptions options = Options(Role::kWorker);
    options.joins_host = true;
    options.reason_patience = seconds(3);
    return options;
  }
};

TEST_F(ContactsOfWorkerTest, ConnectsToWorkersOfItsHostIfTheJobHasAnotherHost) {
  contacts_.Connect();
  EXPECT_TRUE(contacts_.IsBeside(kWorker1));
  EXPECT_EQ(transport_.connected, (Ids{kSchedulerId, kServer, kWorker1}));
  EXPECT_FALSE(contacts_.IsKnown(kWorker1)) << "it is not of the other side";
  EXPECT_TRUE(contacts_.Knows(kWorker1));
  contacts_.DisconnectAll();
  EXPECT_EQ(transport_.connected, Ids{kSchedulerId});
}

TEST_F(ContactsOfWorkerTest, ConnectsToNoWorkerInAJobOfOneHost) {
  context_.view.nodes[0].hostname = NodeOf(kWorker0).hostname;
  contacts_.Connect();
  EXPECT_FALSE(contacts_.IsBeside(kWorker1));
}

TEST_F(ContactsOfWorkerTest, WorkerOfItsHostThatIsNotReachedFailsTheJob) {
  contacts_.Connect();
  contacts_.OnConnected(kServer);
  contacts_.OnConnected(kSchedulerId);
  Run(context_.options.timeout + seconds(1));
  EXPECT_THAT(failed_, ElementsAre(HasSubstr("lost worker 1 (10.0.0.9:4711): no connection to")));
}

TEST_F(ContactsOfWorkerTest, WorkerOfItsHostThatIsGoneHasLeftUnlessTheJobFails) {
  ConnectAll();
  contacts_.OnDisconnected(kWorker1);
  Run(seconds(2));
  EXPECT_FALSE(transport_.connected.contains(kWorker1));
  EXPECT_THAT(left_, IsEmpty()) << "servers may find it lost";
  Run(seconds(5));
  EXPECT_THAT(left_, ElementsAre("1: worker 1 left the job"));
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(ContactsOfWorkerTest, WorkerOfItsHostThatReadsTooLittleFailsTheJob) {
  ConnectAll();
  contacts_.OnOverflow(kWorker1, "1 GiB waits");
  EXPECT_THAT(failed_, ElementsAre("lost worker 1 (10.0.0.9:4711): 1 GiB waits"));
}

// A worker in a job that replaces lost workers.
class ContactsWithRejoinTest : public ContactsTest {
 protected:
  ContactsWithRejoinTest() : ContactsTest(Replaces(), kWorker0) {}
  static MembershipOptions Replaces() {
    MembershipOptions options = Options(Role::kWorker);
    options.rejoin_timeout = seconds(60);
    return options;
  }
};

TEST_F(ContactsWithRejoinTest, ReplaceableLossIsReportedAndFailsNoJob) {
  ConnectAll();
  contacts_.SendUnreachable();
  EXPECT_EQ(transport_.Count(kSchedulerId, Op::kVacate), 0);
  Break(kServer);
  EXPECT_THAT(failed_, IsEmpty());
  EXPECT_EQ(transport_.Count(kSchedulerId, Op::kVacate), 1);
  EXPECT_EQ(transport_.sent.back().meta.extension.text, "connection closed");
  EXPECT_EQ(transport_.sent.back().meta.control.nodes.back().id, kServer);
  contacts_.SendUnreachable();
  EXPECT_EQ(transport_.Count(kSchedulerId, Op::kVacate), 2);
}

TEST_F(ContactsWithRejoinTest, LossUnderAStockSchedulerNodeFailsTheJob) {
  context_.stock_scheduler = true;
  ConnectAll();
  Break(kServer);
  EXPECT_EQ(failed_.size(), 1U);
}

}  // namespace
}  // namespace ps
