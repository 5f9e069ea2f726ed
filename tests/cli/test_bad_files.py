"""Files that cannot be: sweeps and protocols of wrong types everywhere, weights that are none, odd runs.

Each ends with exit code 2 and one sentence, and nothing is started.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.cli.main import main

from .calls import one_sentence

SWEEP = {
    "name": '"s"',
    "protocol": '"domainbed"',
    "datasets": '["digits"]',
    "algorithms": '["ERM"]',
    "optimizers": '["adam"]',
    "test_domains": "[[0]]",
    "hparams": "1",
    "trials": "1",
}
PROTOCOL = {"name": '"mine"', "base": '"domainbed"'}
VALUES = {
    "text": '"x"',
    "number": "1.5",
    "minus": "-1",
    "huge": str(10**30),
    "nan": "nan",
    "inf": "-inf",
    "switch": "true",
    "date": "1979-05-27",
    "list": "[]",
    "lists": "[[[1]]]",
    "odd list": '[1, "a", true]',
    "table": "{ a = { b = [1] } }",
    "NUL": '"a\\u0000b"',
    "empty": '""',
}
KEYS = (*SWEEP, "fast", "overrides", "algorithm_settings", "optimizer_settings", "unknown")
PROTOCOL_KEYS = (
    *("name", "base", "summary", "backbone", "small_backbone", "pretrained", "freeze_statistics", "image_size"),
    *("eval_augment", "draws", "oracle", "hparams", "trials", "small_images", "steps", "checkpoint_every"),
    *("search", "defaults"),
)
FITTING_DEFAULTS = {('"adam.lr"', "number"), ('"adam.lr"', "huge"), ('"genie.noise"', "switch")}
GOOD = {
    *(("fast", "switch"), ("algorithm_settings", "empty table"), ("name", "text"), ("summary", "text")),
    *((key, "switch") for key in ("pretrained", "freeze_statistics")),
    *(("small_images", "list"), ("summary", "empty"), ("summary", "NUL")),
}
"""Values that a key may have after all."""


def toml(pairs: dict[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in pairs.items())


def refused(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    file = folder / "sweep.toml"
    file.write_text(text, encoding="utf-8")
    code = main(["sweep", str(file), "--out", str(folder / "out"), "--dry-run", "--device", "cpu"])
    told = capsys.readouterr().err
    assert code == 2, (text, told)
    assert one_sentence(told), (text, told)
    assert not (folder / "out").exists()
    return told


@pytest.mark.parametrize("kind", VALUES)
def test_a_sweep_with_a_wrong_value(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key in KEYS:
        if (key, kind) not in GOOD:
            refused(tmp_path, toml({**SWEEP, key: VALUES[kind]}), capsys)


@pytest.mark.parametrize("kind", VALUES)
def test_a_protocol_with_a_wrong_value(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = toml({**SWEEP, "protocol": '"mine.toml"'})
    for key in PROTOCOL_KEYS:
        if (key, kind) not in GOOD:
            (tmp_path / "mine.toml").write_text(toml({**PROTOCOL, key: VALUES[kind]}), encoding="utf-8")
            refused(tmp_path, sweep, capsys)
    for key in ('"adam.lr"', "batch_size", '"genie.noise"'):
        for section in ("search", "defaults"):
            if section == "search" or (key, kind) not in FITTING_DEFAULTS:
                text = f"{toml(PROTOCOL)}[{section}]\n{key} = {VALUES[kind]}\n"
                (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
                refused(tmp_path, sweep, capsys)


def test_a_sweep_is_refused_before_its_first_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(toml({**SWEEP, "algorithms": '["ERM", "MixStyle"]'}) + '[overrides]\nbackbone = "mlp"\n')
    assert (
        main(["sweep", str(file), "--out", str(tmp_path / "out"), "--device", "cpu", "--engine", "here"]) == 2
    )
    assert "MixStyle got an activation" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04", b"\x80\x02}q\x00.", b"\x80\x02garbage", b"GIF89a", b"\x00" * 99, b"not weights\n"],
    ids=repr,
)
@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_weights_that_are_none(
    content: bytes, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"weights.{ending}"
    file.write_bytes(content)
    words = ["train", "digits", "--test-domain", "0", "--steps", "1", "--out", str(tmp_path / "out")]
    assert main([*words, "--weights", str(file), "--device", "cpu"]) == 2
    assert one_sentence(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
