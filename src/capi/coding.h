// A coding of the C API as the engine has it.
#pragma once

#include "base/status.h"
#include "bytescheduler/c_api.h"
#include "codec/coding.h"

namespace bs::capi {

// kInvalidArgument if it says that it has more parameters than it has room for.
Result<Coding> CodingOf(const bs_coding& coding);

}  // namespace bs::capi
