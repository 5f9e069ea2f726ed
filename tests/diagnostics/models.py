"""The three networks that every instrument is held against its twin on, with data and a loss."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SAMPLES = 12


class Case(NamedTuple):
    model: nn.Module
    data: tuple[Tensor, Tensor]


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The mean cross entropy of a batch."""
    return F.cross_entropy(model(x), y)


class Mlp(nn.Module):
    """A frozen first layer, dropout, and one weight matrix used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.stem.requires_grad_(False)
        self.shared = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        x = torch.tanh(self.shared(x))
        x = self.dropout(torch.tanh(self.shared(x)))
        out: Tensor = self.head(x)
        return out


class Cnn(nn.Module):
    """Strides, padding, dilation, groups and batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.two = nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2, bias=False)
        self.three = nn.Conv2d(6, 4, 1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm(self.one(x)))
        x = F.silu(self.three(F.silu(self.two(x))))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


class Transformer(nn.Module):
    """One encoder layer over eight tokens; the embedding is also the output matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 8)
        self.place = nn.Parameter(torch.randn(6, 8) * 0.3)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, activation="gelu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(self.embed(x) + self.place)
        return x.mean(1) @ self.embed.weight.T


def mlp(dtype: torch.dtype = torch.float64, samples: int = SAMPLES) -> Case:
    torch.manual_seed(1)
    return Case(Mlp().to(dtype), (torch.randn(samples, 6, dtype=dtype), torch.arange(samples) % 3))


def cnn(dtype: torch.dtype = torch.float64, samples: int = SAMPLES) -> Case:
    torch.manual_seed(2)
    model = Cnn().to(dtype)
    x = torch.randn(samples, 2, 9, 9, dtype=dtype)
    model.train()(x)  # running statistics that are not the initial ones
    return Case(model, (x, torch.arange(samples) % 3))


def transformer(dtype: torch.dtype = torch.float64, samples: int = SAMPLES) -> Case:
    torch.manual_seed(3)
    return Case(Transformer().to(dtype), (torch.randint(0, 5, (samples, 6)), torch.arange(samples) % 5))


CASES = {"mlp": mlp, "cnn": cnn, "transformer": transformer}
