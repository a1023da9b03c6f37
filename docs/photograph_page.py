"""Takes pictures of the page of a job for the documentation, in Chromium: python docs/photograph_page.py [NAME...]

Needs Playwright (`pip install -e '.[dev]'`), Chromium, which `.ci/install-chromium` installs, and ImageMagick's
`convert`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from photograph import PROGRAM, ROOT, list_reports, save, take_named

_RUN = "samples/ddp-2x2"


@dataclass(frozen=True)
class PagePart:
    """What a picture shows: the element of the page at which it begins, and its size in pixels, at most."""

    element: str
    width: int
    height: int


PICTURES = {
    "page": PagePart("html", 1000, 900),
    "page_over_time": PagePart("#over-time", 1000, 730),
    "page_step": PagePart("#step", 1000, 760),
}


def take(part: PagePart, target: Path) -> None:
    """Write the picture of a part of the page of a job."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page, picture = Path(folder, "job.html"), Path(folder, "job.png")
        command = [*PROGRAM, "summary", *list_reports(_RUN), "--html", str(page), "-q"]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": part.width, "height": part.height})
        tab.goto(page.as_uri())
        box = tab.locator(part.element).bounding_box()
        assert box is not None
        height = min(part.height, box["height"])
        tab.screenshot(
            path=picture, full_page=True, clip={"x": 0, "y": box["y"], "width": part.width, "height": height}
        )
        browser.close()
        save([picture], target)


if __name__ == "__main__":
    sys.exit(take_named(sys.argv[1:], PICTURES, take))
