"""What makes a finding the same finding tomorrow, and where an earlier finding is in the code of now.

A fingerprint is made of the tokens of the statement that a finding is about, what encloses that, and what it says: its
rule, or the kind of defect that its title names and the names of code of which it says that, or the title's words.
What cannot be distinguished otherwise is by its order: the same statement again, and code copied into another file.

A fingerprint is only a name. Words of a model change from day to day, so whoever looks for an earlier finding must
compare what both say, as `lifecycle.compare` and the baseline do: a finding that is recognised keeps its old name.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.code_text import CodeText, Statement, comments_in, fold, is_comment, syntax_of, tokens_of_code
from codeloupe.engine.quotes import MASK
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.similarity import NUMBER, Profile, family, kinds_of, names, stems, telling_stems
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import ClaimedFinding, Finding, FindingStatus
from codeloupe.model.ports import ReviewTask
from codeloupe.system.regex import regex

ReadFile = Callable[[str], bytes | None]

_LINES = 60
# A line with fewer letters and digits is not known by itself: the one after it is added.
_FEWEST_LETTERS = 6
_DEFINITION = regex(
    r"(?:def|class|func|fn|function|public|private|protected|async def|export|pub|static|interface|impl|struct|module|"
    r"namespace|package) "
)


def with_fingerprints(findings: Iterable[Finding], *, context: ReadFile | None = None) -> tuple[Finding, ...]:
    """The findings with their fingerprints, all different, and their surroundings, in order of file and line.

    `context` reads the reviewed content of a file; without it nothing is known of what encloses a line.
    """
    return tuple(
        replace(finding, fingerprint=name, surroundings=surroundings_of(finding, code))
        for finding, code, name in _named(findings, context, "3", _core)
    )


def first_names(findings: Iterable[Finding], *, context: ReadFile | None = None) -> dict[str, str]:
    """By the fingerprint of each finding, the one that version 0.1.0 gave it: baselines and dismissals may have it."""
    return {finding.fingerprint: name for finding, _, name in _named(findings, context, "2", _first_core)}


def surroundings_of(finding: Finding, code: CodeText | None) -> str:
    """Digests of what is around a finding: its definition, and both neighbours."""
    if code is None or not finding.anchored:
        return ""
    return ".".join(digest(*part)[:12] for part in code.around(_telling_statement(finding, code)))


def digest(*parts: str) -> str:
    """A fingerprint of some texts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _named(
    findings: Iterable[Finding],
    context: ReadFile | None,
    version: str,
    core_of: Callable[[Finding, CodeText | None], tuple[str, ...]],
) -> Iterator[tuple[Finding, CodeText | None, str]]:
    def order(finding: Finding) -> tuple[object, ...]:
        # By place; on one line by the kind of defect, which lasts longer than wording.
        kinds = sorted(kinds_of(stems(finding.title)))
        place = finding.file, finding.first_line, finding.last_line
        return *place, finding.rule or "", kinds, finding.title, finding.body, finding.evidence

    seen: Counter[str] = Counter()
    for file, group in groupby(sorted(findings, key=order), key=lambda finding: finding.file):
        content = context(file) if context is not None else None
        code = CodeText(content, file) if content is not None else None
        for finding in group:
            core = "\0".join(core_of(finding, code))
            seen[core] += 1
            yield finding, code, digest(version, core, str(seen[core]))


def _core(finding: Finding, code: CodeText | None) -> tuple[str, ...]:
    meaning = f"rule {finding.rule}" if finding.rule else f"family {family(finding.category)} {_meaning(finding)}"
    line = telling_line(finding.evidence)
    if not finding.anchored or not fold(line):
        # Without a place there is only what was said, and of which file.
        return "no place", meaning, finding.file, fold(line)
    statement = Statement(0, 0, tokens_of_code(line, finding.file))
    if code is not None and MASK not in line:
        statement = _telling_statement(finding, code)
    text = " ".join(statement.tokens)
    is_weak = _letters(text) < _FEWEST_LETTERS
    if code is None:
        return meaning, text, *((finding.file,) if is_weak else ())
    at = statement if statement.first else code.statement(code.number_of(line, *_lines_quoted(finding)))
    after = " ".join(next((one.tokens for one in code.statements(at.last + 1, at.last + _LINES)), ()))
    copies = 0 if MASK in line else code.earlier_statements(statement)
    return meaning, text, after if is_weak else "", str(copies), *code.headers(at.first)


def _first_core(finding: Finding, code: CodeText | None) -> tuple[str, ...]:
    """As version 0.1.0 had it: the folded line, its family or rule, and the folded lines that enclose it."""
    kind = f"rule {finding.rule}" if finding.rule else f"family {family(finding.category)}"
    line = telling_line(finding.evidence)
    folded = fold(line)
    if not finding.anchored or not folded:
        words: Sequence[str] = () if folded else sorted(telling_stems(finding.title))
        return "no place", kind, finding.file, folded, *words
    is_weak = _letters(folded) < _FEWEST_LETTERS
    if code is None:
        return kind, folded, *((finding.file,) if is_weak else ())
    number = code.number_of(line, finding.first_line, finding.last_line)
    if MASK in line:
        line = code.line(number)
    copies, enclosing = code.enclosing(number, line)
    return kind, folded, code.following(number) if is_weak else "", str(copies), *enclosing


def _meaning(finding: Finding) -> str:
    """What a title says, so that different defects on one line have different names."""
    kinds = kinds_of(stems(finding.title))
    if kinds:
        profile = Profile(finding)
        return " ".join(("kind", min(kinds), *sorted(profile.objects(kinds) & profile.code.words)))
    words = telling_stems(finding.title) | names(finding.title) | frozenset(NUMBER.findall(finding.title[:4_000]))
    return f"words {' '.join(sorted(words)) or finding.title}"


def _telling_statement(finding: Finding, code: CodeText) -> Statement:
    """The statement of a quote that says most, which a longer or shorter quote of the same code has as well."""
    first, last = _lines_quoted(finding)
    found = list(code.statements(first, min(last, first + _LINES)))
    if not found:
        text = code.line(first) or telling_line(finding.evidence)
        return Statement(first, first, tokens_of_code(text, finding.file))
    return max(found, key=lambda one: _worth(" ".join(one.tokens)))


def _lines_quoted(finding: Finding) -> tuple[int, int]:
    """The first and the last line of the evidence; what a reviewer calls the end may lie far after it."""
    return finding.first_line, min(finding.last_line, finding.first_line + finding.evidence.count("\n"))


def telling_line(evidence: str) -> str:
    """The one line of a quote that says most, which a longer or shorter quote of the same code has as well."""
    return max((line[:4_000] for line in evidence.split("\n")[:_LINES]), key=_worth)


def _letters(text: str) -> int:
    return sum(character.isalnum() for character in text)


def _worth(line: str) -> tuple[bool, bool, int]:
    letters, text = _letters(line), line.strip()
    says_something = letters >= _FEWEST_LETTERS and not is_comment(text)
    return says_something, says_something and not _DEFINITION.match(text), min(letters, 100)


# What is in evidence where a secret was.
_MASK = regex(r"\[redacted\]|[*]{8}")
# Only a hostile file has more lines that read the same and findings about each.
_MOST_ALIKE = 60
_Lines = tuple[int, int]


class PlacesOfNow:
    """Looks for the code of earlier findings in the reviewed tree: where it is, that it is gone, or that nobody knows.

    `tree` is the whole of it, for a task that has none of its own; no link is followed there.
    """

    def __init__(self, task: ReviewTask, *, tree: Path | None = None) -> None:
        self._task = replace(task, tree=task.tree or tree)
        self._read = read = TextReader(self._task).read
        self._anchorer = Anchorer(task.files, read)
        arriving = (FileStatus.ADDED, FileStatus.RENAMED, FileStatus.COPIED)
        self._new_files = [file.path for file in task.files if file.status in arriving]
        self._code = cache(lambda path: None if (content := read(path)) is None else CodeText(content, path))

    def placed(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings where they are now; those without a place, and those whose code is not found, are left out."""
        anchored = [finding for finding in findings if finding.anchored]
        assigned = dict(self._assigned(anchored))
        found = (
            assigned[index] if index in assigned else self._quoted(old, old.file) or self._moved(old)
            for index, old in enumerate(anchored)
        )
        return tuple(now for now in found if now is not None)

    def is_gone(self, finding: Finding) -> bool:
        """Whether the code of a finding that is not in `placed` is known to be gone, and not only out of sight."""
        if any(file.new_path is None and file.old_path == finding.file for file in self._task.change.files):
            return True
        if (content := self._read(finding.file)) is not None:
            # What is masked cannot be searched for, only what is around it on its line; nor can a blank line.
            known = max(_MASK.split(finding.evidence), key=len).strip()
            if known == finding.evidence.strip():
                return bool(known)
            return len(known) >= 6 and known.encode() not in content
        tree = None if self._task.tree_is_partial else self._task.tree
        if tree is None or finding.file in self._task.without_content:
            return False
        try:
            os.lstat(tree / finding.file)
        except (OSError, ValueError) as error:  # what cannot be looked at is not absent
            return isinstance(error, (FileNotFoundError, NotADirectoryError))
        return False

    def is_unchanged_around(self, placed: Finding) -> bool | None:
        """Whether the definition around a finding that is in `placed` is as it was; None when that is not known."""
        code = self._code(placed.file)
        if code is None or not placed.surroundings:
            return None
        now = surroundings_of(placed, code)
        return placed.surroundings.partition(".")[0] == now.partition(".")[0]

    def _quoted(self, old: Finding, file: str | None) -> Finding | None:
        """Where its quote is, in a file or in the one of the new files that has it."""
        first, last, quote = old.first_line, old.last_line, old.evidence
        claim = ClaimedFinding(
            severity=old.severity, title="", file=file, line_start=first, line_end=last, evidence=quote
        )
        now = self._anchorer.place(claim, Origin(reviewer=""), unit_files=self._new_files)
        if not now.anchored:
            return None
        # New code fits the lines it was given for, and no others.
        code = old.replacement if now.evidence == old.evidence else None
        found = {name: getattr(now, name) for name in ("file", "line_start", "line_end", "outside_change")}
        return replace(old, **found, replacement=code, status=FindingStatus.OPEN if old.is_open else old.status)

    def _moved(self, old: Finding) -> Finding | None:
        """At its place in the one file that came with this change and has its code, when its own file is not there."""
        # A shorter quote may be in another file by chance.
        if not self._new_files or len(old.evidence.strip()) < 12:
            return None
        if self._read(old.file) is not None or not self.is_gone(old):
            return None
        if (found := self._quoted(old, None)) is not None:
            return found
        codes = ((path, self._code(path)) for path in self._new_files)
        reformatted = [(path, *place) for path, code in codes if code for place in code.places(old.evidence)]
        return self._at(old, *reformatted[0]) if len(reformatted) == 1 else None

    def _assigned(self, findings: Sequence[Finding]) -> Iterator[tuple[int, Finding | None]]:
        """The places of findings that look alike, each given once, and of reformatted ones; the fixed take none."""
        alike: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for index, finding in enumerate(findings):
            alike[finding.file, finding.evidence].append(index)
        for (path, evidence), indices in alike.items():
            code = self._code(path)
            if code is None:
                continue
            places = [] if MASK in evidence else code.places(evidence)
            unfixed = [index for index in indices if findings[index].status is not FindingStatus.FIXED]
            for group in (unfixed, [index for index in indices if index not in unfixed]):
                lines = sorted({findings[index].first_line for index in group})
                is_clear = len(lines) <= 1 and len(places) <= 1 and (not places or self._is_quoted(path, evidence))
                if not group or is_clear or not (places or unfixed):
                    continue
                chosen = _chosen(code, [findings[index] for index in group], lines, places)
                for index in group:
                    place = chosen.get(findings[index].first_line)
                    yield index, None if place is None else self._at(findings[index], path, *place)
                places = [place for place in places if place not in chosen.values()]

    def _is_quoted(self, path: str, evidence: str) -> bool:
        """Whether a quote is found by its text: then the anchorer knows its place best."""
        texts = (evidence, (self._read(path) or b"").decode("utf-8", "replace"))
        wanted, text = ("\n".join(("", *(line.strip() for line in part.split("\n")), "")) for part in texts)
        return wanted in text

    def _at(self, old: Finding, path: str, first: int, last: int) -> Finding:
        moved = replace(old, file=path, line_start=first, line_end=max(last, first + old.last_line - old.first_line))
        if last - first != old.evidence.count("\n"):
            lines = (self._read(path) or b"").decode("utf-8", "replace").split("\n")[first - 1 : last]
            for index, line in enumerate(lines):
                # Without comments, which nobody has looked through for secrets.
                comment, _ = next(comments_in(line, syntax_of(path)), ("", False))
                if comment.strip():
                    lines[index] = line.partition(comment)[0].rstrip().rstrip("#/*<!-;%").rstrip()
            moved = replace(moved, line_end=last, evidence="\n".join(lines))
        status = FindingStatus.OPEN if old.is_open else old.status
        return replace(moved, outside_change=not is_touched(moved, self._task.files), status=status)


def _chosen(
    code: CodeText, findings: Sequence[Finding], lines: Sequence[int], places: Sequence[_Lines]
) -> dict[int, _Lines]:
    """By their lines of before, the places of findings that look alike: by what is around them, else by order."""
    are_as_many = len(places) == len(lines)
    if are_as_many and len(lines) > _MOST_ALIKE:
        return dict(zip(lines, places, strict=True))
    before = {finding.first_line: finding.surroundings for finding in findings}
    one = findings[0]
    now = {place: surroundings_of(replace(one, line_start=place[0], line_end=place[1]), code) for place in places}

    def shared(one: str, other: str) -> int:
        """How much agrees: the definition, the statement before, the one after."""
        return sum(mine == its for mine, its in zip(one.split("."), other.split("."), strict=False)) if one else 0

    ranked = sorted(
        (-shared(before[line], now[place]), abs(rank - number) if are_as_many else abs(place[0] - line), line, place)
        for number, line in enumerate(lines[:_MOST_ALIKE])
        for rank, place in enumerate(places[:_MOST_ALIKE])
    )
    chosen: dict[int, _Lines] = {}
    for _, _, line, place in ranked:
        if line not in chosen and place not in chosen.values():
            chosen[line] = place
    return chosen


def is_touched(finding: Finding, files: Sequence[FileChange]) -> bool:
    """Whether a finding is on lines that the hunks of some files show; in a deleted file lines are the old ones."""
    for file in (one for one in files if one.path == finding.file):
        for hunk in file.hunks:
            is_deleted = file.new_path is None
            start, length = (hunk.old_start, hunk.old_lines) if is_deleted else (hunk.new_start, hunk.new_lines)
            if start <= finding.last_line and finding.first_line < start + max(length, 1):
                return True
    return False
