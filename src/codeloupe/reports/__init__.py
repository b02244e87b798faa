"""From a review to text: one file a format, lists for other tools in one, pure.

Nothing untrusted passes without its sink's sanitiser. A format loads when it is asked for: the library that lays out
text takes longer to load than most take to render. A new format is one more file, one more name and one more case
here, and every verb that renders has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from msgspec import Struct, field

from codeloupe.model.change import FileChange
from codeloupe.model.review import Review
from codeloupe.model.sweep import CommitSweep

if TYPE_CHECKING:
    from codeloupe.model.review import Preview

FORMATS = tuple(
    "text concise json sarif markdown html junit gitlab-codequality rdjson rdjsonl github".split()  # noqa: SIM905
)
SWEEP_FORMATS = ("text", "json", "markdown", "xml")
PREVIEW_FORMATS = ("text", "json")


class ShownDiff(Struct, frozen=True):
    """The files under review by their paths.

    `mask` takes secrets out of a text. It gets the new lines of a hunk together, and its deleted ones; a hunk in which
    it masks anything is not shown.
    """

    files: Mapping[str, FileChange]
    mask: Callable[[str], str] = field(default=str)


class Look(TypedDict, total=False):
    """How text is shown, as far as the terminal decides it: see Layout."""

    width: int
    color: bool
    ascii_only: bool


class Layout(Struct, frozen=True, kw_only=True):
    """How a format for people lays out its text; a format for programs does not look at it.

    `diff` lets a format show findings among the lines around them, where the change is at hand.
    `saved_in` is the repository in whose history the review is, as a command names it (empty for the one here); None
    when it is in none, so that no command can find it. With `untrusted`, no baseline but the base's holds for it.
    """

    width: int = 100
    color: bool = False
    ascii_only: bool = False
    verbose: bool = False
    diff: ShownDiff | None = None
    saved_in: str | None = None
    untrusted: bool = False


@cache
def asset(name: str) -> str:
    """The text of a file beside the formats."""
    return Path(__file__).with_name("assets").joinpath(name).read_text(encoding="utf-8")


def render(review: Review, name: str, layout: Layout) -> str:
    """The review in one of FORMATS."""
    match name:
        case "text":
            from codeloupe.reports.text import render_text

            return render_text(review, layout)
        case "html":
            from codeloupe.reports.html import render_html

            return render_html(review, diff=layout.diff)
        case "json":
            from codeloupe.reports.json_v1 import render_json as show
        case "sarif":
            from codeloupe.reports.sarif import render_sarif as show
        case "markdown":
            from codeloupe.reports.markdown import render_markdown as show
        case "junit":
            from codeloupe.reports.junit import render_junit as show
        case _:
            from codeloupe.reports.listings import LISTINGS

            return LISTINGS[name](review, layout)
    return show(review)


def render_sweep(sweep: CommitSweep, name: str, layout: Layout) -> str:
    """The sweep in one of SWEEP_FORMATS."""
    from codeloupe.reports import sweep as formats

    if name == "text":
        return formats.render_sweep_text(sweep, layout)
    known = {"markdown": formats.render_sweep_markdown, "json": formats.render_sweep_json}
    return {**known, "xml": formats.render_sweep_xml}[name](sweep)


def render_preview(preview: Preview, name: str, layout: Layout) -> str:
    """The preview in one of PREVIEW_FORMATS."""
    from codeloupe.reports import preview as formats

    return formats.render_preview_json(preview) if name == "json" else formats.render_preview_text(preview, layout)
