"""The quoted numbers: some against numbers typed by hand, all against the paper's own sums."""

from __future__ import annotations

import pytest

from paper.published import PUBLISHED, PublishedNumber, PublishedTable, lines_of

INCONSISTENCIES = lines_of("inconsistencies.csv")
ROUNDING = 0.0501


def test_all_tables_of_results_are_there() -> None:
    assert sum(len(list(table.cells())) for table in PUBLISHED.values()) == 1348
    places = sorted(int(table.place.split()[1]) for table in PUBLISHED.values())
    assert places == [2, 3, 4, 5, 6, *range(9, 25)]


@pytest.mark.parametrize(
    ("experiment", "dataset", "row", "column", "value", "error"),
    [
        ("optimizers", "", "GENIE", "Avg", 66.9, None),
        ("optimizers", "", "Adam", "TerraIncognita", 44.4, None),
        ("optimizers", "PACS", "FAD", "Sketch", 82.8, 0.9),
        ("optimizers", "VLCS", "GENIE", "SUN", 76.6, 0.3),
        ("optimizers", "OfficeHome", "AdaHessian", "Art", 63.0, 2.9),
        ("optimizers", "TerraIncognita", "GENIE", "L100", 55.2, 4.8),
        ("optimizers", "DomainNet", "SGD", "Real", 65.7, 0.0),
        ("iterations", "", "SAM@10000", "Time", 11500, None),
        ("iterations", "", "GENIE@15000", "OfficeHome", 69.1, None),
        ("iterations", "VLCS", "GENIE@5000", "Time[3]", 5485, None),
        ("iterations", "OfficeHome", "Adam@15000", "Acc[1]", 52.2, None),
        ("integration", "", "VREx", "Avg", 69.0, None),
        ("integration", "VLCS", "MMD", "VOC", 75.3, 3.3),
        ("integration", "TerraIncognita", "RSC+GENIE", "L38", 44.5, 3.7),
        ("single-source", "", "RSC+Adam", "OfficeHome", 2.1, None),
        ("single-source", "PACS", "ERM+GENIE", "Sketch", 63.5, 5.2),
        ("single-source", "TerraIncognita", "CORAL+GENIE", "L46", 43.6, 1.6),
        ("ablation", "PACS", "precondition+mask", "Photo", 98.3, None),
    ],
)
def test_numbers_typed_by_hand(
    experiment: str, dataset: str, row: str, column: str, value: float, error: float | None
) -> None:
    assert PUBLISHED[experiment, dataset].cell(row, column) == PublishedNumber(value, error)


def test_rows_that_the_paper_took_from_others_are_marked() -> None:
    assert PUBLISHED["optimizers", ""].marks == dict.fromkeys(
        ["Adam", "AdamW", "SGD", "Yogi", "AdaBelief", "AdaHessian", "SAM", "GAM", "FAD"], "*"
    )
    assert PUBLISHED["integration", ""].marks["MIRO"] == "*"
    assert PUBLISHED["integration", ""].marks["IRM"] == "†"


def number(table: PublishedTable) -> str:
    return table.place.partition(" (")[0]


def wrong_means() -> list[tuple[str, str, str]]:
    """Rows whose printed average is not the mean of the printed columns."""
    found = []
    for table in PUBLISHED.values():
        for row, cells in table.rows.items():
            values = [cell.value for cell in cells]
            if "Avg" in table.columns:
                groups = [("Avg", values[:-1], values[-1], ROUNDING)]
            elif table.dataset:
                groups = [("Time", values[:4], values[8], 0.5), ("Acc", values[4:8], values[9], ROUNDING)]
            else:
                groups = []
            for column, parts, printed, close in groups:
                if abs(sum(parts) / len(parts) - printed) > close:
                    found.append((number(table), row, column))
    return found


def test_printed_averages_are_means_but_for_the_listed_ones() -> None:
    listed = [(i["place"], i["row"], i["column"]) for i in INCONSISTENCIES if i["kind"] == "mean"]
    assert sorted(wrong_means()) == sorted(listed)


def test_main_and_detailed_tables_agree_but_for_the_listed_ones() -> None:
    found = []
    for (experiment, dataset), detail in PUBLISHED.items():
        if not dataset or (experiment, "") not in PUBLISHED:
            continue
        main = PUBLISHED[experiment, ""]
        for row in detail.rows:
            name = row.removeprefix("ERM+") if experiment == "single-source" else row
            ours, theirs = main.cell(name, dataset).value, detail.rows[row][-1].value
            if ours != theirs:
                found.append((number(main), name, dataset, str(ours), str(theirs)))
    names = ("place", "row", "column", "printed", "other")
    listed = [tuple(i[name] for name in names) for i in INCONSISTENCIES if i["kind"] == "detail"]
    assert sorted(found) == sorted(listed)


def test_tables_2_and_3_agree_but_for_the_listed_ones() -> None:
    """Both are about accuracy after 5,000 steps."""
    main, times = PUBLISHED["optimizers", ""], PUBLISHED["iterations", ""]
    found = []
    for row in ("SGD", "Adam", "SAM", "GENIE"):
        for dataset in times.columns[1:]:
            ours, theirs = main.cell(row, dataset).value, times.cell(f"{row}@5000", dataset).value
            if ours != theirs:
                found.append((row, dataset, str(ours), str(theirs)))
    listed = [
        tuple(i[name] for name in ("row", "column", "printed", "other"))
        for i in INCONSISTENCIES
        if (i["kind"], i["place"]) == ("table", "Table 2")
    ]
    assert found == listed
    assert len(found) == 11  # all but Adam on PACS


def test_what_is_said_in_words_against_numbers_is_listed() -> None:
    said = " ".join(i["reason"] for i in INCONSISTENCIES if i["kind"] == "text")
    for word in ("doubles the training time", "1 - tanh(1/variance) does the opposite", "24330"):
        assert word in said
    assert {i["kind"] for i in INCONSISTENCIES} == {"mean", "detail", "table", "text"}


def test_what_an_inconsistency_says_is_printed_there() -> None:
    by_number = {number(table): table for table in PUBLISHED.values()}
    for one in INCONSISTENCIES:
        if one["row"]:
            assert by_number[one["place"]].cell(one["row"], one["column"]).value == float(one["printed"])
        else:
            assert one["kind"] == "text"
            assert one["place"].startswith(("Section", "Appendix"))
