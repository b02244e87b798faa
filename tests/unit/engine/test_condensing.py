from __future__ import annotations

from pathlib import Path

import pytest

import bench.lifelike
from codeloupe.engine.prompt_material import condensed

SHOP = Path(bench.lifelike.__file__).with_name("shop_guidance.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.defect("V9")


def test_what_fits_stays_as_it_is() -> None:
    assert condensed("# Rules\n\nBe brief.\n", 100, ["a.py"]) == "# Rules\n\nBe brief.\n"


def test_the_rules_for_the_languages_and_folders_of_the_files_stay() -> None:
    failures = []
    for file, kept, gone in (
        ("orders/total.py", ("`datetime` with a time zone",), ("goroutine", "`strict` stays on", "On a Mac")),
        ("orders/total.go", ("Each goroutine has an owner",), ("`datetime`", "`strict` stays on", "On a Mac")),
        ("web/src/pages/cart.ts", ("Never set `innerHTML`",), ("goroutine", "`datetime`", "We release on")),
        ("billing/0007.sql", ("Every query is parameterised", "Migrations must be reversible"), ("goroutine",)),
        ("billing/Tax.java", ("Compare strings with `equals`",), ("goroutine", "`datetime`")),
    ):
        text = condensed(SHOP, 1_700, [file])
        failures += [(file, words) for words in kept if words not in text]
        failures += [(file, f"not {words}") for words in gone if words in text]
        if len(text.encode()) > 1_700 or "[condensed from 6," not in text:
            failures.append((file, text))
    assert failures == []


def test_rules_for_all_code_come_before_how_to_work() -> None:
    text = condensed(SHOP, 2_000, ["shared/unknown.zig"])
    assert "Never swallow an exception" in text
    assert "Never log addresses" in text
    for words in ("make setup", "72 letters", "at ten", "channel"):
        assert words not in text


def test_points_stay_whole_under_their_headings_and_in_their_order() -> None:
    text = condensed(SHOP, 1_500, ["orders/total.py"])
    rows = text.split("\n")[:-1]
    whole = SHOP.split("\n")
    places = [whole.index(row) for row in rows if row.startswith(("#", "- "))]
    assert places == sorted(places)
    assert len(places) > 10
    headings = [row for row in rows if row.startswith("#")]
    assert len(headings) == len(set(headings))


def test_the_same_rule_again_is_said_once() -> None:
    text = condensed("- Never do that.\n" * 50 + "- Always do this.\n", 200, ["a.py"])
    assert text.count("Never do that") == 1
    assert "Always do this" in text


def test_any_text_fits_its_room() -> None:
    texts = [
        "x" * 16_000,
        "#\n" * 8_000,
        "```\n" * 4_000,
        "- " * 8_000,
        ". A" * 5_000,
        "\n" * 16_000,
        "é—" * 4_000,
        "a\n=\n" * 4_000,
    ]
    for text in texts:
        for room in (0, 1, 30, 200, 2_000):
            assert len(condensed(text, room, ["a.py"] * 1_000).encode()) <= room + 60, (text[:10], room)
