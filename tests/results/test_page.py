"""What the page says, read as text and parsed as markup."""

from __future__ import annotations

import argparse
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from genie_dg.cli import report as verb
from genie_dg.results import page
from genie_dg.results.figures import COLOURS
from genie_dg.results.frame import ResultsError, load
from genie_dg.results.page import numbers, page_text, safe_json
from genie_dg.results.page_data import LISTED_DRAWS, POINTS, mean_curve, page_data, thin
from genie_dg.results.tables import tables

from .build import Run, failed, frame_of, lines, record, run, write
from .page_runs import data_of, report, sweep, written

EVIL = "<img src=x onerror=alert(1)></script>&\"'"
VOID = {"meta", "link", "img"}


class Reader(HTMLParser):
    """Counts elements and checks that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    return reader


def embedded(text: str) -> dict[str, list[dict[str, object]]]:
    start = text.index('id="numbers">') + len('id="numbers">')
    numbers: dict[str, list[dict[str, object]]] = json.loads(text[start : text.index("</script>", start)])
    return numbers


def test_the_numbers_are_those_of_the_tables() -> None:
    frame = frame_of(sweep())
    text = page.report(frame)
    by_hand = {method: tables(frame, method) for method in ("training-domain", "oracle")}
    shown = "".join(read(text).texts)
    for table in by_hand["training-domain"] + by_hand["oracle"]:
        for line in table.lines if table.kind == "domains" else ():
            for cell in line.cells:
                assert cell.mean is not None
                error = "" if cell.error is None else f" ± {100 * cell.error:.1f}"
                assert f"{100 * cell.mean:.1f}{error}" in shown
    first = embedded(text)["tables"][0]
    expected = by_hand["training-domain"][0]
    assert first["columns"] == list(expected.columns)
    assert first["lines"][0]["mean"] == [round(c.mean or 0, 5) for c in expected.lines[0].cells]  # type: ignore[index]


@pytest.mark.parametrize(
    "where", ["dataset", "optimizer", "domains", "outcomes", "problems", "protocol", "settings"]
)
def test_text_of_runs_never_becomes_markup(where: str) -> None:
    runs, problems = sweep(trials=1, draws=1), []
    plain = read(report(runs, ["x"])).tags
    if where == "problems":
        problems = [EVIL]
    elif where == "domains":
        runs = [_named(one, (EVIL, "b", "c", "d")) for one in runs]
    elif where == "outcomes":
        runs.append(run([0], [], 9, done=False, outcomes=failed(EVIL)))
    elif where == "settings":
        runs = sweep(trials=1, draws=1, algorithm_settings={EVIL: EVIL})
    else:
        runs = sweep((EVIL,) if where == "optimizer" else ("adam",), 1, 1, **_changed(where))
    text = report(runs, problems)
    reader = read(text)
    assert "img" not in reader.tags
    assert reader.tags.count("script") == plain.count("script") == 2
    assert EVIL in "".join(reader.texts) or EVIL in json.dumps(embedded(text), ensure_ascii=False)
    assert "<img" not in text


def _changed(where: str) -> dict[str, str]:
    return {} if where == "optimizer" else {where: EVIL}


def _named(one: Run, domains: tuple[str, ...]) -> Run:
    return replace(one, domains=domains)


def test_nothing_is_asked_from_elsewhere() -> None:
    text = report(sweep())
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src 'none'" in text
    assert "src=" not in text
    assert "url(" not in text


def test_missing_cells_are_explained_and_impossible_tables_too() -> None:
    runs = [one for one in sweep() if one.config.test_domains != (2,)]
    runs.append(run([2], [], optimizer="adam", done=False, outcomes=failed("The disk is full.")))
    text = report(runs)
    assert "missing<sup>1</sup>" in text
    assert "the last failure was: The disk is full" in text
    assert "Nothing can be selected: 2 of 2 draws lack complete runs" in text
    assert "1 run not complete" in text


def test_single_sources_have_a_matrix() -> None:
    runs = sweep(tests=[(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)])
    text = report(runs)
    assert "ERM + genie has the highest average of 2 rows over sources" in text
    assert "PACS: from one source to each target, training-domain selection; ERM + adam (%)" in text
    assert text.count('class="heat"') == 2 * 2 * 12  # selections, rows, cells


def test_protocols_are_not_mixed_unless_told() -> None:
    runs = sweep(trials=1) + sweep(trials=1, protocol="genie-paper")
    with pytest.raises(ResultsError, match="protocols domainbed and genie-paper"):
        report(runs)
    text = report(runs, mix=True)
    assert "ERM + adam (genie-paper)" in text
    assert "several protocols, whose numbers do not compare, so there is no verdict" in text
    with pytest.raises(ResultsError, match="There are no runs"):
        page.report(frame_of(sweep()).clear())


def test_curves_are_means_over_the_chosen_runs() -> None:
    records = [
        [record(0, [0.2] * 4, [a] * 4), record(10, [0.6] * 4, [b] * 4)] for a, b in ((0.1, 0.5), (0.3, 0.9))
    ]
    runs = [
        run([0], records[0]),
        run([0], records[1], trial=1),
        run([0], [record(0, [0] * 4, [0] * 4)], draw=1),
    ]
    validation, test = data_of(runs).sets[0].curves
    (curve,) = validation.data.curves
    assert (curve.steps, curve.values) == ([0, 10], [0.2, 0.7])
    assert (curve.low, curve.high) == ([0.1, 0.5], [0.3, 0.9])
    assert test.data.curves[0].values == [0.2, 0.6]


def test_curves_are_thinned_and_keep_their_ends() -> None:
    curve = mean_curve("a", [{k: k / 1000 for k in range(1000)}])
    assert len(curve.steps) == POINTS
    assert (curve.steps[0], curve.steps[-1]) == (0, 999)
    assert thin(61)[-1] == 60
    assert mean_curve("a", [{0: 1.0}, {1: 1.0}]).steps == []


def test_what_was_watched_becomes_curves(tmp_path: Path) -> None:
    for one in sweep():
        watch = [{"step": r["step"], "osgr": 2.0 - r["step"] / 1000, "heat": [1, 3]} for r in one.records]
        (write(tmp_path, one) / "watch.jsonl").write_text(lines(watch) + '{"torn')
    (data,) = page_data(load(tmp_path)).sets
    chart = data.curves[2]
    assert (chart.data.name, chart.percent) == ("OSGR by its definition", False)
    assert chart.data.curves[0].values == [2.0, 1.7, 1.4, 1.1]


def test_the_draws_say_which_was_chosen() -> None:
    draws = data_of(sweep(draws=3)).sets[0].draws["ERM + adam"]
    assert len(draws) == 4 * 2 * 3
    assert sum(draw.chosen for draw in draws) == 4 * 2
    for where in {(draw.where, draw.trial) for draw in draws}:
        split = [draw for draw in draws if (draw.where, draw.trial) == where]
        assert max(split, key=lambda draw: draw.validation).chosen
    assert draws[0].words.startswith("lr=")


def test_many_draws_are_cut_and_the_page_says_so() -> None:
    runs = sweep(("adam",), 1, LISTED_DRAWS + 1, 1, tests=[(0,)])
    data = data_of(runs)
    text = page_text(data)
    draws = data.sets[0].draws["ERM + adam"]
    assert len(draws) == LISTED_DRAWS + 1
    assert draws[0].chosen
    assert f"the {LISTED_DRAWS} of {LISTED_DRAWS + 1} with the highest validation" in text
    assert f"1 of {LISTED_DRAWS + 1} are left out" in text


def test_runs_are_listed_with_their_folders(tmp_path: Path) -> None:
    runs = sweep(("adam",), 1, 2)
    folder = written(tmp_path / "runs", runs)
    (folder / runs[0].config.run_id / "timings.jsonl").write_text(
        '{"seconds": 1.5, "step": 0}\n{"seconds": 3.0, "step": 8}\n'
    )
    data = page_data(load(folder))
    timed = [draw for draw in data.sets[0].draws["ERM + adam"] if draw.seconds is not None]
    assert [(draw.run, draw.seconds) for draw in timed] == [(runs[0].config.run_id, 0.5)]
    text = page_text(data)
    for one in runs:
        assert f'<td class="text mono" data-value="{folder / one.config.run_id}">' in text
    assert {line["run"] for line in embedded(text)["runs"]} == {one.config.run_id for one in runs}


def test_differences_and_budgets() -> None:
    data = data_of(sweep())
    (difference,) = data.sets[0].differences
    assert (difference.row, difference.baseline) == ("ERM + genie", "ERM + adam")
    assert "2 draws x 2 trials x 4 test domains = 16 runs" in page_text(data)
    assert f"{100 * difference.mean:+.2f}" in page_text(data)


def flat(optimizer: str, scores: list[list[float]]) -> list[Run]:
    """``scores[trial][test domain]``."""
    return [
        run([k], [record(0, [x] * 4, [0.9] * 4)], trial, optimizer=optimizer)
        for trial, row in enumerate(scores)
        for k, x in enumerate(row)
    ]


def test_the_verdict_says_better_only_where_the_interval_excludes_zero() -> None:
    adam = flat("adam", [[0.5] * 4, [0.5] * 4])
    assert data_of(adam).verdict == (
        "ERM + adam has an average of 50.0 % over its test domains; there is no other row to compare it with."
    )
    assert data_of(adam + flat("genie", [[0.6] * 4, [0.6] * 4])).verdict == (
        "ERM + genie has the highest average of 2 rows over test domains (60.0 %) and is 10.0 points above "
        "ERM + adam over 8 splits, 95 % interval +10.0 to +10.0: better."
    )
    mixed = data_of(adam + flat("genie", [[0.9] * 4, [0.2] * 4])).verdict
    assert re.search(
        r"5.0 points above ERM \+ adam over 8 splits, 95 % interval -.* to \+.*: undecided\.$", mixed
    )
    baseline = data_of(adam + flat("genie", [[0.4] * 4, [0.4] * 4])).verdict
    assert "ERM + adam has the highest average of 2 rows" in baseline
    assert "is 10.0 points above ERM + genie over 8 splits, 95 % interval +10.0 to +10.0: better." in baseline
    assert "undecided" in data_of(sweep(trials=1, draws=1)).verdict
    assert data_of([run([0], [], done=False)]).verdict == (
        "No row has an average over everything it was asked for, so there is no verdict."
    )


def test_name_and_date_stand_on_top(tmp_path: Path) -> None:
    runs = sweep(trials=1)
    written(tmp_path, runs)
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "first.json").write_text("{}")
    for k, one in enumerate(runs):
        os.utime(tmp_path / one.config.run_id / "done", (86400.0 * k, 86400.0 * k))
    text = page.report(load(tmp_path))
    assert "<h1>first: report of 16 runs</h1>" in text
    assert "1970-01-01 to 1970-01-16 (UTC)" in text
    assert text.index(data_of(runs).verdict) < text.index("<main")


def test_figures_take_their_colours_from_the_page() -> None:
    text = report(sweep(tuple("abcdefg")))
    for svg in re.findall(r"<svg.*?</svg>", text, re.S):
        assert not re.search(r":#[0-9a-f]{6}", svg)
    for place, colour in enumerate(COLOURS):
        assert f"--c{place}:{colour};" in text
        assert f"var(--c{place})" in text
    assert text.count('role="img"') == len(re.findall(r'role="img" aria-label="[^"]+"', text)) > 4


def test_json_cannot_end_its_element() -> None:
    text = safe_json([EVIL])
    assert "<" not in text
    assert json.loads(text) == [EVIL]
    plain = numbers(data_of(sweep()))
    assert {"tables", "curves", "losses", "settings", "seconds", "runs", "verdict"} <= plain.keys()
    assert {line["row"] for line in plain["curves"]} == {"ERM + adam", "ERM + genie"}
    assert "</" not in Path(page.__file__).with_name("templates").joinpath("page.js").read_text()


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return parser.parse_args(words)


def test_the_verb_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "runs", sweep())
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{")
    target = tmp_path / "page.html"
    assert verb.run(arguments(str(folder), "-o", str(target))) == 0
    shown = capsys.readouterr()
    assert shown.out == f"32 runs in {target}; open it in a browser.\n"
    assert "config.json cannot be read" in shown.err
    assert "config.json cannot be read" in target.read_text(encoding="utf-8")
