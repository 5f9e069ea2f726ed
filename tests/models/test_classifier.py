"""The classifier: edits at points, frozen statistics, and the ways in which algorithms use a network."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from genie_dg._types import Network
from genie_dg.check import InputError
from genie_dg.models._featurizer import Featurizer
from genie_dg.models.classifier import Classifier, build_network
from genie_dg.registry import UnknownName


def images(n: int = 3, channels: int = 3, size: int = 32) -> Tensor:
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))


class Tiny(nn.Module):
    """Two layers, a batch norm and a dropout; small enough to compute by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.second(self.drop(self.norm(self.first(x)))))


def tiny(dropout: float = 0.0, frozen: bool = False, pretrained: bool = False) -> Classifier:
    torch.manual_seed(0)
    points, channels = {"early": "first", "late": "second"}, {"early": 5, "late": 6}
    return Classifier(Featurizer(Tiny(), 6, points, channels, pretrained), 3, dropout, frozen)


def hooks_of(network: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in network.modules())


def test_forward_is_head_of_features() -> None:
    network = build_network("cnn", classes=5, channels=3, image_size=16)
    x = images(size=16)
    assert isinstance(network, Network)
    assert network(x).shape == (3, 5)
    assert torch.equal(network(x), network.head(network.features(x)))
    assert (network.feature_size, network.classes) == (128, 5)
    assert network.points == tuple(network.point_channels)


def test_edits_replace_the_activation() -> None:
    network = tiny().eval()
    net: Any = network.featurizer
    x = torch.randn(7, 4)
    expected = torch.tanh(3 * net.second(net.norm(net.first(x) + 2)))
    edited = network.features(x, {"late": lambda a: 3 * a, "early": lambda a: a + 2})
    assert torch.equal(edited, expected)
    assert not torch.equal(edited, network.features(x))


def test_edits_are_gone_after_use_and_after_an_error() -> None:
    network = tiny().eval()
    x = torch.randn(7, 4)
    before = network(x)
    network.features(x, {"early": lambda a: a + 1})
    assert hooks_of(network) == 0

    def fails(activation: Tensor) -> Tensor:
        raise ArithmeticError("inside")

    with pytest.raises(ArithmeticError, match="inside"):
        network.features(x, {"early": lambda a: a + 1, "late": fails})
    with pytest.raises(UnknownName):
        network.features(x, {"early": lambda a: a + 1, "lat": fails})
    assert hooks_of(network) == 0
    assert torch.equal(network(x), before)


def test_an_unknown_point_names_the_points() -> None:
    with pytest.raises(UnknownName, match=r"'erly'; its points are early, late; did you mean 'early'\?"):
        tiny().features(torch.randn(2, 4), {"erly": lambda a: a})
    bare = Classifier(Featurizer(Tiny(), 6, {}, {}, False), 3)
    with pytest.raises(UnknownName, match=r"its points are none\."):
        bare.features(torch.randn(2, 4), {"early": lambda a: a})


def test_frozen_statistics_stay_while_weights_learn() -> None:
    network, free = tiny(frozen=True), tiny()
    parent = nn.Sequential(network)
    parent.train()
    norm: Any = network.get_submodule("featurizer.norm")
    assert not norm.training
    assert network.training
    assert network.get_submodule("featurizer.drop").training  # only batch norms are frozen
    before = copy.deepcopy(norm.state_dict())
    network(torch.randn(9, 4)).sum().backward()
    assert all(torch.equal(value, before[key]) for key, value in norm.state_dict().items())
    assert norm.weight.grad.abs().sum() > 0
    free.train()(torch.randn(9, 4))
    moved: Any = free.get_submodule("featurizer.norm")
    assert not torch.equal(moved.running_mean, before["running_mean"])
    assert moved.num_batches_tracked == 1


def test_frozen_by_default_when_weights_come_from_a_file(tmp_path: Path) -> None:
    drawn = build_network("resnet18", 2, 3, 32)
    torch.save(drawn.featurizer.state_dict(), tmp_path / "w.pth")
    given = build_network("resnet18", 2, 3, 32, weights=str(tmp_path / "w.pth"))
    lite = build_network("efficientnet_lite0", 2, 3, 32, pretrained=True)
    asked = build_network("efficientnet_lite0", 2, 3, 32, pretrained=True, freeze_statistics=False)
    frozen = build_network("efficientnet_lite0", 2, 3, 32, freeze_statistics=True)
    assert [n.frozen for n in (drawn, given, asked, frozen, lite)] == [False, True, False, True, True]
    assert not given.get_submodule("featurizer.layer4.1.bn2").training
    trained = [n.get_submodule("featurizer.network._bn1").training for n in (lite, asked, frozen)]
    assert trained == [False, True, False]
    x = images()
    assert torch.equal(drawn.eval().features(x), given.features(x))  # the running statistics are used


def test_dropout_belongs_to_the_features() -> None:
    network = build_network("cnn", classes=3, channels=1, image_size=8, dropout=0.5)
    inputs = images(40, channels=1, size=8)
    whole = network.eval().features(inputs)
    network.train()
    torch.manual_seed(0)
    seen = network.features(inputs)
    assert set((seen / whole).detach().round(decimals=4).unique().tolist()) == {0.0, 2.0}
    torch.manual_seed(0)
    assert torch.equal(network(inputs), network.head(seen))


def test_torch_compile_takes_it_in_one_graph() -> None:
    network = build_network("cnn", 3, 1, 8)
    x = images(channels=1, size=8)
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), network(x))


def test_state_dict_round_trip_and_stable_names() -> None:
    network = build_network("resnet18", 2, 3, 32)
    state = network.state_dict()
    names = list(state)
    assert names[0] == "featurizer.conv1.weight"
    assert names[-2:] == ["head.weight", "head.bias"]
    assert len(names) == 122
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other = build_network("resnet18", 2, 3, 32)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = images()
    assert torch.equal(other.eval()(x), network.eval()(x))
    drawn = build_network("efficientnet_lite0", 2, 3, 32).state_dict()
    assert list(drawn) == list(build_network("efficientnet_lite0", 2, 3, 32, pretrained=True).state_dict())
    assert "featurizer.network._conv_stem.weight" in drawn


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"classes": 0}, "got classes=0; expected"),
        ({"dropout": 1.0}, "got dropout=1.0; expected"),
        ({"dropout": -0.1}, "got dropout=-0.1; expected"),
        ({"backbone": "cn"}, "did you mean 'cnn'"),
    ],
)
def test_bad_input(options: dict[str, Any], sentence: str) -> None:
    good: dict[str, Any] = {"backbone": "cnn", "classes": 2, "channels": 1, "image_size": 8}
    with pytest.raises(ValueError, match=sentence):
        build_network(**{**good, **options})


@pytest.mark.parametrize("backbone", ["cnn", "mlp", "resnet18", "efficientnet_lite0"])
def test_everything_up_to_a_frozen_point_stays_and_all_after_it_trains(backbone: str) -> None:
    size, points = (64 if backbone not in ("cnn", "mlp") else 16), 2
    network = build_network(backbone, classes=5, channels=3, image_size=size, freeze=points)
    buffers = {name: b.clone() for name, b in network.named_buffers()}
    seen: list[Tensor] = []
    at = {network.points[points - 1]: lambda x: (seen.append(x), x)[1]}
    features = network.train().features(images(size=size), at)
    assert not seen[0].requires_grad  # nothing before the point trains
    network.head(features).square().sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in network.parameters())
    later = build_network(backbone, classes=5, channels=3, image_size=size, freeze=points - 1)
    frozen = [sum(not p.requires_grad for p in n.parameters()) for n in (later, network)]
    assert 0 < frozen[0] < frozen[1] < len(list(network.parameters()))
    moved = {name for name, b in network.named_buffers() if not torch.equal(b, buffers[name])}
    norms = {name for name, part in network.named_modules() if isinstance(part, nn.BatchNorm2d)}
    still = {name for name in norms if not dict(network.named_modules())[name].training}
    assert {name.rpartition(".")[0] for name in moved} == norms - still
    assert bool(still) == bool(norms)
    assert copy.deepcopy(network).train().state_dict().keys() == network.state_dict().keys()
    copied = copy.deepcopy(network).train()
    assert {name for name, p in copied.named_modules() if name in norms and not p.training} == still


def test_more_points_than_there_are_cannot_be_frozen() -> None:
    with pytest.raises(InputError, match=r"^got freeze=5; expected a whole number from 0 to 4\.$"):
        build_network("cnn", classes=5, channels=3, image_size=16, freeze=5)
    plain = build_network("cnn", classes=5, channels=3, image_size=16, freeze=0)
    assert all(p.requires_grad for p in plain.parameters())
