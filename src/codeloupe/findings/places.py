"""The places of claims: the statements that they quote, and where earlier ones are in the present code.

"Same statement" compares tokens without comments and quote style, and follows moves and renames.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Claim, CodeState
from codeloupe.model.ports import Plan
from codeloupe.source.code import CodeText, Statement, fold, tokens_of_code
from codeloupe.source.files import ReviewedFile, TextReader
from codeloupe.system.redaction import redact

Lines = tuple[int, int]
_MOST_STATEMENTS = 20
_MOST_CANDIDATES = 200
# Between two known neighbours lie at most so many statements that took the place of a changed one.
_FURTHEST_NEIGHBOUR = 10
_NEW_FILES = (FileStatus.ADDED, FileStatus.RENAMED, FileStatus.COPIED)


class Located(Struct, frozen=True):
    """An earlier claim at its present place, and as it was stored; `is_same` if its statement is unchanged."""

    claim: Claim
    is_same: bool
    stored: Claim

    def without_end(self) -> Located:
        """Return the claim as it was before it ended."""
        return Located(replace(self.claim, end=None), self.is_same, replace(self.stored, end=None))


class _Code:
    """The statements of one file and their digests."""

    def __init__(self, content: bytes, path: str) -> None:
        self.digest = digest(content.decode("utf-8", "surrogateescape"))
        self.text = CodeText(content, path)

    @cached_property
    def statements(self) -> Sequence[Statement]:
        return self.text.statement_list()

    @cached_property
    def digests(self) -> list[str]:
        return [digest(*statement.tokens) for statement in self.statements]

    @cached_property
    def positions(self) -> dict[str, list[int]]:
        """The positions of the statements with each digest."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for position, name in enumerate(self.digests):
            found[name].append(position)
        return found

    @cached_property
    def _first_lines(self) -> list[int]:
        return [statement.first for statement in self.statements]

    @cached_property
    def _last_lines(self) -> list[int]:
        return [statement.last for statement in self.statements]

    def touched(self, lines: Lines) -> range:
        """Return the positions of the statements on some lines."""
        start = bisect_left(self._last_lines, lines[0])
        end = bisect_right(self._first_lines, lines[1])
        return range(start, max(start, end))

    def digest_at(self, position: int) -> str:
        """Return the digest of the statement at a position, or nothing beyond both ends."""
        return self.digests[position] if 0 <= position < len(self.digests) else ""

    def lines_of(self, positions: range) -> Lines:
        """Return the first and the last line of some statements."""
        return self.statements[positions[0]].first, self.statements[positions[-1]].last


class Places:
    """Finds the statements of claims in the reviewed code; `tree` is for files outside the reviewed ones.

    `unread` are files of the change that were skipped, but not because a pattern excludes them.
    """

    def __init__(self, plan: Plan, *, tree: Path | None = None, unread: frozenset[str] = frozenset()) -> None:
        self.unread = unread
        self._plan = replace(plan, tree=plan.tree or tree)
        self._read = TextReader(self._plan).read
        self._codes: dict[str, _Code | None] = {}
        files = (*plan.files, *plan.lock_files)
        self._files = {file.path: file for file in files}
        self._renamed = {
            file.old_path: file.path for file in files if file.status is FileStatus.RENAMED and file.old_path
        }
        self._new_files = [file.path for file in files if file.status in _NEW_FILES]
        # A refutation holds for the same change on the same base.
        self.change = digest(plan.change.scope.base or "", _change_digest(plan.change.files))

    def lines(self, claim: Claim) -> Lines:
        """Return the lines of the statements that an anchored claim quotes."""
        quoted = _quoted_lines(claim)
        if claim.deleted:
            return quoted
        code = self._code(claim.file)
        positions = code.touched(quoted) if code is not None else range(0)
        if code is None or not positions:
            return quoted
        first, last = code.lines_of(positions)
        return min(first, quoted[0]), max(last, quoted[1])

    def headers(self, claim: Claim) -> tuple[str, ...]:
        """Return the names of the definitions around a claim, the innermost first."""
        code = self._code(claim.file)
        return code.text.headers(claim.first_line) if code is not None and claim.anchored else ()

    def state(self, claim: Claim) -> CodeState:
        """Return the digests of the code that a claim is about now."""
        state = self._state_of_code(claim)
        around = self.headers(claim)
        # The statement of an unanchored claim is its file.
        statements = state.statements if claim.anchored else ("file",)
        in_definition = tuple(digest(statement, *around) for statement in statements)
        names = (*statements, *in_definition)
        return replace(state, names=names, change=self.change, in_change=claim.file in self._files)

    def names(self, claim: Claim) -> frozenset[str]:
        """Return the names of the statements that a claim is about now; copies are known by their definitions alone."""
        state = self.state(claim)
        code = self._code(claim.file)
        copied: set[str] = set()
        if code is not None:
            copied.update(name for name in state.statements if len(code.positions.get(name, ())) > 1)
        return frozenset(state.names) - copied

    def _state_of_code(self, claim: Claim) -> CodeState:
        code = self._code(claim.file)
        if code is None:
            file = self._files.get(claim.file)
            known = "" if file is None else _change_digest([file])
            quoted = digest(*tokens_of_code(claim.evidence, claim.file))
            return CodeState(statements=(quoted,), function=quoted, file=known)
        if not claim.anchored:
            return CodeState(file=code.digest)
        if claim.deleted:
            # The statement of a claim on deleted lines is the deleted text.
            quoted = digest("deleted", *tokens_of_code(claim.evidence, claim.file))
            return CodeState(statements=(quoted,), function=quoted, file=code.digest)
        positions = code.touched(_quoted_lines(claim))
        if not positions:
            # A comment or a blank line belongs to no statement.
            texts = tuple(digest("text", fold(line)) for line in claim.evidence.split("\n")[:_MOST_STATEMENTS])
            return CodeState(statements=texts, function=digest(*texts), file=code.digest)
        statements = tuple(code.digests[positions[0] : positions[-1] + 1][:_MOST_STATEMENTS])
        function = code.text.function_at(code.statements[positions[0]].first)
        return CodeState(
            statements=statements,
            before=code.digest_at(positions[0] - 1),
            after=code.digest_at(positions[-1] + 1),
            function=digest(*statements) if function is None else digest(*function),
            file=code.digest,
        )

    def is_gone(self, claim: Claim) -> bool:
        """Tell whether a claim's file was deleted, excluded or left the change."""
        path = self.path_of(claim)
        file = self._files.get(path)
        if not claim.file or path in self.unread:
            return False
        if file is None and not claim.code.in_change and claim.commit_sha is None:
            # It never was in the change: it is gone only if the tree is known and does not have the file.
            has_tree = self._plan.tree is not None and not self._plan.tree_is_partial
            return claim.anchored and has_tree and self._code(path) is None
        if file is None:
            return True
        # A claim about the deletion itself was made when the file was gone already.
        return file.new_path is None and self.state(claim).file != claim.code.file

    def path_of(self, claim: Claim) -> str:
        """Return the path of a claim's file now: renames are followed."""
        if claim.file in self._files:
            return claim.file
        return self._renamed.get(claim.file, claim.file)

    def located(self, claims: Sequence[Claim]) -> list[Located]:
        """Return earlier claims at their present places; claims on copies of a statement get a place each."""
        taken: dict[tuple[str, int], Claim] = {}
        found: dict[int, Located] = {}
        for number in sorted(range(len(claims)), key=lambda number: self._order(claims[number])):
            claim, is_same = self._located(claims[number], taken)
            found[number] = Located(claim, is_same, claims[number])
        return [found[number] for number in range(len(claims))]

    def _order(self, claim: Claim) -> tuple[str, tuple[int, int], int]:
        """Order claims by how near they are to a present place, so that a copy of a statement goes to its own claim."""
        path = self.path_of(claim)
        code = self._code(path)
        distances = [_distance(code, start, claim) for start in _starts(code, claim.code.statements)] if code else []
        return path, min(distances, default=(0, 0)), claim.first_line

    def _located(self, claim: Claim, taken: dict[tuple[str, int], Claim]) -> tuple[Claim, bool]:
        """Return an earlier claim at its present place, and whether its statement is unchanged."""
        path = self.path_of(claim)
        moved = replace(claim, file=path)
        code = self._code(path)
        if not claim.anchored:
            # The statement of an unanchored claim is its file.
            return moved, self.state(moved).file == claim.code.file
        if claim.deleted:
            return self._on_deleted_lines(moved)
        if code is not None:
            start = _nearest_start(code, claim, path, taken)
            if start is not None:
                taken.setdefault((path, start), claim)
                return self._on_statements(moved, code, start), True
            if _is_quoted_text(code, claim):
                return moved, True
        elsewhere = self._in_added_code(claim, path)
        if elsewhere is not None:
            new_path, start = elsewhere
            return self._on_statements(replace(claim, file=new_path), self._codes[new_path], start), True
        if code is None:
            return self._in_replaced_file(moved)
        changed = _changed_lines(code, claim)
        if changed is None:
            return _unplaced(moved), False
        return self._at(moved, code, changed), False

    def _on_deleted_lines(self, claim: Claim) -> tuple[Claim, bool]:
        """Return a claim on deleted lines at its place; its statement is unchanged while the change deletes it."""
        file = self._files.get(claim.file)
        lines: Lines | None = None
        if file is not None:
            lines = ReviewedFile(claim.file, file, self._read(claim.file)).deleted_lines(claim.evidence)
        if lines is None:
            return _unplaced(claim), False
        return replace(claim, line_start=lines[0], line_end=max(lines)), True

    def _on_statements(self, claim: Claim, code: _Code | None, start: int) -> Claim:
        """Return the claim on its statements, which begin at a position."""
        if code is None:
            return claim
        lines = code.lines_of(range(start, start + len(claim.code.statements)))
        if lines[0] == claim.line_start:
            return claim
        return self._at(claim, code, lines)

    def _in_added_code(self, claim: Claim, own_path: str) -> tuple[str, int] | None:
        """Return where the change adds the claim's statements to another file, beside one of their neighbours."""
        found: list[tuple[tuple[int, int], str, int]] = []
        wanted = claim.code.statements
        for path, start in self._added_statements.get(wanted[0] if wanted else "", ())[:_MOST_CANDIDATES]:
            code = self._code(path)
            if code is None or path == own_path or tuple(code.digests[start : start + len(wanted)]) != wanted:
                continue
            distance = _distance(code, start, claim)
            has_neighbour = distance[0] < 0
            if has_neighbour:
                found.append((distance, path, start))
        if not found:
            return None
        _, path, start = min(found)
        return path, start

    def _in_replaced_file(self, claim: Claim) -> tuple[Claim, bool]:
        """Return the claim of a file that cannot be read: as it is, or in a new file between its old neighbours."""
        if self.state(claim).file == claim.code.file:
            return claim, True
        for path in self._new_files:
            code = self._code(path)
            between = None if code is None else _between_neighbours(code, claim)
            if code is not None and between:
                return self._at(replace(claim, file=path), code, code.lines_of(between)), False
        return _unplaced(claim), False

    @cached_property
    def _added_statements(self) -> dict[str, list[tuple[str, int]]]:
        """The paths and positions of the statements with each digest in the lines that the change adds."""
        found: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for path, file in sorted(self._files.items()):
            code = self._code(path)
            if code is None:
                continue
            added = file.added_line_numbers()
            for position, statement in enumerate(code.statements):
                if not added.isdisjoint(range(statement.first, statement.last + 1)):
                    found[code.digests[position]].append((path, position))
        return found

    def _at(self, claim: Claim, code: _Code, lines: Lines) -> Claim:
        """Return the claim on other lines, with their text as its evidence."""
        text = redact("\n".join(code.text.line(number) for number in range(lines[0], lines[1] + 1)))
        file = self._files.get(claim.file)
        return replace(
            claim,
            line_start=lines[0],
            line_end=lines[1],
            evidence=text,
            outside_change=file is None or not is_shown(file, lines),
            # New code fits only the lines that it was made for.
            replacement=claim.replacement if text == claim.evidence else None,
        )

    def _code(self, path: str) -> _Code | None:
        if path not in self._codes:
            content = self._read(path)
            self._codes[path] = None if content is None else _Code(content, path)
        return self._codes[path]


def digest(*parts: str) -> str:
    """Return a short digest of some texts."""
    return fingerprint(*parts)[:16]


def fingerprint(*parts: str) -> str:
    """Return a long digest of some texts, by which people and other tools know a finding."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_shown(file: FileChange, lines: Lines) -> bool:
    """Tell whether the hunks of a file show some lines; in a deleted file these are the old ones."""
    is_deleted = file.new_path is None
    for hunk in file.hunks:
        start, length = (hunk.old_start, hunk.old_lines) if is_deleted else (hunk.new_start, hunk.new_lines)
        if start <= lines[1] and lines[0] < start + max(length, 1):
            return True
    return False


def _change_digest(files: Iterable[FileChange]) -> str:
    parts: list[str] = []
    for file in files:
        parts += [file.path, file.old_path or "", file.status.value, file.new_mode or ""]
        parts += [hunk.body.decode("utf-8", "surrogateescape") for hunk in file.hunks]
    return digest(*parts)


def _quoted_lines(claim: Claim) -> Lines:
    """Return the lines of the evidence; the end that a reviewer names may lie far after them."""
    return claim.first_line, min(claim.last_line, claim.first_line + claim.evidence.count("\n"))


def _unplaced(claim: Claim) -> Claim:
    return replace(claim, anchored=False, line_start=None, line_end=None, replacement=None)


def _starts(code: _Code, wanted: tuple[str, ...]) -> list[int]:
    """Return the positions at which a file has some statements in a row."""
    if not wanted:
        return []
    candidates = code.positions.get(wanted[0], [])[:_MOST_CANDIDATES]
    return [start for start in candidates if tuple(code.digests[start : start + len(wanted)]) == wanted]


def _is_free(code: _Code, start: int, claim: Claim, taken_by: Claim | None) -> bool:
    """Tell whether a claim may have a place: claims that were on one statement share it, and copies do not."""
    if taken_by is None:
        return True
    first, last = code.lines_of(range(start, start + len(claim.code.statements)))
    return abs(claim.first_line - taken_by.first_line) <= last - first


def _distance(code: _Code, start: int, claim: Claim) -> tuple[int, int]:
    """Return how far a place is from the one that a claim had: by its neighbours, then by its line."""
    is_before = code.digest_at(start - 1) == claim.code.before
    is_after = code.digest_at(start + len(claim.code.statements)) == claim.code.after
    line = code.statements[start].first
    return -is_before - is_after, abs(line - claim.first_line)


def _is_quoted_text(code: _Code, claim: Claim) -> bool:
    """Tell whether the lines of a claim on a comment still read the same."""
    first, last = _quoted_lines(claim)
    texts = tuple(digest("text", fold(code.text.line(number))) for number in range(first, last + 1))
    return texts[:_MOST_STATEMENTS] == claim.code.statements


def _nearest_start(code: _Code, claim: Claim, path: str, taken: dict[tuple[str, int], Claim]) -> int | None:
    """Return the position of a claim's statements that is nearest to the place that the claim had."""
    starts = _starts(code, claim.code.statements)
    free = [start for start in starts if _is_free(code, start, claim, taken.get((path, start)))]
    return min(free, key=lambda start: _distance(code, start, claim), default=None)


def _changed_lines(code: _Code, claim: Claim) -> Lines | None:
    """Return the lines of what took the place of a claim's statements: between their old neighbours, or beside one."""
    between = _between_neighbours(code, claim)
    if between is not None:
        return code.lines_of(between) if between else None
    befores = code.positions.get(claim.code.before, [])[:_MOST_CANDIDATES]
    afters = code.positions.get(claim.code.after, [])[:_MOST_CANDIDATES]
    beside = [before + 1 for before in befores if before + 1 < len(code.digests)]
    beside += [after - 1 for after in afters if after > 0]
    if not beside:
        return None
    nearest_one = min(beside, key=lambda position: abs(code.statements[position].first - claim.first_line))
    return code.lines_of(range(nearest_one, nearest_one + 1))


def _between_neighbours(code: _Code, claim: Claim) -> range | None:
    """Return the positions between the old neighbours of a claim's statements: none if the statements were removed.

    Return None if the neighbours are not there any more, or not near each other.
    """
    befores = code.positions.get(claim.code.before, [])[:_MOST_CANDIDATES]
    afters = code.positions.get(claim.code.after, [])[:_MOST_CANDIDATES]
    between: list[range] = []
    for before in befores:
        following = bisect_right(afters, before)
        if following < len(afters) and afters[following] - before <= _FURTHEST_NEIGHBOUR:
            between.append(range(before + 1, afters[following]))
    return min(between, key=lambda one: abs(code.statements[one.start - 1].last - claim.first_line), default=None)
