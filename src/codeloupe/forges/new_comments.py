"""Which findings get a comment of their own: on lines of the diff, the most severe first, so many at a time."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from codeloupe.forges.comment_text import finding_body
from codeloupe.forges.diff_places import DiffPlaces, Nowhere, Place
from codeloupe.forges.marker import Marker, key_of
from codeloupe.model.finding import Finding
from codeloupe.model.publication import InlineComment, WithoutComment
from codeloupe.model.review import Review
from codeloupe.reports.wording import counted


class Sorted(Struct, frozen=True):
    """Findings with a comment and without one."""

    comments: tuple[InlineComment, ...] = ()
    without: tuple[WithoutComment, ...] = ()


def sort_out(
    findings: Sequence[Finding],
    *,
    places: DiffPlaces,
    limit: int,
    already: int,
    review: Review,
    marker: Marker,
) -> Sorted:
    """Comments for new findings, the worst first. `already` threads of ours are open and count towards `limit`."""
    comments: list[InlineComment] = []
    without: list[WithoutComment] = []
    keys: set[tuple[str, str]] = set()
    for finding in findings:
        place = places.find(finding)
        key = key_of(finding)
        if isinstance(place, Nowhere):
            without.append(WithoutComment(finding, place.reason))
        elif (key, finding.file) in keys:
            without.append(WithoutComment(finding, "another finding of its file has the same fingerprint"))
        elif already + len(comments) >= limit:
            most = counted(limit, "comment is", "comments are")
            without.append(WithoutComment(finding, f"no more than {most} open at a time"))
        else:
            keys.add((key, finding.file))
            comments.append(_comment(finding, place, review=review, marker=marker))
    return Sorted(tuple(comments), tuple(without))


def _comment(finding: Finding, place: Place, *, review: Review, marker: Marker) -> InlineComment:
    return InlineComment(
        key=key_of(finding),
        finding=finding,
        path=place.path,
        line=place.last,
        start_line=place.first if place.first < place.last else None,
        body=finding_body(finding, place, review=review, marker=marker),
    )
