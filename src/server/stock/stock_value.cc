// The value of one key of stock workers: answers, sums, updates.
#include "server/stock/stock_value.h"

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "reduce/reduce.h"

namespace bs::server {
namespace {

// Read by bytescheduler/mxnet/_optimizer/server_updates.py.  A dense array needs nothing: it is
// flat, as on a stock server.
std::string AboutOf(uint64_t key, const StockShape& shape) {
  if (!shape.rows) return "";
  const uint64_t row_length = shape.row_bytes / SizeOf(shape.dtype);
  return "{\"key\":" + std::to_string(key) + ",\"shape\":[" + std::to_string(shape.num_rows) + "," +
         std::to_string(row_length) + "],\"rows\":true}";
}

}  // namespace

StockValue::StockValue(Place place, uint64_t key, const StockShape& shape)
    : place_(place),
      key_(key),
      shape_(shape),
      about_(AboutOf(key, shape)),
      value_(Make(shape.num_elements(), shape.dtype)) {}

StockValue::Memory StockValue::Make(uint64_t num_elements, DType dtype) const {
  return std::make_shared<SumBuffer>(num_elements * SizeOf(dtype), place_.numa_node,
                                     place_.view->num_workers());
}

void StockValue::Initialise(const StockCall& call, float threshold) {
  TakeInit(shape_, call, threshold, value_->data());
}

void StockValue::Prepare(bool wide, StockGradient* gradient) const {
  const bool widens = wide && shape_.dtype == DType::kFloat16;
  const DType dtype = widens ? DType::kFloat32 : shape_.dtype;
  if (!gradient->memory || gradient->memory->InFlight() || gradient->sum.dtype != dtype) {
    gradient->memory = Make(SumElements(shape_), dtype);
  }
  gradient->sum = {.dtype = dtype, .data = gradient->memory->data(), .empty = true};
}

void StockValue::Replace(StockGradient* sum) {
  weights_.reset();  // an update that comes later starts from this value
  const bool wide = sum->sum.dtype != shape_.dtype;
  if (!wide && !shape_.rows) return std::swap(value_, sum->memory);
  Take(sum->memory->data(), wide);
}

void StockValue::Take(const std::byte* from, bool wide) {
  if (value_->InFlight()) value_ = Make(shape_.num_elements(), shape_.dtype);
  if (wide) {
    const auto* const elements = reinterpret_cast<const float*>(from);
    reduce::Narrow({value_->data(), shape_.size_bytes}, {elements, shape_.num_elements()});
  } else if (shape_.size_bytes > 0) {
    reduce::Copy(value_->data(), from, shape_.size_bytes);
  }
}

uint64_t StockValue::UpdateBytes(bool wide) const {
  if (!wide && !shape_.rows) return spare_ ? 0 : shape_.size_bytes;
  return weights_ && weights_wide_ == wide ? 0 : SumBytes(shape_, wide);
}

// Memory that no answer shows, for the weights to come.
void StockValue::PrepareWeights(bool wide) {
  if (!wide && !shape_.rows) {
    if (!spare_ || spare_->InFlight()) spare_ = Make(shape_.num_elements(), shape_.dtype);
    return;
  }
  if (weights_ && weights_wide_ == wide) return;
  weights_ = Make(SumElements(shape_), wide ? DType::kFloat32 : shape_.dtype);
  weights_wide_ = wide;
  if (wide) {
    reduce::Widen({reinterpret_cast<float*>(weights_->data()), shape_.num_elements()},
                  {value_->data(), shape_.size_bytes});
  }
}

void StockValue::Update(HostedUpdates* hosted, const HostedUpdates::Optimizer& optimizer,
                        const StockGradient& gradient, Executor* back, Done done) {
  const DType dtype = gradient.sum.dtype;
  const bool wide = dtype != shape_.dtype;
  PrepareWeights(wide);
  const bool in_spare = !wide && !shape_.rows;
  auto job =
      std::make_unique<Job>(Job{about_, gradient, value_, in_spare ? spare_ : weights_, wide});
  const uint64_t size_bytes = SumElements(shape_) * SizeOf(dtype);
  const ServerUpdate update{.key = key_,
                            .about = job->about,
                            .dtype = dtype,
                            .gradient = {job->gradient.memory->data(), size_bytes},
                            .weights = {job->after->data(), size_bytes},
                            .rates = {}};
  // Wide weights are their own state: the value is rounded from them.
  const std::span<const std::byte> before(job->before->data(), wide ? 0 : shape_.size_bytes);
  hosted->Update(optimizer, update, before, back,
                 [this, job = std::move(job), done = std::move(done)](Status status) {
                   if (status.ok()) Publish(*job);
                   done(std::move(status));
                 });
}

void StockValue::Publish(const Job& job) {
  if (job.after == weights_) return Take(weights_->data(), job.wide);
  spare_ = std::exchange(value_, job.after);
}

ps::Message StockValue::Answer(StockCall* call) const {
  if (!call->pull) return MakeStockAnswer(call, ps::Frame());
  if (call->layout != StockLayout::kRows) {
    return MakeStockAnswer(call, SumBuffer::MakeFrame(value_, call->worker_rank));
  }
  const uint64_t row_length = shape_.row_bytes / SizeOf(shape_.dtype);
  ps::Frame rows = GatherRows(*call);
  return MakeStockRowsAnswer(call, std::move(rows), static_cast<uint32_t>(row_length));
}

ps::Frame StockValue::GatherRows(const StockCall& call) const {
  const uint64_t row_bytes = shape_.row_bytes;
  auto rows = std::make_unique<std::vector<std::byte>>(call.num_rows() * row_bytes);
  for (size_t i = 0; i < call.num_rows() && row_bytes > 0; ++i) {
    std::memcpy(rows->data() + i * row_bytes, value_->data() + call.row(i) * row_bytes, row_bytes);
  }
  const std::span<const std::byte> bytes(*rows);
  return ps::Frame::Borrow(bytes, [rows = std::move(rows)] {});
}

}  // namespace bs::server
