// The codecs of this engine: a row each.
#include "codec/bf16.h"
#include "codec/codec.h"
#include "codec/dithering.h"
#include "codec/fp16.h"
#include "codec/int8.h"
#include "codec/onebit.h"
#include "codec/randomk.h"
#include "codec/topk.h"
#include "codec/two_bit.h"

namespace bs::codec {

const Table& Builtin() {
  static const Table table({TwoBitCodec(), Fp16Codec(), Bf16Codec(), OnebitCodec(), TopkCodec(),
                            RandomkCodec(), DitheringCodec(), Int8Codec()});
  return table;
}

}  // namespace bs::codec
