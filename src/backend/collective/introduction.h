// Introduce: brings a few bytes of each rank to all ranks, before a library connects them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "base/unique_function.h"

namespace bs::backend::collective {

// The key under which ranks introduce themselves; no user has it.
inline constexpr Key kIntroductionKey = UINT64_MAX;

// Sends `card` through `servers` to all ranks, and returns the cards of all, by rank.  All ranks
// call it, once, with cards of the same size.  `servers` stays valid until `done`.
using Cards = std::vector<std::string>;
void Introduce(Backend* servers, int32_t rank, int32_t num_ranks, const std::string& card,
               UniqueFunction<void(const Result<Cards>&)> done);

}  // namespace bs::backend::collective
