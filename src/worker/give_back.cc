// Gives keys back to the servers, and takes them again.
//
// Between the two a worker keeps its state of the key, its residual included.  All workers have had
// the same rounds when all of them have given a key back: a worker gives it back behind a round
// that it has the sum of, so every worker has pushed that round, and waits for its sum first.
#include <utility>

#include "protocol/placement.h"
#include "worker/worker_impl.h"

namespace bs {

using protocol::Tensor;
using worker::KeyState;
using worker::Operation;

void Worker::Impl::BeginGiveBack(Key key, KeyState* state, Operation operation) {
  const bool for_good = operation.for_good;
  const bool asks = state->tensor && state->tensor->mode == Mode::kSynchronous && !state->rests();
  auto done = [this, key, state, for_good,
               done = std::move(operation.pulled)](const Status& status) {
    state->asks = false;
    if (done) done(status);
    if (for_good) DropLater(key);
    EndOperation(key, state);
  };
  state->asks = true;
  if (!asks) return executor_->Post([done = std::move(done)]() mutable { done(Status::Ok()); });
  backend_->GiveBack(*state->tensor, ++state->turn,
                     [this, state, done = std::move(done)](const Result<bool>& forgotten) mutable {
                       // A server of an earlier version keeps the key.
                       if (forgotten.status().code() == StatusCode::kInvalidArgument) {
                         ++state->turn;
                         return done(Status::Ok());
                       }
                       if (!forgotten.ok()) return done(FailForGood(forgotten.status()));
                       if (forgotten.value()) ReleaseAll(*state);
                       done(Status::Ok());
                     });
}

void Worker::Impl::ReleaseAll(const KeyState& state) {
  TellLostResidual(state, "all workers have given it back");
  for (const Tensor* const layout : {state.retired.get(), state.tensor.get()}) {
    if (layout == nullptr) continue;
    ++num_open_;
    backend_->Release(*layout, /*given_back=*/true, [this](const Status& status) {
      if (!status.ok()) static_cast<void>(FailForGood(status));
      OperationEnded();
    });
  }
}

void Worker::Impl::DropLater(Key key) {
  ++num_open_;
  executor_->Post([this, key] {
    const auto known = keys_.find(key);
    const bool drops = known != keys_.end() && !known->second.busy() &&
                       known->second.waiting.empty() &&
                       (known->second.rests() || !known->second.tensor);
    if (drops) {
      const bool is_placed = context_.rank() == 0 && known->second.tensor;
      if (is_placed) backend_->Place({}, known->second.tensor->partitions);
      keys_.erase(known);
    }
    OperationEnded();
  });
}

void Worker::Impl::TakeAgain(Key key, KeyState* state) {
  state->asks = true;
  backend_->GiveBack(*state->tensor, ++state->turn,
                     [this, key, state](const Result<bool>& forgotten) {
                       if (forgotten.ok() && forgotten.value()) return DeclareAfresh(key, state);
                       if (!forgotten.ok()) static_cast<void>(FailForGood(forgotten.status()));
                       state->asks = false;
                       Advance(key, state);
                     });
}

void Worker::Impl::DeclareAfresh(Key key, KeyState* state) {
  Tensor tensor = *state->tensor;
  tensor.first_layout = ++tensor.layout_version;
  state->turn = 0;
  state->servers_keep = false;
  state->retired.reset();
  state->new_layout = false;
  const auto end = [this, key, state](const Status& status) {
    if (!status.ok()) static_cast<void>(FailForGood(status));
    state->asks = false;
    Advance(key, state);
  };
  if (context_.rank() != 0) {
    return backend_->Lookup(tensor, [this, state, end](Result<Tensor> found) {
      if (found.ok()) Adopt(state, std::move(found.value()));
      end(found.status());
    });
  }
  const uint64_t partition_bytes =
      state->cut_for_codes ? state->tensor->partition_bytes : PartitionBytes();
  tensor = PartitionAndPlace(std::move(tensor), partition_bytes, state->tensor->partitions);
  Adopt(state, std::move(tensor));
  backend_->Declare(*state->tensor, end);
}

}  // namespace bs
