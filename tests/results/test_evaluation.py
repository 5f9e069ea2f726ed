"""The page about an evaluation: what stands on it, escaped, in one file."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By

from genie_dg.results.evaluation_page import Mistake, evaluation_page
from tests.chromium import browser

EVIL = "<img src=x onerror=alert(1)>"


def numbers(names: tuple[str, ...] = ("cat", "dog", "eel")) -> dict[str, Any]:
    """Two domains and some classes, written by hand: 6 of 10 are right."""
    table = [[4, 1, 0], [2, 2, 0], [1, 0, 0]]
    size = len(names)
    table = [[table[i][k] if i < 3 and k < 3 else 0 for k in range(size)] for i in range(size)]
    facts = {"pictures": 5, "accuracy": 0.6, "macro_f1": 0.4, "by_class": [0.8, 0.5, 0.0, *[None] * (size - 3)]}
    bins = [
        {"low": k / 15, "high": (k + 1) / 15, "count": 5 * (k in (7, 14)), "confidence": 0.5, "accuracy": 0.6}
        for k in range(15)
    ]
    return {
        "data": names[0],
        "part": "all",
        "pictures": 10,
        "accuracy": 0.6,
        "mean_over_domains": 0.6,
        "macro_f1": 0.4,
        "calibration_error": 0.25,
        "worst_domain": "ink",
        "domains": [{"name": n, "trained_on": t, **facts} for n, t in (("ink", True), (names[1], None))],
        "classes": [
            {"name": name, "pictures": sum(row), "accuracy": 0.5, "precision": None, "f1": 0.25}
            for name, row in zip(names, table, strict=True)
        ],
        "confusion": table,
        "reliability": bins,
        "notes": ["A note."],
        "problems": [f"{names[2]} cannot be read."],
    }


def mistake(label: str = "cat") -> Mistake:
    file = io.BytesIO()
    Image.new("RGB", (20, 10), "#aa3366").save(file, "JPEG")
    return Mistake(file.getvalue(), "ink: 1.png", label, "dog", 0.875)


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    yield from browser()


def show(driver: webdriver.Chrome, folder: Path, text: str, width: int = 1200) -> None:
    (folder / "page.html").write_text(text, encoding="utf-8")
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.get((folder / "page.html").as_uri())


def test_the_numbers_stand_on_the_page() -> None:
    text = evaluation_page(numbers(), "line one\nline two", [mistake()])
    assert "60.0 % of 10 pictures are right; macro-F1 40.0 %" in text
    assert "error 25.0 points. The worst domain is ink." in text
    assert "line one<br>line two" in text
    assert base64.b64encode(mistake().jpeg).decode() in text
    assert "taken for dog, 87.5&nbsp;%" in text
    confused = text[text.index("Most frequent confusions") : text.index("The surest mistakes")]
    pairs = re.findall(r"(\w+)</th><td[^>]*>(\w+)</td><td[^>]*>(\d)</td><td[^>]*>([\d.]+)</td>", confused)
    assert pairs == [("dog", "cat", "2", "50.0"), ("eel", "cat", "1", "100.0"), ("cat", "dog", "1", "20.0")]
    assert "1 picture could not be read and is not counted" in text


def test_the_confusion_matrix_has_the_shares() -> None:
    text = evaluation_page(numbers(), "")
    matrix = text[text.index("<caption>Confusion matrix") :].partition("</table>")[0]
    written = re.findall(r'class="heat"[^>]*>(\d+)</td>', matrix)
    assert sorted(map(int, written)) == [20, 50, 50, 80, 100]


def test_it_opens_without_a_complaint(driver: webdriver.Chrome, tmp_path: Path) -> None:
    driver.get_log("browser")
    show(driver, tmp_path, evaluation_page(numbers(), "about", [mistake()] * 3))
    assert driver.get_log("browser") == []
    pictures = driver.find_elements(By.CSS_SELECTOR, ".pictures img")
    assert [one.get_property("naturalWidth") for one in pictures] == [20, 20, 20]
    heights = [svg.size["height"] for svg in driver.find_elements(By.CSS_SELECTOR, "main figure svg")]
    assert len(heights) == 1
    assert min(heights) > 200
    assert driver.find_element(By.ID, "save").is_displayed()
    show(driver, tmp_path, evaluation_page(numbers(), "about", [mistake()] * 3), 360)
    wide, inner = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= inner == 360


def test_names_stay_text(driver: webdriver.Chrome, tmp_path: Path) -> None:
    driver.get_log("browser")
    show(driver, tmp_path, evaluation_page(numbers((EVIL, f"{EVIL}b", f"{EVIL}c")), EVIL, [mistake(EVIL)]))
    assert len(driver.find_elements(By.TAG_NAME, "img")) == 1
    assert driver.find_element(By.TAG_NAME, "h1").text == f"Evaluation on {EVIL}"
    assert driver.get_log("browser") == []
