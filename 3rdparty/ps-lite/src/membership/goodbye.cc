// Reads a place and makes the message.
#include "membership/goodbye.h"

#include <limits>
#include <sstream>

#include "membership/control_body.h"
#include "wire/control.h"

namespace ps {
namespace {

// Behind all numbers of the node's own, so that it is no repeat.
constexpr uint64_t kLastSequence = std::numeric_limits<uint32_t>::max();

}  // namespace

std::string PlaceOf(const View& view) {
  return std::to_string(view.own_id) + " " + std::to_string(view.job) + " " +
         std::to_string(view.incarnation);
}

bs::Result<Goodbye> Goodbye::From(const std::string& place) {
  std::istringstream words(place);
  Goodbye goodbye;
  MemberBody body;
  if (!(words >> goodbye.id >> body.job >> body.incarnation) || !(words >> std::ws).eof()) {
    return bs::Status::InvalidArgument("no place in a job: \"" + place + "\"");
  }
  goodbye.message = {.peer = kSchedulerId,
                     .meta = NativeControl(Command::kNone, Op::kLeave, kLastSequence)};
  goodbye.message.meta.extension.body = Encode(body);
  return goodbye;
}

}  // namespace ps
