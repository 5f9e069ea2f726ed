"""What is asked about the runs of the corpus: for each case a name and the words of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Case = tuple[str, list[str]]

FORMATS = ("md", "tex", "csv")
METHODS = ("training-domain", "leave-one-domain-out", "oracle")

ALONE = (
    *(
        "domainbed",
        "genie-paper",
        "single-source",
        "both",
        "pairs",
        "swad",
        "by-hand",
        "watched",
        "broken",
        "demo",
    ),
    *("own-protocol", "imported", "imported-odd", "names"),
)
"""Folders whose runs follow one protocol."""

TOGETHER = (
    ("domainbed", "both"),
    ("domainbed", "swad", "watched", "pairs"),
    ("imported", "imported-more"),
    ("watched", "digests"),
    ("copies", "broken"),
    ("broken", "copies"),
)
"""Folders of one protocol that are read together; copies of runs are among them."""

MIXED = (
    ("two-protocols",),
    ("domainbed", "genie-paper"),
    ("imported", "imported-other"),
    ("both", "imported-more", "by-hand", "own-protocol", "demo", "single-source"),
)
"""Folders of several protocols."""

MLP = "digits --backbone mlp"
THIRTY = f"{MLP} --test-domain 30~degrees --every 4"
BY_HAND = {
    "genie": f"{THIRTY} --set lr=1 --steps 13",
    "genie trial 1": f"{THIRTY} --set lr=1 --steps 13 --trial 1",
    "adam": f"{THIRTY} --optimizer adam --set lr=0.01 --steps 13",
    "adam slower": f"{THIRTY} --optimizer adam --set lr=0.003 --steps 13",
    "adam cnn": "digits --test-domain 2 --optimizer adam --set lr=0.01 --steps 5 --every 2 --batch-size 8",
    "genie cnn": "digits --test-domain 2 --set lr=1 --steps 5 --every 2 --batch-size 8",
    "swad": f"{THIRTY} --optimizer adam --set lr=0.01 --steps 17 --swad",
    "sam": f"{MLP} --test-domain 75~DEGREES --optimizer sam --set base=sgd --set rho=0.1 --steps 9",
    "IRM": f"{MLP} --test-domain 0 --algorithm irm --optimizer Adam --set irm_lambda=10 --steps 9",
    "two left out": f"{MLP} --test-domain 5 --test-domain 0 --optimizer adam --steps 9",
    "bfloat16": "coloured-digits --test-domain 1 --backbone mlp --precision bfloat16 --dropout 0.5 --steps 9",
    "one source": "coloured-digits --test-domain 0 --test-domain 1 --backbone mlp --algorithm CORAL --steps 5",
}
"""Runs by hand; ``~`` stands for a space inside of a word."""

SWEEPS_AGAIN = (
    "domainbed",
    "genie-paper",
    "single-source",
    "both",
    "swad",
    "two-protocols-paper",
    "own-protocol/sweep",
)


def train_words(name: str, out: str = "by-hand") -> list[str]:
    """The command line of a run by hand."""
    return [
        "train",
        *(word.replace("~", " ") for word in BY_HAND[name].split()),
        "--out",
        out,
        "--device",
        "cpu",
    ]


def all_cases(one_run: str, two_left_out: str) -> list[Case]:
    """Every case, by name.

    Args:
        one_run: the folder of a run, which is read alone.
        two_left_out: the same, of a run that leaves out two domains.
    """
    found = [*_tables(one_run, two_left_out), *_comparisons(), *_states(), *_pages(), *_imports(), *_again()]
    assert len({name for name, _ in found}) == len(found), "two cases have one name"
    return sorted(found)


def _tables(one_run: str, two_left_out: str) -> Iterator[Case]:
    for folders in [*((name,) for name in ALONE), *TOGETHER, *MIXED]:
        for mix in (False, True)[: 1 + (folders in MIXED)]:
            for method in METHODS:
                for form in FORMATS if _fills(folders, method, mix) else ("md",):
                    yield _table(folders, "--select", method, "--format", form, *["--mix-protocols"] * mix)
    yield "table one run", ["table", one_run, "--format", "csv"]
    for method in METHODS:
        yield f"table two left out {method}", ["table", two_left_out, "--select", method]
    yield _table(("domainbed",))
    yield _table(("domainbed",), "-o", "table.md")
    yield _table(("single-source",), "--select", "oracle", "--format", "tex", "-o", "table.tex")
    yield _table(("domainbed",), "-o", "nowhere/table.md")
    yield _table(("domainbed",), "--select", "orakel")
    yield _table(("domainbed",), "--format", "html")
    for folder in ("tree", "empty", "nowhere", "copies", "imported-other"):
        yield _table((folder,))


def _fills(folders: Sequence[str], method: str, mix: bool) -> bool:
    """Whether a table has numbers; one form of those that are refused or empty will do."""
    with_pairs = {"both", "pairs", "imported"} & set(folders)
    return (mix or folders not in MIXED) and (method != "leave-one-domain-out" or bool(with_pairs))


def _table(folders: Sequence[str], *more: str) -> Case:
    words = ["table", *folders, *more]
    return " ".join(word for word in words if word not in ("--select", "--format")), words


def _comparisons() -> Iterator[Case]:
    for folders in [*((name,) for name in ALONE), *TOGETHER]:
        for form in ("md", "csv"):
            yield _compare(*folders, "--format", form)
    for folders in MIXED:
        yield _compare(*folders)
        for form in ("md", "csv"):
            yield _compare(*folders, "--mix-protocols", "--format", form)
    for form in ("md", "csv"):
        yield _compare("domainbed", "--baseline", "erm + genie", "--format", form)
        yield _compare(
            "imported", "--baseline", "CORAL + adam", "--resamples", "300", "--seed", "7", "--format", form
        )
        yield _compare("genie-paper", "--rows", "ERM + sam", "ERM + genie", "--format", form)
        yield _compare(
            "by-hand", "--rows", "erm + genie (mlp)", "--baseline", "ERM + adam (mlp)", "--format", form
        )
    yield _compare("domainbed", "--rows", "IRM + adam", "--baseline", "ERM + adam", "--resamples", "1")
    for words in (["--rows", "ERM + genie"], ["--rows", "ERM + adma"], ["--baseline", "adam"]):
        yield _compare("domainbed", *words)
    for words in (["--resamples", "0"], ["--seed", "-1"], ["--format", "tex"]):
        yield _compare("domainbed", *words)
    for folder in ("empty", "nowhere", "tree", "imported-other"):
        yield _compare(folder)


def _compare(*words: str) -> Case:
    return " ".join(["compare", *(word for word in words if word != "--format")]), ["compare", *words]


def _states() -> Iterator[Case]:
    swept = [name for name in ALONE if not name.startswith(("imported", "by-hand", "names"))]
    for folder in (*swept, "two-protocols", "imported", "bad-list", "empty", "nowhere"):
        yield f"status {folder} all", ["status", folder, "--all"]
    yield "status broken", ["status", "broken"]
    yield "status broken two workers", ["status", "broken", "--workers", "2"]


def _pages() -> Iterator[Case]:
    for folders in [*((name,) for name in ALONE), *TOGETHER, *MIXED]:
        mix = ["--mix-protocols"] if folders in MIXED else []
        yield f"report {' '.join(folders)}", ["report", *folders, *mix, "-o", "page.html"]
    yield "report refused", ["report", *MIXED[0], "-o", "page.html"]
    yield "report of nothing", ["report", "empty", "-o", "page.html"]


def _imports() -> Iterator[Case]:
    for tree, out in (("tree", "new"), ("tree", "imported"), ("tree-more", "new"), ("tree-other", "new")):
        yield f"import {tree} into {out}", ["import", tree, "--out", out]
    for tree, out in (("tree-odd", "new"), ("tree-odd", "imported-odd"), ("tree-odd-later", "imported-odd")):
        yield f"import {tree} into {out}", ["import", tree, "--out", out]
    for tree in ("empty", "nowhere"):
        yield f"import {tree}", ["import", tree, "--out", "new"]


def _again() -> Iterator[Case]:
    for name in BY_HAND:
        yield f"train {name} again", train_words(name)
    yield "train wrong domain", ["train", "digits", "--test-domain", "31 degrees", "--out", "by-hand"]
    yield (
        "train wrong setting",
        ["train", "digits", "--test-domain", "0", "--set", "rate=1", "--out", "by-hand"],
    )
    for name in SWEEPS_AGAIN:
        out = name.removesuffix("-paper" if name.startswith("two") else "/sweep")
        yield f"sweep {out} again", ["sweep", f"{name}.toml", "--out", out, "--workers", "1", "--device", "cpu"]
    yield (
        "demo again",
        [
            *("demo", "--data", "digits", "--out", "demo"),
            *("--steps", "8", "--draws", "2", "--trials", "2", "--optimizers", "sgd,genie"),
        ],
    )
