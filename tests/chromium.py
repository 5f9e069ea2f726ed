"""Headless Chromium for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver


def browser() -> Iterator[webdriver.Chrome]:
    """The body of a fixture: a driver, which ends with the tests that use it."""
    chromium, helper = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or helper is None:
        pytest.fail(
            "There is no chromium with its chromedriver on this machine; run make browser to install them."
        )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(helper))
    yield made
    made.quit()
