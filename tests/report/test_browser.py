"""The report in a browser without a screen: what a reader gets to see."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pltf.report
from tests.report.fits import NASTY, labelled, searched

pytestmark = pytest.mark.extra("plot")
TABS = ["overview", "components", "factors", "predictions", "checks", "fit", "reproduce"]
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is not installed, and the report must be tested in it")
        pytest.skip("Chromium is not installed: the report is not tested in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        running = player.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    pltf.report.write(searched(), path, title=f"Visits {NASTY[0]} {NASTY[2]}", progress=False)
    return path


class Reader:
    """A page, and everything that went wrong on it."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**({"viewport": {"width": 1200, "height": 800}} | options))
        self.page = self.context.new_page()
        self.page.on("console", lambda told: self.faults.append(f"{told.type}: {told.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.url = path.as_uri()
        self.page.goto(self.url)

    def _refuse(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def shown(self) -> list[str]:
        return [one for one in TABS if self.page.locator(f"#{one}").is_visible()]

    def selected(self) -> list[str]:
        return [str(one.get_attribute("href"))[1:] for one in self.page.locator("[aria-selected=true]").all()]

    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def until(page: Any, expression: str) -> None:
    """Wait for something to become true: the page allows no strings as scripts, which playwright would wait with."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never became true: {expression}")


@pytest.fixture
def reader(browser: Any, report: Path, request: pytest.FixtureRequest) -> Iterator[Reader]:
    opened = Reader(browser, report, **getattr(request, "param", {}))
    yield opened
    opened.context.close()
    assert opened.faults == []
    assert {one for one in opened.requests if not one.startswith(("data:", "blob:"))} == {opened.url}


def test_every_chart_is_drawn_with_data(reader: Reader) -> None:
    page = reader.page
    for tab in TABS:
        page.click(f"#tab-{tab}")
    assert page.locator(".chart").count() == page.locator(".chart .plot").count() > 6
    assert page.locator("#chart-shares-r rect.blue").count() == 3
    assert page.locator("#chart-starts circle").count() == 3
    assert page.locator("#chart-trace path.blue").count() == 1
    assert page.locator("#chart-order-0 circle.blue").count() == 4
    assert page.locator("#chart-roc path").count() == 3
    assert page.locator("#chart-calibration .whisker").count() > 3
    assert page.locator("#components .bar b").count() > 20
    images = page.locator(".heat img.light")
    assert images.evaluate_all("every => every.map((one) => [one.naturalHeight, one.naturalWidth])") == [
        [30, 3],
        [5, 3],
        [3, 4],  # days of the week go across, in their order
    ]


def test_charts_answer_the_pointer(reader: Reader) -> None:
    page = reader.page
    page.hover("#chart-shares-r .plot", position={"x": 100, "y": 100})
    first = labelled().components().index[0]
    assert page.locator("#tip").inner_text().startswith(f"component {first}\n")
    page.mouse.move(0, 0)
    assert not page.locator("#tip").is_visible()
    page.click("#tab-factors")
    page.hover("#chart-B-0 .plot", position={"x": 5, "y": 5})
    assert re.match(
        r"place: \w+\ncomponent \(r\): \d\n[\d.]+ \(90 %: [\d.]+ to [\d.]+\)$", page.locator("#tip").inner_text()
    )
    page.click("#tab-fit")
    page.hover("#chart-trace .plot", position={"x": 400, "y": 100})
    assert "nats" in page.locator("#tip").inner_text()


def test_every_row_of_a_heat_map_can_be_labelled(reader: Reader) -> None:
    page = reader.page
    page.click("#tab-factors")
    assert page.locator(".every").count() == 0  # 30 rows have labels already
    assert page.locator("#chart-A-0 .yticks span:visible").count() == 30


def test_tabs_work_by_click(reader: Reader) -> None:
    assert reader.shown() == reader.selected() == ["overview"]
    for tab in TABS:
        reader.page.click(f"text={tab.capitalize()} >> nth=0")
        assert reader.shown() == reader.selected() == [tab]
        assert reader.page.evaluate("location.hash") == f"#{tab}"


def test_tabs_work_by_keyboard(reader: Reader) -> None:
    page = reader.page
    page.keyboard.press("Tab")
    for key, tab in (
        ("ArrowRight", "components"),
        ("ArrowRight", "factors"),
        ("ArrowLeft", "components"),
        ("End", "reproduce"),
        ("ArrowRight", "overview"),
        ("ArrowLeft", "reproduce"),
        ("Home", "overview"),
    ):
        page.keyboard.press(key)
        assert reader.shown() == reader.selected() == [tab]
        assert page.evaluate("document.activeElement.id") == f"tab-{tab}"
    assert page.locator(".tabs [tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "overview"


def test_tabs_tell_what_they_are(reader: Reader) -> None:
    page = reader.page
    assert page.locator("[role=tablist] > [role=tab]").count() == len(TABS)
    for tab in page.locator("[role=tab]").all():
        panel = page.locator(f"#{tab.get_attribute('aria-controls')}")
        assert panel.get_attribute("role") == "tabpanel"
        assert panel.get_attribute("aria-labelledby") == tab.get_attribute("id")
    assert all(one.get_attribute("aria-label") for one in page.locator(".chart .frame").all())


def test_a_link_to_a_component_opens_its_tab(browser: Any, report: Path) -> None:
    opened = Reader(browser, report)
    opened.page.goto(f"{opened.url}#component-r-2")
    opened.page.reload()
    assert opened.shown() == ["components"]
    opened.context.close()
    assert opened.faults == []


def test_a_link_to_a_tab_leaves_the_title_in_view_and_no_frame(browser: Any, report: Path) -> None:
    opened = Reader(browser, report, viewport={"width": 1200, "height": 500})
    opened.page.goto(f"{opened.url}#factors")
    opened.page.reload()
    opened.page.wait_for_timeout(200)
    assert opened.shown() == ["factors"]
    assert opened.page.evaluate("scrollY") == 0
    assert opened.page.evaluate("document.activeElement.tagName") == "BODY"
    until(opened.page, "document.getElementById('factors').tabIndex === 0")
    opened.page.evaluate("location.hash = 'fit'")
    until(opened.page, "!document.getElementById('fit').hidden")
    opened.page.wait_for_timeout(100)
    assert opened.page.evaluate("document.activeElement.tagName") == "BODY"
    opened.context.close()


@pytest.mark.parametrize("width", [390, 800, 1100, 1200])
def test_figures_stand_on_one_line(browser: Any, report: Path, width: int) -> None:
    opened = Reader(browser, report, viewport={"width": width, "height": 700})
    for figure in opened.page.locator(".figures strong").all():
        figure.evaluate("(one) => (one.textContent = '−142,920.5')")
        assert figure.bounding_box()["height"] < 35
        assert figure.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    assert opened.overflow() <= 0
    opened.context.close()


@pytest.mark.parametrize(
    "reader", [{"viewport": {"width": 375, "height": 700}, "is_mobile": True, "has_touch": True}], indirect=True
)
def test_rows_of_heat_maps_are_not_cut_on_a_phone(reader: Reader) -> None:
    reader.page.click("#tab-factors")
    cut = "[...document.querySelectorAll('.heat .yticks span')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
    assert reader.page.evaluate(f"{cut}.length") == 0


def test_labels_stay_text(reader: Reader) -> None:
    page = reader.page
    for tab in TABS:
        page.click(f"#tab-{tab}")
    assert page.locator("h1").inner_text() == f"Visits {NASTY[0]} {NASTY[2]}"
    assert page.locator("script").count() == 2
    assert page.locator("main img:not(.heat img), main b:not(.bar b), main a[href^=http], svg a").count() == 0
    names = set(page.locator("#components .name").all_text_contents())
    assert set(NASTY[:4]) & names
    page.click("#tab-factors")
    ticks = page.locator("#chart-A-0 .yticks span").all_text_contents()
    assert any(tick.startswith("<script>alert(1)") for tick in ticks)
    assert "{{7*7}}" in ticks
    assert "</script>" in ticks
    assert "(blank)" in ticks
    assert "alert(2)" in page.locator("#reproduce pre").first.text_content()


def test_scripts_that_are_not_ours_cannot_run(browser: Any, report: Path) -> None:
    opened = Reader(browser, report)
    opened.page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.broken = 1'}))"
    )
    assert opened.page.evaluate("window.broken") is None
    opened.page.evaluate("fetch('https://example.org').catch(() => 0)")
    opened.context.close()
    assert any("Content Security Policy" in fault for fault in opened.faults)


@pytest.mark.parametrize(
    "reader", [{"viewport": {"width": 375, "height": 700}, "is_mobile": True, "has_touch": True}], indirect=True
)
def test_a_phone_need_not_scroll_sideways(reader: Reader) -> None:
    for tab in TABS:
        reader.page.click(f"#tab-{tab}")
        assert reader.overflow() <= 0, tab
        wide = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1).length"
        assert reader.page.evaluate(wide) == 0, tab
        for chart in reader.page.locator(f"#{tab} .chart").all():
            assert chart.bounding_box()["width"] <= 347
            assert chart.locator(".plot").first.bounding_box()["width"] <= 347


@pytest.mark.parametrize(
    "reader", [{"viewport": {"width": 390, "height": 700}, "is_mobile": True, "has_touch": True}], indirect=True
)
def test_on_a_phone_components_fold(reader: Reader) -> None:
    page = reader.page
    page.click("#tab-components")
    folded = "[...document.querySelectorAll('details.component')].map((one) => one.open)"
    assert page.evaluate(folded) == [True, False, False]
    page.tap("details.component >> nth=1 >> summary")
    assert page.evaluate(folded) == [True, True, False]
    page.emulate_media(media="print")
    until(page, f"{folded}.every(Boolean)")
    page.emulate_media(media="screen")
    until(page, f"!{folded}[2]")
    page.set_viewport_size({"width": 1200, "height": 800})
    until(page, f"{folded}.every(Boolean)")


def background(page: Any, where: str) -> tuple[int, ...]:
    colour = page.evaluate(f"getComputedStyle(document.querySelector('{where}')).backgroundColor")
    return tuple(map(int, re.findall(r"\d+", colour)[:3]))


@pytest.mark.parametrize("reader", [{"color_scheme": "dark"}], indirect=True)
def test_a_dark_page_is_dark_throughout(reader: Reader) -> None:
    page = reader.page
    assert max(background(page, "body")) < 50
    assert max(background(page, ".card")) < 60
    ink = page.evaluate("getComputedStyle(document.querySelector('#chart-shares-r .xticks span')).color")
    assert min(map(int, re.findall(r"\d+", ink)[:3])) > 180
    page.click("#tab-factors")
    dark, light = (page.locator(f"#chart-A-0 img.{one}") for one in ("dark", "light"))
    assert (dark.is_visible(), light.is_visible()) == (True, False)
    page.emulate_media(color_scheme="light")
    assert min(background(page, "body")) > 240
    assert (dark.is_visible(), light.is_visible()) == (False, True)


@pytest.mark.parametrize("reader", [{"color_scheme": "dark"}], indirect=True)
def test_on_paper_everything_is_there_in_light_colours(reader: Reader) -> None:
    page = reader.page
    page.emulate_media(media="print", color_scheme="dark")
    assert reader.shown() == TABS
    assert min(background(page, "body")) > 250
    assert not page.locator(".tabs").is_visible()
    page.set_viewport_size({"width": 672, "height": 900})
    for plot in page.locator(".chart .plot").all():
        assert plot.bounding_box()["width"] <= 672
    assert page.locator("#chart-A-0 img.light").is_visible()
    page.emulate_media(media="screen", color_scheme="dark")
    assert reader.shown() == ["overview"]


def test_it_prints(reader: Reader) -> None:
    document = reader.page.pdf(format="A4")
    assert document.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page[^s]", document)) >= 5
    assert reader.shown() == ["overview"]


@pytest.mark.parametrize("reader", [{"java_script_enabled": False}], indirect=True)
def test_without_scripts_all_parts_follow_each_other(reader: Reader) -> None:
    assert reader.shown() == TABS
    assert reader.page.locator("noscript").inner_text().startswith("JavaScript is off")
    assert reader.page.locator("#chart-shares-r rect.blue").count() == 3
    assert reader.page.locator("#chart-A-0 img.light").is_visible()
    reader.page.click("text=Reproduce >> nth=0")


def test_charts_follow_the_window(reader: Reader) -> None:
    page = reader.page
    plot = page.locator("#chart-shares-r .plot")
    assert plot.bounding_box()["width"] > 900
    page.set_viewport_size({"width": 700, "height": 800})
    assert plot.bounding_box()["width"] < 660
    assert reader.overflow() <= 0
