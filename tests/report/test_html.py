"""What the page says, read as text and parsed as markup."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from genie_dg.cli import report as verb
from genie_dg.cli._errors import UserError
from genie_dg.report import charts
from genie_dg.report._page_script import SCRIPT
from genie_dg.report.html import page_text, report
from genie_dg.report.page_curves import POINTS, mean_curve, thin
from genie_dg.report.page_data import DRAWS, labels, page_data
from genie_dg.report.page_json import numbers, safe_json
from genie_dg.report.rerun import rerun
from genie_dg.results.schema import ResultsError, Run
from genie_dg.results.store import load
from genie_dg.results.table import tables

from .page_runs import record, run, sweep, write, written

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
    found: dict[str, list[dict[str, object]]] = json.loads(text[start : text.index("</script>", start)])
    return found


def test_the_numbers_are_those_of_the_tables() -> None:
    runs = sweep()
    text = report(runs)
    shown = "".join(read(text).texts)
    for table in tables(runs, "training-domain") + tables(runs, "oracle"):
        for line in table.lines if table.kind == "domains" else ():
            for cell in line.cells:
                assert cell.mean is not None
                error = "" if cell.error is None else f" ± {100 * cell.error:.1f}"
                assert f"{100 * cell.mean:.1f}{error}" in shown
    first = embedded(text)["tables"][0]
    expected = tables(runs, "training-domain")[0]
    assert first["columns"] == list(expected.columns)
    assert first["lines"][0]["mean"] == [round(c.mean or 0, 5) for c in expected.lines[0].cells]  # type: ignore[index]


def test_headings_are_in_order_and_tables_are_named() -> None:
    reader = read(report(sweep()))
    levels = [int(tag[1]) for tag in reader.tags if tag in {"h1", "h2", "h3", "h4", "h5", "h6"}]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert reader.tags.count("table") == reader.tags.count("caption") > 3
    assert {"main", "nav", "header"} <= set(reader.tags)


@pytest.mark.parametrize(
    "where", ["dataset", "optimizer", "domains", "failures", "problems", "protocol", "settings"]
)
def test_text_of_runs_never_becomes_markup(where: str) -> None:
    runs, problems = sweep(trials=1, draws=1), []
    plain = read(report(runs, ["x"])).tags
    if where == "problems":
        problems = [EVIL]
    elif where == "domains":
        runs = [_named(made, (EVIL, "b", "c", "d")) for made in runs]
    elif where == "failures":
        runs.append(run([0], [], 9, done=False, failures=[EVIL]))
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


def _named(made: Run, domains: tuple[str, ...]) -> Run:
    return Run(made.run_id, made.config, domains, made.numbers)


def test_nothing_is_asked_from_elsewhere() -> None:
    text = report(sweep())
    assert "http://" not in text
    assert "https://" not in text
    assert "default-src 'none'" in text
    assert "src=" not in text
    assert "url(" not in text


def test_missing_cells_are_explained_and_impossible_tables_too() -> None:
    runs = [made for made in sweep() if made.config.test_domains != (2,)]
    runs.append(run([2], [], optimizer="adam", done=False, failures=["The disk is full."]))
    text = report(runs)
    assert "missing<sup>1</sup>" in text
    assert "the last failure was: The disk is full" in text
    assert "Nothing can be selected: 2 of 2 draws lack complete runs" in text
    assert "1 run not complete" in text


def test_runs_of_which_no_table_can_be_made_still_have_a_page() -> None:
    text = report(sweep(tests=[(0, 1)]))
    assert "a table by oracle needs runs that leave out" in text
    assert "Hyper-parameter search" in text
    assert "Validation accuracy (%)" in text


def test_nothing_complete() -> None:
    text = report([run([0], [], done=False)])
    read(text)
    assert "0 complete, 1 other" in text


def test_single_sources_have_a_matrix() -> None:
    runs = sweep(tests=[(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)])
    text = report(runs)
    assert "PACS: from one source to each target, training-domain selection; ERM + adam (%)" in text
    assert text.count('class="heat"') == 2 * 2 * 12  # selections, rows, cells


def test_two_data_sets_have_averages() -> None:
    text = report(sweep() + sweep(dataset="VLCS"))
    assert "Averages over data sets" in text
    assert "Averages over data sets" not in report(sweep())


def test_protocols_are_not_mixed_unless_told() -> None:
    runs = sweep(trials=1) + sweep(trials=1, protocol="genie-paper")
    with pytest.raises(ResultsError, match="protocols domainbed and genie-paper"):
        report(runs)
    assert "ERM + adam (genie-paper)" in report(runs, mix=True)
    with pytest.raises(ResultsError, match="There are no runs"):
        report([])


def test_labels_tell_rows_apart() -> None:
    runs = sweep(("adam",), 1, 1) + sweep(("adam",), 1, 1, backbone="cnn") + sweep(("adam",), 1, 1, swad=True)
    assert list(labels(runs).values()) == [
        "ERM + adam (cnn)",
        "ERM + adam (resnet50)",
        "ERM+SWAD + adam (resnet50)",
    ]


def test_curves_are_means_over_the_chosen_runs() -> None:
    records = [
        [record(0, [0.2] * 4, [a] * 4), record(10, [0.6] * 4, [b] * 4)] for a, b in ((0.1, 0.5), (0.3, 0.9))
    ]
    runs = [
        run([0], records[0]),
        run([0], records[1], trial=1),
        run([0], [record(0, [0] * 4, [0] * 4)], draw=1),
    ]
    validation, test = page_data(runs).sets[0].charts
    assert [(s.steps, s.values, s.runs) for s in validation.series] == [([0, 10], [0.2, 0.7], 2)]
    assert test.series[0].values == [0.2, 0.6]


def test_curves_are_thinned_and_keep_their_ends() -> None:
    curve = mean_curve("a", [{k: k / 1000 for k in range(1000)}])
    assert len(curve.steps) == POINTS
    assert (curve.steps[0], curve.steps[-1]) == (0, 999)
    assert thin(61)[-1] == 60
    assert mean_curve("a", [{0: 1.0}, {1: 1.0}]).steps == []


def test_further_numbers_of_records_become_curves(tmp_path: Path) -> None:
    runs, problems = load(written(tmp_path, sweep(), "osgr"))
    assert problems == []
    chart = page_data(runs).sets[0].charts[2]
    assert (chart.title, chart.percent) == ("OSGR by its definition", False)
    assert chart.series[0].values == [2.0, 1.7, 1.4, 1.1]
    with (tmp_path / runs[0].run_id / "records.jsonl").open("a") as file:
        file.write('{"torn')
    runs, problems = load(tmp_path)
    assert len(problems) == 1
    assert page_data(runs).sets[0].charts[2] == chart


def test_versions_count_runs(tmp_path: Path) -> None:
    path, *_ = [write(tmp_path, made) for made in sweep(("adam",), 1, 1)]
    (path / "meta.json").write_text(json.dumps({"domains": list("abcd"), "torch": "3", "list": [1]}))
    assert page_data(load(tmp_path)[0]).versions == {("torch", "2"): 3, ("torch", "3"): 1}


def test_the_draws_say_which_was_chosen() -> None:
    story = page_data(sweep(draws=3)).sets[0].rows[0]
    assert len(story.draws) == 4 * 2 * 3
    assert sum(draw.chosen for draw in story.draws) == 4 * 2
    for where in {(draw.where, draw.trial) for draw in story.draws}:
        split = [draw for draw in story.draws if (draw.where, draw.trial) == where]
        assert max(split, key=lambda draw: draw.validation).chosen
    assert story.draws[0].settings.startswith("lr=")


def test_many_draws_are_cut_and_the_page_says_so() -> None:
    runs = sweep(("adam",), 1, DRAWS + 1, 1, tests=[(0,)])
    story = page_data(runs).sets[0].rows[0]
    assert (len(story.draws), story.count) == (DRAWS, DRAWS + 1)
    assert story.draws[0].chosen
    assert f"the {DRAWS} of {DRAWS + 1} with the highest validation" in report(runs)


def test_differences_and_budgets() -> None:
    page = page_data(sweep())
    (difference,) = page.sets[0].differences
    assert (difference.row, difference.baseline) == ("ERM + genie", "ERM + adam")
    assert "2 draws x 2 trials x 4 test domains = 16 runs" in page_text(page)
    assert f"{100 * difference.mean:+.2f}" in page_text(page)


def test_rows_without_a_shared_split_are_told() -> None:
    runs = sweep(("adam",), tests=[(0,)]) + sweep(("genie",), tests=[(1,)])
    assert "share no split and are not compared" in report(runs)


def test_how_to_run_it_again() -> None:
    hand = [run([1], [], optimizer="sam", protocol="custom", optimizer_settings={"rho": 0.1})]
    assert rerun(hand).startswith("genie-dg train PACS --test-domain cartoon --algorithm ERM --optimizer sam")
    assert rerun(hand).endswith("--set rho=0.1")
    text = rerun(sweep(("sam",), protocol="domainbed/changed"))
    for line in ('protocol = "domainbed"', 'test_domains = "leave-one-out"', "hparams = [0, 1]", "[overrides]"):
        assert line in text.splitlines()
    assert "[overrides]" not in rerun(sweep(("sam",)))
    assert 'test_domains = [["photo"]]' in rerun(sweep(("sam",), tests=[(2,)]))


def test_json_cannot_end_its_element() -> None:
    text = safe_json([EVIL])
    assert "<" not in text
    assert json.loads(text) == [EVIL]
    assert numbers(page_data(sweep()))["curves"][0]["row"] == "ERM + adam"
    assert "</" not in SCRIPT


def test_charts_put_numbers_where_they_belong() -> None:
    assert charts.ticks(-0.3, 0.3, 4) == pytest.approx([-0.4, -0.2, 0.0, 0.2, 0.4])
    drawn = charts.lines("a", [(0, [(0, 0.0), (10, 100.0)])])
    assert 'd="M38.0 176.0L310.0 20.0"' in drawn
    assert 'width="158.0"' in charts.bars("a", [(0, "x", 50.0, 1.0)])
    assert "missing" in charts.bars("a", [(0, "x", None, None)])
    assert "<circle" in charts.lines("a", [(0, [(0, 1.0)])])
    assert "no step" in charts.lines("a", [(0, [])])
    flat = charts.intervals("a", [(0, "x", 0.0, None, None)])
    assert 'cx="160.0"' in flat
    assert np.isfinite(charts.ticks(1e-9, 2e-9)).all()


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return parser.parse_args(words)


def test_the_verb_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "runs", sweep())
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{")
    page = tmp_path / "page.html"
    assert verb.run(arguments(str(folder), "-o", str(page))) == 0
    shown = capsys.readouterr()
    assert shown.out == f"32 runs in {page}; open it in a browser.\n"
    assert "config.json cannot be read" in shown.err
    assert "config.json cannot be read" in page.read_text(encoding="utf-8")


def test_the_verb_refuses_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There are no runs in"):
        verb.run(arguments(str(tmp_path)))
    with pytest.raises(UserError, match="nowhere cannot be read"):
        verb.run(arguments(str(tmp_path / "nowhere")))
    folder = written(tmp_path / "runs", sweep(trials=1) + sweep(trials=1, protocol="custom"))
    with pytest.raises(UserError, match="--mix-protocols"):
        verb.run(arguments(str(folder)))
    with pytest.raises(UserError, match="cannot be written"):
        verb.run(arguments(str(folder), "--mix-protocols", "-o", str(tmp_path)))


def test_no_torch_is_loaded() -> None:
    code = "import sys, genie_dg.report.html\nsys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
