"""Remove DomainNet's duplicates by DomainBed's published list, and say the numbers.

DomainBed ignores a listed file that is not there, so a wrong folder removes nothing and nobody notices. Here no
match at all is refused, and the counts are recorded before the first file goes: a call that was interrupted can
be repeated and still reports what the whole removal was.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from genie_dg.files import write_json

from ..domains import DataError
from .archives import ArchiveError, safe_parts

EXPECTED = {"clipart": 704, "infograph": 1596, "painting": 3493, "real": 2380, "sketch": 1258}
"""Lines of the published list by domain, 9,431 in all; quickdraw has none."""


@dataclass(frozen=True)
class Removal:
    """How many files were listed and how many of them were there and removed, by domain."""

    listed: dict[str, int]
    removed: dict[str, int]

    def sentence(self) -> str:
        """The numbers in one sentence, with what differs from the published ones."""
        each = ", ".join(f"{domain} {count:,}" for domain, count in self.removed.items())
        differ = [
            f"{domain} {self.removed.get(domain, 0):,} where {EXPECTED.get(domain, 0):,} were expected"
            for domain in sorted({*EXPECTED, *self.removed})
            if self.removed.get(domain, 0) != EXPECTED.get(domain, 0)
        ]
        verdict = "; the numbers differ: " + ", ".join(differ) if differ else ", as published"
        return f"{sum(self.removed.values()):,} duplicates were removed ({each}){verdict}."


def read_list(listing: Path) -> list[tuple[str, ...]]:
    """The paths of a list, one a line, each as its parts; a path that could leave the folder is refused."""
    try:
        lines = listing.read_text(encoding="utf-8").splitlines()
        paths = [safe_parts(line.strip()) for line in lines if line.strip()]
    except ArchiveError as error:
        raise DataError(f"{listing} is refused: {error}.") from error
    except (OSError, UnicodeError) as error:
        raise DataError(f"{listing} cannot be read ({error}); fetch it again.") from error
    wrong = [f"the path {'/'.join(parts)!r}" for parts in paths if len(parts) != 3]
    if wrong or not paths:
        line = wrong[0] if wrong else "no path"
        raise DataError(f"{listing} has {line}; lines of the form domain/class/file are needed.")
    return list(dict.fromkeys(paths))


def remove_duplicates(root: Path, listing: Path, *, record: Path | None = None) -> Removal:
    """Remove the listed files below ``root``.

    The ``record`` (by default ``.<root>.<list>.json`` beside the root) remembers the counts, so that a call
    after an interrupted one is not taken for one with a wrong folder.

    Raises:
        DataError: no listed file is there and none was before, or a path leaves the root. Nothing was removed.
    """
    record = record or root.parent / f".{root.name}.{listing.name}.json"
    targets = [(parts[0], root.joinpath(*parts)) for parts in read_list(listing)]
    for folder in dict.fromkeys(path.parent for _, path in targets):
        if not folder.resolve().is_relative_to(root.resolve()):
            raise DataError(f"{folder} is a link that leaves {root}; nothing was removed.")
    listed = dict(Counter(domain for domain, _ in targets))
    there = [(domain, path) for domain, path in targets if path.is_file()]
    before = _removed_before(record)
    if not there and not before:
        raise DataError(
            f"{root} has none of the {len(targets):,} files of {listing}, so nothing was removed; "
            "give the folder that has the domains in it."
        )
    now = Counter(domain for domain, _ in there)
    removal = Removal(listed, {domain: max(now[domain], before.get(domain, 0)) for domain in listed})
    write_json(record, asdict(removal))  # before the first file goes
    for _, path in there:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"{path} cannot be removed: {error.strerror}; repeat the call later.") from error
    return removal


def _removed_before(record: Path) -> dict[str, int]:
    try:
        return dict(json.loads(record.read_text(encoding="utf-8"))["removed"]) if record.exists() else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{record} cannot be read ({error!r}); remove it and try again.") from error
