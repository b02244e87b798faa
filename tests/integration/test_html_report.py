"""The HTML report in a real browser: what a reader sees and does, and what a stranger's text cannot do."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.model.finding import Severity
from codeloupe.model.review import Review
from codeloupe.reports.html import render_html
from tests.chromium import Browser
from tests.endings import comes_to_pass
from tests.telling_reviews import ATTACK, hostile_review, pending_finding, shown_diff, telling_review
from tests.unit.reports.examples import finding, review

VISIBLE = (
    "Array.from(document.querySelectorAll('article.finding')).filter((card) => card.checkVisibility())"
    ".map((card) => card.querySelector('h3').textContent)"
)
NAMES = "Array.from(document.querySelectorAll('article.finding')).map((card) => card.id)"
CURRENT = "document.querySelector('article.current h3')?.textContent ?? null"
# What the page does in answer to something, and says about it, comes behind it.
A_MOMENT_LATER = "new Promise((done) => setTimeout(done, 0))"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
# The smallest contrast of all text that is seen, by the formula of WCAG, and where it is.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const paint = canvas.getContext("2d", { willReadFrequently: true });
  const over = (colors) => {
    paint.clearRect(0, 0, 1, 1);
    for (const color of colors) { paint.fillStyle = color; paint.fillRect(0, 0, 1, 1); }
    return Array.from(paint.getImageData(0, 0, 1, 1).data.slice(0, 3));
  };
  const light = (rgb) => {
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let worst = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const holder = node.parentElement;
    if (!node.data.trim() || ["SCRIPT", "STYLE"].includes(holder.tagName)) continue;
    if (!holder.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (holder.closest(".none, .permalink")) continue;
    const grounds = [];
    for (let one = holder; one; one = one.parentElement) grounds.unshift(getComputedStyle(one).backgroundColor);
    const ground = over(grounds), ink = over([...grounds, getComputedStyle(holder).color]);
    const [high, low] = [light(ground), light(ink)].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < worst[0]) worst = [contrast, `${holder.tagName}.${holder.className}: ${node.data.slice(0, 40)}`];
  }
  return worst;
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "report.html").write_text(render_html(telling_review(), diff=shown_diff()), encoding="utf-8")
    return tmp_path / "report.html"


@pytest.fixture(autouse=True)
def _nothing_said_and_nothing_asked(browser: Browser) -> Iterator[None]:
    browser.console.clear()
    browser.requests.clear()
    yield
    browser.run(A_MOMENT_LATER)
    assert browser.console == []
    assert [address for address in browser.requests.values() if not address.startswith(("file://", "data:"))] == []
    # A test that opens no page leaves the browser at the blank one, which has no storage.
    browser.run("location.protocol === 'file:' && localStorage.clear()")


def opened(browser: Browser, page: Path, whole: Review | None = None, **how: bool) -> list[str]:
    """The titles that are seen first on a page, or on that of another review."""
    if whole is not None:
        page.write_text(render_html(whole, diff=shown_diff()), encoding="utf-8")
    browser.open(page, **how)
    return list(browser.run(VISIBLE))


def test_all_findings_are_seen_at_first(browser: Browser, page: Path) -> None:
    assert opened(browser, page) == [
        "Is open to doubt",
        *("Blocks", "Is nowhere", "Is seen by three", "Stays", "Is back", "Could be better", "Is a nit"),
        *("Was not proven", "Was wrong"),
        *("Is accepted", "Is gone", "Is waved", "Was dismissed", "Was fixed", "Was silenced"),
    ]
    assert browser.run("document.title").startswith("FAIL: ")
    assert browser.run("document.querySelector('#shown').textContent") == "8 of 8"


def test_a_filter_leaves_only_what_it_names(browser: Browser, page: Path) -> None:
    everything = opened(browser, page)
    for kind, value, left in (
        ("severity", "critical", ["Blocks"]),
        ("severity", "low", ["Is a nit"]),
        ("file", "app/api.py", ["Could be better", "Is a nit"]),
        ("file", "app/old.py", ["Is back"]),
        ("file", "app/db.py", ["Blocks", "Is nowhere", "Is seen by three", "Stays"]),
        ("file", "app/doubt.py", ["Is open to doubt"]),
        ("expert", "style", ["Is a nit"]),
        ("expert", "codex", ["Is open to doubt"]),
        ("expert", "security", ["Blocks"]),
    ):
        browser.click(f'button[data-kind="{kind}"][data-value="{value}"]')
        assert browser.run(VISIBLE) == left
        assert browser.run("document.querySelector('#shown').textContent") == f"{len(left)} of 8"
        assert browser.run("document.querySelectorAll('[data-group]:not([hidden])').length") == 1
        browser.click("#clear")
        assert browser.run(VISIBLE) == everything


def test_filters_of_one_kind_add_and_of_two_kinds_narrow(browser: Browser, page: Path) -> None:
    opened(browser, page)
    browser.click('button[data-value="low"]')
    browser.click('button[data-value="medium"]')
    assert browser.run(VISIBLE) == ["Could be better", "Is a nit"]
    browser.click('button[data-value="style"]')
    assert browser.run(VISIBLE) == ["Is a nit"]
    browser.click('button[data-value="low"]')
    assert browser.run(VISIBLE) == []
    assert browser.run("document.querySelector('#nothing-left').offsetParent !== null")


def test_the_slash_searches_in_all_that_a_finding_says(browser: Browser, page: Path) -> None:
    opened(browser, page)
    browser.press("/")
    browser.type("KNOWN since")
    assert browser.run(VISIBLE) == ["Is accepted"]
    browser.press("Escape")
    assert len(browser.run(VISIBLE)) == 16


def test_keys_go_from_finding_to_finding(browser: Browser, page: Path) -> None:
    first, second, *_ = opened(browser, page)
    browser.press("j")
    assert browser.run(CURRENT) == first
    browser.press("j")
    assert browser.run(CURRENT) == second
    assert 0 <= browser.run("document.querySelector('article.current').getBoundingClientRect().top") < 200
    browser.press("k")
    browser.press("k")
    assert browser.run(CURRENT) == first
    assert browser.run("document.activeElement === document.querySelector('article.current')")
    # They skip what the filter hides.
    browser.press("4")
    browser.press("j")
    assert browser.run(CURRENT) == "Is a nit"
    browser.press("x")
    assert len(browser.run(VISIBLE)) == 16


def test_the_question_mark_shows_the_keys(browser: Browser, page: Path) -> None:
    opened(browser, page)
    browser.press("?")
    assert browser.run("document.querySelector('#keys').open")
    browser.press("j")
    assert browser.run(CURRENT) is None
    browser.click("#close-help")
    assert not browser.run("document.querySelector('#keys').open")


def test_the_page_is_dark_or_light_as_the_reader_wishes_and_remembers_a_change(browser: Browser, page: Path) -> None:
    opened(browser, page)
    light = browser.run(BACKGROUND)
    opened(browser, page, dark=True)
    dark = browser.run(BACKGROUND)
    assert light != dark

    browser.click("#theme")
    assert browser.run(BACKGROUND) == light
    opened(browser, page, dark=True)
    assert browser.run(BACKGROUND) == light
    browser.press("t")
    assert browser.run(BACKGROUND) == dark


def test_all_text_can_be_read_in_both_themes(browser: Browser, page: Path) -> None:
    for dark, phone in itertools.product((False, True), repeat=2):
        opened(browser, page, dark=dark, phone=phone)
        contrast, where = browser.run(CONTRAST)
        assert contrast >= 4.5, (dark, phone, where)
        # It is a picture with more than its background.
        assert len(browser.picture()) > 20_000


def test_a_phone_shows_the_page_without_scrolling_sideways(browser: Browser, page: Path) -> None:
    opened(browser, page, hostile_review(), phone=True)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("document.querySelector('#filters').offsetParent") is None
    browser.click("#open-filters")
    assert browser.run("document.querySelector('#filters').offsetParent !== null")


def test_a_phone_filters_too(browser: Browser, page: Path) -> None:
    opened(browser, page, phone=True)
    browser.click("#open-filters")
    browser.click('button[data-value="critical"]')
    assert browser.run(VISIBLE) == ["Blocks"]
    assert browser.run("document.querySelector('#open-filters').textContent") == "Filter: 1 of 8"


@pytest.mark.parametrize("title", ["Is back", "Is open to doubt", "Was silenced"])
def test_an_address_with_a_finding_leads_to_it(browser: Browser, page: Path, title: str) -> None:
    everything = opened(browser, page)
    names = dict(zip(everything, browser.run(NAMES), strict=True))
    assert len(set(names.values())) == len(everything)

    browser.press("1")
    assert browser.run(VISIBLE) == ["Blocks"]
    browser.run(f"location.hash = '#{names[title]}'")
    assert comes_to_pass(lambda: browser.run(CURRENT) == title)
    assert browser.run(VISIBLE) == everything


def test_a_strangers_text_stays_text(browser: Browser, page: Path) -> None:
    assert opened(browser, page, review(finding(title=ATTACK, body=ATTACK, evidence=ATTACK))) == [ATTACK]
    assert browser.run("document.body.dataset.owned") is None
    assert browser.run("document.querySelectorAll('script').length") == 1
    # A page full of attacks works as any other.
    assert len(opened(browser, page, hostile_review())) == 7
    browser.click('button[data-kind="file"]')
    assert len(browser.run(VISIBLE)) == 2
    assert browser.run("document.body.dataset.owned") is None


def test_even_code_on_the_page_could_not(browser: Browser, page: Path) -> None:
    opened(browser, page)
    for attempt in (
        "await fetch('https://evil.test/');",
        "const one = new Image(); one.src = 'https://evil.test/x.png'; await one.decode();",
        "document.body.innerHTML = '<p>';",
        "document.body.setAttribute('onclick', 'window.owned = 1');",
        "eval('1');",
    ):
        tried = f"(async () => {{ try {{ {attempt} return 'done'; }} catch {{ return 'refused'; }} }})()"
        assert browser.run(tried) == "refused", attempt
    # The browser tells on its console what it refused.
    browser.run(A_MOMENT_LATER)
    assert all("Content Security Policy" in line or "Trusted" in line for line in browser.console)
    browser.console.clear()


# What axe-core calls definition-list, page-has-heading-one, landmark-unique and button-name.
STRUCTURE = """(() => {
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  const wrong = all("dl > *").filter((one) => !["DIV", "DT", "DD"].includes(one.tagName));
  const inside = all("dl > div > *").filter((one) => !["DT", "DD"].includes(one.tagName));
  const landmarks = all("[role=region], section[aria-label], aside, main, nav").map(
    (one) => `${one.tagName} ${one.getAttribute("aria-label")}`);
  const nameless = all("button").filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label")));
  return [all("h1").length, wrong.length, inside.length, landmarks.length - new Set(landmarks).size, nameless.length];
})()"""
# The number that counts and the note about those that need a person, and the number of the filter.
COUNTS = """[
  Array.from(document.querySelectorAll(".numbers .number:not(.none):not(.wide)"))
    .map((one) => ["dt", ".value", ".note"].map((part) => one.querySelector(part)?.textContent ?? "")),
  Array.from(document.querySelectorAll(".choice[data-kind=severity]"))
    .map((one) => [one.querySelector(".name").textContent, one.querySelector(".count").textContent]),
]"""


@pytest.mark.defect("U6")
def test_the_page_is_well_structured_and_its_filters_agree_with_its_numbers(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.run(STRUCTURE) == [1, 0, 0, 0, 0]
    numbers, choices = browser.run(COUNTS)
    assert numbers == [
        ["critical", "1", ""],
        ["high", "4", "1 needs a person"],
        ["medium", "1", ""],
        ["low", "1", ""],
    ]
    assert "1 critical, 4 high, 1 medium, 1 low; 1 needs a person;" in browser.run(
        "document.querySelector('.counts').textContent"
    )
    # A filter chooses among all that are open, those that count and those that need a person.
    assert choices == [[name, str(int(value) + int(note.partition(" ")[0] or 0))] for name, value, note in numbers]
    for name, count in choices:
        browser.click(f".choice[data-value={name}]")
        assert len(browser.run(VISIBLE)) == int(count)
        assert browser.run("document.getElementById('shown').textContent").startswith(f"{count} of ")
        browser.press("x")
    for standing, left in (
        ("needs a person", ["Is open to doubt"]),
        ("unproven", ["Was not proven"]),
        ("refuted", ["Was wrong"]),
        ("set aside", ["Is accepted", "Is gone", "Is waved", "Was dismissed", "Was fixed", "Was silenced"]),
    ):
        choice = f'.choice[data-kind=standing][data-value="{standing}"]'
        browser.click(choice)
        assert browser.run(VISIBLE) == left
        assert browser.run(f"document.querySelector('{choice} .count').textContent") == str(len(left))
        assert browser.run("document.getElementById('shown').textContent") == f"{len(left)} of {len(left)}"
        browser.press("x")


@pytest.mark.defect("U6")
def test_a_severity_of_which_nothing_counts_still_names_who_needs_a_person(browser: Browser, page: Path) -> None:
    both = replace(pending_finding(severity=Severity.LOW, fingerprint="f-both"), counts=True)
    opened(browser, page, review(pending_finding(severity=Severity.CRITICAL), both))
    # One that counts already is in the number.
    assert browser.run(COUNTS) == [
        [["critical", "0", "1 needs a person"], ["low", "1", ""]],
        [["critical", "1"], ["low", "1"]],
    ]


@pytest.mark.defect("U6")
def test_a_range_is_named_once() -> None:
    base, head = "0123456789" * 4, "abcdefabcd" * 4
    whole = review()
    named = replace(whole.scope, description=f"{base[:12]}..{head[:12]}", base=base, head=head)
    text = re.sub("<title>.*?</title>", "", render_html(replace(whole, scope=named)))
    assert (text.count(base[:7]), text.count(head[:7])) == (1, 1)
    branch = replace(named, description="topic against main")
    assert f"{base[:10]} → {head[:10]}" in render_html(replace(whole, scope=branch))


@pytest.mark.defect("U6")
def test_many_findings_are_folded_by_file_and_every_way_to_one_opens_it(browser: Browser, page: Path) -> None:
    found = tuple(
        finding(file=f"src/part{n % 12}.py", line_start=n + 1, title=f"Case-{n}-end", fingerprint=f"{n:032x}")
        for n in range(360)
    )
    assert opened(browser, page, review(*found)) == []
    assert browser.run("document.documentElement.scrollHeight") < 3_000
    browser.press("j")
    assert len(browser.run(VISIBLE)) == 30
    browser.press("/")
    browser.type("Case-357-end")
    assert browser.run(VISIBLE) == ["Case-357-end"]
    browser.press("Escape")
    browser.click("#unfold")
    assert len(browser.run(VISIBLE)) == 360
    name = browser.run("document.querySelectorAll('article.finding')[200].id")
    browser.press("o")
    assert browser.run(VISIBLE) == []
    browser.run(f"location.hash = '#{name}'")
    assert comes_to_pass(lambda: name == browser.run("document.querySelector('article.current')?.id"))
    assert len(browser.run(VISIBLE)) == 30
    assert len(opened(browser, page, review(*found[:50]))) == 50


@pytest.mark.defect("U6")
def test_the_place_and_the_fix_are_copied_as_they_are(browser: Browser, page: Path) -> None:
    code = "\tif name:\n\t\treturn\n\tcursor.execute(query, name)"
    opened(browser, page, review(finding(replacement=code)))
    browser.run("navigator.clipboard.writeText = async (text) => { window.taken = text; }")
    browser.click(".place .copy")
    assert comes_to_pass(lambda: browser.run("window.taken") == "app/db.py:42")
    browser.click(".fix .copy")
    assert comes_to_pass(lambda: browser.run("window.taken") == code)
    assert browser.run("document.querySelector('.fix .copy').textContent") == "Copied"
