"""List, download, verify, cache and look at data sets."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.arguments import path, path_text, some_text, whole
from genie_dg.bench.options import add_flags, columns_from
from genie_dg.check import InputError, folder, writable_folder

from ._shared import progress_bar, write

if TYPE_CHECKING:
    from genie_dg.data.domains import DomainSet
    from genie_dg.data.published.verify import Verification

WHAT = "the name of a set, a folder <domain>/<class>/<picture>, a CSV or JSON list, or a table"
SHEET = Path("contact_sheet.png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-verb for each thing that can be done."""
    verbs = parser.add_subparsers(dest="action", metavar="action", required=True, parser_class=type(parser))
    verbs.add_parser("list", help="the sets that are known")
    fetch = verbs.add_parser("download", help="fetch a published set; goes on where it was stopped")
    fetch.add_argument("name", type=some_text, help="PACS, VLCS, OfficeHome, TerraIncognita or DomainNet")
    fetch.add_argument("--root", type=path, required=True, metavar="FOLDER", help="the folder for data sets")
    check = verbs.add_parser("verify", help="look at every file and compare with what is published")
    check.add_argument("--quick", action="store_true", help="do not decode the pictures")
    store = verbs.add_parser("cache", help="decode once: build the caches of a set")
    store.add_argument(
        "--image-size", type=whole(1, 2**15), default=224, help="pixels of the evaluation cache (%(default)s)"
    )
    store.add_argument(
        "--limit",
        type=whole(1, 2**15),
        default=288,
        help="shorter side at most in the training cache (%(default)s)",
    )
    store.add_argument(
        "--no-train", action="store_true", help="leave the training cache out: it is approximate"
    )
    store.add_argument(
        "--cache", type=path, metavar="FOLDER", help="the folder for caches (default: $GENIE_DG_CACHE)"
    )
    store.add_argument("--estimate", action="store_true", help="say how large they would be, build nothing")
    store.add_argument("--check", action="store_true", help="compare every block with its checksum")
    show = verbs.add_parser("show", help="draw a contact sheet: classes by domains; of a table, a summary")
    show.add_argument(
        "-o",
        "--out",
        type=path,
        metavar="FILE",
        help=f"the picture (default: {SHEET}), or the summary of a table (default: the screen)",
    )
    show.add_argument(
        "--per-cell", type=whole(1, 100), default=3, help="samples of a class in a domain (%(default)s)"
    )
    show.add_argument("--classes", type=whole(1, 1000), default=20, help="classes at most (%(default)s)")
    for child in (check, store, show):
        child.add_argument("what", type=path_text, help=WHAT)
        child.add_argument(
            "--root", type=path, metavar="FOLDER", help="for published sets, the folder that holds them"
        )
        add_flags(child, "data")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked."""
    if arguments.action not in ("list", "download") and arguments.root is not None:
        folder(arguments.root, "give --root the folder that holds the data sets")
    return int(ACTIONS[arguments.action](arguments))


def _list(arguments: argparse.Namespace) -> int:
    from genie_dg.data.registry import SETS

    for row in SETS.values():
        print(f"{row.name:20} {row.kind:10} {row.summary}")
    print(
        "A folder <domain>/<class>/<picture>, a list (path, label, domain) or a table of numbers of your own "
        "works everywhere."
    )
    return 0


def _download(arguments: argparse.Namespace) -> int:
    from genie_dg.data.progress import progress_bars
    from genie_dg.data.published.download import download

    writable_folder("--root", arguments.root)
    with progress_bars() as progress:
        place = download(arguments.name, arguments.root, progress=progress, say=print)
    print(f"It is in {place}; genie-dg data verify {arguments.name} --root {arguments.root} checks it.")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from genie_dg.data.published.catalog import PUBLISHED
    from genie_dg.data.published.verify import verify
    from genie_dg.data.registry import folder_of, is_table, refuse_columns, row_of

    row = row_of(str(arguments.what))
    facts = PUBLISHED.get(row.name) if row else None
    if row is not None and row.kind == "embedded":
        raise InputError(
            f"{row.name} is made by this package and needs no check; name a published set or folder."
        )
    place = Path(arguments.what)
    if facts is None and (row is not None or place.is_file() or is_table(place, columns_from(arguments))):
        return _verify_opened(_opened(arguments), not arguments.quick)
    refuse_columns(arguments.what, columns_from(arguments))
    root = folder_of(facts.name, arguments.root, facts.folders) if facts else place
    with progress_bar("looking at pictures", None) as progress:
        report = verify(root, facts, deep=not arguments.quick, progress=progress)
    _tell(report)
    if facts is not None:
        verdict = "differ from" if report.splits_differ else "are"
        variant = report.variant or "none of the published ones"
        print(f"Variant: {variant}. The splits {verdict} the published ones.")
    print("Everything is as it should be." if report.good else "Not usable as it is: see above.")
    return 0 if report.good else 1


def _tell(report: Verification, what: str = "pictures") -> None:
    """Counts, classes and problems."""
    for domain, count in report.counts.items():
        print(f"{domain:20} {count:>9,} {what}")
    more = ", ..." if report.classes[10:] else ""
    print(f"{len(report.classes)} classes: {', '.join(report.classes[:10])}{more}")
    for kind, things in report.problems.items():
        for thing in things[:20]:
            print(f"{kind}: {thing}")
        if things[20:]:
            print(f"{kind}: and {len(things) - 20:,} more")


def _opened(arguments: argparse.Namespace) -> DomainSet:
    """What was named; the warnings about it go to stderr."""
    from genie_dg.data.registry import open_data

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = open_data(arguments.what, arguments.root, columns_from(arguments))
    for warning in caught:
        print(f"Note: {warning.message}", file=sys.stderr)
    return data


def _verify_opened(data: DomainSet, deep: bool) -> int:
    """A set that is not a folder of domains: a list, a table, or files in a layout of their own."""
    from genie_dg.data.published.verify import Verification, verify_set
    from genie_dg.data.table_summary import summarise

    if data.is_table:
        found = summarise(data)
        counts = {domain.name: len(domain) for domain in data.domains}
        _tell(Verification(counts, data.classes, problems=found.problems), "rows")
        good = found.good
    else:
        with progress_bar("looking at pictures", len(data)) as progress:
            report = verify_set(data, deep=deep, progress=progress)
        _tell(report)
        good = report.good
        if report.variant:
            print(f"Variant: {report.variant}.")
    print("It can be trained on." if good else "Not usable as it is: see above.")
    return 0 if good else 1


def _cache(arguments: argparse.Namespace) -> int:
    from genie_dg.data.cache import EvalSpec, TrainSpec, cache_folder, damaged_blocks, estimate, open_cache
    from genie_dg.data.digests import examine
    from genie_dg.data.domains import PictureDomain

    data = _opened(arguments)
    domains = [domain for domain in data.domains if isinstance(domain, PictureDomain)]
    if not domains:
        raise InputError(f"{data.name} is in memory already and needs no cache; name a set of files.")
    caches = cache_folder(arguments.cache)
    writable_folder("--cache", caches)
    specs: list[EvalSpec | TrainSpec] = [EvalSpec(arguments.image_size)]
    specs += [] if arguments.no_train else [TrainSpec(arguments.limit)]
    broken = 0
    for domain in domains:
        with progress_bar(f"{domain.name}: reading", len(domain)) as progress:
            known = examine(domain, caches, progress)
        for spec in specs:
            size = f"{estimate(known, spec) / 2**20:,.0f} MB"
            if arguments.estimate:
                print(f"{domain.name:20} {spec}: {size}")
                continue
            with progress_bar(f"{domain.name}: {spec}, {size}", len(domain)) as progress:
                cache = open_cache(domain, spec, caches, progress)
            print(f"{domain.name:20} {spec}: {size} in {cache.path}")
            bad = damaged_blocks(cache) if arguments.check else []
            broken += len(bad)
            if bad:
                print(f"{cache.path} has {len(bad)} damaged blocks; remove that folder and build it again.")
    return 1 if broken else 0


def _show(arguments: argparse.Namespace) -> int:
    from genie_dg.data.contact_sheet import contact_sheet

    out = arguments.out or SHEET
    if out.is_dir():
        raise InputError(f"{out} is a folder; name a file for the contact sheet, such as sheet.png.")
    writable_folder("--out", out.parent)
    data = _opened(arguments)
    if data.is_table:
        return _show_table(data, arguments.out)
    sheet = contact_sheet(data, arguments.per_cell, max_classes=arguments.classes)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        sheet.image.save(out)
    except (OSError, ValueError) as error:  # an ending that names no kind of picture is a ValueError
        raise InputError(f"{out} cannot be written ({error}); name a file such as sheet.png.") from error
    for problem in sheet.problems:
        print(problem)
    print(f"{data.name}: {len(data):,} samples, {len(data.domains)} domains, {len(data.classes)} classes.")
    print(f"The contact sheet is in {out}.")
    return 0


def _show_table(data: DomainSet, out: Path | None) -> int:
    """The summary of a table as Markdown."""
    from genie_dg.data.table_summary import summarise
    from genie_dg.results.render import markdown_table

    found = summarise(data)
    title = f"{data.name}: {len(data):,} rows, {len(data.domains)} domains, {len(data.classes)} classes"
    about = (
        f"{'; '.join((title, *found.notes))}. Below a domain: how far its mean is from that of all rows, in "
        "deviations of all rows."
    )
    parts = [about] + [markdown_table(table[0], table[1:], 1) for table in (found.domains, found.columns)]
    text = "\n\n".join(parts) + "\n"
    if out is None:
        print(text, end="")
        return 0
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, text.encode("utf-8"))
    print(f"The summary is in {out}.")
    return 0


ACTIONS = {"list": _list, "download": _download, "verify": _verify, "cache": _cache, "show": _show}
"""By the name of the action."""
