"""Layer profiles of known models: bytes of gradient and share of compute, from the architectures.

Sizes are those of float32 parameters, summed per layer in forward order. The share of compute of a
layer is proportional to its multiply-adds.
"""

from itertools import accumulate
from typing import Dict, List, NamedTuple, Sequence

__all__ = ["MODELS", "Layer", "Step", "ideal_s", "no_overlap_s", "scaled", "shortest_s"]


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


def uniform() -> List[Layer]:
    """Twenty equal layers."""
    return [Layer(f"layer{i}", 1 << 20, 1.0) for i in range(20)]


def _blocks(count: int, width: int) -> List[Layer]:
    """Return transformer blocks whose feed-forward part is four times as wide."""
    layers = []
    for block in range(count):
        attention, wide = 4 * width * width, 4 * width * width
        layers += [
            Layer(f"block{block}.attention", attention + 6 * width, float(attention)),
            Layer(f"block{block}.up", wide + 4 * width, float(wide)),
            Layer(f"block{block}.down", wide + 3 * width, float(wide)),
        ]
    return layers


def bert(count: int, width: int) -> List[Layer]:
    """BERT (Devlin et al. 2019): 30,522 words, 512 places, 2 segments; without its output."""
    embedding = (30522 + 512 + 2) * width + 2 * width
    pooler = Layer("pooler", width * width + width, 0.0)
    return [Layer("embedding", embedding, 0.0), *_blocks(count, width), pooler]


def gpt2() -> List[Layer]:
    """GPT-2, 124 M (Radford et al. 2019): its output shares the weights of the embedding."""
    words, width = 50257, 768
    output = Layer("norm", 2 * width, float(words * width))
    return [Layer("embedding", (words + 1024) * width, 0.0), *_blocks(12, width), output]


def transformer() -> List[Layer]:
    """Return Transformer-base (Vaswani et al. 2017): 37,000 words, weights shared with the output.

    The decoder's blocks have a second attention.
    """
    words, width = 37000, 512
    layers = [Layer("embedding", words * width, 0.0), *_blocks(6, width)]
    cross = 4 * width * width
    for index, layer in enumerate(_blocks(6, width)):
        layers.append(layer._replace(name=f"decoder.{layer.name}"))
        if index % 3 == 0:
            name = f"decoder.block{index // 3}.cross"
            layers.append(Layer(name, cross + 6 * width, float(cross)))
    return [*layers, Layer("norm", 2 * width, float(words * width))]


MODELS: Dict[str, List[Layer]] = {
    "bert-base": bert(12, 768),
    "bert-large": bert(24, 1024),
    "gpt2": gpt2(),
    "resnet50": resnet50(),
    "transformer": transformer(),
    "uniform": uniform(),
    "vgg16": vgg16(),
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


def ideal_s(steps: Sequence[Step], bytes_per_s: float) -> float:
    """Return the shortest possible time of a step over a fluid link with perfect preemption.

    T* = max(C, max_k [S_k / B + sum over j >= k of (f_j + b_j)]): from the end of layer k's
    backward until its next forward, layers 0..k must cross the link; the rest is compute. B is how
    much of the model crosses the busiest link in a second, both ways at once (links.py). All
    workers are at the same place of the step, and servers take no time.
    """
    return shortest_s(
        steps, [crossed / bytes_per_s for crossed in accumulate(step.size_bytes for step in steps)]
    )


def shortest_s(steps: Sequence[Step], crossed_s: Sequence[float]) -> float:
    """Return the same where layers 0..k take the links `crossed_s` of k."""
    rest = sum(step.forward_s + step.backward_s for step in steps)
    best = rest
    for step, seconds in zip(steps, crossed_s):
        best = max(best, seconds + rest)
        rest -= step.forward_s + step.backward_s
    return best


def no_overlap_s(steps: Sequence[Step], bytes_per_s: float) -> float:
    """Return the time of a step that computes, then pushes everything, then pulls everything.

    Links let all workers push `bytes_per_s` of the model, or pull as many.
    """
    compute = sum(step.forward_s + step.backward_s for step in steps)
    return compute + 2 * sum(step.size_bytes for step in steps) / bytes_per_s
