"""Evaluation equals torchvision's to the bit, with and without cache; training can be repeated and resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from genie_dg.data.augment import Recipe
from genie_dg.data.cache import EvalSpec, TrainSpec, open_cache
from genie_dg.data.domains import DataError, FileDomain, TensorDomain
from genie_dg.data.image_folders import DataWarning, open_folder
from genie_dg.data.loaders import Evaluation, Training, ahead
from genie_dg.data.place import Workers
from genie_dg.data.splits import Sampler
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
from tests.data.pictures import KINDS, folder, write

FINISH = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]


@pytest.fixture
def kinds(tmp_path: Path) -> FileDomain:
    """One picture of each kind: JPEG, PNG, grayscale, palette, CMYK, EXIF-rotated, RGBA and others."""
    for i, (name, mode) in enumerate(KINDS):
        write(tmp_path / "set" / "d" / "c" / name, i, mode)
    with pytest.warns(DataWarning):
        domain = open_folder(tmp_path / "set").domains[0]
    assert isinstance(domain, FileDomain)
    return domain


def test_evaluation_is_torchvisions_to_the_bit(kinds: FileDomain, tmp_path: Path) -> None:
    twin = ImageFolder(str(kinds.root), T.Compose([T.Resize((48, 48)), *FINISH]))
    wanted = torch.stack([twin[i][0] for i in range(len(twin))])
    cache = open_cache(kinds, EvalSpec(48), tmp_path / "cache")
    for given in (None, cache):
        batches = list(Evaluation(kinds, size=48, batch_size=5, cache=given))
        assert [len(x) for x, _ in batches] == [5, 5, 2]
        assert torch.equal(torch.cat([x for x, _ in batches]), wanted)
        assert torch.cat([y for _, y in batches]).tolist() == twin.targets


def training(root: Path, cache: Path | None, recipe: Recipe | None = None, seed: int = 0) -> Training:
    domains = open_folder(root).domains
    samplers = [Sampler(np.arange(len(d)), 6, seed, i) for i, d in enumerate(domains)]
    caches = (
        [open_cache(d, TrainSpec(64), cache) for d in domains if isinstance(d, FileDomain)] if cache else None
    )
    return Training(domains, samplers, recipe=recipe, caches=caches, size=32)


def test_training_is_a_function_of_the_step(tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    one = training(root, tmp_path / "cache", Recipe(size=32))
    batches = [next(one) for _ in range(5)]
    two = training(root, tmp_path / "cache", Recipe(size=32))
    two.step = 3
    for (x, y), (x2, y2) in zip(batches[3], next(two), strict=True):
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)
    assert two.step == 4
    assert [x.shape for x, _ in batches[0]] == [(6, 3, 32, 32)] * 2
    other = training(root, tmp_path / "cache", Recipe(size=32), seed=1)
    assert not torch.equal(next(other)[0][0], batches[0][0][0])


def test_small_pictures_train_the_same_with_and_without_cache(tmp_path: Path) -> None:
    """Below the limit the stored picture is the decoded one, so the training cache is exact."""
    root = folder(tmp_path / "set")
    for recipe in (Recipe(size=32), None):
        cached, decoded = training(root, tmp_path / "cache", recipe), training(root, None, recipe)
        for (x, y), (x2, y2) in zip(next(cached), next(decoded), strict=True):
            assert torch.equal(x, x2)
            assert torch.equal(y, y2)


def test_without_a_recipe_training_sees_what_evaluation_sees(tmp_path: Path) -> None:
    root = folder(tmp_path / "set")
    plain = training(root, None)
    domain = plain.domains[0]
    every = torch.cat([x for x, _ in Evaluation(domain, size=32)])
    assert torch.equal(plain.at(0)[0][0], every[plain.samplers[0].at(0)])


def test_samples_in_memory() -> None:
    images = torch.randint(0, 256, (10, 3, 8, 8), dtype=torch.uint8)
    labels = np.arange(10) % 3
    domain = TensorDomain("a", images, labels, as_is=True)
    x = torch.cat([x for x, _ in Evaluation(domain)])
    assert torch.equal(x, images.float() / 255)
    float_domain = TensorDomain("b", images[:, :1].double() / 255, labels)
    assert torch.cat([x for x, _ in Evaluation(float_domain)]).dtype == torch.float32
    batch = next(Training([domain], [Sampler(np.arange(10), 4, 0, 0)]))[0]
    assert batch[0].shape == (4, 3, 8, 8)


def test_threads_of_torch_are_as_before() -> None:
    before = torch.get_num_threads()
    workers = Workers(3)
    assert workers.map(lambda _: torch.get_num_threads(), range(6)) == [1] * 6
    assert torch.get_num_threads() == before
    owners = [Recipe(), Recipe(size=1)]
    for owner in owners:
        assert len({id(o) for o in workers.map(lambda _, o=owner: workers.mine(o, list), range(30))}) <= 3
    with pytest.raises(ZeroDivisionError):
        workers.map(lambda i: 1 / i, [1, 0])


def test_bad_input(kinds: FileDomain) -> None:
    with pytest.raises(DataError, match="batch_size=0"):
        Evaluation(kinds, batch_size=0)
    with pytest.raises(DataError, match="engine='magic'; expected torch or opencv"):
        Recipe(engine="magic")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="1 domains and 0 samplers"):
        Training([kinds], [])


@pytest.mark.parametrize("engine", ["torch", "opencv"])
def test_batches_made_ahead_are_the_same(tmp_path: Path, engine: str) -> None:
    root = folder(tmp_path / "set")
    loader = training(root, tmp_path / "cache", Recipe(size=32, engine=engine))  # type: ignore[arg-type]
    wanted = [loader.at(step) for step in range(6)]
    with ahead(loader, 6) as batches:
        for step in (0, 1, 2, 3, 1, 2, 5):  # a jump is no harm
            for (x, y), (x2, y2) in zip(batches(step), wanted[step], strict=True):
                assert torch.equal(x, x2)
                assert torch.equal(y, y2)


def test_a_batch_that_cannot_be_made_fails_in_its_own_step(tmp_path: Path) -> None:
    loader = training(folder(tmp_path / "set"), None, Recipe(size=32))
    whole = loader.at

    def broken(step: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if step == 2:
            raise DataError("The picture is damaged.")
        return whole(step)

    loader.at = broken  # type: ignore[method-assign]
    with ahead(loader, 10) as batches:
        batches(0)
        batches(1)
        with pytest.raises(DataError, match="damaged"):
            batches(2)
