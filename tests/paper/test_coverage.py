"""The coverage page: complete, and true to the registries and to the code."""

from __future__ import annotations

import importlib
import re
import shlex

import pytest

from genie_dg.cli.main import build_parser
from genie_dg.data.published.catalog import PUBLISHED as SETS
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.draws import LARGE
from genie_dg.protocols.genie_paper import GENIE_PAPER
from paper.__main__ import parser_of_paper
from paper.claims import CLAIMS
from paper.experiments import EXPERIMENTS
from paper.fig_landscape import START, STEPS
from paper.ledger import MeasuredClaim
from paper.pages import HEADER, ITEMS, coverage_row
from paper.published import PRINTED, PUBLISHED
from paper.registry import PAPER

from .test_latex import SOURCE

BLOCK = re.compile(
    r"\\begin\{(theorem|corollary|assumption|remark|table|figure|algorithm)\*?\}(.*?)\\end\{\1\*?\}", re.S
)


@pytest.mark.skipif(
    not SOURCE.is_file(), reason="the LaTeX of the paper is not here; name it in GENIE_DG_PAPER_TEX"
)
def test_every_label_of_the_latex_is_listed() -> None:
    listed = {label for item in ITEMS for label in item["label"].split(";")}
    bodies = [body for _, body in BLOCK.findall(SOURCE.read_text(encoding="utf-8"))]
    labels = [label for body in bodies for label in re.findall(r"\\label\{([^}]*)\}", body)]
    assert len(labels) > 40
    assert [label for label in labels if label not in listed] == []


def test_every_command_and_name_exists() -> None:
    for item in ITEMS:
        assert item["part"] in ("", *PAPER)
        for command in item["commands"].split("; "):
            words = shlex.split(command)
            if words[0] == "genie-dg":
                build_parser(words[1]).parse_args(words[1:])
            elif words[0] == "python":
                assert parser_of_paper().parse_args(words[3:]).name in PAPER
            elif command not in ("paper.theory",):
                module, _, name = command.rpartition(".")
                assert hasattr(importlib.import_module(module), name), command


def test_every_claim_and_table_is_listed_and_no_cell_is_empty() -> None:
    about = {name for item in ITEMS for name in item["claims"].split()}
    assert {claim.name for claim in CLAIMS if claim.where != "not in the paper"} == about
    places = {item["place"] for item in ITEMS}
    assert {f"Table {k}" for k in range(1, 25)} | {f"Figure {k}" for k in range(1, 8)} <= places
    assert {table.place.split(" (")[0] for table in PUBLISHED.values()} <= places
    rows = [coverage_row(item, []) for item in ITEMS]
    assert all(len(cells) == len(HEADER) and all(cells) and "|" not in "".join(cells) for cells in rows)


def test_verdicts_follow_what_was_measured() -> None:
    item = next(item for item in ITEMS if item["place"] == "Table 2")
    holds = MeasuredClaim("accuracy", "holds", "digits, 3 trials", "random", "")
    assert coverage_row(item, [])[-1].startswith("accuracy: not measured<br>")
    assert coverage_row(item, [holds])[-1].startswith("accuracy: **holds** (digits, 3 trials)<br>")


def test_settings_are_those_of_the_code() -> None:
    optimizers, genie = EXPERIMENTS["optimizers"], OPTIMIZERS["genie"].space
    here = {
        "datasets": " ".join(optimizers.datasets),
        "steps": str(GENIE_PAPER.steps_of("PACS") - 1),
        "steps-domainnet": str(GENIE_PAPER.steps_of("DomainNet") - 1),
        "draws": str(GENIE_PAPER.hparams),
        "trials": str(GENIE_PAPER.trials),
        "backbone": f"{GENIE_PAPER.backbone}, pretrained",
        "optimizers": " ".join(PRINTED[name] for name in optimizers.grids[0].optimizers),
        "landscape": f"{STEPS} from ({START[0]:g} {START[1]:g})",
    }
    printed = {item["code"]: item["printed"] for item in ITEMS if item["kind"] == "setting"}
    assert {name: printed[name] for name in here} == here
    defaults = {"batch": LARGE["batch_size"], "lr": genie["lr"], "dropout": LARGE["dropout"]}
    assert all(printed[name].startswith(f"{one.default}, ") for name, one in defaults.items())
    for name in optimizers.datasets:
        one = SETS[name]
        assert printed[name].startswith(f"{len(one.domains)} domains, {one.class_count} classes, ")
    settings = [item for item in ITEMS if item["kind"] == "setting" and item["code"]]
    alike = [item for item in settings if "; here" not in item["verdict"]]
    assert all(item["verdict"] == f"as printed: {item['printed']}" for item in alike)
