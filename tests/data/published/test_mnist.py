"""Files in MNIST's format: read exactly, refused with a reason, and dealt out as DomainBed does."""

from __future__ import annotations

import gzip
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torchvision import datasets
from torchvision.transforms import InterpolationMode, functional

from genie_dg.data.domains import DataError, DomainSet, TensorDomain
from genie_dg.data.published.mnist import load_mnist, read_idx, rotated_mnist


def idx(content: np.ndarray, kind: int = 8) -> bytes:
    """An idx file, written as its description says."""
    sizes = b"".join(struct.pack(">I", size) for size in content.shape)
    return bytes([0, 0, kind, content.ndim]) + sizes + content.astype(np.uint8).tobytes()


def make(
    folder: Path, train: int = 20, test: int = 8, side: int = 28, gz: bool = False
) -> tuple[Tensor, Tensor]:
    """Four files of random images; return what should be read from them."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (train + test, side, side), dtype=np.uint8)
    labels = random.integers(0, 10, train + test, dtype=np.uint8)
    for part, rows in (("train", slice(0, train)), ("t10k", slice(train, None))):
        for name, content in (("images-idx3", images[rows]), ("labels-idx1", labels[rows])):
            path = folder / f"{part}-{name}-ubyte{'.gz' if gz else ''}"
            path.write_bytes(gzip.compress(idx(content)) if gz else idx(content))
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def pixels(domain_set: DomainSet, index: int) -> Tensor:
    domain = domain_set.domains[index]
    assert isinstance(domain, TensorDomain)
    return domain.images


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("below", ["", "raw", "MNIST/raw"])
def test_all_four_files_are_read_training_before_test(tmp_path: Path, below: str, gz: bool) -> None:
    images, labels = make(tmp_path / below, gz=gz)
    found, digits = load_mnist(tmp_path)
    assert torch.equal(found, images)
    assert torch.equal(digits, labels)
    assert (found.dtype, digits.dtype) == (torch.uint8, torch.int64)


def test_torchvision_reads_the_same(tmp_path: Path) -> None:
    make(tmp_path / "MNIST" / "raw")
    parts = [datasets.MNIST(str(tmp_path), train=train, download=False) for train in (True, False)]
    images, labels = load_mnist(str(tmp_path))
    assert torch.equal(images, torch.cat([part.data for part in parts]))
    assert torch.equal(labels, torch.cat([part.targets for part in parts]))


def test_rotation_is_torchvisions_to_the_bit(tmp_path: Path) -> None:
    """DomainBed's recipe, one image after another, with torch's global generator."""
    images, labels = make(tmp_path)
    made = rotated_mnist(tmp_path, seed=6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        order = torch.randperm(len(images))
    assert [domain.name for domain in made.domains] == ["0", "15", "30", "45", "60", "75"]
    for index, angle in enumerate((0, 15, 30, 45, 60, 75)):
        mine = order[index::6]
        assert made.domains[index].labels.tolist() == labels[mine].tolist()
        for position, source in enumerate(mine.tolist()):
            grey = Image.fromarray(images[source].numpy())
            turned = functional.rotate(grey, angle, fill=(0,), interpolation=InterpolationMode.BILINEAR)
            expected = functional.to_tensor(turned)
            assert torch.equal(pixels(made, index)[position].float() / 255, expected)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
GOOD = idx(np.zeros((20, 28, 28)))
PACKED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, b"", "is not an idx file"),
        (IMAGES, b"\x89PNG\r\n\x1a\n" + GOOD, "is not an idx file"),
        (IMAGES, idx(np.zeros(20)), "is not an idx file"),
        (IMAGES, idx(np.zeros((20, 28, 28)), kind=13), "is not an idx file"),
        (IMAGES, GOOD[:9], "is not an idx file"),
        (IMAGES, GOOD[:-1], "claims the shape .* but has 15,679"),
        (IMAGES, GOOD + b"\0", "claims the shape .* but has 15,681"),
        (IMAGES, idx(np.zeros((19, 28, 28))), "19 images and 20 labels"),
        (LABELS, idx(np.full(20, 10)), "the label 10 but only 10 classes"),
        (LABELS, GOOD, "is not an idx file of unsigned bytes with 1 dimension"),
    ],
    ids=range(10),
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    make(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_mnist(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [GOOD, PACKED[:-30], PACKED[:20] + b"xx" * 40, PACKED[:5]],
    ids=["plain", "cut", "garbled", "cut in the header"],
)
def test_broken_compression_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    make(tmp_path, gz=True)
    (tmp_path / f"{IMAGES}.gz").write_bytes(content)
    with pytest.raises(DataError, match=f"{IMAGES}.gz cannot be read .*download it again"):
        load_mnist(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"no file t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz"):
        load_mnist(tmp_path)
    with pytest.raises(DataError, match="nowhere cannot be read"):
        read_idx(tmp_path / "nowhere", 3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=3), cut=st.integers(1, 200), data=st.data())
def test_any_array_comes_back_and_any_cut_is_refused(shape: list[int], cut: int, data: st.DataObject) -> None:
    size = int(np.prod(shape))
    content = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), dtype=np.uint8).reshape(shape)
    whole = idx(content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some-idx"
        path.write_bytes(whole)
        assert np.array_equal(read_idx(path, len(shape)), content)
        path.write_bytes(whole[: max(0, len(whole) - cut)])
        with pytest.raises(DataError):
            read_idx(path, len(shape))
