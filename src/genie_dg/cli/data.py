"""List, download, verify and cache data sets."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.arguments import path, path_text, some_text, whole
from genie_dg.bench.options import add_flags, columns_from
from genie_dg.check import InputError, folder, writable_folder

from ._shared import progress_bar

if TYPE_CHECKING:
    from genie_dg.data.domains import DomainSet
    from genie_dg.data.published.verify import Verification
    from genie_dg.data.registry import SetRow

WHAT = "the name of a set, a folder <domain>/<class>/<picture>, a CSV or JSON list, or a table"


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
    root = "for published sets, the folder that holds them"
    for child in (check, store):
        child.add_argument("what", type=path_text, help=WHAT)
        child.add_argument("--root", type=path, metavar="FOLDER", help=root)
        add_flags(child, "data")


def _add_cache(store: argparse.ArgumentParser) -> None:
    size = "pixels of the evaluation cache (%(default)s)"
    store.add_argument("--image-size", type=whole(1, 2**15), default=224, help=size)
    approximate = "leave the training cache out: it is approximate"
    store.add_argument("--no-train", action="store_true", help=approximate)
    where = "the folder for caches (default: $GENIE_DG_CACHE)"
    store.add_argument("--cache", type=path, metavar="FOLDER", help=where)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked."""
    if arguments.action not in ("list", "download") and arguments.root is not None:
        folder(arguments.root, "give --root the folder that holds the data sets")
    return int(_ACTIONS[arguments.action](arguments))


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
    from genie_dg.data.tables import table_problems

    row = row_of(str(arguments.what))
    if row is not None and row.kind == "embedded":
        raise InputError(
            f"{row.name} is made by this package and needs no check; name a published set or folder."
        )
    data = _opened(arguments)
    facts = PUBLISHED.get(row.name) if row else None
    if data.is_table:
        counts = {domain.name: len(domain) for domain in data.domains}
        report = Verification(counts, data.classes, table_problems(data))
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
    from genie_dg.data.cache import EvalSpec, TrainSpec, cache_root, open_cache
    from genie_dg.data.domains import PictureDomain

    data = _opened(arguments)
    domains = [domain for domain in data.domains if isinstance(domain, PictureDomain)]
    if not domains:
        raise InputError(f"{data.name} is in memory already and needs no cache; name a set of files.")
    caches = cache_root(arguments.cache)
    writable_folder("--cache", caches)
    specs: list[EvalSpec | TrainSpec] = [EvalSpec(arguments.image_size)]
    specs += [] if arguments.no_train else [TrainSpec()]
    for domain in domains:
        for spec in specs:
            with progress_bar(f"{domain.name}: {spec}", len(domain)) as progress:
                cache = open_cache(domain, spec, caches, progress)
            print(f"{domain.name:20} {spec}: {cache.data.size / 2**20:,.0f} MB in {cache.path}")
    return 0


_ACTIONS = {"list": _list, "download": _download, "verify": _verify, "cache": _cache}
"""By the name of the action."""
