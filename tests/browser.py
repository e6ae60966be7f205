"""A real browser for tests: any Chromium or Chrome that is on the path."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from patience import HANG

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


@contextmanager
def opened(page: Path, width: int = 1200, height: int = 900, scheme: str = "light") -> Iterator[Any]:
    """The page in a browser, with what it asked for in `.asked` and what went wrong in `.complaints`."""
    binary = next((path for name in NAMES if (path := shutil.which(name))), None)
    if binary is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Chromium puts a socket below TMPDIR, whose path may have 107 letters, and make's TMPDIR is in this checkout.
        short = {"TMPDIR": "/tmp"} if len(tempfile.gettempdir()) > 60 else {}
        browser = playwright.chromium.launch(
            executable_path=binary, args=list(FLAGS), env={**os.environ, **short}, timeout=HANG * 1_000
        )
        tab: Any = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        tab.set_default_timeout(HANG * 1_000)
        tab.asked, tab.complaints = [], []
        tab.on("request", lambda request: tab.asked.append(request.url))
        tab.on("console", lambda said: tab.complaints.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: tab.complaints.append(str(error)))
        tab.goto(page.resolve().as_uri())
        tab.locator("section .plot").last.locator(".main-svg").first.wait_for()  # the last that is drawn
        yield tab
        browser.close()
