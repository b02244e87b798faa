"""Anchoring: from an item of an answer to a claim with a place.

The quote decides the place. A line number is shown only if it is known. Secrets are masked here, once, for every text
of a claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Claim, Source
from codeloupe.reviewers.answers import RawClaim, redacted_start
from codeloupe.reviewers.quotes import MASK, Place, Quote, find_quote, is_fence, read_quote, touches, without_fence
from codeloupe.source.files import ReviewedFile, is_inside
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import has_hidden, one_line

_TITLE_CHARACTERS = 300
_NAME_CHARACTERS = 200
_TEXT_CHARACTERS = 20_000
_EVIDENCE_CHARACTERS = 4_000
_PATH_CHARACTERS = 4_096
_EVIDENCE_LINES = 40
_LONGEST_BELIEVED_PLACE = 1_000
_BELIEVED_EVIDENCE_LINES = 10
_LAST_LINE = 10_000_000
_CACHE_BYTES = 256 * 1024 * 1024
_MOST_FILES_WITHOUT_PATH = 200
_DEEPEST_PATH = 64
# Reports show the severity that counts, so a title does not repeat the one that was claimed.
_PRIORITY = regex(r"(?i)(?:\s{0,8}(?:\[\s{0,8}P[0-3]\s{0,8}\]|\(P[0-3]\)|P[0-3]:)){1,4}\s{0,8}(?=\S)")


class Origin(Struct, frozen=True, kw_only=True):
    """Who makes a claim: the reporter, its expert, and a label for `seen_by` that names the pass."""

    reporter: str
    expert: str | None = None
    label: str = ""
    source: Source = Source.AGENT


class Anchorer:
    """Place the claims of one review.

    `read` returns the new content of a file, or None; it must not raise, follow links or leave the tree. An empty
    quote makes a claim unanchored, unless the anchorer `believes` "any" stated line that exists.
    """

    def __init__(
        self,
        files: Sequence[FileChange],
        read: Callable[[str], bytes | None],
        *,
        believes: Literal["none", "any"] = "none",
    ) -> None:
        self._changes = {file.path: file for file in reversed(files)}
        self._read = read
        self._believes = believes
        self._files: dict[str, ReviewedFile] = {}
        self._cached_bytes = 0
        # The changed files by each name that a reviewer may use.
        self._known_as = {path: path for path in self._changes}
        for file in files:
            self._known_as.setdefault(one_line(file.path), file.path)
            if file.status is FileStatus.RENAMED and file.old_path:
                self._known_as.setdefault(file.old_path, file.path)

    def place(self, raw: RawClaim, origin: Origin, *, unit_files: Sequence[str] = ()) -> Claim:
        """Return the claim of an item, at the place of its quote; without a place it is not anchored.

        `unit_files` are the files that the reviewer was asked about. Nothing that an item contains makes this raise.
        """
        stated_path = raw.file.strip()[:_PATH_CHARACTERS]
        paths = self._files_meant(stated_path, unit_files)
        claim = _unanchored(raw, origin)
        if paths:
            claim = replace(claim, file=paths[0])
        claim = replace(claim, outside_change=bool(claim.file) and claim.file not in self._changes)
        if not raw.quote.strip():
            if self._believes == "any":
                return self._at_stated_line(raw, claim)
            return claim
        if not stated_path:
            paths = self._files_without_path(unit_files)
        quote = read_quote(raw.quote)
        placed: list[Claim] = []
        for path in paths:
            found = self._at_quote(path, quote, raw, claim)
            if found is not None:
                placed.append(found)
                if stated_path:
                    break
        # A quote that is in exactly one file needs no path.
        if len(placed) == 1:
            return placed[0]
        return claim

    def replacement_for(self, claim: Claim, offered: str | None) -> str | None:
        """Return the code that replaces exactly the quoted lines of a claim, or None if what was offered cannot.

        The evidence of the claim must be its lines in the new file, unmasked. The code must change them, and must not
        contain a secret, a mask or an invisible character. A code fence and the signs of a diff are removed, and
        indentation is restored.
        """
        if offered is None or len(offered) > _TEXT_CHARACTERS or not claim.anchored or not claim.evidence.strip():
            return None
        file = self._file(claim.file)
        lines = [file.line(number) or b"" for number in range(claim.first_line, claim.last_line + 1)]
        if _decoded(lines) != claim.evidence or MASK in claim.evidence:
            return None
        code = _without_markup(offered)
        if code is None or not code.strip() or MASK in code or redact(code) != code or has_hidden(code):
            return None
        code = _indented_like(claim.evidence, code)
        if code == claim.evidence.rstrip():
            return None
        return code

    def _files_meant(self, stated_path: str, unit_files: Sequence[str]) -> list[str]:
        """Return the files that a path may mean, the likeliest first; none if too many could be meant."""
        if not stated_path:
            return []
        spellings = _path_spellings(stated_path)
        for spelling in spellings:
            if spelling in self._known_as:
                return [self._known_as[spelling]]
        path = spellings[-1]
        parts = path.split("/")
        if not is_inside(path.lstrip("/")) or len(parts) > _DEEPEST_PATH:
            return []
        endings = ["/".join(parts[index:]) for index in range(1, len(parts))]
        is_absolute = path.startswith("/") or path[1:3] == ":/"
        if is_absolute:
            # The directory that contained the tree is not known.
            return self._first_known(endings) or self._first_readable(endings)
        longer = [known for known in self._changes if known.endswith(f"/{path}")]
        if len(longer) > 1:
            longer = [known for known in longer if known in unit_files]
            if len(longer) != 1:
                return []
        meant = [*longer, *self._first_readable(spellings), *self._first_known(endings)]
        return list(dict.fromkeys(meant))

    def _first_known(self, paths: Iterable[str]) -> list[str]:
        for path in paths:
            if path in self._known_as:
                return [self._known_as[path]]
        return []

    def _first_readable(self, paths: Iterable[str]) -> list[str]:
        for path in paths:
            if is_inside(path) and self._file(path).is_known:
                return [path]
        return []

    def _files_without_path(self, unit_files: Sequence[str]) -> list[str]:
        """Return the files to search for a quote whose file was not named."""
        files = [path for path in unit_files if path in self._changes] or list(self._changes)
        return files if len(files) <= _MOST_FILES_WITHOUT_PATH else []

    def _at_stated_line(self, raw: RawClaim, claim: Claim) -> Claim:
        file = self._file(claim.file)
        first = raw.line_start or 0
        if file.line(first) is None:
            return claim
        last = first
        stated_last = min(raw.line_end or first, first + _LONGEST_BELIEVED_PLACE)
        while last < stated_last and file.line(last + 1) is not None:
            last += 1
        numbers = range(first, min(last + 1, first + _BELIEVED_EVIDENCE_LINES))
        evidence = _decoded(file.line(number) or b"" for number in numbers)
        return replace(
            claim,
            line_start=first,
            line_end=last,
            evidence=redacted_start(evidence, _EVIDENCE_CHARACTERS),
            anchored=True,
            outside_change=not touches(file.shown, first, last),
        )

    def _at_quote(self, path: str, quote: Quote, raw: RawClaim, claim: Claim) -> Claim | None:
        """Return the claim at the place of its quote in a file, or None if the quote is not there."""
        file = self._file(path)
        place = find_quote(file, quote, _stated_line(raw, quote, file))
        if place is None:
            return None
        run = place.run
        first = run.numbers[place.first]
        last = max(first, run.numbers[place.last])
        is_deleted = run.has_deleted(place.first, place.last)
        placed = replace(
            claim,
            file=path,
            line_start=first,
            line_end=last,
            evidence=redacted_start(_evidence(place), _EVIDENCE_CHARACTERS),
            anchored=True,
            deleted=is_deleted,
            outside_change=not (is_deleted or touches(file.shown, first, last)),
        )
        if place.is_whole and not is_deleted:
            return replace(placed, replacement=self.replacement_for(placed, raw.replacement))
        return placed

    def _file(self, path: str) -> ReviewedFile:
        if path not in self._files:
            change = self._changes.get(path)
            is_deleted = change is not None and change.new_path is None
            content = None if is_deleted else self._read(path)
            file = ReviewedFile(path, change, content)
            self._cached_bytes += file.weight
            if self._cached_bytes > _CACHE_BYTES:
                self._files.clear()
                self._cached_bytes = file.weight
            self._files[path] = file
        return self._files[path]


def _unanchored(raw: RawClaim, origin: Origin) -> Claim:
    """Return the claim of an item without a place. All of its texts are redacted here."""
    spellings = _path_spellings(raw.file.strip())
    reporter = _redacted_name(origin.reporter)
    expert = None
    if origin.expert is not None:
        expert = _redacted_name(origin.expert)
    rule = None
    if raw.rule:
        rule = _redacted_name(raw.rule)
    suggestion = None
    if raw.suggestion:
        suggestion = redacted_start(raw.suggestion, _TEXT_CHARACTERS)
    return Claim(
        reporter=reporter,
        source=origin.source,
        severity=raw.severity,
        title=_plain_title(raw.title),
        file=redacted_start(spellings[-1], _PATH_CHARACTERS),
        body=redacted_start(raw.body, _TEXT_CHARACTERS),
        category=_redacted_name(raw.category.strip()) or expert or "general",
        evidence=redacted_start(raw.quote, _EVIDENCE_CHARACTERS),
        anchored=False,
        rule=rule,
        expert=expert,
        suggestion=suggestion,
        seen_by=(_redacted_name(origin.label) or reporter,),
        names_finding=_redacted_name(raw.finding_id),
    )


def _redacted_name(name: str) -> str:
    return redacted_start(name, _NAME_CHARACTERS)


def _plain_title(title: str) -> str:
    priority = _PRIORITY.match(title)
    if priority is not None:
        title = title[priority.end() :]
    cleaned = redacted_start(title, _TITLE_CHARACTERS + 1)
    if len(cleaned) <= _TITLE_CHARACTERS:
        return cleaned
    return f"{cleaned[:_TITLE_CHARACTERS].rstrip()} …"


def _decoded(lines: Iterable[bytes]) -> str:
    return "\n".join(line.decode("utf-8", "replace").removesuffix("\r") for line in lines)


def _evidence(place: Place) -> str:
    """Return the lines of a place, or the quote if a secret in these lines was masked for the reviewer."""
    quote = place.pattern.reading.text
    if place.pattern.has_gaps and MASK in quote:
        return quote
    lines = place.run.lines[place.first : place.last + 1]
    return _decoded(lines[:_EVIDENCE_LINES])


def _stated_line(raw: RawClaim, quote: Quote, file: ReviewedFile) -> int | None:
    """Return the line that the reviewer named, or that is in the margin of the quote, if the file has it."""
    last_line = _LAST_LINE if file.last_line is None else file.last_line
    for number in (raw.line_start, quote.line_in_margin):
        if number is not None and 1 <= number <= last_line:
            return number
    return None


_LOCATION = regex(r"(?::\d{1,9}(?:[-:]\d{1,9}){0,2}|#L\d{1,9}(?:-L?\d{1,9})?|\s{0,9}\((?:lines?|L)\s?\d[^()]{0,40}\))$")
_MANY_SLASHES = regex(r"/(?:\.?/){1,999}")
_WRAPPING = " \t\r\n`'\"<>*,;"


def _path_spellings(stated: str) -> list[str]:
    """Return the path with less and less around it: quote marks, line numbers, prefixes of a diff, extra slashes."""
    unwrapped = stated.strip(_WRAPPING)
    without_line = _LOCATION.sub("", unwrapped).strip(_WRAPPING)
    without_scheme = without_line.removeprefix("file://").replace("\\", "/")
    plain = _MANY_SLASHES.sub("/", without_scheme).removeprefix("./")
    spellings = [stated, unwrapped, without_line, without_scheme, plain]
    if plain.startswith(("a/", "b/")):
        spellings.append(plain[2:])
    return spellings


def _without_markup(offered: str) -> str | None:
    """Return offered code without a fence around it and the `+` of a diff; None if there is text around a fence."""
    code = without_fence(offered.replace("\r\n", "\n"))
    lines = code.strip("\n").rstrip().split("\n")
    if any(is_fence(line) for line in lines):
        return None
    if all(line.startswith("+") for line in lines if line.strip()):
        lines = [line.removeprefix("+") for line in lines]
    return "\n".join(lines)


def _indented_like(quoted: str, code: str) -> str:
    """Return the code with the indentation of the quoted lines, if its first line has none."""
    first = quoted.lstrip("\n").split("\n")[0]
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    lines = code.split("\n")
    if lines[0][:1].isspace():
        return code
    others = [line for line in lines[1:] if line.strip()]
    if others and all(line.startswith(indent) for line in others):
        # Only the first line lost its indentation.
        return f"{indent}{code}"
    return "\n".join(f"{indent}{line}" if line.strip() else line for line in lines)
