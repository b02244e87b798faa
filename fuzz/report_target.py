"""Whatever the texts of a review hold: each format is a sound document in which they are text and nothing else.

An input is fields between `\\x1e`: the first chooses the format and the numbers, the others are the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.review import Coverage, FailedUnit, Review, ReviewError, SkippedFile, SkipReason
from codeloupe.model.severity import Severity
from codeloupe.model.suppression import Suppression, SuppressionKind
from codeloupe.model.sweep import CommitSweep
from codeloupe.report.formats import FORMATS, Layout
from codeloupe.report.shown_diff import ShownDiff
from codeloupe.report.svg import svg
from codeloupe.report.sweep_json import render_sweep_json
from codeloupe.report.sweep_markdown import render_sweep_markdown
from codeloupe.report.sweep_text import render_sweep_text
from codeloupe.report.sweep_xml import render_sweep_xml
from fuzz.report_checks import CHECKS
from fuzz.sanitiser_target import TEXTS, WORDS
from fuzz.target import Target
from tests.telling_reviews import telling_review
from tests.unit.report.examples import finding
from tests.unit.sweep.sweep_samples import commit, reviewed, sweep

_SEPARATOR = "\x1e"


def _seeds() -> Sequence[bytes]:
    texts = _SEPARATOR.join(TEXTS)
    return [
        f"{chr(48 + number)}{number}ab{_SEPARATOR}{texts}".encode("utf-8", "surrogatepass")
        for number in range(len(RENDERERS))
    ]


class _Fields:
    """The texts of an input, in turns, and the numbers in its first one."""

    def __init__(self, data: bytes) -> None:
        head, *texts = data.decode("utf-8", "surrogateescape").split(_SEPARATOR)
        self._numbers = [ord(character) for character in head] or [0]
        self._texts = texts or [head]
        self._place = 0

    def number(self, place: int, below: int) -> int:
        return self._numbers[place % len(self._numbers)] % below

    def text(self) -> str:
        self._place += 1
        return self._texts[(self._place - 1) % len(self._texts)]


def _finding(fields: _Fields, place: int) -> Finding:
    suppression = Suppression(kind=SuppressionKind.BASELINE, reason=fields.text(), owner=fields.text())
    return finding(
        title=fields.text(),
        body=fields.text(),
        evidence=fields.text(),
        suggestion=fields.text(),
        file=fields.text(),
        verification=fields.text(),
        category=fields.text(),
        rule=fields.text(),
        expert=fields.text(),
        reviewer=fields.text(),
        fingerprint=fields.text(),
        severity=list(Severity)[fields.number(place, 4)],
        status=list(FindingStatus)[fields.number(place + 1, len(FindingStatus))],
        anchored=bool(fields.number(place + 2, 3)),
        line_start=fields.number(place + 3, 50),
        line_end=fields.number(place + 2, 60),
        suppression=None if fields.number(place, 5) else suppression,
    )


def review_of(data: bytes) -> Review:
    """A review that holds the texts of an input at every place where a stranger's text may stand."""
    fields = _Fields(data)
    found = tuple(_finding(fields, place) for place in range(1 + fields.number(1, 3)))
    whole = telling_review()
    return replace(
        whole,
        findings=found,
        complete=bool(fields.number(2, 2)),
        scope=replace(whole.scope, description=fields.text()),
        reviewer=replace(whole.reviewer, why=fields.text(), model=fields.text()),
        coverage=Coverage(
            files_total=2,
            units_failed=(FailedUnit(fields.text(), (fields.text(),), fields.text()),) * fields.number(3, 2),
            skipped=(SkippedFile(fields.text(), SkipReason.UNREADABLE, fields.text()),) * fields.number(2, 3),
        ),
        errors=(ReviewError(fields.text(), fields.text()),),
        review_id=fields.text(),
        summary=fields.text(),
    )


def _diff_of(review: Review, data: bytes) -> ShownDiff:
    rows = [b" " + row for row in data.split(b"\n")] + [b"+" + data[:40].replace(b"\n", b"")]
    hunk = Hunk(1, len(rows) - 1, 1, len(rows), b"".join(row + b"\n" for row in rows), added=1)
    paths = {each.file for each in review.findings}
    return ShownDiff({path: FileChange(path, path, FileStatus.MODIFIED, hunks=(hunk,)) for path in paths})


def _sweep_of(review: Review) -> CommitSweep:
    first = review.findings[0]
    strange = commit(1, author=first.title, email=first.body, subject=first.evidence, body=first.category)
    return sweep(reviewed(1, *review.findings, commit=strange, review=review, failure=review.summary))


def _layout(data: bytes, review: Review) -> Layout:
    number = len(data)
    return Layout(
        width=20 + number % 100, color=number % 2 == 1, ascii_only=number % 3 == 1, diff=_diff_of(review, data)
    )


Renderer = Callable[[bytes, Review], str]
RENDERERS: dict[str, Renderer] = {
    **{
        name: (lambda data, review, render=render: render(review, _layout(data, review)))  # type: ignore[misc]
        for name, render in FORMATS.items()
    },
    "svg": lambda _data, review: svg(review, title=review.summary),
    "sweep-xml": lambda _data, review: render_sweep_xml(_sweep_of(review)),
    "sweep-json": lambda _data, review: render_sweep_json(_sweep_of(review)),
    "sweep-markdown": lambda _data, review: render_sweep_markdown(_sweep_of(review)),
    "sweep-text": lambda data, review: render_sweep_text(_sweep_of(review), width=20 + len(data) % 100, color=False),
}


def format_of(data: bytes) -> str:
    """The format that the first byte of an input chooses."""
    return list(RENDERERS)[(data[0] if data else 0) % len(RENDERERS)]


def _search(data: bytes) -> str:
    return RENDERERS[format_of(data)](data, review_of(data))


def _check(data: bytes) -> None:
    text = _search(data)
    text.encode("utf-8")
    CHECKS[format_of(data)](text)


TARGET = Target("report", _seeds, (b"\x1e", *WORDS), search=_search, check=_check, most_bytes=128 * 1024)
