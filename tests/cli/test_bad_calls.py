"""Bad calls: every option of every verb with values that cannot be, derived from the parsers.

Each must end with exit code 2 and one sentence, and leave nothing on the disk that was not there.
"""

from __future__ import annotations

import argparse
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from genie_dg import arguments
from genie_dg.cli.main import VERBS, build_parser, main

from .calls import one_sentence

VALID = {
    **dict.fromkeys(("runs", "source", "model"), "{root}/runs"),
    **dict.fromkeys(("what", "root", "pictures"), "{root}/pictures"),
    "data": "digits",
    "file": "{root}/sweep.toml",
    "name": "PACS",
    "kind": "algorithms",
    "test_domain": "0",
    "shell": "bash",
    "to": "safetensors",
    "out": "{root}/packed",
}
"""A good value of every positional argument and every required option, by name."""

Verb = tuple[str, ...]
LONG, DEEP = "x" * 300, "y/" * 3000
WHOLE = ("", " ", "x", "1.5", "-1", str(10**30), "nan", "inf", "1e400", "1" * 5000, "0x10", "1;2")
REAL = ("", " ", "x", "nan", "inf", "-inf", "1e400", "-1", str(10**30), "1,5")
PATHS = ("", " ", "a\0b", LONG, DEEP, "{root}/file/below")
TEXTS = ("", " ", "a\0b", "\x1b[31m", "a\nb", "no-such-thing", "é" * 500, "nan")
FLAG = ("=1", "=", "=no")

KINDS = {arguments.path: PATHS, arguments.path_text: PATHS, arguments.some_text: TEXTS, int: WHOLE, float: REAL}
MADE = {"_reader": REAL}
BY_METAVAR = {"FOLDER": ("{root}/file",), "FILE": ("{root}/pictures",), "RUNS": ("{root}/file", "{root}/none")}
"""What cannot be where a folder, or a file, is named."""
MORE = {
    "--set": ("lr", "=1", "lr=", "lr=maybe", "lr=nan", "lr=1e400", "precondition=maybe", "seed=1.5", "lr=-1"),
    **dict.fromkeys(("--steps", "--every", "--batch-size", "--image-size", "--limit"), ("0",)),
    "--device": ("cuda:99", "meta", "cpu:x"),
    "--watch": ("ogsr", "updates,ogsr"),
    "--track": ("wandbb", "tensorboard,mlfow"),
    "--weights": ("{root}/file",),
    "--plugin": ("{root}/file.py",),
    "--dropout": ("1",),
    "file": ("{root}/file", "{root}/none", "{root}/broken.toml"),
    "data": ("no-such-set", "{root}/empty", "{root}/file"),
    "what": ("no-such-set", "{root}/empty"),
}
"""Bad values of single options, besides those of their kind."""


@dataclass(frozen=True)
class Call:
    """One bad call: the words of its verb, the argument under test, and its value."""

    verb: Verb
    option: str
    value: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        value = self.value if len(self.value) < 40 else f"{self.value[:9]}...{len(self.value)}"
        return f"{' '.join(self.verb)} {self.option} {value!a}"


def leaves(
    parser: argparse.ArgumentParser, verb: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every verb, and every action of a verb that has some, with its parser."""
    children = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not children:
        yield verb, parser
    for action in children:
        for name, child in action.choices.items():
            yield from leaves(child, (*verb, name))


def good_words(parser: argparse.ArgumentParser, without: str = "") -> list[str]:
    """A call that would be right, except for one argument that is left out."""
    words, last = [], []
    for action in parser._actions:
        if not action.required or action.dest == without:
            continue
        if action.option_strings:
            words += [action.option_strings[-1], VALID[action.dest]]
        else:
            last.append(VALID[action.dest])
    return [*words, *last]


def bad_values(action: argparse.Action) -> tuple[str, ...]:
    """What an argument cannot be."""
    kind = action.type
    found = KINDS.get(kind) or MADE.get(getattr(kind, "__qualname__", "").partition(".")[0])
    assert found, f"{action.option_strings or action.dest} has no type of genie_dg.arguments"
    name = action.option_strings[-1] if action.option_strings else action.dest
    return tuple(dict.fromkeys((*found, *BY_METAVAR.get(str(action.metavar), ()), *MORE.get(name, ()))))


def calls() -> Iterator[Call]:
    """All bad calls."""
    for verb, parser in leaves(build_parser()):
        good = good_words(parser)
        for action in parser._actions:
            if isinstance(action, argparse._HelpAction | argparse._VersionAction) or action.dest == "pictures":
                continue  # a picture that cannot be read is told, and the others go on: exit code 1
            name, others = (action.option_strings or [action.dest])[-1], good_words(parser, action.dest)
            if action.nargs == 0:
                yield from (Call(verb, name, value, (f"{name}{value}", *good)) for value in FLAG)
                continue
            for value in bad_values(action):
                words = (f"{name}={value}", *others) if action.option_strings else (*others, "--", value)
                if words[0] != "--test-domain=nan":  # the name of a domain may be that
                    yield Call(verb, name, value, words)
            if action.option_strings:
                yield Call(verb, name, "no value", (*good, name))
            if action.required:
                yield Call(verb, name, "missing", tuple(others))
        yield Call(verb, "--no-such-option", "3", ("--no-such-option", "3", *good))
        yield Call(verb, "one too many", "", (*good, "too", "many", "words", "--x"))


CALLS = list(calls())


def mostly_slow(call: Call) -> object:
    """Every fourth call is quick, always the same ones; the others are slow tests."""
    quick = zlib.crc32(str(call).encode()) % 4 == 0
    return pytest.param(call, id=str(call), marks=() if quick else pytest.mark.slow)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What good values name: runs, a folder of pictures, files."""
    import numpy as np
    from PIL import Image

    root = tmp_path_factory.mktemp("calls")
    (root / "file").write_bytes(b"\x80\x02garbage")
    (root / "file.py").write_text("1 / 0\n")
    (root / "empty").mkdir()
    (root / "broken.toml").write_text("name = [\n")
    (root / "sweep.toml").write_text(
        'name = "s"\nprotocol = "domainbed"\ndatasets = ["digits"]\nalgorithms = ["ERM"]\n'
        'optimizers = ["adam"]\n'
        "hparams = 1\ntrials = 1\ntest_domains = [[0]]\n[overrides]\nsteps = 1\n"
    )
    for domain in ("a", "b"):
        for label in ("x", "y"):
            folder = root / "pictures" / domain / label
            folder.mkdir(parents=True)
            for k in range(5):
                Image.fromarray(np.full((8, 8, 3), 40 * k, np.uint8)).save(folder / f"{k}.png")
    (root / "work").mkdir()
    words = ["train", "digits", "--test-domain", "0", "--steps", "1", "--backbone", "mlp", "--quiet"]
    assert main([*words, "--optimizer", "adam", "--out", str(root / "runs"), "--device", "cpu"]) == 0
    return root


def listing(root: Path) -> dict[str, int]:
    """Every file and folder, with its size."""
    return {
        os.path.join(where, name): os.path.getsize(os.path.join(where, name))
        for where, folders, files in os.walk(root)
        for name in (*folders, *files)
    }


@pytest.mark.parametrize("call", [mostly_slow(call) for call in CALLS])
def test_a_bad_call_is_one_sentence(
    call: Call, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root / "work")
    monkeypatch.delenv("GENIE_DG_CACHE", raising=False)
    before = listing(root)
    code = main([*call.verb, *(word.replace("{root}", str(root)) for word in call.words)])
    sentence = capsys.readouterr().err
    assert code == 2, sentence
    assert one_sentence(sentence), sentence
    assert listing(root) == before


def test_every_verb_with_arguments_is_called() -> None:
    assert {call.verb[0] for call in CALLS} >= {*VERBS} - {"env"}
    assert len(CALLS) >= 500
