"""Small trees in the layouts in which others publish their sets."""

from __future__ import annotations

from pathlib import Path

from tests.data.pictures import write


def table(path: Path, rows: list[dict[str, object]], index: bool = False) -> None:
    """A CSV file as pandas writes it, with its index where ``index``."""
    lines = [",".join([*([""] if index else []), *rows[0]])]
    lines += [",".join(map(str, [*([k] if index else []), *row.values()])) for k, row in enumerate(rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def camelyon17(root: Path, each: int = 6) -> Path:
    """Five hospitals with ``each`` patches, one row of each in turn; the numbers of patients begin with 0."""
    rows: list[dict[str, object]] = []
    for k in range(5 * each):
        patient, node, centre = f"{k % 5 + 4:03d}", k % 3, k % 5
        name = f"patient_{patient}_node_{node}"
        write(
            root / "camelyon17_v1.0" / "patches" / name / f"patch_{name}_x_{k}_y_{2 * k}.png",
            k,
            height=16,
            width=16,
        )
        row = {"patient": patient, "node": node, "x_coord": k, "y_coord": 2 * k, "tumor": k // 5 % 2}
        rows.append({**row, "slide": k % 7, "center": centre, "split": 0})
    table(root / "camelyon17_v1.0" / "metadata.csv", rows, index=True)
    return root


COUNTRIES = [
    {"name": "France", "alpha-3": "FRA", "region": "Europe"},
    {"name": "Kenya", "alpha-3": "KEN", "region": "Africa"},
    {"name": "Antarctica", "alpha-3": "ATA", "region": ""},
]


def fmow(root: Path, each: int = 6) -> Path:
    """Three regions, of which Africa is named first; the first row of each class is sequestered."""
    rows: list[dict[str, object]] = []
    for k in range(3 * each + 2):
        split = "seq" if k < 2 else ("train", "val", "test")[k % 3]
        code = ("KEN", "FRA", "XXX")[k % 3]
        rows.append({"split": split, "category": ("zoo", "barn")[k % 2], "country_code": code})
        write(root / "fmow_v1.1" / "images" / f"rgb_img_{k}.png", k, height=16, width=16)
    table(root / "fmow_v1.1" / "rgb_metadata.csv", rows)
    table(root / "fmow_v1.1" / "country_code_mapping.csv", COUNTRIES)
    return root


def iwildcam(root: Path, each: int = 6) -> Path:
    """Three camera traps, one with two pictures only; names of two animals and of one that is not used."""
    rows: list[dict[str, object]] = []
    for k in range(2 * each + 2):
        trap = k % 2 if k < 2 * each else 2
        row = {"split": "train", "location_remapped": trap, "location": 100 + trap, "y": k // 2 % 2}
        rows.append({**row, "filename": f"{k}.jpg"})
        write(root / "iwildcam_v2.0" / "train" / f"{k}.jpg", k, height=16, width=16)
    table(root / "iwildcam_v2.0" / "metadata.csv", rows, index=True)
    animals = [("empty", 0), ("ocelot", 1), ("unseen", 99999)]
    named: list[dict[str, object]] = [{"name": name, "count": 1, "y": y} for name, y in animals]
    table(root / "iwildcam_v2.0" / "categories.csv", named)
    return root


CARS = ("aclass", "escape", "hilux", "i3", "lexus", "tesla", "tiguan", "tucson", "x5", "zoe")


def sviro(root: Path, each: int = 3) -> Path:
    """Ten cars; seats are empty (0) or not (1)."""
    for c, car in enumerate(CARS):
        for k in range(2 * each):
            write(root / "sviro" / car / str(k % 2) / f"{k}.png", 20 * c + k, "L", height=16, width=16)
    return root


PLACES = ("beach", "desert", "dirt", "jungle", "mountain", "snow")
BREEDS = ("bulldog", "corgi", "dachshund", "labrador")


def spawrious(root: Path, each: int = 2) -> Path:
    """Both parts, all places and breeds."""
    for part in (0, 1):
        for p, place in enumerate(PLACES):
            for b, breed in enumerate(BREEDS):
                for k in range(each):
                    where = root / "spawrious224" / str(part) / place / breed / f"{place}_{k}.png"
                    write(where, 100 * part + 10 * p + b + k, height=16, width=16)
    return root


LAYOUTS = {
    "WILDSCamelyon": camelyon17,
    "WILDSFMoW": fmow,
    "WILDSiWildCam": iwildcam,
    "SVIRO": sviro,
} | dict.fromkeys(
    [f"Spawrious{kind}_{level}" for kind in ("O2O", "M2M") for level in ("easy", "medium", "hard")], spawrious
)
"""By name of the set, what writes a small tree of it."""
