"""Tables: means, errors, averages, single sources, missing cells; `render` writes them, see test_render.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genie_dg.results.frame import ResultsError, load
from genie_dg.results.render import render
from genie_dg.results.select import SelectedRun
from genie_dg.results.tables import Cell, Table, cell_of, check_protocols, gather, tables

from .build import PACS, Run, frame_of, lines, record, run, write


def flat(test: int | tuple[int, ...], score: float, trial: int = 0, draw: int = 0, **more: Any) -> Run:
    """A run whose accuracies are all the same."""
    where = (test,) if isinstance(test, int) else test
    count = len(more.get("domains", PACS))
    return run(where, [record(0, [score] * count, [0.5] * count)], trial, draw, **more)


def whole(scores: list[list[float]], **more: Any) -> list[Run]:
    """``scores[trial][test domain]``."""
    return [flat(k, x, trial, **more) for trial, row in enumerate(scores) for k, x in enumerate(row)]


def by_kind(runs: list[Run], kind: str, method: str = "training-domain", **more: Any) -> Table:
    (table,) = [table for table in tables(frame_of(runs), method, **more) if table.kind == kind]
    return table


def numbers(markdown: str, algorithm: str = "ERM") -> list[str]:
    line = next(line for line in markdown.splitlines() if line.startswith(f"| {algorithm} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


THREE = [[0.1, 0.2, 0.3, 0.4], [0.2, 0.2, 0.5, 0.4], [0.3, 0.2, 0.7, 0.4]]


def test_the_error_is_the_population_deviation_over_the_root_of_the_trials() -> None:
    cell = cell_of([0.1, 0.2, 0.3])
    assert cell.mean == pytest.approx(0.2)
    assert cell.error == pytest.approx(0.04714045, abs=1e-7)
    assert cell_of([0.5]).error is None


def test_a_cell_is_missing_when_one_of_its_trials_is() -> None:
    choices = {
        k: SelectedRun("r", scores=(k / 10, 0.5), draws=k + 1, note="one late" * (k == 1)) for k in range(3)
    }
    cell = gather((0, 2), choices.__getitem__)
    assert (cell.mean, cell.trials, cell.draws, cell.note) == (pytest.approx(0.3), 2, (1, 3), "")
    assert gather((0, 1), choices.__getitem__).note == "trial 1: one late"
    choices[2] = SelectedRun("r", missing="no run")
    assert gather((0, 1, 2), choices.__getitem__) == Cell(trials=2, note="trial 2: no run")
    assert gather((2,), choices.__getitem__) == Cell(note="no run")
    assert gather((), choices.__getitem__) == Cell(note="no run")


def test_a_table_by_domain() -> None:
    text = render([by_kind(whole(THREE), "domains")])
    heads, row = (numbers(text, name) for name in ("algorithm", "ERM"))
    assert heads == ["algorithm", "optimizer", *PACS, "Avg", "trials", "draws"]  # and no s/step: not timed
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


def test_protocols_are_not_mixed_silently() -> None:
    runs = whole(THREE) + whole([[0.9] * 4], protocol="genie-paper")
    with pytest.raises(ResultsError, match=r"protocols domainbed and genie-paper.*--mix-protocols"):
        tables(frame_of(runs))
    check_protocols(frame_of(runs), mix=True)
    check_protocols(frame_of(runs[:1]), mix=False)
    check_protocols(frame_of([]), mix=False)
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
    sources, matrix = tables(frame_of(runs))
    assert (sources.kind, matrix.kind) == ("sources", "matrix")
    assert sources.title == "PACS: mean accuracy on the other domains by source, training-domain selection"
    text = render([sources])
    assert numbers(text)[2:6] == ["25.0 +/- 3.5", "55.0 +/- 0.0", "80.0 +/- 0.0", "53.3"]
    lines = [line for line in render([matrix]).splitlines() if line.startswith("| ERM")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")][2:6] for line in lines]
    assert cells == [
        ["a", "-", "15.0 +/- 3.5", "35.0 +/- 3.5"],
        ["b", "50.0 +/- 0.0", "-", "60.0 +/- 0.0"],
        ["c", "70.0 +/- 0.0", "90.0 +/- 0.0", "-"],
    ]
    missing = render(tables(frame_of(runs[:-1]))[:1])
    assert numbers(missing)[4] == "X (1)"
    assert "(1) Trial 1: no run." in missing
    with pytest.raises(ResultsError, match="leave out 2 of 3 domains"):
        tables(frame_of(runs), "leave-one-domain-out")


def test_pairs_fill_the_table_of_leave_one_domain_out_and_no_other() -> None:
    pairs = [flat((a, b), 0.5) for a in range(4) for b in range(a + 1, 4)]
    runs = [flat(k, 0.25 * k) for k in range(4)] + pairs
    text = render([by_kind(runs, "domains", "leave-one-domain-out")])
    assert numbers(text)[2:7] == ["0.0", "25.0", "50.0", "75.0", "37.5"]
    assert [t.kind for t in tables(frame_of(runs))] == ["domains", "averages"]
    partly = render([by_kind(runs[:-1], "domains", "leave-one-domain-out")])
    assert numbers(partly)[2:7] == ["0.0", "25.0", "X (1)", "X (2)", "X (3)"]
    assert "(hparams seed 0: sketch)" in partly
    assert "(hparams seed 0: photo)" in partly


def titles(runs: list[Run]) -> set[str]:
    """How the titles of all tables name the selection."""
    return {table.title.partition(", ")[2] for table in tables(frame_of(runs), "oracle", mix=True)}


@pytest.mark.parametrize(
    ("protocol", "oracle", "rule"),
    [
        ("domainbed", "", "last"),
        ("genie-paper", "", "best"),
        ("genie-paper/changed", "", "best"),
        ("mine", "best", "best"),
        ("mine", "", "last"),
        ("genie-paper/changed", "last", "last"),
    ],
)
def test_the_oracle_says_which_record_it_saw(protocol: str, oracle: str, rule: str) -> None:
    """The title says what the numbers are: of the best record, or of the last."""
    records = [record(0, [0.25] * 4, [1.0] * 4), record(100, [0.75] * 4, [0.5] * 4)]
    runs = [run([k], records, protocol=protocol, oracle=oracle) for k in range(4)]
    assert titles(runs) == {f"oracle selection ({rule} checkpoint)"}
    cells = by_kind(runs, "domains", "oracle").lines[0].cells
    assert {cell.mean for cell in cells} == {0.25 if rule == "best" else 0.75}


def test_seconds_per_step_are_those_of_the_chosen_runs(tmp_path: Path) -> None:
    """Run k takes k + 1 seconds a step, evaluations included; the better draw of domain 0 takes 7."""
    runs = whole([[0.5] * 4])
    faster = run([0], [record(0, [0.9] * 4, [0.9] * 4)], draw=1)
    for one, pace in zip([*runs, faster], (1, 2, 3, 4, 7), strict=True):
        timings = [{"step": 0, "seconds": pace}, {"step": 9, "seconds": 9 * pace}]
        (write(tmp_path, one) / "timings.jsonl").write_text(lines(timings))
    listed = tables(load(tmp_path))
    assert [table.lines[0].pace for table in listed] == [(7 + 2 + 3 + 4) / 4] * 2
    assert numbers(render(listed[:1]))[-1] == "4"
    for path in tmp_path.glob("*/timings.jsonl"):
        path.write_text('{"step": "x", "seconds": 1}\n{')
    assert [table.lines[0].pace for table in tables(load(tmp_path))] == [None] * 2


def test_different_data_of_one_name_is_noted() -> None:
    runs = [flat(0, 0.5, data_digest="aaa"), flat(1, 0.5, data_digest="bbb")]
    assert "The runs name 2 versions of the data (digests aaa, bbb)." in render(tables(frame_of(runs)))
    assert "(digests aaa, none)" in render(tables(frame_of([*runs[:1], flat(1, 0.5)])))
    assert "digests" not in render(tables(frame_of(runs[:1])))


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(ResultsError, match="no runs"):
        tables(frame_of([]))
    with pytest.raises(
        ResultsError, match=r"leave out 2 of 4 domains; .* leave out one domain, or all but one\.$"
    ):
        tables(frame_of([flat((0, 1), 0.5)]))
    with pytest.raises(ResultsError, match=r"got selection='oracel'; .*; did you mean 'oracle'\?$"):
        tables(frame_of([flat(0, 0.5)]), "oracel")
