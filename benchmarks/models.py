"""Layer profiles of known models: bytes of gradient and share of compute, from the architectures.

Sizes are those of float32 parameters, summed per layer in forward order. The share of compute of a
layer is proportional to its multiply-adds.
"""

from typing import Dict, List, NamedTuple


class Layer(NamedTuple):
    """One layer of a profile."""

    name: str
    num_params: int
    compute: float  # multiply-adds of one forward pass of one sample; only ratios matter


def vgg16() -> List[Layer]:
    """VGG-16, configuration D, 224x224 (Simonyan and Zisserman 2015, table 1)."""
    layers = []
    channels, size = 3, 224
    for block, (width, repeats) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for index in range(1, repeats + 1):
            params = 9 * channels * width + width
            layers.append(Layer(f"conv{block}_{index}", params, 9.0 * channels * width * size**2))
            channels = width
        size //= 2
    inputs = channels * size * size
    for name, outputs in (("fc6", 4096), ("fc7", 4096), ("fc8", 1000)):
        layers.append(Layer(name, inputs * outputs + outputs, float(inputs * outputs)))
        inputs = outputs
    return layers


def resnet50() -> List[Layer]:
    """ResNet-50 at 224x224 (He et al. 2016, table 1); batch norm counts with its convolution."""
    layers = [Layer("conv1", 49 * 3 * 64 + 128, 49.0 * 3 * 64 * 112**2)]
    channels, size = 64, 56
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for block in range(1, blocks + 1):
            name = f"conv{stage}_{block}"
            for part, (kernel, inputs, outputs) in enumerate(
                ((1, channels, width), (9, width, width), (1, width, 4 * width)), 1
            ):
                weights = kernel * inputs * outputs
                layers.append(
                    Layer(f"{name}.{part}", weights + 2 * outputs, weights * float(size**2))
                )
            if block == 1:
                weights = channels * 4 * width
                layers.append(
                    Layer(f"{name}.shortcut", weights + 8 * width, weights * float(size**2))
                )
            channels = 4 * width
        size //= 2
    layers.append(Layer("fc", channels * 1000 + 1000, channels * 1000.0))
    return layers


def _attention(name: str, hidden: int, tokens: int) -> List[Layer]:
    """Multi-head attention with its layer norm; query, key and value are one matrix.

    Vaswani et al. 2017, section 3.2; `tokens` in a sample.
    """
    square = hidden * hidden
    return [
        Layer(f"{name}.qkv", 3 * square + 3 * hidden, 3.0 * square * tokens),
        Layer(
            f"{name}.output",
            square + 3 * hidden,
            float(square) * tokens + 2.0 * hidden * tokens * tokens,
        ),
    ]


def _feed_forward(name: str, hidden: int, tokens: int) -> List[Layer]:
    """Two matrices, the inner dimension four times `hidden`, and a layer norm."""
    weights = 4 * hidden * hidden
    return [
        Layer(f"{name}.inner", weights + 4 * hidden, float(weights) * tokens),
        Layer(f"{name}.outer", weights + 3 * hidden, float(weights) * tokens),
    ]


def _blocks(name: str, count: int, hidden: int, tokens: int, attentions: int = 1) -> List[Layer]:
    layers = []
    for block in range(count):
        for index in range(attentions):
            layers += _attention(f"{name}{block}.attention{index}", hidden, tokens)
        layers += _feed_forward(f"{name}{block}", hidden, tokens)
    return layers


def bert(blocks: int, hidden: int) -> List[Layer]:
    """BERT with 30,522 word pieces and 512 tokens (Devlin et al. 2019, section 3).

    Masked words are told by the embedding's matrix, whose gradient is the last to be ready.
    """
    words, tokens = 30522, 512
    square = hidden * hidden
    head = Layer(
        "head",
        2 * square + 4 * hidden + words,  # pooler; transform with its layer norm, bias of the words
        float(square + hidden * words) * 0.15 * tokens,
    )
    embedding = Layer("embedding", (words + tokens + 2 + 2) * hidden, 0.0)
    return [embedding, *_blocks("block", blocks, hidden, tokens), head]


def gpt2() -> List[Layer]:
    """GPT-2 with 12 blocks (Radford et al. 2019, table 2); the output shares the embedding."""
    words, tokens, hidden = 50257, 1024, 768
    head = Layer("norm", 2 * hidden, float(hidden * words) * tokens)
    embedding = Layer("embedding", (words + tokens) * hidden, 0.0)
    return [embedding, *_blocks("block", 12, hidden, tokens), head]


def transformer() -> List[Layer]:
    """Return the base Transformer (Vaswani et al. 2017, table 3): encoder, then decoder.

    One embedding serves both sides and the output.
    """
    words, tokens, hidden = 37000, 64, 512
    decoder = _blocks("decoder", 6, hidden, tokens, attentions=2)
    decoder[-1] = decoder[-1]._replace(compute=decoder[-1].compute + hidden * words * tokens)
    embedding = Layer("embedding", words * hidden, 0.0)
    return [embedding, *_blocks("encoder", 6, hidden, tokens), *decoder]


def uniform() -> List[Layer]:
    """Twenty equal layers."""
    return [Layer(f"layer{i}", 1 << 20, 1.0) for i in range(20)]


MODELS: Dict[str, List[Layer]] = {
    "vgg16": vgg16(),
    "resnet50": resnet50(),
    "bert-base": bert(12, 768),
    "bert-large": bert(24, 1024),
    "gpt2": gpt2(),
    "transformer": transformer(),
    "uniform": uniform(),
}


class Step(NamedTuple):
    """A profile scaled to a link: what a worker replays."""

    name: str
    size_bytes: int
    forward_s: float
    backward_s: float


def scaled(model: str, scale: int, compute_s: float) -> List[Step]:
    """Return the profile with parameters divided by `scale` and `compute_s` of compute in all.

    Backward takes twice as long as forward.
    """
    layers = MODELS[model]
    total = sum(layer.compute for layer in layers)
    return [
        Step(
            layer.name,
            4 * max(1, layer.num_params // scale),
            compute_s / 3 * layer.compute / total,
            compute_s * 2 / 3 * layer.compute / total,
        )
        for layer in layers
    ]


def ideal_s(steps: List[Step], bytes_per_s: float) -> float:
    """Return the shortest possible time of a step over a fluid link with perfect preemption.

    T* = max(C, max_k [S_k / B + sum over j >= k of (f_j + b_j)]): from the end of layer k's
    backward until its next forward, layers 0..k must cross the link; the rest is compute.
    """
    best = sum(step.forward_s + step.backward_s for step in steps)
    crossed = 0
    for k, step in enumerate(steps):
        crossed += step.size_bytes
        rest = sum(s.forward_s + s.backward_s for s in steps[k:])
        best = max(best, crossed / bytes_per_s + rest)
    return best
