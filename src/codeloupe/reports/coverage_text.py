"""What was not reviewed, as lines of text: gaps first, then what the policy left out, then what else went wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from rich.text import Text

from codeloupe.model.review import Coverage, FailedUnit, Review, ReviewError, SkippedFile, SkipReason
from codeloupe.reports.page import BOLD, DIM, Page
from codeloupe.reports.wording import counted

_INDENT = 2
_GAP_STYLE = "bold yellow"
_FILES_NAMED = 3
_ERRORS_SHOWN = 10
_NOUNS = {
    SkipReason.MEDIA: ("media file", "media files"),
    SkipReason.FONT: ("font", "fonts"),
    SkipReason.ARCHIVE: ("archive", "archives"),
    SkipReason.PROGRAM: ("compiled program", "compiled programs"),
    SkipReason.BINARY: ("unknown binary file", "unknown binary files"),
    SkipReason.LFS_POINTER: ("LFS pointer", "LFS pointers"),
    SkipReason.NOT_SHOWN: ("file that the diff does not show", "files that the diff does not show"),
    SkipReason.GENERATED: ("generated file", "generated files"),
    SkipReason.VENDORED: ("vendored file", "vendored files"),
    SkipReason.MINIFIED: ("minified file", "minified files"),
    SkipReason.LOCK_FILE: ("lock file", "lock files"),
    SkipReason.EXCLUDED: ("excluded file", "excluded files"),
    SkipReason.SUBMODULE: ("submodule", "submodules"),
    SkipReason.TOO_LARGE: ("file too large", "files too large"),
    SkipReason.UNREADABLE: ("unreadable file", "unreadable files"),
    SkipReason.NOTHING_TO_READ: ("file without changed lines", "files without changed lines"),
}


def not_reviewed_lines(page: Page, review: Review) -> list[Text]:
    """Everything that stands between this review and a whole one; empty when there is nothing to say."""
    coverage = review.coverage
    gaps = [skip for skip in coverage.skipped if skip.is_gap]
    lines = [
        *_failed_units(page, coverage),
        *(line for skip in gaps for line in _gap(page, skip.file, skip.in_words())),
        *_policy_skips(page, [skip for skip in coverage.skipped if not skip.is_gap]),
    ]
    errors = _errors(page, review)
    titled = [Text("Not reviewed", style=BOLD), *lines] if lines else []
    return [*titled, *([Text("")] if titled and errors else []), *errors]


def skipped_in_words(skipped: Iterable[SkippedFile]) -> str:
    """`2 lock files, 1 binary file`: the most common reason first."""
    return ", ".join(counted(count, *_NOUNS[reason]) for reason, count in _by_reason(skipped))


def _by_reason(skipped: Iterable[SkippedFile]) -> list[tuple[SkipReason, int]]:
    counts = Counter(skip.reason for skip in skipped)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0].value))


def _failed_units(page: Page, coverage: Coverage) -> list[Text]:
    """One entry for all pieces of the change that failed for one reason, and one for each lane and reason."""
    pieces: dict[str, list[str]] = defaultdict(list)
    lanes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for failed in coverage.units_failed:
        if is_piece(failed):
            pieces[failed.reason].append(failed.unit)
        else:
            lanes[failed.unit, failed.reason] += failed.files
    alike = [
        line
        for reason, units in pieces.items()
        for line in _gap(
            page, f"{len(units):,} units" if len(units) > 1 else units[0], reason, files=units[1:] and units
        )
    ]
    return [
        *alike,
        *(line for (lane, reason), files in lanes.items() for line in _gap(page, lane, reason, files=files)),
    ]


def is_piece(failed: FailedUnit) -> bool:
    """Whether a unit is a piece of the change, named after its file, and not a lane such as an analyser."""
    return bool(failed.files) and failed.unit.startswith(failed.files[0])


def _gap(page: Page, name: str, reason: str, files: Sequence[str] = ()) -> list[Text]:
    shown = Text.assemble((page.clean(name), BOLD), "  ", page.clean(reason))
    if files:
        shown.append(f"  {_named(page, files)}", style=DIM)
    sign = Text.assemble(" " * _INDENT, (page.signs.gap, _GAP_STYLE), " ")
    return page.wrap(shown, indent=_INDENT + 2, hang=2, first=sign)


def _named(page: Page, files: Sequence[str]) -> str:
    named = files if page.verbose else files[:_FILES_NAMED]
    rest = len(files) - len(named)
    return ", ".join(map(page.clean, named)) + (f" and {rest:,} more" if rest else "")


def _policy_skips(page: Page, skipped: Sequence[SkippedFile]) -> list[Text]:
    if not skipped:
        return []
    hint = "" if page.verbose else f" (-v names {'it' if len(skipped) == 1 else 'them'})"
    words = skipped_in_words(skipped)
    is_one_kind = len({skip.reason for skip in skipped}) == 1
    summary = Text.assemble(f"{words} skipped" if is_one_kind else f"{len(skipped):,} skipped: {words}", (hint, DIM))
    sign = Text(f"{' ' * _INDENT}{page.signs.bullet} ", style=DIM)
    names = [
        line
        for skip in sorted(skipped, key=lambda skip: (skip.reason.value, skip.file))
        for line in page.wrap(
            Text.assemble(page.clean(skip.file), (f"  {page.clean(skip.in_words())}", DIM)), indent=_INDENT + 4, hang=2
        )
    ]
    return [*page.wrap(summary, indent=_INDENT + 2, first=sign), *(names if page.verbose else [])]


def _errors(page: Page, review: Review) -> list[Text]:
    """Errors that are not told already as a gap: such a one ends with the gap's reason."""
    coverage = review.coverage
    reasons = {failed.reason for failed in coverage.units_failed}
    reasons |= {f"{skip.file}: {skip.in_words()}" for skip in coverage.skipped if skip.is_gap}
    told = tuple(reason for reason in reasons if reason)
    errors = [error for error in review.errors if not error.message.endswith(told)]
    shown = errors if page.verbose else errors[:_ERRORS_SHOWN]
    lines = [line for error in shown for line in _error(page, error)]
    if len(errors) > len(shown):
        more = f"{page.signs.more} {len(errors) - len(shown):,} more (-v shows them)"
        lines += page.wrap(Text(more, style=DIM), indent=_INDENT + 2)
    return [Text("Problems", style=BOLD), *lines] if lines else []


def _error(page: Page, error: ReviewError) -> list[Text]:
    return page.wrap(
        Text.assemble((page.clean(error.kind), BOLD), "  ", page.clean(error.message)),
        indent=_INDENT + 2,
        hang=2,
        first=Text.assemble(" " * _INDENT, (page.signs.gap, _GAP_STYLE), " "),
    )
