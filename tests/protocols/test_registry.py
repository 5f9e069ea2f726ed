"""Protocols from files: what they may say, and what is refused in one sentence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols import registry
from genie_dg.protocols._profile import Profile
from genie_dg.protocols.domainbed import DOMAINBED
from genie_dg.protocols.registry import PROTOCOLS, find_protocol, fit_to_rows, load_protocol
from genie_dg.registry import UnknownName
from genie_dg.search_space import Choice, LogUniform, Uniform

HEAD = 'name = "mine"\nbase = "domainbed"\n'
ROWS = (ALGORITHMS, OPTIMIZERS)


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_starts_from_its_base_and_changes_what_it_names(tmp_path: Path) -> None:
    text = HEAD + (
        'image_size = 128\noracle = "best"\npretrained = false\nhparams = 5\nsmall_images = ["tiny"]\n'
        "steps = 1001\ncheckpoint_every = { PACS = 50 }\n"
        '[search]\nbatch_size = "fixed"\n"adam.lr" = { power = [-5, -3] }\n'
        "genie.beta = { uniform = [0.9, 0.99] }\n"
        '"sam.rho" = { choice = [0.01, 0.05] }\n"DANN.mlp_width" = { power = [5, 6], base = 2, whole = true }\n'
        "[defaults]\nadam.lr = 1e-4\n"
    )
    profile = load_protocol(written(tmp_path, text))
    assert (profile.name, profile.image_size, profile.oracle) == ("mine", 128, "best")
    assert (profile.pretrained, profile.hparams, profile.trials) == (False, 5, 3)
    assert profile.small_images == ("tiny",)
    assert profile.steps == {"default": 1001}
    assert profile.checkpoint_every == {**DOMAINBED.checkpoint_every, "PACS": 50}
    assert profile.search == {
        "batch_size": None,
        "adam.lr": LogUniform(-5, -3),
        "genie.beta": Uniform(0.9, 0.99),
        "sam.rho": Choice((0.01, 0.05)),
        "DANN.mlp_width": LogUniform(5, 6, base=2.0, whole=True),
    }
    assert profile.defaults == {"adam.lr": 1e-4}
    assert (profile.eval_augment, profile.draws) == ("train", "by-name")
    assert fit_to_rows(profile, *ROWS) == profile


def test_the_example_of_the_docstring_is_read(tmp_path: Path) -> None:
    example = re.sub(r"^    ", "", str(registry.__doc__).split("::\n", 1)[1], flags=re.M)
    profile = load_protocol(written(tmp_path, example))
    assert (profile.name, profile.defaults) == ("short", {"adam.lr": 1e-4})
    assert fit_to_rows(profile, *ROWS) == profile


def test_protocols_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    written(tmp_path, HEAD)
    assert find_protocol("domainbed") is DOMAINBED
    assert find_protocol("mine.toml", tmp_path).name == "mine"
    assert find_protocol(str(tmp_path / "mine.toml")).name == "mine"
    with pytest.raises(
        UnknownName, match=r"^There is no protocol 'domain-bed'; .* did you mean 'domainbed'\?$"
    ):
        find_protocol("domain-bed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", r"mine\.toml is not TOML \(.*\); fix it and try again\.$"),
        ('base = "domainbed"', r"has no 'name'; a protocol has a name, and a base to start from\.$"),
        ('name = "mine"\nbase = "domainbet"', r"did you mean 'domainbed'\?$"),
        ('name = "DomainBed"\nbase = "domainbed"', r"is named 'DomainBed', as another protocol is; choose"),
        ('name = "a/b"\nbase = "domainbed"', r"^A protocol has name = 'a/b'; use letters"),
        (HEAD + "step = 3", r"has no 'step'; its keys are .*; did you mean 'steps'\?$"),
        (HEAD + "steps = 0", r"^got mine\.steps\.default=0; expected a whole number from 1 to"),
        (HEAD + "steps = { PACS = true }", r"has steps = .*; \[\.\.\.\] of it must be a whole number\.$"),
        (HEAD + 'oracle = "first"', r"^got oracle='first'; expected last or best\.$"),
        (HEAD + 'small_images = "digits"', r"small_images = 'digits'; it must be a list\.$"),
        (HEAD + "[search]\nlr = 3", r"has search\.lr = 3; write 'fixed', "),
        (HEAD + "[search]\nlr = { power = [2, 1] }", r"write 'fixed', "),
        (HEAD + "[search]\nlr = { choice = [] }", r"write 'fixed', "),
        (HEAD + "[search]\nlr = { power = [0, nan] }", r"write 'fixed', "),
        (HEAD + "[defaults]\nlr = [1]", r"defaults\.lr = \[1\]; it must be true or false, a whole number, a "),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_protocol(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml cannot be read \(No such file or directory\); name a"):
        load_protocol(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("key", "near"), [("adam.lrr", "adam.lr"), ("Adem.beta1", "adam.beta1"), ("batchsize", "batch_size")]
)
def test_rules_for_what_no_table_has(tmp_path: Path, key: str, near: str) -> None:
    profile = load_protocol(written(tmp_path, HEAD + f'[search]\n"{key}" = "fixed"\n'))
    with pytest.raises(InputError, match=rf"names '{key}', which no .*; did you mean '{near}'\?$"):
        fit_to_rows(profile, *ROWS)


def test_a_protocol_says_how_long_runs_on_any_set_are() -> None:
    for key in ("steps", "checkpoint_every"):
        with pytest.raises(
            InputError, match=rf"^mine has no {key} for data sets in general; name 'default', too\.$"
        ):
            replace(DOMAINBED, name="mine", **{key: {"PACS": 5}})


def test_rules_and_defaults_are_of_the_kind_that_their_row_wants(tmp_path: Path) -> None:
    text = """
[search]
batch_size = { power = [3, 5], base = 2 }
"DANN.mlp_depth" = { uniform = [3, 6] }
"genie.noise" = { choice = ["yes", "no"] }
[defaults]
"genie.precondition" = "off"
"genie.seed" = 3.0
"""
    profile = fit_to_rows(load_protocol(written(tmp_path, HEAD + text)), *ROWS)
    assert profile.search["batch_size"] == LogUniform(3, 5, base=2.0, whole=True)
    assert profile.search["DANN.mlp_depth"] == Uniform(3, 6, whole=True)
    assert profile.search["genie.noise"] == Choice((True, False))
    assert profile.defaults["genie.precondition"] is False
    assert type(profile.defaults["genie.seed"]) is int


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[defaults]\n"adam.lr" = "high"', r"^got mine\.adam\.lr='high'; expected a finite number\.$"),
        ('[search]\n"adam.lr" = { choice = ["high"] }', r"^got mine\.adam\.lr='high'; expected a finite"),
        ('[search]\n"genie.noise" = { uniform = [0, 1] }', r"draws 'genie\.noise' as a number, and it is true"),
        ("[defaults]\nlr = inf", r"^got mine\.lr=inf; expected a finite number\.$"),
        ("[defaults]\nbatch_size = 3.5", r"^got mine\.batch_size=3\.5; expected a whole number\.$"),
    ],
)
def test_values_that_no_setting_can_have(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_to_rows(load_protocol(written(tmp_path, HEAD + text)), *ROWS)


@pytest.mark.parametrize("profile", PROTOCOLS.values(), ids=lambda profile: profile.name)
def test_protocols_of_the_package_fit_as_they_are(profile: Profile) -> None:
    assert fit_to_rows(profile, *ROWS) == profile
