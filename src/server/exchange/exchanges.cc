// Finds the exchange of each request, begins it with the first, and drops it after the last.
#include "server/exchange/exchanges.h"

#include <utility>
#include <vector>

#include "protocol/describe.h"
#include "protocol/exchange_terms.h"

namespace bs::server {

Exchanges::Exchanges(ShardState shard, const protocol::Rules& rules)
    : shard_(std::move(shard)),
      rules_{.wait_for_all_givers = rules.exchanges_wait_for_all_givers(),
             .stay_until_all_takers_have_them = rules.exchanges_stay_until_all_takers_have_them(),
             .compare_terms = rules.exchanges_compare_terms()} {
  shard_.counters.Expect(shard_.view->num_workers());
}

void Exchanges::Handle(protocol::Call& call) {
  Exchange* const exchange = Find(call);
  if (exchange == nullptr) return;
  if (const Status wrong = exchange->CheckPlace(call); !wrong.ok()) return Refuse(call, wrong);
  const auto at = exchanges_.find(call.request.key);
  if (const Status* const why = exchange->Blocked()) {
    const Status copy = *why;
    Refuse(call, copy);
    return FailOne(at, copy);
  }
  call.extension.op == ps::Op::kGive ? exchange->Give(call) : exchange->Take(call);
  if (!exchange->over()) return;
  NoteEnd(call.request.key, Status::Ok());
  exchanges_.erase(at);
}

Exchange* Exchanges::Find(const protocol::Call& call) {
  const Key key = call.request.key;
  if (const auto ended = ended_.find(key); ended != ended_.end()) {
    AnswerLate(call, ended->second);
    return nullptr;
  }
  const auto at = exchanges_.find(key);
  if (at == exchanges_.end()) return Begin(call);
  if (at->second->HasTerms(call)) return at->second.get();
  const Result<protocol::ExchangeTerms> stated = protocol::DecodeTerms(call.request.terms);
  if (!stated.ok()) {
    Refuse(call, Status::InvalidArgument(protocol::DescribeCall(call) + ": " +
                                         stated.status().message()));
    return nullptr;
  }
  const Status differs = at->second->Differs(call, stated.value());
  Refuse(call, differs);
  FailOne(at, differs);
  return nullptr;
}

Exchange* Exchanges::Begin(const protocol::Call& call) {
  const auto refuse = [&](const std::string& what) -> Exchange* {
    Refuse(call, Status::InvalidArgument(protocol::DescribeCall(call) + ": " + what));
    return nullptr;
  };
  Result<protocol::ExchangeTerms> terms = protocol::DecodeTerms(call.request.terms);
  if (!terms.ok()) return refuse(terms.status().message());
  const int32_t workers = shard_.view->num_workers();
  if (terms.value().givers.back() >= workers || terms.value().takers.back() >= workers) {
    return refuse("the job has only workers 0 to " + std::to_string(workers - 1));
  }
  if (exchanges_.size() >= kMost) {
    Refuse(call, Status::ResourceExhausted(protocol::DescribeCall(call) +
                                           ": too many exchanges are under way"));
    return nullptr;
  }
  used_ = true;
  auto made = std::make_unique<Exchange>(&shard_, &rules_, call, std::move(terms.value()));
  return exchanges_.emplace(call.request.key, std::move(made)).first->second.get();
}

void Exchanges::AnswerLate(const protocol::Call& call, const Status& outcome) {
  if (!outcome.ok()) return Refuse(call, outcome);
  if (call.extension.op == ps::Op::kGive) {
    return shard_.send(protocol::MakeResponse(call, {}));
  }
  Refuse(call,
         Status::FailedPrecondition(protocol::DescribeCall(call) +
                                    ": the exchange is over, and its key cannot be used again"));
}

void Exchanges::Taken(const protocol::Call& call) {
  const Result<std::vector<protocol::TakenPartition>> taken =
      protocol::DecodeTaken(call.request.taken);
  if (!taken.ok()) {
    return Refuse(call, Status::InvalidArgument(protocol::DescribeCall(call) + ": " +
                                                taken.status().message()));
  }
  for (const protocol::TakenPartition& partition : taken.value()) {
    const auto at = exchanges_.find(partition.key);
    if (at == exchanges_.end()) continue;
    at->second->Taken(call.worker_rank, partition.partition);
    if (!at->second->over()) continue;
    NoteEnd(partition.key, Status::Ok());
    exchanges_.erase(at);
  }
  shard_.send(protocol::MakeResponse(call, {}));
}

void Exchanges::Quit(const protocol::Call& call) {
  const Key key = call.request.key;
  const bool late = call.extension.status == static_cast<uint32_t>(StatusCode::kDeadlineExceeded);
  std::string text = call.extension.text;
  const auto at = exchanges_.find(key);
  if (at != exchanges_.end()) {
    const std::string missing = at->second->Missing();
    if (!missing.empty()) text += "; missing: " + missing;
  }
  const Status why = late ? Status::DeadlineExceeded(text) : Status::Cancelled(text);
  if (at != exchanges_.end()) {
    FailOne(at, why);
  } else if (!ended_.contains(key)) {
    used_ = true;
    NoteEnd(key, why);
  }
  shard_.send(protocol::MakeResponse(call, {}));
}

void Exchanges::OnWorkerGone(int32_t rank, const Status& why) {
  shard_.gone.resize(static_cast<size_t>(shard_.view->num_workers()));
  std::optional<Status>& known = shard_.gone[static_cast<size_t>(rank)];
  if (!known) known = why;
  for (auto at = exchanges_.begin(); at != exchanges_.end();) {
    const auto next = std::next(at);
    at->second->OnWorkerGone(rank);
    if (const Status* const blocked = at->second->Blocked()) {
      const Status copy = *blocked;
      FailOne(at, copy);
    } else if (at->second->over()) {
      NoteEnd(at->first, Status::Ok());
      exchanges_.erase(at);
    }
    at = next;
  }
}

void Exchanges::Fail(const Status& why) {
  for (auto& [key, exchange] : exchanges_) exchange->Fail(why);
}

void Exchanges::Measure(Metrics* metrics) const {
  shard_.counters.Measure(metrics);
  metrics->Add("held_bytes", static_cast<double>(shard_.early_bytes));
}

void Exchanges::FailOne(ByKey::iterator at, const Status& why) {
  NoteEnd(at->first, why);
  at->second->Fail(why);
  exchanges_.erase(at);
}

void Exchanges::NoteEnd(Key key, const Status& outcome) {
  if (ended_.size() >= kMostEnded) {
    ended_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(key);
  ended_.insert_or_assign(key, outcome);
}

void Exchanges::Refuse(const protocol::Call& call, const Status& why) {
  shard_.counters.Refused();
  shard_.send(protocol::MakeErrorResponse(call, why));
}

}  // namespace bs::server
