// The codecs of this engine: a row each.
#include "codec/codec.h"
#include "codec/two_bit.h"

namespace bs::codec {

const Table& Builtin() {
  static const Table table({TwoBitCodec()});
  return table;
}

}  // namespace bs::codec
