"""Registries that others can add to: names, plugins from packages and scripts, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from genie_dg.check import did_you_mean
from genie_dg.registry import PluginError, Registry, UnknownName, with_defaults


@dataclass(frozen=True)
class Fruit:
    name: str
    weight: float = 1.0


def registry(group: str = "genie_dg.none") -> Registry[Fruit]:
    return Registry("fruit", [Fruit("apple"), Fruit("Pear")], Fruit, group)


def test_names_are_found_in_any_case_and_listed_in_order() -> None:
    fruits = registry()
    assert fruits["APPLE"].name == "apple"
    assert fruits["pear"].name == "Pear"
    assert list(fruits) == ["apple", "Pear"]
    assert len(fruits) == 2
    assert "PEAR" in fruits
    assert "plum" not in fruits
    assert 3 not in fruits


def test_an_unknown_name_is_answered_with_the_names_and_the_nearest() -> None:
    with pytest.raises(
        UnknownName, match=r"^There is no fruit 'aple'; the choice is apple, Pear; did you mean 'apple'\?$"
    ):
        registry()["aple"]
    with pytest.raises(UnknownName, match=r"^There is no fruit 'zzz'; the choice is apple, Pear\.$"):
        registry()["zzz"]
    assert did_you_mean("pera", ["apple", "Pear"]) == "; did you mean 'Pear'?"


def test_registering() -> None:
    fruits = registry()
    plum = fruits.register(Fruit("plum"))
    assert fruits["plum"] is plum
    fruits.register(Fruit("plum"))
    with pytest.raises(PluginError, match="'PLUM' is taken"):
        fruits.register(Fruit("PLUM", 2.0))
    with pytest.raises(PluginError, match=r"^Got 'plum' as fruit; expected a tests\.test_registry\.Fruit\.$"):
        fruits.register("plum")  # type: ignore[arg-type]


def installed(folder: Path, name: str, group: str, code: str, points: str) -> None:
    """A real distribution in a folder: a module and the metadata that pip would write."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{points}\n")


def test_rows_come_from_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from tests.test_registry import Fruit\nPLUM = Fruit('plum')\ndef fig():\n    return Fruit('fig')\n"
    installed(
        tmp_path,
        "fruit_shop_one",
        "genie_dg.fruit_test",
        code,
        "plum = fruit_shop_one:PLUM\nfig = fruit_shop_one:fig",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    fruits = registry("genie_dg.fruit_test")
    assert "fruit_shop_one" not in sys.modules
    assert fruits["apple"].name == "apple"
    assert "fruit_shop_one" not in sys.modules, "a row of our own needs no plugin"
    assert fruits["plum"] == Fruit("plum")
    assert list(fruits) == ["apple", "Pear", "plum", "fig"]


def test_a_broken_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "fruit_shop_two", "genie_dg.fruit_broken", "1 / 0\n", "plum = fruit_shop_two:PLUM")
    monkeypatch.syspath_prepend(str(tmp_path))
    fruits = registry("genie_dg.fruit_broken")
    for _ in range(2):  # it is not forgotten after the first time
        with pytest.raises(
            PluginError, match=r"'plum' of genie_dg.fruit_broken .*ZeroDivisionError.*repair or uninstall"
        ):
            list(fruits)
    assert fruits["apple"].name == "apple"


def test_settings_are_checked() -> None:
    assert with_defaults("Adam", {"lr": 1.0}, {"lr": 2.0}) == {"lr": 2.0}
    with pytest.raises(
        UnknownName, match=r"^Adam has no setting 'lrr'; its settings are lr, eps; did you mean 'lr'\?$"
    ):
        with_defaults("Adam", {"lr": 1.0, "eps": 0.0}, {"lrr": 2.0})
    with pytest.raises(UnknownName, match=r"^ERM has no setting 'x'; its settings are none\.$"):
        with_defaults("ERM", {}, {"x": 1})
