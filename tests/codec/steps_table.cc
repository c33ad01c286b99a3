// The codecs of a program with one more than the engine has: linked in place of codec/builtin.cc.
#include "codec/codec.h"
#include "codec/steps_codec.h"
#include "codec/two_bit.h"

namespace bs::codec {

const Table& Builtin() {
  static const Table table({TwoBitCodec(), testing::StepsCodec()});
  return table;
}

}  // namespace bs::codec
