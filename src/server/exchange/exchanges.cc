// Finds the exchange of each request, begins it with the first, and drops it after the last.
#include "server/exchange/exchanges.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "protocol/describe.h"
#include "protocol/exchange_terms.h"

namespace bs::server {
namespace {

Status WrongCall(const protocol::Call& call, const std::string& what) {
  return Status::InvalidArgument(protocol::DescribeCall(call) + ": " + what);
}

bool HasWorker(const protocol::ExchangeTerms& terms, int32_t rank) {
  return std::ranges::binary_search(terms.givers, rank) ||
         std::ranges::binary_search(terms.takers, rank);
}

}  // namespace

Exchanges::Exchanges(ShardState shard, SendFn send_failure, const protocol::Rules& rules,
                     size_t most_partitions)
    : shard_(std::move(shard)),
      send_failure_(std::move(send_failure)),
      rules_{.wait_for_all_givers = rules.exchanges_wait_for_all_givers(),
             .stay_until_all_takers_have_them = rules.exchanges_stay_until_all_takers_have_them(),
             .compare_terms = rules.exchanges_compare_terms(),
             .count_contributions_once = rules.exchanges_count_contributions_once(),
             .stay_over = rules.exchanges_stay_over()},
      most_partitions_(most_partitions),
      ended_(shard_.view->num_workers()) {
  shard_.counters.Expect(shard_.view->num_workers());
}

void Exchanges::Handle(protocol::Call& call) {
  Exchange* const exchange = Find(call);
  if (exchange == nullptr) return;
  if (const Status wrong = exchange->CheckPlace(call); !wrong.ok()) return Refuse(call, wrong);
  exchange->NoteRequest(call);
  const auto at = exchanges_.find(call.request.key);
  if (const Status* const why = exchange->Blocked()) {
    const Status copy = *why;
    Refuse(call, copy);
    FailOne(at, copy);
    return ended_.NoteRequest(call.request.key, call.worker_rank, call.extension.sequence);
  }
  if (LacksRoom(call, *exchange)) return;
  call.extension.op == ps::Op::kGive ? exchange->Give(call) : exchange->Take(call);
  EndIfOver(at);
}

Exchange* Exchanges::Find(const protocol::Call& call) {
  const Key key = call.request.key;
  const int32_t rank = call.worker_rank;
  if (used_ && rules_.stay_over) ended_.NoteAnswers(rank, call.request.answered_below);
  const auto at = exchanges_.find(key);
  if (at == exchanges_.end()) {
    ended_.NoteRequest(key, rank, call.extension.sequence);
    const Status* const outcome = rules_.stay_over ? ended_.Find(key) : nullptr;
    if (outcome != nullptr) {
      AnswerLate(call, *outcome);
      return nullptr;
    }
    if (ended_.IsAnswered(rank, call.extension.sequence)) {
      AnswerLate(call, Status::Ok());
      return nullptr;
    }
    return Begin(call);
  }
  if (at->second->HasTerms(call)) return at->second.get();
  const Result<protocol::ExchangeTerms> stated = protocol::DecodeTerms(call.request.terms);
  if (!stated.ok()) {
    Refuse(call, WrongCall(call, stated.status().message()));
    return nullptr;
  }
  const Status differs = at->second->Differs(call, stated.value());
  shard_.counters.Refused();
  send_failure_(protocol::MakeErrorResponse(call, differs));
  FailOne(at, differs);
  ended_.NoteRequest(key, rank, call.extension.sequence);
  return nullptr;
}

Result<protocol::ExchangeTerms> Exchanges::TermsOf(const protocol::Call& call) const {
  Result<protocol::ExchangeTerms> terms = protocol::DecodeTerms(call.request.terms);
  if (!terms.ok()) return WrongCall(call, terms.status().message());
  const int32_t workers = shard_.view->num_workers();
  if (terms.value().givers.back() >= workers || terms.value().takers.back() >= workers) {
    return WrongCall(call, "the job has only workers 0 to " + std::to_string(workers - 1));
  }
  return terms;
}

Exchange* Exchanges::Begin(const protocol::Call& call) {
  Result<protocol::ExchangeTerms> terms = TermsOf(call);
  if (!terms.ok()) {
    Refuse(call, terms.status());
    return nullptr;
  }
  if (exchanges_.size() >= kMost) {
    Refuse(call, Status::ResourceExhausted(protocol::DescribeCall(call) +
                                           ": too many exchanges are under way"));
    return nullptr;
  }
  used_ = true;
  auto made = std::make_unique<Exchange>(&shard_, &rules_, &num_partitions_, call,
                                         std::move(terms.value()));
  return exchanges_.emplace(call.request.key, std::move(made)).first->second.get();
}

bool Exchanges::LacksRoom(const protocol::Call& call, const Exchange& exchange) {
  if (num_partitions_ < most_partitions_ || !exchange.IsNew(call.request.partition)) return false;
  Refuse(call, Status::ResourceExhausted(protocol::DescribeCall(call) +
                                         ": the exchanges under way have " +
                                         std::to_string(most_partitions_) + " partitions already"));
  return true;
}

void Exchanges::AnswerLate(const protocol::Call& call, const Status& outcome) {
  if (outcome.ok() && call.extension.op == ps::Op::kGive) {
    return shard_.send(protocol::MakeResponse(call, {}));
  }
  shard_.counters.Refused();
  send_failure_(protocol::MakeErrorResponse(
      call, !outcome.ok() ? outcome
                          : Status::FailedPrecondition(
                                protocol::DescribeCall(call) +
                                ": the exchange is over, and its key cannot be used again")));
}

void Exchanges::Taken(const protocol::Call& call) {
  const Result<std::vector<protocol::TakenPartition>> taken =
      protocol::DecodeTaken(call.request.taken);
  if (!taken.ok()) return Refuse(call, WrongCall(call, taken.status().message()));
  for (const protocol::TakenPartition& partition : taken.value()) {
    const auto at = exchanges_.find(partition.key);
    if (at == exchanges_.end()) continue;
    at->second->Taken(call.worker_rank, partition.partition);
    EndIfOver(at);
  }
  if (used_ && rules_.stay_over) {
    ended_.NoteAnswers(call.worker_rank, call.request.answered_below);
  }
  shard_.send(protocol::MakeResponse(call, {}));
}

void Exchanges::Quit(const protocol::Call& call) {
  const Key key = call.request.key;
  const Result<protocol::ExchangeTerms> terms = TermsOf(call);
  if (!terms.ok()) return Refuse(call, terms.status());
  if (!HasWorker(terms.value(), call.worker_rank)) {
    return Refuse(call, WrongCall(call, "it is no worker of " + protocol::Describe(terms.value())));
  }
  const auto at = exchanges_.find(key);
  // Scripts may differ in the workers of an exchange.
  if (at != exchanges_.end() && !at->second->HasWorker(call.worker_rank)) {
    return Refuse(
        call, Status::FailedPrecondition(protocol::DescribeCall(call) + ": it is no worker of " +
                                         protocol::Describe(at->second->terms())));
  }
  const bool late = call.extension.status == static_cast<uint32_t>(StatusCode::kDeadlineExceeded);
  std::string text = call.extension.text.substr(0, kMostReasonBytes);
  if (at != exchanges_.end()) {
    const std::string missing = at->second->Missing();
    if (!missing.empty()) text += "; missing: " + missing;
  }
  const Status why = late ? Status::DeadlineExceeded(text) : Status::Cancelled(text);
  if (at != exchanges_.end()) {
    FailOne(at, why);
  } else if (ended_.Find(key) == nullptr) {
    ended_.Add(key, why, RequestsOf(terms.value()));
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
    } else {
      EndIfOver(at);
    }
    at = next;
  }
  ended_.OnWorkerGone(rank);
}

void Exchanges::Fail(const Status& why) {
  for (auto& [key, exchange] : exchanges_) exchange->Fail(why, shard_.send);
}

void Exchanges::Measure(Metrics* metrics) const {
  shard_.counters.Measure(metrics);
  metrics->Add("held_bytes", static_cast<double>(shard_.early_bytes));
  metrics->Add("exchanges", static_cast<double>(exchanges_.size()));
  metrics->Add("exchange_partitions", static_cast<double>(num_partitions_));
  metrics->Add("ended_exchanges", static_cast<double>(ended_.size()));
}

void Exchanges::FailOne(ByKey::iterator at, const Status& why) {
  LatestRequests aware = at->second->LatestOfAware();
  at->second->Fail(why, [&](ps::Message refusal) {
    uint64_t& latest = aware[ps::RankOf(refusal.peer)];
    latest = std::max(latest, refusal.meta.extension.sequence);
    send_failure_(std::move(refusal));
  });
  End(at, why, aware);
}

void Exchanges::End(ByKey::iterator at, const Status& outcome, const LatestRequests& latest) {
  ended_.Add(at->first, outcome, latest);
  exchanges_.erase(at);
}

void Exchanges::EndIfOver(ByKey::iterator at) {
  if (at->second->over()) End(at, Status::Ok(), at->second->latest());
}

void Exchanges::Refuse(const protocol::Call& call, const Status& why) {
  shard_.counters.Refused();
  shard_.send(protocol::MakeErrorResponse(call, why));
}

}  // namespace bs::server
