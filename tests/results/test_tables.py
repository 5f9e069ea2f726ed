"""Tables: means, errors, averages, single sources, missing cells and the three formats."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest

from genie_dg.results.formats import escape_latex, escape_markdown, render
from genie_dg.results.schema import ResultsError, Run
from genie_dg.results.table import Table, cell_of, tables

from .build import PACS, record, run


def flat(test: int | tuple[int, ...], score: float, trial: int = 0, draw: int = 0, **more: Any) -> Run:
    """A run whose accuracies are all the same."""
    where = (test,) if isinstance(test, int) else test
    count = len(more.get("domains", PACS))
    return run(where, [record(0, [score] * count, [0.5] * count)], trial, draw, **more)


def whole(scores: list[list[float]], **more: Any) -> list[Run]:
    """``scores[trial][test domain]``."""
    return [flat(k, x, trial, **more) for trial, row in enumerate(scores) for k, x in enumerate(row)]


def by_kind(runs: list[Run], kind: str, method: str = "training-domain", **more: Any) -> Table:
    (found,) = [table for table in tables(runs, method, **more) if table.kind == kind]
    return found


def numbers(markdown: str, algorithm: str = "ERM") -> list[str]:
    line = next(line for line in markdown.splitlines() if line.startswith(f"| {algorithm} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


THREE = [[0.1, 0.2, 0.3, 0.4], [0.2, 0.2, 0.5, 0.4], [0.3, 0.2, 0.7, 0.4]]


def test_the_error_is_the_population_deviation_over_the_root_of_the_trials() -> None:
    cell = cell_of([0.1, 0.2, 0.3])
    assert cell.mean == pytest.approx(0.2)
    assert cell.error == pytest.approx(0.04714045, abs=1e-7)
    assert cell_of([0.5]).error == 0


def test_a_table_by_domain() -> None:
    text = render([by_kind(whole(THREE), "domains")])
    heads, row = (numbers(text, name) for name in ("algorithm", "ERM"))
    assert heads == ["algorithm", "optimizer", *PACS, "Avg", "trials", "draws"]
    expected = ["ERM", "adam", "20.0 +/- 4.7", "20.0 +/- 0.0", "50.0 +/- 9.4", "40.0 +/- 0.0", "32.5", "3", "1"]
    assert row == expected
    assert text.startswith("### PACS: accuracy on the test domain, training-domain selection\n")


def test_averages_are_taken_inside_a_trial_first() -> None:
    other = whole([[0.5, 0.7], [0.5, 0.7], [0.5, 0.7]], dataset="VLCS", domains=("a", "b"))
    table = by_kind(whole(THREE) + other, "averages")
    assert table.columns == ("PACS", "VLCS", "Avg")
    pacs, vlcs, average = table.lines[0].cells
    assert pacs.mean == pytest.approx(0.325)  # of 0.25, 0.325, 0.4
    assert pacs.error == pytest.approx(0.0353553, abs=1e-6)
    assert (vlcs.mean, vlcs.error) == (pytest.approx(0.6), pytest.approx(0))
    assert (average.mean, average.error) == (pytest.approx(0.4625), None)


def test_missing_runs_are_explained() -> None:
    runs = [r for r in whole(THREE) if not (r.config.trial_seed == 2 and r.config.test_domains == (1,))]
    runs = [r for r in runs if r.config.test_domains != (3,)]
    runs += [flat(2, 0.9, 1, draw=5, done=False), flat(3, 0.9, 0, algorithm="VREx")]
    text = render([by_kind(runs, "domains")])
    assert numbers(text)[2:7] == ["20.0 +/- 4.7", "X (1)", "50.0 +/- 9.4 (2)", "X (3)", "X (4)"]
    notes = [line for line in text.splitlines() if line.startswith("(")]
    assert notes == [
        "(1) Trial 2: no run.",
        "(2) Trial 1: 1 of 2 runs unfinished.",
        "(3) No run.",
        "(4) An average needs every test domain.",
    ]
    cells = by_kind(runs, "averages").lines[0].cells
    assert [cell.mean for cell in cells] == [None, None]
    assert "every test domain in every trial" in cells[0].note


def test_a_domain_that_no_run_leaves_out_has_no_column_and_a_note() -> None:
    runs = [r for r in whole(THREE) if r.config.test_domains[0] in (0, 2)]
    table = by_kind(runs, "domains")
    assert table.columns == (PACS[0], PACS[2], "Avg")
    assert table.lines[0].cells[2].mean == pytest.approx(0.35)
    assert table.notes[0] == f"No run leaves out {PACS[1]}, {PACS[3]}; averages are over the 2 shown."
    averages = by_kind(runs, "averages")
    assert averages.lines[0].cells[0].mean == pytest.approx(0.35)
    assert averages.notes == ("PACS: over 2 of its 4 domains, the others were never left out.",)
    assert by_kind(whole(THREE), "averages").notes == ()


def test_a_row_without_runs_of_a_data_set_is_missing_there_only() -> None:
    other = whole([[0.5, 0.7]], dataset="VLCS", domains=("a", "b"), algorithm="IRM")
    lines = {line.row.algorithm: line.cells for line in by_kind(whole(THREE) + other, "averages").lines}
    assert [cell.mean is None for cell in lines["ERM"]] == [False, True, True]
    assert lines["ERM"][1].note == "no run"


def test_draws_are_counted() -> None:
    runs = whole(THREE) + [flat(0, 0.9, trial, draw=1) for trial in range(3)]
    text = render([by_kind(runs, "domains")])
    assert numbers(text)[-1] == "1-2"
    assert numbers(text)[2] == "90.0 +/- 0.0"  # at a tie the largest seed


def test_backbones_get_a_column_when_there_are_several() -> None:
    one = whole(THREE)
    assert "backbone" not in render(tables(one))
    text = render([by_kind([*one, *whole(THREE, backbone="cnn")], "domains")])
    assert [row.split("|")[3].strip() for row in text.splitlines() if row.startswith("| ERM")] == [
        "cnn",
        "resnet50",
    ]


def test_swad_and_optimizers_are_rows() -> None:
    swad = [
        run([k], [record(0, [0.1] * 4, [0.5] * 4)], swad=True, averaged=record(0, [0.8] * 4, [0.1] * 4))
        for k in range(4)
    ]
    text = render([by_kind(whole(THREE) + whole(THREE, optimizer="genie") + swad, "domains")])
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ERM")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["ERM", "adam"],
        ["ERM", "genie"],
        ["ERM+SWAD", "adam"],
    ]
    assert numbers(text, "ERM+SWAD")[2:7] == ["80.0 +/- 0.0"] * 4 + ["80.0"]


def test_protocols_are_not_mixed_silently() -> None:
    runs = whole(THREE) + whole([[0.9] * 4], protocol="genie-paper")
    with pytest.raises(ResultsError, match=r"protocols domainbed and genie-paper.*--mix-protocols"):
        tables(runs)
    table = by_kind(runs, "domains", mix=True)
    assert [(line.row.protocol, line.cells[0].trials) for line in table.lines] == [
        ("domainbed", 3),
        ("genie-paper", 1),
    ]
    assert numbers(render([table]), "algorithm")[2] == "protocol"


def single(source: int, scores: list[float], trial: int = 0) -> Run:
    accuracies = [*scores[:source], 0.99, *scores[source:]]
    return run(
        [k for k in range(3) if k != source], [record(0, accuracies, [0.5] * 3)], trial, domains=("a", "b", "c")
    )


def test_single_sources() -> None:
    runs = [single(0, [0.1, 0.3]), single(1, [0.5, 0.6]), single(2, [0.7, 0.9])]
    runs += [single(0, [0.2, 0.4], 1), single(1, [0.5, 0.6], 1), single(2, [0.7, 0.9], 1)]
    found = tables(runs)
    assert [table.kind for table in found] == ["sources", "matrix"]
    text = render(found[:1])
    assert numbers(text)[2:6] == ["25.0 +/- 3.5", "55.0 +/- 0.0", "80.0 +/- 0.0", "53.3"]
    matrix = [line for line in render(found[1:]).splitlines() if line.startswith("| ERM")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")][2:6] for line in matrix]
    assert cells == [
        ["a", "-", "15.0 +/- 3.5", "35.0 +/- 3.5"],
        ["b", "50.0 +/- 0.0", "-", "60.0 +/- 0.0"],
        ["c", "70.0 +/- 0.0", "90.0 +/- 0.0", "-"],
    ]
    missing = render(tables(runs[:-1])[:1])
    assert numbers(missing)[4] == "X (1)"
    assert "(1) Trial 1: no run." in missing
    with pytest.raises(ResultsError, match="leave out 2 of 3 domains"):
        tables(runs, "leave-one-domain-out")


def test_pairs_fill_the_table_of_leave_one_domain_out_and_no_other() -> None:
    pairs = [flat((a, b), 0.5) for a in range(4) for b in range(a + 1, 4)]
    runs = [flat(k, 0.25 * k) for k in range(4)] + pairs
    text = render([by_kind(runs, "domains", "leave-one-domain-out")])
    assert numbers(text)[2:7] == ["0.0 +/- 0.0", "25.0 +/- 0.0", "50.0 +/- 0.0", "75.0 +/- 0.0", "37.5"]
    assert [t.kind for t in tables(runs)] == ["domains", "averages"]
    partly = render([by_kind(runs[:-1], "domains", "leave-one-domain-out")])
    assert numbers(partly)[2:7] == ["0.0 +/- 0.0", "25.0 +/- 0.0", "X (1)", "X (2)", "X (3)"]
    assert "(hparams seed 0: sketch)" in partly
    assert "(hparams seed 0: photo)" in partly


def test_the_oracle_says_what_it_saw() -> None:
    assert "oracle selection (last checkpoint)" in render(tables(whole(THREE), "oracle"))
    assert "(best checkpoint)" in render(tables(whole(THREE, protocol="genie-paper"), "oracle"))


def test_different_data_of_one_name_is_noted() -> None:
    text = render(tables([flat(0, 0.5, data_digest="aaa"), flat(1, 0.5, data_digest="bbb")]))
    assert "The runs name 2 versions of the data (digests aaa, bbb)." in text


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(ResultsError, match="no runs"):
        tables([])
    with pytest.raises(ResultsError, match="2 of 4"):
        tables([flat((0, 1), 0.5)])
    with pytest.raises(ResultsError, match="did you mean 'csv'"):
        render([], "cvs")


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
    rows = list(csv.DictReader(io.StringIO(render(tables(whole(THREE, domains=STRANGE)[:-1]), "csv"))))
    assert [row["column"] for row in rows if row["table"] == "domains"] == [*STRANGE, "Avg"]
    first = rows[0]
    assert float(first["accuracy"]) == pytest.approx(0.2)
    assert float(first["standard_error"]) == pytest.approx(0.0471405, abs=1e-6)
    told = [first[name] for name in ("dataset", "selection", "protocol", "algorithm", "optimizer", "backbone")]
    assert told == ["PACS", "training-domain", "domainbed", "ERM", "adam", "resnet50"]
    assert (first["trials"], first["fewest_draws"], first["most_draws"], first["note"]) == ("3", "1", "1", "")
    missing = rows[3]
    assert (missing["accuracy"], missing["standard_error"], missing["note"]) == ("", "", "trial 2: no run")
