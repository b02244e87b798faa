from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from codeloupe.reports.text import svg
from tests.unit.reports.examples import finding, review


def test_the_picture_is_well_formed_and_shows_the_report() -> None:
    picture = svg(review(finding(title="日本 <b> & 'x'")), title="codeloupe review")
    words = "".join(ET.fromstring(picture).itertext()).replace("\xa0", " ")
    for expected in ("codeloupe review", "Offline review", "日本 <b> & 'x'", "HIGH P1", "app/db.py:42", "FAIL"):
        assert expected in words


def test_the_picture_fetches_nothing() -> None:
    picture = svg(review(finding()), title="t")
    assert "@font-face" not in picture
    assert "@import" not in picture
    assert re.findall(r"https?://[^\"' ]+", picture) == ["http://www.w3.org/2000/svg"]
    assert not re.findall(r"url\((?!#)", picture)


def test_the_same_review_gives_the_same_bytes() -> None:
    one = review(finding())
    assert svg(one, title="t") == svg(one, title="t")


def test_wide_characters_are_not_squeezed() -> None:
    picture = svg(review(finding(title="日本")), title="t")
    (length,) = re.findall(r'textLength="([\d.]+)"[^>]*>日本<', picture)
    assert float(length) == 4 * 12


def test_a_control_character_cannot_break_the_document() -> None:
    ET.fromstring(svg(review(finding(title="a\x00\x1b[1m\ufffe\udcff", body="]]>")), title="\x00"))


def test_every_line_has_the_clip_path_it_names() -> None:
    picture = svg(review(finding()), title="t")
    named = set(re.findall(r"clip-path=\"url\(#([^)]+)\)", picture))
    assert named <= set(re.findall(r"<clipPath id=\"([^\"]+)\"", picture))
