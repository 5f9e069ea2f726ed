"""The served page in a real browser, headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from genie_dg.inference.serve import Server
from tests.chromium import browser
from tests.data.pictures import write


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    yield from browser()


def wait(driver: webdriver.Chrome, script: str) -> None:
    WebDriverWait(driver, 30).until(lambda d: d.execute_script(f"return {script}"))


def texts(driver: webdriver.Chrome, css: str) -> list[str]:
    return [one.text for one in driver.find_elements(By.CSS_SELECTOR, css)]


def test_a_picture_is_dropped_and_the_classes_appear(
    driver: webdriver.Chrome, server: Server, tmp_path: Path
) -> None:
    driver.get_log("browser")
    driver.get(server.address)
    wait(driver, "document.getElementById('model').textContent.length > 0")
    assert "trained on ink, oil; left out pen" in driver.find_element(By.ID, "model").text
    path = write(tmp_path / "mine.jpg", 21)
    (expected,) = server.model.predict(path)
    driver.find_element(By.ID, "file").send_keys(str(path))
    wait(driver, "document.querySelectorAll('#classes li').length === 2")
    assert texts(driver, "#classes .name") == list(expected.classes)
    assert texts(driver, "#classes .value") == [f"{100 * p:.1f} %" for p in expected.probabilities]
    widths = driver.execute_script(
        "return Array.from(document.querySelectorAll('.bar'), b => b.firstChild.offsetWidth / b.offsetWidth)"
    )
    assert widths == pytest.approx(expected.probabilities, abs=0.02)
    assert driver.get_log("browser") == []


def test_a_broken_picture_gets_a_sentence_and_the_next_one_is_fine(
    driver: webdriver.Chrome, server: Server, tmp_path: Path
) -> None:
    driver.get(server.address)
    broken = tmp_path / "<b>broken.jpg"
    broken.write_bytes(b"not a picture")
    driver.find_element(By.ID, "file").send_keys(str(broken))
    wait(driver, "!document.getElementById('problem').hidden")
    assert "cannot be decoded as a picture" in driver.find_element(By.ID, "problem").text
    assert texts(driver, "#classes li") == []
    assert "<b>broken.jpg" in driver.find_element(By.ID, "hint").text
    driver.find_element(By.ID, "file").send_keys(str(write(tmp_path / "good.png", 2)))
    wait(driver, "document.querySelectorAll('#classes li').length === 2")
    assert not driver.find_element(By.ID, "problem").is_displayed()
