"""Bring a published set onto the disk: fetch, unpack, arrange, and only then show it under its name.

Work goes on in ``root/downloads/<set>``, where archives can also be put by hand. Each stage is marked when it
is done, so that the same call after a crash, a kill or Ctrl-C goes on where it stopped. The folder of the set
appears at the very end by one rename: what has that name is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from genie_dg.files import lock

from ..domains import DataError
from ._assembly import Assembly, StageProgress, Stages, count_images
from .catalog import PUBLISHED
from .fetch import FetchError, fetch
from .sources import SetSource, SourceFile, source_of


def find_complete(name: str, root: Path) -> Path | None:
    """The folder of a set that is there and complete: as published, or as an earlier download left it."""
    facts = PUBLISHED[source_of(name).name]
    left = Stages(root / "downloads" / facts.name / "stages.json").counts
    for folder in facts.folders:
        counts = count_images(root / folder, facts.domains)
        if facts.variant_of(counts) or (folder == facts.folders[0] and counts == left):
            return root / folder
    return None


def download(
    name: str,
    root: Path,
    *,
    source: SetSource | None = None,
    keep_archives: bool = True,
    timeout: float = 30.0,
    attempts: int = 4,
    pause: float = 1.0,
    progress: StageProgress | None = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Bring a set to ``root`` and return its folder; one that is complete already is not fetched again.

    Args:
        name: PACS, VLCS, OfficeHome, TerraIncognita or DomainNet, in any case.
        root: the folder for data sets.
        source: where it comes from; by default its row in `genie_dg.data.published.sources.SOURCES`.
        keep_archives: keep the archives in ``root/downloads`` afterwards.
        timeout: seconds without a byte before a connection counts as broken.
        attempts: failures in a row before a mirror is given up.
        pause: seconds before the second attempt.
        progress: called as work proceeds; `progress_bars` makes one.
        say: called with sentences for the user: counts, variants, duplicates.

    Raises:
        genie_dg.check.GenieError: in one sentence; what was done so far is kept for the next call.
    """
    row = source or source_of(name)
    tell, show = say or (lambda sentence: None), progress or (lambda what, done, total: None)
    if complete := find_complete(row.name, root):
        tell(f"{row.name} is complete already in {complete}.")
        return complete

    def get(file: SourceFile, path: Path) -> None:
        try:
            fetch(
                file.mirrors,
                path,
                sha256=file.sha256,
                size=file.size,
                progress=lambda done, total: show(f"fetch {path.name}", done, total),
                timeout=timeout,
                attempts=attempts,
                pause=pause,
            )
        except FetchError as error:
            others = f" (copies in another form: {', '.join(row.elsewhere)})." if row.elsewhere else "."
            raise FetchError(str(error).removesuffix(".") + others) from error

    facts = PUBLISHED[row.name]
    target, work = root / facts.folders[0], root / "downloads" / row.name
    with lock(work / "lock", f"downloads {row.name} to {root}"):
        assembly = Assembly(row, work, Stages(work / "stages.json"), show, tell, get)
        try:
            counts = _assembled(assembly, target, keep_archives)
        except OSError as error:
            raise DataError(f"{error.filename or work} cannot be used: {error.strerror}.") from error
    each = ", ".join(f"{domain} {count:,}" for domain, count in counts.items())
    verdict = "as published" if facts.variant_of(counts) else "which are not the published numbers"
    tell(f"{row.name} is in {target} with {sum(counts.values()):,} images ({each}), {verdict}.")
    return target


def _assembled(assembly: Assembly, target: Path, keep_archives: bool) -> dict[str, int]:
    if target.exists() and any(target.iterdir()):
        raise DataError(
            f"{target} is there but does not have the images of {assembly.row.name}; look at it with "
            "genie-dg data verify, then move it away and try again."
        )
    if assembly.stages.counts and not assembly.folder.exists():
        assembly.forget()  # an earlier download was finished, and its folder has been removed since
    assembly.assemble(keep_archives)
    return assembly.publish(target)


@contextmanager
def progress_bars() -> Iterator[StageProgress]:
    """A bar on the terminal for each piece of work, as ``progress`` for `download`; silent without rich."""
    try:
        from rich import progress as rich
    except ImportError:
        yield lambda what, done, total: None
        return
    columns = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn()
    with rich.Progress(*columns, rich.TimeRemainingColumn()) as bars:
        tasks: dict[str, rich.TaskID] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report
