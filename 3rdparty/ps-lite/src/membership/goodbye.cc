// Reads a place and makes the messages.
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

bs::Result<Goodbye> Goodbye::From(const std::string& place, const std::string& reason) {
  std::istringstream words(place);
  Goodbye goodbye;
  MemberBody body;
  if (!(words >> goodbye.id >> body.job >> body.incarnation) || !(words >> std::ws).eof()) {
    return bs::Status::InvalidArgument("no place in a job: \"" + place + "\"");
  }
  goodbye.message = {.peer = kSchedulerId,
                     .meta = NativeControl(Command::kNone, Op::kLeave, kLastSequence)};
  goodbye.message.meta.extension.body = Encode(body);
  if (!reason.empty()) {
    SetStatus(LeftStatus(goodbye.id, ShortReason(reason)), &goodbye.message.meta.extension);
  }
  return goodbye;
}

Message Vouch(int32_t workers, uint64_t token) {
  // A stock scheduler node drops an ACK.
  Message message{.peer = kSchedulerId, .meta = NativeControl(Command::kAck, Op::kVouch, token)};
  MemberBody body;
  body.rank = workers;
  message.meta.extension.body = Encode(body);
  return message;
}

}  // namespace ps
