"""Which radius of SAM this network bears: training loss around Adam and SGD, and a SAM written out by hand.

    python studies/pacs/sam_radius.py FOLDER [--steps 40]

FOLDER holds PACS. Batches of 8 pictures of three domains in an order of their own, one seed, no augmentation;
a line has the mean loss of ten steps each. It decided the range of `rho` in protocol.toml (plan.md).
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.functional import normalize, resize

from genie_dg.models.classifier import build_network
from genie_dg.optim import SAM

DOMAINS = ("photo", "art_painting", "cartoon")
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def batch(root: Path, classes: list[str], draw: random.Random) -> tuple[Tensor, Tensor]:
    images, labels = [], []
    for domain in DOMAINS:
        for _ in range(8):
            label = draw.randrange(len(classes))
            file = draw.choice(sorted((root / domain / classes[label]).iterdir()))
            pixels = resize(decode_image(str(file), ImageReadMode.RGB), [64, 64], antialias=True)
            images.append(normalize(pixels / 255, MEAN, STD))
            labels.append(label)
    return torch.stack(images), torch.tensor(labels)


def step_by_hand(network: nn.Module, base: torch.optim.Optimizer, rho: float, x: Tensor, y: Tensor) -> float:
    """Foret et al.'s two passes, without the package."""
    weights = [p for p in network.parameters() if p.requires_grad]
    loss = cross_entropy(network(x), y)
    gradients = torch.autograd.grad(loss, weights)
    length = torch.sqrt(sum((g * g).sum() for g in gradients))  # type: ignore[arg-type]
    with torch.no_grad():
        for p, g in zip(weights, gradients, strict=True):
            p.add_(g * (rho / length))
    base.zero_grad()
    cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for p, g in zip(weights, gradients, strict=True):
            p.sub_(g * (rho / length))
    base.step()
    return loss.item()


def losses(root: Path, base_name: str, rho: float, by_hand: bool, steps: int) -> list[float]:
    torch.manual_seed(0)
    draw, classes = random.Random(1), sorted(path.name for path in (root / DOMAINS[0]).iterdir())
    network = build_network("efficientnet_lite0", len(classes), 3, 64, pretrained=True)
    network.train()
    base: torch.optim.Optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    if base_name == "sgd":
        base = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    sam, found = SAM(base, rho=rho), []
    for _ in range(steps):
        x, y = batch(root, classes, draw)

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            base.zero_grad()
            loss = cross_entropy(network(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        found.append(step_by_hand(network, base, rho, x, y) if by_hand else sam.step(closure).item())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    given = parser.parse_args()
    for base, rho, by_hand in (
        ("adam", 0.0, False),
        ("adam", 0.005, False),
        ("adam", 0.05, False),
        ("adam", 0.05, True),
        ("sgd", 0.05, False),
    ):
        found = losses(given.folder / "PACS", base, rho, by_hand, given.steps)
        tens = [found[k : k + 10] for k in range(0, len(found), 10)]
        told = " ".join(f"{sum(ten) / len(ten):.2f}" for ten in tens)
        print(f"{base:5} rho {rho:<6} {'by hand' if by_hand else 'package':8} {told}", flush=True)


if __name__ == "__main__":
    main()
