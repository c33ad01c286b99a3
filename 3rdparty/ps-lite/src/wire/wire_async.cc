// Fields 120 to 124 of PBMeta.
#include "wire/wire_async.h"

namespace ps {
namespace {

enum Field : protozero::pbf_tag_type {
  kMode = 120,
  kLearningRate = 121,
  kWeightDecay = 122,
  kRescaleGrad = 123,
  kHosted = 124,
};

}  // namespace

void EncodeAsyncFields(const Extension& extension, protozero::pbf_writer* out) {
  if (extension.mode != 0) out->add_uint32(kMode, extension.mode);
  if (extension.learning_rate) out->add_double(kLearningRate, *extension.learning_rate);
  if (extension.weight_decay) out->add_double(kWeightDecay, *extension.weight_decay);
  if (extension.rescale_grad) out->add_double(kRescaleGrad, *extension.rescale_grad);
  if (extension.hosted) out->add_bool(kHosted, true);
}

bool ParseAsyncField(protozero::pbf_reader* in, Extension* extension) {
  switch (in->tag_and_type()) {
    case Varint(kMode):
      extension->mode = in->get_uint32();
      return true;
    case Fixed64(kLearningRate):
      extension->learning_rate = in->get_double();
      return true;
    case Fixed64(kWeightDecay):
      extension->weight_decay = in->get_double();
      return true;
    case Fixed64(kRescaleGrad):
      extension->rescale_grad = in->get_double();
      return true;
    case Varint(kHosted):
      extension->hosted = GetBool(in);
      return true;
    default:
      return false;
  }
}

}  // namespace ps
