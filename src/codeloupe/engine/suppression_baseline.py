"""Which findings the entries of a baseline cover, which of them hold no longer, and which cover nothing.

An entry covers the defect it was written for: at the same place, saying the same, and not graver. Another defect on its
line is another finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType

from msgspec.structs import replace

from codeloupe.engine.code_tokens import tokens_of_code
from codeloupe.engine.lifecycle import SAME
from codeloupe.engine.profile import Profile
from codeloupe.engine.similarity import are_told_apart, likeness_of_meaning
from codeloupe.model.baseline import EXPIRED, UNUSED, Baseline, BaselineEntry, shown_path
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Finding
from codeloupe.model.review import ReviewError

ELSEWHERE = "baseline_elsewhere"
OTHER = "baseline_other_finding"
_LONGEST_TITLE = 200
_MOST_NAMED = 10


class KnownFindings:
    """The entries of a baseline, and what becomes of them in one review.

    A fingerprint does not tell the file, so that it survives a move: an entry holds in its own file, and in the one to
    which the change moved it. A copy of the code in another file is another finding.
    """

    def __init__(
        self,
        baseline: Baseline,
        *,
        today: date,
        files: Sequence[FileChange],
        unknown: frozenset[str],
        first_names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._baseline = baseline
        self._today = today
        self._unknown = unknown
        self._first_names = first_names
        self._by_name: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        self._by_file: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        for entry in (*baseline.entries, *baseline.also):
            self._by_name[entry.fingerprint].append(entry)
            self._by_file[entry.file].append(entry)
        # A file that was copied is still where it was.
        moved = {file.old_path: file for file in files if file.old_path and file.status is not FileStatus.COPIED}
        named = {**moved, **{file.new_path: file for file in files if file.new_path}}
        self._files = {shown_path(name): file for name, file in named.items()}
        self._old_names = {shown_path(file.new_path): name for name, file in self._files.items() if file.new_path}
        self._used: set[BaselineEntry] = set()
        self._elsewhere: dict[BaselineEntry, str] = {}
        self._other: dict[BaselineEntry, Finding] = {}

    def entry_of(self, finding: Finding) -> BaselineEntry | None:
        """The entry that holds for a finding, or None."""
        path = shown_path(finding.file)
        names = (finding.fingerprint, self._first_names.get(finding.fingerprint, ""))
        same = [entry for name in dict.fromkeys(names) for entry in self._by_name.get(name, ())]
        here = [entry for entry in same if path in self._places(entry, path)]
        self._elsewhere.update((other, finding.file) for other in same if other not in here)
        profile = Profile(finding)
        entry = next((one for one in here if _covers(one, profile, is_named=True)), None)
        if entry is None:
            self._other.update((other, finding) for other in here)
            entry = next((one for one in self._near(path, profile) if _covers(one, profile, is_named=False)), None)
        if entry is None:
            return None
        self._used.add(entry)
        return None if entry.is_expired(self._today) else entry

    def _near(self, path: str, profile: Profile) -> Iterator[BaselineEntry]:
        """The entries about the lines that a finding quotes, whatever they are called."""
        quoted = _plain(profile.finding.evidence, path)
        for entry in (*self._by_file.get(path, ()), *self._by_file.get(self._old_names.get(path, ""), ())):
            piece = _plain(entry.evidence, path)
            if piece and entry.title and piece in quoted:
                yield entry

    def errors(self, lines_of: Callable[[str], Sequence[str] | None]) -> Iterator[ReviewError]:
        """What a person should know about the baseline, once every finding was asked about."""
        expired = [entry for entry in self._baseline.entries if entry.is_expired(self._today)]
        if expired:
            yield ReviewError(EXPIRED, f"{self._baseline.name}: {_expired_in_words(expired)}")
        for file, entries in self._unused(lines_of).items():
            yield ReviewError(UNUSED, f"{self._baseline.name}: {_unused_in_words(file, entries)}")
        silent = {*self._used, *self._baseline.also}
        for entry, file in self._elsewhere.items():
            if entry not in silent:
                yield ReviewError(ELSEWHERE, self._elsewhere_in_words(entry, file))
        for entry, finding in self._other.items():
            if entry not in silent:
                yield ReviewError(OTHER, self._other_in_words(entry, finding))

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
            if not _is_there(entry.evidence, texts[file.path], file.path):
                found[entry.file].append(entry)
        return found

    def _other_in_words(self, entry: BaselineEntry, finding: Finding) -> str:
        line = "" if finding.line_start is None else f":{finding.line_start}"
        return (
            f"{self._baseline.name}:{entry.line}: this entry is for another finding than the one at"
            f" {finding.file}{line}, which says something else or is graver, and counts"
        )

    def _elsewhere_in_words(self, entry: BaselineEntry, file: str) -> str:
        return (
            f"{self._baseline.name}:{entry.line}: this entry is for {entry.file}; the same was found in {file},"
            " and counts there; if the code was moved, change the file of the entry"
        )


def _covers(entry: BaselineEntry, profile: Profile, *, is_named: bool) -> bool:
    """Whether an entry for the place of a finding was written for this defect. An old one may tell little."""
    finding = profile.finding
    if entry.severity is not None and not entry.severity.at_least(finding.severity):
        return False
    if entry.rule or (is_named and finding.rule):
        # A name that is the same is of the same rule.
        return not entry.rule or entry.rule == finding.rule
    if not entry.title or _plain_words(entry.title) == _plain_words(finding.title):
        return is_named or bool(entry.title)
    written = Profile(replace(finding, title=entry.title, body=entry.body, suggestion=None, rule=None))
    if is_named and entry.fingerprint == finding.fingerprint:
        # The name is made of what the finding says, so a person may have written another title.
        return not are_told_apart(written, profile)
    return likeness_of_meaning(written, profile) >= SAME


def _plain_words(title: str) -> str:
    # Long titles are cut in the file.
    return " ".join(title.split()).casefold()[:_LONGEST_TITLE]


def _content(file: FileChange, lines_of: Callable[[str], Sequence[str] | None]) -> str | None:
    """What is in a file after the change, as `_plain` makes it; None when that is not known."""
    if file.new_path is None:
        return ""
    lines = lines_of(file.new_path)
    return None if lines is None else _plain("\n".join(lines), file.path)


def _is_there(evidence: str, content: str | None, path: str) -> bool:
    """Whether a piece of code may be in a file."""
    wanted = _plain(evidence, path)
    return bool(wanted) and (content is None or wanted in content)


def _plain(code: str, path: str) -> str:
    """Code without what reformatting and quoting change. A piece of it may be cut off anywhere, in a string too."""
    return "".join(token.removeprefix('"').replace(" ", "") for token in tokens_of_code(code, path))


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
