// The copies of a large tensor that cross the links of a job's hosts, in words.
//
// Pure functions, thread-safe.
#pragma once

#include <string>

#include "config/config.h"
#include "job/view.h"

namespace bs::node {

struct StockWorkers {
  bool beside = false;  // in this worker's process
  bool in_job = false;  // anywhere
};

// Why the workers of a host do not add up although BYTESCHEDULER_LOCAL_SUMS is 1; empty: they do
// where a host has several.
std::string WhyCopyAWorker(const Config& config, const StockWorkers& stock);

// The log's line on a job of several hosts; `why` is that of WhyCopyAWorker.
std::string DescribeCopies(const job::View& view, const std::string& why);

}  // namespace bs::node
