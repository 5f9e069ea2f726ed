"""Folders and lists of pictures become domains, in the order in which torchvision and DomainBed count them.

``root/<domain>/<class>/<picture>``: domains and classes in the order of their names, pictures in the order of
``torchvision.datasets.ImageFolder`` (sub-folders included). A list (CSV or JSON) gives path, label and domain
of each picture instead; pictures then stay in the order of the list. Nothing is opened but the list itself.

Differs from ImageFolder in: hidden folders and ``__MACOSX`` are skipped (they would become classes); a class
that one domain lacks keeps its number there, with a warning (there, the numbers of later classes would shift).
"""

from __future__ import annotations

import csv
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .domains import DataError, DomainSet, FileDomain

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The endings that torchvision takes for pictures, in any case."""


class DataWarning(UserWarning):
    """Something about the data that a user should know and that does not stop the work."""


class OneDomainWarning(DataWarning):
    """There is no second domain, which matters to those who leave one out."""


def is_picture(name: str) -> bool:
    """Whether a file of this name counts as a picture."""
    return name.lower().endswith(EXTENSIONS)


def is_skipped(name: str) -> bool:
    """Folders that are neither a domain nor a class: hidden ones, and what macOS leaves in archives."""
    return name.startswith(".") or name == "__MACOSX"


def folders_in(path: Path) -> list[str]:
    """Names of the sub-folders that count, sorted."""
    try:
        with os.scandir(path) as entries:
            return sorted(e.name for e in entries if e.is_dir() and not is_skipped(e.name))
    except OSError as error:
        raise DataError(f"{path} is not a readable folder ({error.strerror}); give one of domains.") from error


def pictures_in(folder: Path) -> Iterator[str]:
    """Paths of the pictures below a folder, relative to its parent, in ImageFolder's order."""
    base = folder.parent
    for where, _, names in sorted(os.walk(folder, followlinks=True)):
        prefix = os.path.relpath(where, base)
        for name in sorted(names):
            if is_picture(name):
                yield f"{prefix}/{name}"


def open_folder(root: str | Path, name: str | None = None) -> DomainSet:
    """The domains of ``root/<domain>/<class>/<picture>``; ``name`` is what tables call the set."""
    root = Path(root)
    names = folders_in(root)
    if not names:
        raise DataError(f"{root} holds no folder; sort pictures as {root.name}/<domain>/<class>/<picture>.")
    pictures = {
        domain: {k: list(pictures_in(root / domain / k)) for k in folders_in(root / domain)} for domain in names
    }
    classes = sorted({k for by_class in pictures.values() for k in by_class})
    for domain, by_class in pictures.items():
        if not any(by_class.values()):
            raise DataError(
                f"{root / domain} holds no picture below a class folder; pictures must be sorted as "
                f"{root.name}/<domain>/<class>/<picture>, with an ending such as {', '.join(EXTENSIONS[:3])}."
            )
    domains = []
    for domain, by_class in pictures.items():
        paths = [path for k in classes for path in by_class.get(k, ())]
        labels = np.repeat(np.arange(len(classes)), [len(by_class.get(k, ())) for k in classes])
        domains.append(FileDomain(domain, root / domain, paths, labels.astype(np.int64)))
    data = DomainSet(name or root.resolve().name, tuple(classes), tuple(domains))
    warn_of_gaps(data, root)
    return data


def warn_of_gaps(data: DomainSet, where: object) -> None:
    """Warn of classes that a domain lacks, and of a set of one domain; ``where`` is its folder or file."""
    for domain in data.domains:
        present = set(domain.labels.tolist())
        missing = [name for k, name in enumerate(data.classes) if k not in present]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            warnings.warn(
                f"The domain {domain.name} of {where} has no sample of {', '.join(missing[:3])}{more}; the "
                "class keeps its number, and accuracy on this domain is over the classes it has.",
                DataWarning,
                stacklevel=4,
            )
    if len(data.domains) == 1:
        warnings.warn(
            f"{where} holds one domain only, {data.domains[0].name!r}; it can be trained on, but leaving a "
            "domain out needs two or more.",
            OneDomainWarning,
            stacklevel=4,
        )


def open_list(path: str | Path, name: str | None = None) -> DomainSet:
    """The domains of a CSV file, a JSON array or JSON lines with ``path``, ``label`` and ``domain``.

    Relative paths count from the list's folder. Labels are class names or numbers (all of one kind); domains
    and classes are put in order by name, numbers by value.
    """
    path = Path(path)
    paths: dict[str, list[str]] = defaultdict(list)
    labels: dict[str, list[str]] = defaultdict(list)
    for number, row in enumerate(_rows(path), start=1):
        try:
            file, label, domain = str(row["path"]), str(row["label"]), str(row["domain"])
        except (KeyError, TypeError) as error:
            raise DataError(
                f"Entry {number} of {path} lacks path, label or domain (it is {str(row)[:80]}); "
                "every entry needs the three."
            ) from error
        paths[domain].append(file)
        labels[domain].append(label)
    if not paths:
        raise DataError(f"{path} lists no picture; every entry needs path, label and domain.")
    names = set().union(*labels.values())
    classes = sorted(names, key=int if all(label.isdigit() for label in names) else str)
    index = {label: i for i, label in enumerate(classes)}
    root = path.resolve().parent
    domains = tuple(
        FileDomain(domain, root, paths[domain], np.array([index[x] for x in labels[domain]], dtype=np.int64))
        for domain in sorted(paths)
    )
    return DomainSet(name or path.stem, tuple(classes), domains)


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list ({error}); give a UTF-8 CSV or JSON file.") from error
    if path.suffix.lower() == ".csv":
        return csv.DictReader(text.splitlines())
    try:
        if path.suffix.lower() == ".jsonl" or not text.lstrip().startswith("["):
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        rows: list[dict[str, Any]] = json.loads(text)
        return rows
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON ({error}); give an array or one object a line.") from error
