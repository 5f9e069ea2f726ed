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
    from genie_dg.data.registry import SetRow

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
    _add_cache(store)
    show = verbs.add_parser("show", help="draw a contact sheet: classes by domains; of a table, a summary")
    out = f"the picture (default: {SHEET}), or the summary of a table (default: the screen)"
    show.add_argument("-o", "--out", type=path, metavar="FILE", help=out)
    per_cell = "samples of a class in a domain (%(default)s)"
    show.add_argument("--per-cell", type=whole(1, 100), default=3, help=per_cell)
    show.add_argument("--classes", type=whole(1, 1000), default=20, help="classes at most (%(default)s)")
    root = "for published sets, the folder that holds them"
    for child in (check, store, show):
        child.add_argument("what", type=path_text, help=WHAT)
        child.add_argument("--root", type=path, metavar="FOLDER", help=root)
        add_flags(child, "data")


def _add_cache(store: argparse.ArgumentParser) -> None:
    size, limit = (
        "pixels of the evaluation cache (%(default)s)",
        "shorter side at most in the training cache (%(default)s)",
    )
    store.add_argument("--image-size", type=whole(1, 2**15), default=224, help=size)
    store.add_argument("--limit", type=whole(1, 2**15), default=288, help=limit)
    approximate = "leave the training cache out: it is approximate"
    store.add_argument("--no-train", action="store_true", help=approximate)
    where = "the folder for caches (default: $GENIE_DG_CACHE)"
    store.add_argument("--cache", type=path, metavar="FOLDER", help=where)
    store.add_argument("--estimate", action="store_true", help="say how large they would be, build nothing")
    store.add_argument("--check", action="store_true", help="compare every picture with its checksum")


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
    from genie_dg.data.published.download import download

    writable_folder("--root", arguments.root)
    place = download(arguments.name, arguments.root, bar=progress_bar, say=print)
    print(f"It is in {place}; genie-dg data verify {arguments.name} --root {arguments.root} checks it.")
    return 0


def _opened(arguments: argparse.Namespace) -> DomainSet:
    """What was named; the warnings about it go to stderr."""
    from genie_dg.data.registry import open_data

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = open_data(arguments.what, arguments.root, columns_from(arguments))
    for warning in caught:
        print(f"Note: {warning.message}", file=sys.stderr)
    return data


def _verify(arguments: argparse.Namespace) -> int:
    from genie_dg.data.published.catalog import PUBLISHED
    from genie_dg.data.published.verify import Verification, verify
    from genie_dg.data.registry import row_of
    from genie_dg.data.tables import summarise

    row = row_of(str(arguments.what))
    if row is not None and row.kind == "embedded":
        raise InputError(
            f"{row.name} is made by this package and needs no check; name a published set or folder."
        )
    data = _opened(arguments)
    facts = PUBLISHED.get(row.name) if row else None
    if data.is_table:
        counts = {domain.name: len(domain) for domain in data.domains}
        report = Verification(counts, data.classes, summarise(data).problems)
    else:
        place = _folder_of_set(arguments, row)
        with progress_bar("looking at pictures", len(data)) as progress:
            report = verify(data, facts, place, deep=not arguments.quick, progress=progress)
    _print_report(report, "rows" if data.is_table else "pictures")
    if facts is not None:
        verdict = "are" if report.published_splits else "differ from"
        variant = data.variant or "none of the published ones"
        print(f"Variant: {variant}. The splits {verdict} the published ones.")
    elif data.variant:
        print(f"Variant: {data.variant}.")
    print("Everything is as it should be." if report.good else "Not usable as it is: see above.")
    return 0 if report.good else 1


def _folder_of_set(arguments: argparse.Namespace, row: SetRow | None) -> Path | None:
    """The folder <domain>/<class>/<picture> of a set; None where files are sorted in another way."""
    from genie_dg.data.published.catalog import PUBLISHED
    from genie_dg.data.registry import folder_of, is_table

    if row is not None:
        facts = PUBLISHED.get(row.name)
        return folder_of(facts.name, arguments.root, facts.folders) if facts else None
    place = Path(arguments.what)
    return place if place.is_dir() and not is_table(place, columns_from(arguments)) else None


def _print_report(report: Verification, what: str) -> None:
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


def _cache(arguments: argparse.Namespace) -> int:
    from genie_dg.data.cache import (
        EvalSpec,
        TrainSpec,
        cache_root,
        cache_size,
        damaged_rows,
        examine,
        open_cache,
    )
    from genie_dg.data.domains import PictureDomain

    data = _opened(arguments)
    domains = [domain for domain in data.domains if isinstance(domain, PictureDomain)]
    if not domains:
        raise InputError(f"{data.name} is in memory already and needs no cache; name a set of files.")
    caches = cache_root(arguments.cache)
    writable_folder("--cache", caches)
    specs: list[EvalSpec | TrainSpec] = [EvalSpec(arguments.image_size)]
    specs += [] if arguments.no_train else [TrainSpec(arguments.limit)]
    broken = 0
    for domain in domains:
        with progress_bar(f"{domain.name}: reading", len(domain)) as progress:
            pictures = examine(domain, caches, progress)
        for spec in specs:
            size = f"{cache_size(pictures, spec) / 2**20:,.0f} MB"
            if arguments.estimate:
                print(f"{domain.name:20} {spec}: {size}")
                continue
            with progress_bar(f"{domain.name}: {spec}, {size}", len(domain)) as progress:
                cache = open_cache(domain, spec, caches, progress)
            print(f"{domain.name:20} {spec}: {size} in {cache.path}")
            if arguments.check and (bad := len(damaged_rows(cache))):
                broken += bad
                print(f"{cache.path} has {bad:,} damaged pictures; remove that folder and build it again.")
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
    from genie_dg.data.tables import summarise
    from genie_dg.results.render import markdown_table

    summary = summarise(data)
    title = f"{data.name}: {len(data):,} rows, {len(data.domains)} domains, {len(data.classes)} classes"
    about = (
        f"{'; '.join((title, *summary.notes))}. Below a domain: how far its mean is from that of all rows, in "
        "deviations of all rows."
    )
    parts = [about] + [markdown_table(table[0], table[1:], 1) for table in (summary.domains, summary.columns)]
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
