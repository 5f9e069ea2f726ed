"""The documentation as a reader opens it from disk: search, previous and next, light and dark."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.chromium import browser

pytestmark = pytest.mark.slow  # builds the whole site

ROOT = Path(__file__).parent.parent
driver = pytest.fixture(scope="module")(browser)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=600)
    return folder


def test_nothing_is_fetched(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        sources = re.findall(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?([^\s\">]+)", text)
        assert not [source for source in sources if "://" in source or source.startswith("//")], page.name


def test_the_search_works_from_disk(site: Path, driver: webdriver.Chrome) -> None:
    driver.get((site / "index.html").as_uri())
    driver.find_element(By.CSS_SELECTOR, "label[for=__search]").click()
    field = driver.find_element(By.CSS_SELECTOR, "input[data-md-component=search-query]")
    field.send_keys("suggest_lr")
    hits = WebDriverWait(driver, 60).until(
        lambda page: [
            link.get_attribute("href")
            for link in page.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
        ]
    )
    assert any("learning_rate.html" in (hit or "") for hit in hits)
    assert not [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]


def test_the_button_turns_the_page_dark(site: Path, driver: webdriver.Chrome) -> None:
    driver.get((site / "index.html").as_uri())
    body = driver.find_element(By.TAG_NAME, "body")
    first = body.get_attribute("data-md-color-scheme")
    label = next(
        one for one in driver.find_elements(By.CSS_SELECTOR, "label[for^=__palette]") if one.is_displayed()
    )
    label.click()
    WebDriverWait(driver, 20).until(lambda _: body.get_attribute("data-md-color-scheme") != first)
    assert {first, body.get_attribute("data-md-color-scheme")} == {"default", "slate"}
