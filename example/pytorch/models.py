"""Well-known networks in plain PyTorch, with no weights to fetch."""

from typing import Callable, Dict, List, NamedTuple, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's habit
from torch import nn

__all__ = ["GPT2", "MODELS", "Bert", "ResNet50", "Sizes", "lenet", "mlp", "vgg16"]


class Sizes(NamedTuple):
    """The dimensions of a transformer."""

    words: int
    places: int
    width: int
    heads: int
    layers: int


GPT2_124M = Sizes(words=50257, places=1024, width=768, heads=12, layers=12)
BERT_LARGE = Sizes(words=30522, places=512, width=1024, heads=16, layers=24)


def mlp(pixels: int) -> nn.Sequential:
    """Return a perceptron for square images of one channel and ten classes."""
    sizes = (pixels * pixels, 256, 128)
    hidden = [(nn.Linear(a, b), nn.ReLU()) for a, b in zip(sizes, sizes[1:])]
    layers = [layer for pair in hidden for layer in pair]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(128, 10))


def lenet(pixels: int) -> nn.Sequential:
    """Return a small convolutional network for the same.

    Kernels of 3x3 with padding let images of 8x8 survive two poolings.
    """
    side = pixels // 4
    return nn.Sequential(
        nn.Conv2d(1, 20, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * side * side, 500),
        nn.Tanh(),
        nn.Linear(500, 10),
    )


def vgg16(classes: int = 1000) -> nn.Sequential:
    """Return VGG-16, configuration D (Simonyan and Zisserman 2015, table 1)."""
    layers: List[nn.Module] = []
    channels = 3
    for width, repeats in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(repeats):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    layers += [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, classes))


class _Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50 (He et al. 2016, table 1), or one with fewer blocks, for images of few channels."""

    def __init__(
        self, classes: int = 1000, counts: Sequence[int] = (3, 4, 6, 3), inputs: int = 3
    ) -> None:
        super().__init__()
        stem = [
            nn.Conv2d(inputs, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
        ]
        blocks: List[nn.Module] = []
        channels = 64
        for stage, (width, count) in enumerate(zip((64, 128, 256, 512), counts)):
            for block in range(count):
                stride = 2 if stage and block == 0 else 1
                blocks.append(_Bottleneck(channels, width, stride))
                channels = 4 * width
        self.body = nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of each image's classes."""
        return self.classifier(self.body(x).mean((2, 3)))


class _Attention(nn.Module):
    """Attention of several heads; with `causal` each place sees those before it."""

    def __init__(self, sizes: Sizes, causal: bool) -> None:
        super().__init__()
        self._heads, self._causal = sizes.heads, causal
        self.inputs = nn.Linear(sizes.width, 3 * sizes.width)
        self.output = nn.Linear(sizes.width, sizes.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each place sees."""
        batch, places, width = x.shape
        shape = (batch, places, self._heads, width // self._heads)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.inputs(x).split(width, 2)
        )
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=self._causal)
        return self.output(seen.transpose(1, 2).reshape(batch, places, width))


class _Block(nn.Module):
    """A transformer block: norms before the parts, as in GPT-2, or behind them, as in BERT."""

    def __init__(self, sizes: Sizes, causal: bool) -> None:
        super().__init__()
        self._norm_first = causal
        self.norm1, self.norm2 = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)
        self.attention = _Attention(sizes, causal)
        self.up = nn.Linear(sizes.width, 4 * sizes.width)
        self.down = nn.Linear(4 * sizes.width, sizes.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        if self._norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.down(F.gelu(self.up(self.norm2(x))))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class _Transformer(nn.Module):
    """Embeddings, blocks, and an output that shares the weights of the embedding."""

    def __init__(self, sizes: Sizes, causal: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.places = nn.Embedding(sizes.places, sizes.width)
        self.blocks = nn.ModuleList(_Block(sizes, causal) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.output = nn.Linear(sizes.width, sizes.words, bias=False)
        self.apply(_small_weights)
        self.output.weight = self.words.weight  # tied

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of the word at each place."""
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x))


def _small_weights(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)


class GPT2(_Transformer):
    """GPT-2 (Radford et al. 2019); 124 M parameters unless sizes say otherwise."""

    def __init__(self, sizes: Sizes = GPT2_124M) -> None:
        super().__init__(sizes, causal=True)


class Bert(_Transformer):
    """BERT (Devlin et al. 2019) with its masked-word output; large unless sizes say otherwise."""

    def __init__(self, sizes: Sizes = BERT_LARGE) -> None:
        super().__init__(sizes, causal=False)


MODELS: Dict[str, Callable[[], nn.Module]] = {
    "bert": Bert,
    "gpt2": GPT2,
    "resnet50": ResNet50,
    "vgg16": vgg16,
}
