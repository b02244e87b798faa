"""The formats of a whole review by name. A new format is one more line here, and every verb that renders has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from msgspec import Struct

from codeloupe.model.review import Review
from codeloupe.reports.html_code import ShownDiff


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


Render = Callable[[Review, Layout], str]


def _text(review: Review, layout: Layout) -> str:
    # The library that lays out text takes longer to load than most formats to render.
    text: str = import_module("codeloupe.reports.text").render_text(
        review,
        width=layout.width,
        color=layout.color,
        verbose=layout.verbose,
        ascii_only=layout.ascii_only,
        saved_in=layout.saved_in,
        untrusted=layout.untrusted,
    )
    return text


def _concise(review: Review, layout: Layout) -> str:
    text: str = import_module("codeloupe.reports.text").render_concise(review, ascii_only=layout.ascii_only)
    return text


def _html(review: Review, layout: Layout) -> str:
    text: str = import_module("codeloupe.reports.html").render_html(review, diff=layout.diff)
    return text


def _by(module: str, function: str) -> Render:
    """A format that looks at the review alone; its module loads when it is asked for."""

    def render(review: Review, _layout: Layout) -> str:
        text: str = getattr(import_module(f"codeloupe.reports.{module}"), function)(review)
        return text

    return render


FORMATS: Mapping[str, Render] = {
    "text": _text,
    "concise": _concise,
    "json": _by("json_v1", "render_json"),
    "sarif": _by("sarif", "render_sarif"),
    "markdown": _by("markdown", "render_markdown"),
    "html": _html,
    "junit": _by("junit", "render_junit"),
    "gitlab-codequality": _by("gitlab", "render_gitlab"),
    "rdjson": _by("rdjson", "render_rdjson"),
    "rdjsonl": _by("rdjson", "render_rdjsonl"),
    "github": _by("github", "render_github"),
}
