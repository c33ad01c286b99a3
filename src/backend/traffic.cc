// Names the numbers of a destination's traffic.
#include "backend/traffic.h"

#include <chrono>
#include <string>

namespace bs::backend {

void AddTraffic(const Traffic& traffic, uint32_t destination, Metrics* metrics) {
  const auto server = static_cast<int32_t>(destination);
  const auto direction = [&](const std::string& name, const Traffic::Direction& counted) {
    metrics->Add(name + "ed_partitions_total", server, static_cast<double>(counted.partitions));
    metrics->Add(name + "ed_bytes_total", server, static_cast<double>(counted.bytes));
    metrics->Add(name + "_seconds_total", server,
                 std::chrono::duration<double>(counted.time).count());
  };
  direction("push", traffic.pushed);
  direction("pull", traffic.pulled);
  metrics->Add("repeats_total", server, static_cast<double>(traffic.repeats));
}

}  // namespace bs::backend
