"""Results as text: Markdown, LaTeX and CSV of tables, Markdown and CSV of comparisons."""

from __future__ import annotations

import csv
import io
import re
from itertools import product
from typing import Any

import pytest

from genie_dg.results.compare import Comparisons, compare_all
from genie_dg.results.render import (
    cell_text,
    csv_text,
    escape_latex,
    escape_markdown,
    markdown_table,
    percent,
    points,
    render,
    render_comparisons,
)
from genie_dg.results.tables import Cell, count_range, tables

from .build import Run, frame_of, record, run
from .test_tables import THREE, by_kind, whole

STRANGE = ("a_b", "c|d", "e&f", "50%")


def test_names_are_escaped_in_markdown() -> None:
    text = render([by_kind(whole(THREE, domains=STRANGE, algorithm="_my|own_"), "domains")])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert r"a_b" in lines[0]
    assert r"c\|d" in lines[0]
    assert r"\_my\|own\_" in lines[2]
    assert escape_markdown("x\n# y &amp; z`") == r"x # y \&amp; z\`"


def test_latex_is_escaped_and_has_rules() -> None:
    runs = whole(THREE, domains=STRANGE, algorithm="_my|own_")[:-1]
    text = render([by_kind(runs, "domains")], "tex")
    assert r"a\_b & c\textbar{}d & e\&f & 50\% & Avg \\" in text
    assert r"\_my\textbar{}own\_ & adam & 20.0 $\pm$ 4.7" in text
    assert r"X\textsuperscript{1}" in text
    assert r"\textsuperscript{1} Trial 2: no run." in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\begin{tabular}{llrrrrr}" in text
    assert escape_latex("\\{}~^#$<>") == (
        r"\textbackslash{}\{\}\textasciitilde{}\textasciicircum{}\#\$\textless{}\textgreater{}"
    )


def test_csv_has_a_line_for_each_cell() -> None:
    rows = list(
        csv.DictReader(io.StringIO(render(tables(frame_of(whole(THREE, domains=STRANGE)[:-1])), "csv")))
    )
    assert [row["column"] for row in rows if row["table"] == "domains"] == [*STRANGE, "Avg"]
    first = rows[0]
    assert float(first["accuracy"]) == pytest.approx(0.2)
    assert float(first["standard_error"]) == pytest.approx(0.0471405, abs=1e-6)
    names = [first[name] for name in ("dataset", "selection", "protocol", "algorithm", "optimizer", "backbone")]
    assert names == ["PACS", "training-domain", "domainbed", "ERM", "adam", "resnet50"]
    assert (first["trials"], first["fewest_draws"], first["most_draws"], first["note"]) == ("3", "1", "1", "")
    missing = rows[3]
    assert (missing["accuracy"], missing["standard_error"], missing["note"]) == ("", "", "trial 2: no run")


def test_small_pieces() -> None:
    cells = Cell(0.2, 0.047), Cell(0.2), Cell(), Cell(blank=True)
    assert [cell_text(cell) for cell in cells] == ["20.0 +/- 4.7", "20.0", "X", "-"]
    assert [count_range(x) for x in ([], [2], [2, 2], [5, 2])] == ["-", "2", "2", "2-5"]
    assert [points(x) for x in (0.1, -0.1, 0.0, -1e-9)] == ["+10.00", "-10.00", "+0.00", "+0.00"]
    assert [percent(x) for x in (None, 0.1234)] == ["-", "12.3"]
    assert csv_text(["a", "b"], [[None, float("nan")], ["x,y", 0.1]]) == 'a,b\n,\n"x,y",0.1\n'


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = markdown_table(["a", "bb"], [["long", "1"], ["b", "123"]], 1)
    assert len({len(line) for line in text.splitlines()}) == 1
    assert text.splitlines()[1] == "| ---- | --: |"
    assert markdown_table(["a", "b"], []) == "| a | b |\n| - | - |"


# Comparisons

ADAM, GENIE = "ERM + adam", "ERM + genie"


def one(test: float, optimizer: str, trial: int = 0, draw: int = 0, **more: Any) -> Run:
    """Eight records of one test accuracy; a later draw has the better validation."""
    listed = [record(step, [test, 1.0], [1.0, 0.5 + draw / 100]) for step in range(8)]
    usual = {"dataset": "digits", "steps": 8, "domains": ("a", "b"), "backbone": "cnn", "protocol": "custom"}
    return run([0], listed, trial, draw, optimizer=optimizer, **{**usual, **more})


def two_by_two() -> list[Run]:
    """Two draws, two trials, two rows: genie is better by 0.1 and 0.2; draw 1 is selected."""
    runs = []
    for trial, draw in product((0, 1), (0, 1)):
        runs.append(one(0.4 + 0.1 * draw, "adam", trial, draw))
        runs.append(one(0.3 + (0.3 + 0.1 * trial) * draw, "genie", trial, draw))
    return runs


def compared(runs: list[Run], **more: Any) -> Comparisons:
    return compare_all(frame_of(runs), resamples=300, **more)


def cells(text: str, start: str) -> list[str]:
    """The cells of the first line of a table that starts so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_comparison_in_markdown() -> None:
    text = render_comparisons(compared(two_by_two()))
    line = cells(text, "digits")
    assert line[:4] == ["digits", GENIE, ADAM, "+15.00"]
    assert re.fullmatch(r"[+-]\d+\.\d\d to [+-]\d+\.\d\d", line[4])
    assert line[5:] == ["2", "2/0/0"]
    below = text.split("Tuning budget")[1]
    assert cells(below, ADAM) == [ADAM, "2 draws x 2 trials x 1 test domain = 4 runs, 32 steps"]
    best = below.split("Expected")[1]
    assert cells(best, "row") == ["row", "k = 1", "k = 2"]
    assert cells(best, GENIE) == [GENIE, "47.5", "65.0"]
    assert render_comparisons(compared(two_by_two())) == text


def test_what_cannot_be_computed_is_empty_or_a_dash() -> None:
    single = compared([one(0.5, "adam"), one(0.2, "genie")])
    assert cells(render_comparisons(single), "digits")[3:5] == ["-30.00", "-"]


def test_no_split_of_all_rows_leaves_out_the_best_of_k() -> None:
    text = render_comparisons(compared([*two_by_two(), one(0.9, "sgd", 7)]))
    assert "Note: no split is shared by all rows, so there is no table of the best of k draws." in text
    assert "k = 1" not in text
