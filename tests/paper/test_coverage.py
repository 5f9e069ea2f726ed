"""The coverage page: complete, true to the registries, and the same as the committed one."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from genie_dg.cli.main import main
from paper.claims import CLAIMS
from paper.coverage import HEADER, ITEMS, Item, commands, page, resolve, rows, states, verdicts
from paper.coverage_settings import SETTINGS
from paper.kept_ledgers import study_ledger
from paper.measured import Measured, carried, read_measured, text_of
from paper.published import PUBLISHED
from paper.registry import PAPER
from paper.request import PaperError

from .test_latex import SOURCE

ROOT = Path(__file__).parents[2]
COUNTED = "theorem|corollary|assumption|remark|table|figure|algorithm"
BLOCK = re.compile(rf"\\begin\{{({COUNTED})\*?\}}(.*?)\\end\{{\1\*?\}}", re.S)


def labels_of(latex: str) -> list[str]:
    """The labels in environments that have a number."""
    return [label for _, body in BLOCK.findall(latex) for label in re.findall(r"\\label\{([^}]*)\}", body)]


def test_the_labels_are_those_of_environments_alone() -> None:
    table, theorem = r"\begin{table*}[t] \label{tab:a} \end{table*}", r"\begin{theorem}\label{t}\end{theorem}"
    assert labels_of(rf"{table} \section{{B}} \label{{b}} {theorem}") == ["tab:a", "t"]


@pytest.mark.skipif(
    not SOURCE.is_file(), reason="the LaTeX of the paper is not here; name it in GENIE_DG_PAPER_TEX"
)
def test_every_label_of_the_latex_is_listed() -> None:
    listed = {label for item in ITEMS for label in item.label.split(";")}
    found = labels_of(SOURCE.read_text(encoding="utf-8"))
    assert len(found) > 40
    assert [label for label in found if label not in listed] == []


def test_the_page_is_that_of_the_code_and_of_the_kept_numbers() -> None:
    studies = [study_ledger(path.parent) for path in sorted((ROOT / "studies").glob("*/runs.tar.xz"))]
    kept = read_measured(ROOT / "docs" / "figures" / "paper", studies)
    assert carried() == kept, "run make claims-page"
    assert (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8") == page(kept) + "\n"
    assert "coverage.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_command_prints_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "coverage", "--out", str(tmp_path)]) == 0
    assert page(carried()) in capsys.readouterr().out
    assert (tmp_path / "smoke" / "coverage" / "coverage.md").read_text() == page(carried()) + "\n"


def test_no_cell_is_empty_with_and_without_measurements() -> None:
    for measured in ([], carried()):
        table = rows(measured)
        assert len(table) == len(ITEMS)
        assert all(len(cells) == len(HEADER) and all(cells) and "|" not in "".join(cells) for cells in table)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.place} {item.what}")
def test_every_command_and_name_exists(item: Item) -> None:
    import argparse

    from genie_dg.cli import data, env, paper

    claims = [claim.name for claim in CLAIMS]
    assert item.part in ("", *PAPER)
    assert set(item.claims) <= set(claims)
    if item.kind == "setting":
        assert not item.code or item.code in SETTINGS
    elif item.code:
        resolve(item.code)
    for command in commands(item):
        words = shlex.split(command)
        if words[0] == "genie-dg":
            parser = argparse.ArgumentParser()
            {"paper": paper, "data": data, "env": env}[words[1]].add_arguments(parser)
            asked = parser.parse_args(words[2:])
            assert words[1] != "paper" or asked.name in PAPER
        else:
            assert command == item.code


def test_every_claim_table_and_setting_is_listed() -> None:
    about = {name for item in ITEMS for name in item.claims}
    assert {claim.name for claim in CLAIMS if claim.where != "not in the paper"} == about
    assert {item.table.place for item in ITEMS if item.table} == {table.place for table in PUBLISHED.values()}
    assert {item.code for item in ITEMS if item.kind == "setting"} - {""} == set(SETTINGS)
    assert {f"Table {k}" for k in range(1, 25)} <= {item.place for item in ITEMS}
    assert {f"Figure {k}" for k in range(1, 8)} <= {item.place for item in ITEMS}


def item(**more: Any) -> Item:
    usual = {"kind": "table", "place": "Table 2", "label": "", "what": "x", "part": "optimizers"}
    return Item(**{**usual, "claims": ("accuracy",), "code": "", "printed": "", "reason": "", **more})


def test_states_and_verdicts_follow_what_was_measured() -> None:
    holds = Measured("claim", "accuracy", "holds", "digits, 3 trials", "claims-x.json")
    before, after = list(states(item(), [])), list(states(item(), [holds]))
    assert before[:3] == ["quoted", "logged", "can be measured, and was not yet"]
    assert after[:3] == ["quoted", "logged", "measured in miniature"]
    assert before[3] == after[3] == "not possible here as printed: 13,200 runs of a ResNet-50, no graphics card"
    assert next(verdicts(item(), [])) == "accuracy: not measured"
    assert next(verdicts(item(), [holds])) == "accuracy: **holds** (digits, 3 trials)"
    drawn = Measured("part", "umap", "", "", "umap.csv")
    figure = item(kind="figure", place="Figure 3", part="umap", claims=())
    assert (list(states(figure, [])), list(states(figure, [drawn]))) == ([], ["measured in miniature"])


def test_a_setting_that_differs_says_both() -> None:
    setting = item(kind="setting", place="Section 4", part="", claims=(), code="steps", printed="7")
    assert list(verdicts(setting, [])) == ["printed: 7; here: 5000"]


CLEAR = [1.0, 1.1, 0.9]


def ledger(folder: Path, how: str) -> None:
    claims = [
        {"claim": {"name": name, "how": how or claim.how}, "numbers": numbers}
        for name, numbers in (("accuracy", {"SGD": CLEAR}), ("osgr", {"SGD": CLEAR}), ("cost", {}))
        for claim in CLAIMS
        if claim.name == name
    ]
    whole = {"seeds": [0, 1, 2], "claims": claims, "runs": {"a": {"dataset": "digits"}}}
    (folder / "claims-x.json").write_text(json.dumps(whole))


def test_kept_ledgers_count_as_long_as_the_claim_is_measured_so(tmp_path: Path) -> None:
    with pytest.raises(PaperError, match=r"has no claims-\*\.json"):
        read_measured(tmp_path)
    (tmp_path / "umap.csv").touch()
    (tmp_path / "unknown.csv").touch()
    result = "SGD +1.0 (+0.8 to +1.2); 95 % interval"
    accuracy = Measured("claim", "accuracy", "holds", "digits, 3 trials", "claims-x.json", "random", result)
    umap = Measured("part", "umap", "", "", "umap.csv")
    ledger(tmp_path, "")
    found = read_measured(tmp_path)
    assert [one.name for one in found] == ["accuracy", "osgr", "umap"]
    assert (found[0], found[2]) == (accuracy, umap)
    line = f'claim,accuracy,holds,"digits, 3 trials",claims-x.json,random,{result}'
    assert text_of([accuracy]).splitlines()[1] == line
    ledger(tmp_path, "otherwise")
    assert read_measured(tmp_path) == [umap]
