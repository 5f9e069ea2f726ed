"""The page in a real browser, headless Chromium: what a reader meets who clicks, types, or holds a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.chromium import browser

from .build import failed, record, run
from .page_runs import report, sweep

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def driver() -> Iterator[webdriver.Chrome]:
    yield from browser()


def show(driver: webdriver.Chrome, folder: Path, text: str, width: int = 1200) -> None:
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.get(page.as_uri())


def column(driver: webdriver.Chrome, number: int) -> list[str]:
    """What the cells of a column of the first table show, from top to bottom."""
    rows = "Array.from(document.querySelector('table').tBodies[0].rows)"
    found: list[str] = driver.execute_script(f"return {rows}.map(row => row.cells[{number - 1}].innerText)")
    return found


def headers(driver: webdriver.Chrome) -> list[WebElement]:
    return driver.find_element(By.CSS_SELECTOR, "table").find_elements(By.CSS_SELECTOR, "thead th")


def numbers(texts: list[str]) -> list[float]:
    return [float(text.split(" ")[0]) for text in texts if not text.startswith("missing")]


def varied() -> str:
    """Averages of one, two and three digits, which text would put in another order; one row is missing."""
    runs = []
    for optimizer, level in (("a", 0.093), ("b", 1.0), ("c", 0.25), ("d", 0.87)):
        runs += [run([k], [record(0, [level] * 4, [level] * 4)], optimizer=optimizer) for k in range(4)]
    return report([*runs, run([0], [], optimizer="e", done=False)])


def test_it_renders_without_a_complaint_and_asks_for_nothing(driver: webdriver.Chrome, tmp_path: Path) -> None:
    driver.get_log("browser")  # forget what other pages said
    show(driver, tmp_path, report(sweep()))
    assert driver.get_log("browser") == []
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert driver.find_element(By.TAG_NAME, "h1").text == "Report of 32 runs"
    heights = [svg.size["height"] for svg in driver.find_elements(By.CSS_SELECTOR, "main figure svg")]
    assert len(heights) > 5
    assert driver.find_element(By.ID, "save").is_displayed()


def test_a_complaint_would_be_seen(driver: webdriver.Chrome, tmp_path: Path) -> None:
    show(driver, tmp_path, report(sweep(trials=1)).replace("</main>", "<img src=missing.png></main>"))
    assert any("missing.png" in line["message"] for line in driver.get_log("browser"))


def test_a_click_sorts_numbers_as_numbers(driver: webdriver.Chrome, tmp_path: Path) -> None:
    show(driver, tmp_path, varied())
    header = headers(driver)[5]  # the average
    assert header.get_attribute("aria-sort") == "none"
    header.find_element(By.TAG_NAME, "button").click()
    assert numbers(column(driver, 6)) == [100.0, 87.0, 25.0, 9.3]
    assert header.get_attribute("aria-sort") == "descending"
    assert column(driver, 6)[-1].startswith("missing")
    header.find_element(By.TAG_NAME, "button").click()
    assert numbers(column(driver, 6)) == [9.3, 25.0, 87.0, 100.0]
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(driver, 6)[-1].startswith("missing")


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE], ids=["enter", "space"])
def test_the_keyboard_sorts(driver: webdriver.Chrome, tmp_path: Path, key: str) -> None:
    show(driver, tmp_path, varied())
    names = column(driver, 1)
    button = headers(driver)[0].find_element(By.TAG_NAME, "button")
    driver.execute_script("arguments[0].closest('.scroll').focus()", button)
    webdriver.ActionChains(driver).send_keys(Keys.TAB).perform()
    assert driver.switch_to.active_element == button
    outline = button.value_of_css_property("outline-style"), button.value_of_css_property("outline-width")
    assert outline == ("solid", "3px")
    for expected, state in ((sorted(names), "ascending"), (sorted(names, reverse=True), "descending")):
        webdriver.ActionChains(driver).send_keys(key).perform()
        assert column(driver, 1) == expected
        assert headers(driver)[0].get_attribute("aria-sort") == state
    assert {header.get_attribute("aria-sort") for header in headers(driver)[1:]} == {"none"}


def test_the_skip_link_comes_first_and_leads_to_the_results(driver: webdriver.Chrome, tmp_path: Path) -> None:
    show(driver, tmp_path, varied())
    webdriver.ActionChains(driver).send_keys(Keys.TAB).perform()
    link = driver.switch_to.active_element
    assert link.text == "Skip to the results"
    assert link.rect["x"] >= 0
    link.send_keys(Keys.ENTER)
    assert driver.switch_to.active_element.get_attribute("id") == "main"


@pytest.mark.parametrize("name", ["PACS", "a_name_without_any_place_to_break_" * 4])
def test_a_phone_does_not_scroll_sideways(driver: webdriver.Chrome, tmp_path: Path, name: str) -> None:
    runs = sweep(("adam", "a_very_long_optimizer_name_of_a_plugin"), dataset=name)
    show(driver, tmp_path, report(runs, [name * 3]), 360)
    driver.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    wide, inner = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert inner == 360
    assert wide <= inner
    box = driver.find_element(By.CSS_SELECTOR, ".scroll")
    assert driver.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)


def test_dark_and_light(driver: webdriver.Chrome, tmp_path: Path) -> None:
    papers: dict[str, Any] = {}
    for scheme in ("dark", "light"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        show(driver, tmp_path, varied())
        papers[scheme] = driver.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    assert papers == {"dark": "rgba(21, 23, 26, 1)", "light": "rgba(255, 255, 255, 1)"}


def test_text_of_runs_stays_text(driver: webdriver.Chrome, tmp_path: Path) -> None:
    runs = sweep((EVIL, "adam"), 1, 1, dataset=EVIL, protocol=EVIL)
    runs.append(run([0], [], 5, dataset=EVIL, protocol=EVIL, done=False, outcomes=failed(EVIL)))
    driver.get_log("browser")
    show(driver, tmp_path, report(runs, [EVIL]))
    assert driver.find_elements(By.TAG_NAME, "img") == []
    assert driver.find_element(By.TAG_NAME, "h2").text == EVIL
    assert driver.get_log("browser") == []
