"""Which findings the entries of a baseline stand for, which of them hold no longer, and which stand for nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date

from codeloupe.engine.folding import fold
from codeloupe.model.baseline import EXPIRED, UNUSED, Baseline, BaselineEntry, shown_path
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Finding
from codeloupe.model.review import ReviewError

ELSEWHERE = "baseline_elsewhere"
_MOST_NAMED = 10


class KnownFindings:
    """The entries of a baseline, and what becomes of them in one review.

    A fingerprint does not tell the file, so that it survives a move: an entry holds in its own file, and in the one to
    which the change moved it. A copy of the code in another file is another finding.
    """

    def __init__(
        self, baseline: Baseline, *, today: date, files: Sequence[FileChange], unknown: frozenset[str]
    ) -> None:
        self._baseline = baseline
        self._today = today
        self._unknown = unknown
        self._entries: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        for entry in baseline.entries:
            self._entries[entry.fingerprint].append(entry)
        # A file that was copied is still where it was.
        moved = {file.old_path: file for file in files if file.old_path and file.status is not FileStatus.COPIED}
        named = {**moved, **{file.new_path: file for file in files if file.new_path}}
        self._files = {shown_path(name): file for name, file in named.items()}
        self._used: set[BaselineEntry] = set()
        self._elsewhere: dict[BaselineEntry, str] = {}

    def entry_of(self, finding: Finding) -> BaselineEntry | None:
        """The entry that holds for a finding, or None."""
        same = self._entries.get(finding.fingerprint, [])
        path = shown_path(finding.file)
        entry = next((entry for entry in same if path in self._places(entry, path)), None)
        if entry is None:
            self._elsewhere.update((other, finding.file) for other in same)
            return None
        self._used.add(entry)
        return None if entry.is_expired(self._today) else entry

    def errors(self, lines_of: Callable[[str], Sequence[str] | None]) -> Iterator[ReviewError]:
        """What a person should know about the baseline, once every finding was asked about."""
        expired = [entry for entry in self._baseline.entries if entry.is_expired(self._today)]
        if expired:
            yield ReviewError(EXPIRED, f"{self._baseline.name}: {_expired_in_words(expired)}")
        for file, entries in self._unused(lines_of).items():
            yield ReviewError(UNUSED, f"{self._baseline.name}: {_unused_in_words(file, entries)}")
        for entry, file in self._elsewhere.items():
            if entry not in self._used:
                yield ReviewError(ELSEWHERE, self._elsewhere_in_words(entry, file))

    def _places(self, entry: BaselineEntry, path: str) -> tuple[str, ...]:
        """Where an entry holds: in its file, also under the name that the change gives it; without a file, anywhere."""
        if not entry.file:
            return (path,)
        file = self._files.get(entry.file)
        return (entry.file, shown_path(file.new_path)) if file is not None and file.new_path else (entry.file,)

    def _unused(self, lines_of: Callable[[str], Sequence[str] | None]) -> Mapping[str, list[BaselineEntry]]:
        """Entries for reviewed files that nothing was found for, where that can be told, by file.

        A review sees the changed part of a file. So an entry whose code still stands in the file may be about the other
        part, and is left alone; one without code has nothing that speaks for it.
        """
        texts: dict[str, str | None] = {}
        found: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        for entry in self._baseline.entries:
            file = self._files.get(entry.file)
            if file is None or file.path in self._unknown:
                continue
            if entry in self._used or entry.is_expired(self._today):
                continue
            if file.path not in texts:
                texts[file.path] = _content(file, lines_of)
            if not _is_there(entry.evidence, texts[file.path]):
                found[entry.file].append(entry)
        return found

    def _elsewhere_in_words(self, entry: BaselineEntry, file: str) -> str:
        return (
            f"{self._baseline.name}:{entry.line}: this entry is for {entry.file}; the same was found in {file},"
            " and counts there; if the code was moved, change the file of the entry"
        )


def _content(file: FileChange, lines_of: Callable[[str], Sequence[str] | None]) -> str | None:
    """What is in a file after the change, as `_plain` makes it; None when that is not known."""
    if file.new_path is None:
        return ""
    lines = lines_of(file.new_path)
    return None if lines is None else "".join(map(_plain, lines))


def _is_there(evidence: str, content: str | None) -> bool:
    """Whether a piece of code may be in a file."""
    wanted = _plain(evidence)
    return bool(wanted) and (content is None or wanted in content)


def _plain(line: str) -> str:
    """A line without what reformatting and quoting change."""
    return fold(line).replace(" ", "")


def _expired_in_words(entries: Sequence[BaselineEntry]) -> str:
    shown = [
        f"{entry.in_short()} on {entry.expires}{f' for {entry.file}' if entry.file else ''}"
        for entry in entries[:_MOST_NAMED]
    ]
    more = f" and {len(entries) - _MOST_NAMED:,} more" if len(entries) > _MOST_NAMED else ""
    what = (
        "1 entry has expired and suppresses"
        if len(entries) == 1
        else f"{len(entries):,} entries have expired and suppress"
    )
    return f"{what} nothing: {', '.join(shown)}{more}"


def _unused_in_words(file: str, entries: Sequence[BaselineEntry]) -> str:
    # All of them by name: `baseline prune` knows them by this.
    named = ", ".join(entry.in_short() for entry in entries)
    fits = "1 entry fits" if len(entries) == 1 else f"{len(entries):,} entries fit"
    return f"{fits} nothing in {file} any more: {named}; `codeloupe baseline prune` removes what is unused"
