"""Bring a published set onto the disk: fetch, unpack, arrange, and only then show it under its name.

Work goes on in ``root/downloads/<set>``, where archives can also be put by hand. Each stage is marked when it
is done, so that the same call after a crash, a kill or Ctrl-C goes on where it stopped. The folder of the set
appears at the very end by one rename: what has that name is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from genie_dg.files import lock

from ..domains import DataError
from ..progress import StageProgress, silent
from ._assembly import Assembly, Stages, count_images
from .catalog import PublishedSet, published_set


def find_complete(name: str, root: Path) -> Path | None:
    """The folder of a set that is there and complete: as published, or as an earlier download left it."""
    row = published_set(name)
    left = Stages(root / "downloads" / row.name / "stages.json").counts
    for folder in row.folders:
        counts = count_images(root / folder, row.domains)
        if row.variant_of(counts) or (folder == row.folders[0] and counts == left):
            return root / folder
    return None


def download(
    name: str,
    root: Path,
    *,
    source: PublishedSet | None = None,
    keep_archives: bool = True,
    progress: StageProgress = silent,
    say: Callable[[str], object] = silent,
) -> Path:
    """Bring a set to ``root`` and return its folder; one that is complete already is not fetched again.

    Args:
        name: PACS, VLCS, OfficeHome, TerraIncognita or DomainNet, in any case.
        root: the folder for data sets.
        source: the set with other addresses; by default the one of that name in `PUBLISHED`.
        keep_archives: keep the archives in ``root/downloads`` afterwards.
        progress: called as work proceeds; `progress_bars` makes one.
        say: called with sentences for the user: counts, variants, duplicates.

    Raises:
        genie_dg.check.GenieError: in one sentence; what was done so far is kept for the next call.
    """
    row = source or published_set(name)
    if complete := find_complete(row.name, root):
        say(f"{row.name} is complete already in {complete}.")
        return complete
    target, work = root / row.folders[0], root / "downloads" / row.name
    with lock(work / "lock", f"downloads {row.name} to {root}"):
        try:
            if target.exists() and any(target.iterdir()):
                raise DataError(
                    f"{target} is there but does not have the images of {row.name}; look at it with "
                    "genie-dg data verify, then move it away and try again."
                )
            assembly = Assembly(row, work, Stages(work / "stages.json"), progress, say)
            assembly.assemble(keep_archives)
            counts = assembly.publish(target)
        except OSError as error:
            raise DataError(f"{error.filename or work} cannot be used: {error.strerror}.") from error
    each = ", ".join(f"{domain} {count:,}" for domain, count in counts.items())
    verdict = "as published" if row.variant_of(counts) else "which are not the published numbers"
    say(f"{row.name} is in {target} with {sum(counts.values()):,} images ({each}), {verdict}.")
    return target
