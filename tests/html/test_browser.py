"""Pages in a real Chromium: that of `CHROMIUM` or of the PATH; `.ci/install-chromium` installs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nsys2prv_ng.html.summary_page import list_sections, render_summary
from tests.html.made import Job, job_of, rename, repeat_ranks
from tests.html.test_summary_page import HOSTILE, KEYS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium; .ci/install-chromium installs it"),
    pytest.mark.xdist_group("browser"),
]
WIDE, NARROW = {"width": 1200, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


class Opened:
    """A page that a browser shows, and what it complained of."""

    def __init__(self, browser: Browser, file: Path, **context: object) -> None:
        self.faults: list[str] = []
        self.page: Page = browser.new_context(**context).new_page()  # type: ignore[arg-type]
        self.page.on("console", lambda message: self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(dialog.message))
        self.page.on("request", lambda request: self._note(request.url, file))
        self.page.goto(file.as_uri())

    def _note(self, url: str, file: Path) -> None:
        if url != file.as_uri() and not url.startswith(("data:image/png", "blob:")):
            self.faults.append(f"request of {url[:100]}")


def write(job: Job, folder: Path) -> Path:
    file = folder / "job.html"
    file.write_text(render_summary(*job), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(job_of("ddp-2x2"), tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(WIDE, "light", id="wide-light"),
        pytest.param(NARROW, "dark", id="narrow-dark"),
        pytest.param(WIDE, "dark", id="wide-dark", marks=pytest.mark.all_sets),
        pytest.param(NARROW, "light", id="narrow-light", marks=pytest.mark.all_sets),
    ],
)
def test_a_page_opens_without_complaints(browser: Browser, file: Path, scheme: str, size: dict[str, int]) -> None:
    opened = Opened(browser, file, color_scheme=scheme, viewport=size)
    page = opened.page
    for section in list_sections(*job_of("ddp-2x2")):
        assert page.locator(f"section#{section.key} h2").is_visible()
    assert page.evaluate("document.documentElement.dataset.ready") == str(page.locator("figure.map").count())
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert opened.faults == []


@pytest.mark.all_sets
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_readers_with_other_means_find_no_barrier(browser: Browser, file: Path, scheme: str) -> None:
    """The rules of axe-core on contrast, names and structure hold."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(Opened(browser, file, color_scheme=scheme, viewport=WIDE).page)
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found.response["violations"]] == []


def test_a_page_without_scripts_shows_its_pictures(browser: Browser, file: Path) -> None:
    opened = Opened(browser, file, java_script_enabled=False, viewport=WIDE)
    for image in opened.page.locator("figure.map img").all():
        box = image.bounding_box()
        assert box is not None and box["width"] > 500 and box["height"] > 20
    assert opened.page.locator("figure.map .x-axis span").count() > 10


def test_readers_choose_one_of_the_maps(browser: Browser, file: Path) -> None:
    """By keys, too. The map that they choose has the zoom of the one before; paper has all of them."""
    maps = job_of("ddp-2x2").pictures.heat_maps
    opened = Opened(browser, file, viewport=WIDE)
    figures, choice = opened.page.locator("#over-time figure.map"), opened.page.get_by_label("Map:")
    assert sorted(choice.locator("option").all_inner_texts()) == sorted(heat.title for heat in maps)
    for number in range(len(maps)):
        assert [figure.is_visible() for figure in figures.all()] == [n == number for n in range(len(maps))]
        figures.nth(number).locator(".view").focus()
        opened.page.keyboard.press("+")
        figures.nth(number).locator(".shown").filter(has_text="--time").wait_for()
        choice.press("ArrowDown")
        figures.nth(min(number + 1, len(maps) - 1)).locator(".shown").filter(has_text="--time").wait_for()
    opened.page.emulate_media(media="print")
    assert all(figure.is_visible() for figure in figures.all()) and not choice.is_visible()
    assert opened.faults == []


def test_the_pointer_reads_the_value_below_it(browser: Browser, file: Path) -> None:
    """The line below a map says row, time and value of the bin below the pointer, as the pictures have them."""
    pictures = job_of("ddp-2x2").pictures
    opened = Opened(browser, file, viewport=WIDE)
    for heat in (heat for heat in pictures.heat_maps if heat.key in ("busy", "waiting")):
        opened.page.get_by_label("Map:").select_option(heat.title)
        figure = opened.page.locator("#over-time figure.map:visible")
        assert heat.title in figure.inner_text()
        view = figure.locator(".view")
        view.scroll_into_view_if_needed()
        box = view.bounding_box()
        assert box is not None
        rows, bins = heat.values.shape
        for row, place in ((0, 0.9), (rows - 1, 0.3), (1, 0.77)):
            at = int(place * bins)
            opened.page.mouse.move(
                box["x"] + box["width"] * (at + 0.5) / bins, box["y"] + box["height"] * (row + 0.5) / rows
            )
            figure.locator("output").filter(has_text=heat.rows[row]).wait_for()
            text = figure.locator("output").inner_text()
            value = heat.values[row, at]
            if np.isnan(value):
                assert text.endswith("not known")
            else:
                read = float(text.rsplit("about ", 1)[1].rstrip("%"))
                assert read == pytest.approx(value, abs=0.21 + 0.005 * value)
            low, high = (float(part.rstrip("s")) for part in text.split(", ")[-1].split(": ")[0].split(" to "))
            length = (pictures.end_ns - pictures.begin_ns) / bins / 1e9
            assert low == pytest.approx(pictures.begin_ns / 1e9 + at * length, abs=length / 5)
            assert high - low == pytest.approx(length, rel=0.25)
    assert opened.faults == []


def test_zooming_one_map_zooms_all_of_its_time(browser: Browser, file: Path) -> None:
    pictures = job_of("ddp-2x2").pictures
    opened = Opened(browser, file, viewport=WIDE)
    page = opened.page
    figures = page.locator("#over-time figure.map")
    view = figures.first.locator(".view")
    view.scroll_into_view_if_needed()
    box = view.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 10, steps=4)
    page.mouse.up()
    figures.first.locator(".shown").filter(has_text="--time").wait_for()
    span = pictures.end_ns - pictures.begin_ns
    window = figures.first.locator(".shown").inner_text().split("--time ")[1].split(" ")[0]
    low, high = (float(part.rstrip("s")) * 1e9 for part in window.split(":"))
    assert low == pytest.approx(pictures.begin_ns + 0.5 * span, abs=0.01 * span)
    assert high == pytest.approx(pictures.begin_ns + 0.75 * span, abs=0.01 * span)
    for n, figure in enumerate(figures.all()):
        page.get_by_label("Map:").select_option(index=n)
        drawn, seen = figure.locator("img").bounding_box(), figure.locator(".view").bounding_box()
        assert drawn is not None and seen is not None
        assert drawn["width"] == pytest.approx(4 * seen["width"], rel=0.02)
        assert drawn["x"] == pytest.approx(seen["x"] - 2 * seen["width"], abs=0.05 * seen["width"])
    step = page.locator("#step figure.map")
    assert step.locator("img").bounding_box()["width"] == pytest.approx(step.locator(".view").bounding_box()["width"])  # type: ignore[index]
    page.get_by_label("Map:").select_option(index=0)
    view.focus()
    page.keyboard.press("0")
    page.wait_for_function("document.querySelector('#over-time .zoomed').style.width === '100%'")
    assert opened.faults == []


def test_keys_move_the_pointer_and_zoom(browser: Browser, file: Path) -> None:
    pictures = job_of("ddp-2x2").pictures
    assert pictures.step is not None
    opened = Opened(browser, file, viewport=WIDE)
    figure = opened.page.locator("#step figure.map")
    figure.locator(".view").focus()
    opened.page.keyboard.press("ArrowDown")
    figure.locator("output").filter(has_text=pictures.step.rows[1]).wait_for()
    labels = list(pictures.step.activities.values())
    label = labels[pictures.step.values[1, pictures.step.values.shape[1] // 2] - 1]
    assert figure.locator("output").inner_text().endswith(label)
    opened.page.keyboard.press("+")
    figure.locator(".shown").filter(has_text="--time").wait_for()
    bar, lane = figure.locator(".lane .zoomed > span").first, figure.locator(".lane").first
    indent = bar.evaluate("(bar) => parseFloat(getComputedStyle(bar).textIndent)")
    assert bar.bounding_box()["x"] + indent == pytest.approx(lane.bounding_box()["x"], abs=3)  # type: ignore[index]
    figure.get_by_role("button", name="show all").click()
    assert not figure.get_by_role("button", name="show all").is_visible()
    assert opened.faults == []


def test_keys_open_and_close_what_is_folded(browser: Browser, file: Path) -> None:
    """Without scripts, too; a range within another is further to the right."""
    page = Opened(browser, file, java_script_enabled=False, viewport=WIDE).page
    folded = page.locator("#ranges details")
    rows = folded.locator("tbody tr")
    assert not rows.first.is_visible()
    folded.locator("summary").press("Enter")
    around, within = (rows.nth(n).locator("th > span").bounding_box() for n in (0, 1))
    assert around is not None and within is not None
    indent = rows.nth(1).locator("th > span").evaluate("(span) => parseFloat(getComputedStyle(span).paddingLeft)")
    assert rows.first.is_visible() and within["x"] + indent > around["x"] + 5
    folded.locator("summary").press("Enter")
    assert not rows.first.is_visible()


def test_words_show_their_meaning(browser: Browser, file: Path) -> None:
    """By keys, by touch and without scripts, within the screen; paper has none."""
    for size in (WIDE, NARROW):
        page = Opened(browser, file, java_script_enabled=False, viewport=size, has_touch=True).page
        words = page.locator("button.word")
        assert words.count() > 10
        for n in range(words.count()):
            meaning = page.locator(f"#{words.nth(n).get_attribute('popovertarget')}")
            assert not meaning.is_visible()
            words.nth(n).press("Enter") if n % 2 else words.nth(n).tap()
            box = meaning.bounding_box()
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= size["width"] + 0.5
            assert words.nth(n).inner_text().lower().startswith(meaning.locator("strong").inner_text().lower())
            page.keyboard.press("Escape")
            assert not meaning.is_visible()


def test_the_first_screen_has_the_answer_and_a_typical_step(browser: Browser, file: Path) -> None:
    page = Opened(browser, file, viewport={"width": 1400, "height": 900}).page
    for part in ("#verdict .bar", "#step .view", "#step .x-axis"):
        box = page.locator(part).first.bounding_box()
        assert box is not None and box["y"] + box["height"] < 900


def test_a_narrow_screen_cuts_nothing_without_a_sign(browser: Browser, file: Path) -> None:
    """What is wider than the screen scrolls by itself, with a shadow at the edge; other text is in the screen."""
    page = Opened(browser, file, viewport={"width": 400, "height": 800}).page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = """[...document.querySelectorAll("main *")].filter((part) => part.getClientRects().length
        && !part.closest(".scroll, .plot, [popover]") && part.getBoundingClientRect().right > innerWidth).length"""
    assert page.evaluate(cut) == 0
    wide = page.locator(".scroll").evaluate_all(
        "(all) => all.filter((each) => each.scrollWidth > each.clientWidth).map((each) => getComputedStyle(each))"
        ".map((style) => style.backgroundAttachment)"
    )
    assert wide and all("local" in style and "scroll" in style for style in wide)


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    hostile = [
        rename(part, lambda text: f"{text} {HOSTILE}<script>window.hacked = 1</script>" if text else text, KEYS)
        for part in job_of("ddp-2x2")
    ]
    opened = Opened(browser, write(Job(*hostile), tmp_path), viewport=WIDE)
    assert opened.page.evaluate("window.hacked") is None
    for figure in opened.page.locator("figure.map:visible").all():
        figure.locator(".view").hover()
        figure.locator("output").filter(has_text="script").wait_for()
    assert opened.page.locator("output script, output img, .y-axis img").count() == 0
    assert opened.faults == []


@pytest.mark.all_sets
def test_a_page_of_1024_ranks_works(browser: Browser, tmp_path: Path) -> None:
    many = repeat_ranks(job_of("ddp-2x2"), 256)
    opened = Opened(browser, write(many, tmp_path), viewport=WIDE)
    view = opened.page.locator("#over-time figure.map").first.locator(".view")
    view.focus()
    opened.page.keyboard.press("+")
    opened.page.locator("#over-time .shown").first.filter(has_text="--time").wait_for()
    assert opened.faults == []


def test_a_printed_page_has_all_sections(browser: Browser, file: Path) -> None:
    page = Opened(browser, file, viewport=WIDE).page
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    for section in list_sections(*job_of("ddp-2x2")):
        assert page.locator(f"section#{section.key}").is_visible()
    assert len(page.pdf(format="A4")) > 20_000


def test_a_narrow_screen_loses_no_peak(browser: Browser, file: Path) -> None:
    """Where columns share a pixel, each row still shows its highest value."""
    heat = next(heat for heat in job_of("ddp-2x2").pictures.heat_maps if heat.key == "lateness")
    opened = Opened(browser, file, viewport=NARROW)
    figure = opened.page.locator("#over-time figure.map").filter(has_text="Arrival delay")
    opened.page.get_by_label("Map:").select_option("Arrival delay")
    opened.page.wait_for_function("[...document.images].some((image) => image.naturalWidth < 400)")
    width, opacity = figure.locator("img").evaluate(
        """(image) => {
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            const context = canvas.getContext("2d");
            context.drawImage(image, 0, 0);
            const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
            const rows = [...Array(canvas.height).keys()].map((row) => {
                let highest = 0;
                for (let x = 0; x < canvas.width; x += 1) {
                    highest = Math.max(highest, data[4 * (row * canvas.width + x) + 3]);
                }
                return highest;
            });
            return [canvas.width, rows];
        }"""
    )
    assert width < 360 < heat.values.shape[1]
    share = np.sqrt(np.nanmax(heat.values, axis=1) / np.nanmax(heat.values))
    assert opacity == pytest.approx(255 * (0.04 + 0.96 * share), abs=2)
    assert opened.faults == []
