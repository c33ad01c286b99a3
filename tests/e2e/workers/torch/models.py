"""A small model with all that makes waiting for weights hard, and its batches."""

from typing import Callable, Dict, List

import torch
from torch import nn

Optimizer = torch.optim.Optimizer
Make = Callable[[nn.Module], Optimizer]
WORDS = 12
WIDTH = 8


class Model(nn.Module):
    """Tied embedding, convolution with batch norm, attention, an unused and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.attention = nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True)
        self.unused = nn.Linear(3, 3)
        self.sometimes = nn.Linear(WIDTH, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(WIDTH))  # of a module that has children
        self.out = nn.Linear(WIDTH, WORDS)
        self.out.weight = self.embedding.weight
        self.takes = True

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        x = self.norm(self.conv(x.transpose(1, 2)).relu()).transpose(1, 2)
        x = self.attention(x) * self.scale
        if self.takes:
            x = x + self.sometimes(x).tanh()
        return self.out(self.frozen(x))


def new_model() -> Model:
    torch.manual_seed(3)
    return Model()


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, WORDS, (4, 6), generator=generator)


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    words = batch(step, rank)
    return nn.functional.cross_entropy(model(words[:, :-1]).transpose(1, 2), words[:, 1:])


def groups(model: nn.Module) -> List[Dict[str, object]]:
    """Two groups: biases and norms without decay."""
    params = list(model.parameters())
    return [
        {"params": [p for p in params if p.dim() > 1]},
        {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0, "lr": 0.02},
    ]


OPTIMIZERS: Dict[str, Make] = {
    "sgd": lambda m: torch.optim.SGD(
        m.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-3
    ),
    "adam": lambda m: torch.optim.Adam(m.parameters(), 0.01),
    "adamw": lambda m: torch.optim.AdamW(groups(m), 0.01, weight_decay=0.1),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), 0.01, momentum=0.5),
    "adagrad": lambda m: torch.optim.Adagrad(m.parameters(), 0.05),
    "fused adam": lambda m: torch.optim.Adam(m.parameters(), 0.01, fused=True),
    "foreach sgd": lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, foreach=True),
}


def same(one: object, other: object) -> bool:
    """Return whether two nested values are equal, bit for bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
