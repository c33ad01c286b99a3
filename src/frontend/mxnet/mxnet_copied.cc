// Copied rounds: the value is copied where it can be read, the sum where it is wanted.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include "frontend/mxnet/mxnet_round.h"

namespace bs::mxnet {

void Round::Copy() {
  if (!push.problem.empty()) return;
  const Functions& mxnet = plugin->mxnet;
  Functions::Owned plain(nullptr, mxnet.free_array);
  try {
    if (!copy) {
      copy = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
      plugin->copied_bytes += size_bytes;
    }
    if (mxnet.is_blocked(ChunkOf(value.get()))) {
      plain.reset(new PlainArray(mxnet.plain_copy(value.get())));
    }
    if (mxnet.get_data(plain ? plain.get() : value.get(), &push.data) != 0) {
      push.problem = std::string("cannot push: ") + mxnet.last_error();
    }
  } catch (...) {  // no memory; or MXNet's own, whose types are not ours
    push.problem = "cannot push: the array cannot be copied";
  }
  if (!push.problem.empty()) return FailJob(push);
  std::memcpy(copy.get(), push.data, size_bytes);
  push.data = copy.get();
  value.reset();
  has_copied = true;
  push.Complete(nullptr);
}

void Round::RunOut() {
  const Functions& mxnet = plugin->mxnet;
  try {
    void* const chunk = ChunkOf(out.get());
    if (mxnet.is_blocked(chunk)) mxnet.make_default(chunk);
    if (mxnet.get_data(out.get(), &copy_out.data) != 0) copy_out.problem = mxnet.last_error();
  } catch (...) {  // MXNet's own, whose types are not ours
    copy_out.problem = "the array has a layout that cannot be changed";
  }
  if (copy_out.problem.empty() && copy_out.data == nullptr) {
    copy_out.problem = "the array has no memory";
  }
  out.reset();  // MXNet frees the memory behind its operations on it
  if (!copy_out.problem.empty()) {
    out_state = Out::kSkipped;
    const dmlc::Error error("bytescheduler: cannot copy the sum of key " + name +
                            " out: " + copy_out.problem);
    return copy_out.Complete(&error);
  }
  if (out_state.exchange(Out::kRan) == Out::kSumIsThere) CopyOut(copy.get());
}

void Round::EndOut() {
  if (out_state == Out::kRan) return CopyOut(pull.data);
  // The stage is the next round's soon.
  if (failure_code == 0) std::memcpy(copy.get(), pull.data, size_bytes);
  if (out_state.exchange(Out::kSumIsThere) == Out::kRan) CopyOut(copy.get());
}

}  // namespace bs::mxnet
