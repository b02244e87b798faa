"""Any program as a reviewer: a unified diff on stdin, findings on stdout; and what all external reviewers share."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.ask import INVALID_ANSWER
from codeloupe.engine.calls import shortened
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.errors import ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.finding import ClaimedFinding, Finding, Source
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError, Verdict
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import Command, Completed, find_program, program_environment, stream
from codeloupe.system.redaction import redact

TIMEOUT = "timeout"
FATAL = "fatal"
FAILED = "external_failed"
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
_DETAIL_CHARACTERS = 64 * 1024
_log = logging.getLogger(__name__)


class Reply(Struct, frozen=True, kw_only=True):
    """What came of it: findings, and notes. With a `kind`, which is a short stable word, it is not a whole review.

    Then `reason` is the phrase for coverage, `words` says more where there is more to say, and `raw` is the output that
    could not be read.
    """

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    kind: str = ""
    reason: str = ""
    words: str = ""
    raw: str = ""


def failed(kind: str, reason: str, words: str = "") -> Reply:
    """A reply without findings."""
    return Reply(kind=kind, reason=reason, words=words)


class ExternalReviewer:
    """A program that reviews the whole change, its one unit, in one run.

    `_refusal` is why it cannot review a change, if so, and `_ask` runs it. `_usage` is what a run is known to take.
    """

    info: ReviewerInfo
    _usage = Usage()

    def _refusal(self, task: ReviewTask) -> Reply | None:
        raise NotImplementedError

    async def _ask(self, task: ReviewTask) -> Reply:
        raise NotImplementedError

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the whole change. Failures are in the outcome; only cancellation is raised."""
        started, reviewer = time.monotonic(), self.info.type
        refusal = self._refusal(task)
        try:
            reply = refusal or await self._ask(task)
        except ProcessError as error:
            words = f"{error.message} ({error.hint})" if error.hint else error.message
            timed_out = isinstance(error, ProcessTimedOut)
            # Trying again does not install a program.
            kind = TIMEOUT if timed_out else FATAL if isinstance(error, ProgramNotFound) else FAILED
            reply = failed(kind, TIMEOUT if timed_out else words, words)
        except Exception as error:  # noqa: BLE001 - whatever its output leads to, it is this reviewer that failed
            _log.warning("the reviewer %s failed", reviewer, exc_info=True)
            reply = failed(FAILED, f"unexpected error: {type(error).__name__}: {error}")
        usage = replace(Usage() if refusal else self._usage, duration_seconds=time.monotonic() - started)
        files = tuple(file.path for file in task.files)
        left = len(reply.notes) - 20
        notes = reply.notes if left <= 0 else (*reply.notes[:20], f"and {left:,} more like these")
        errors = [ReviewError("external_note", f"{reviewer}: {shortened(redact(note))}") for note in notes]
        for note in errors:
            emit(Warned(note.message))
        reason = shortened(redact(reply.reason)) if reply.kind else None
        if reply.kind:
            raw, more = reply.raw[:_DETAIL_CHARACTERS], len(reply.raw) - _DETAIL_CHARACTERS
            detail = redact(f"{raw}\n[... {more:,} more characters ...]" if more > 0 else raw)
            words = shortened(redact(reply.words or reply.reason))
            errors.append(ReviewError(reply.kind, f"{reviewer} could not review: {words}", detail))
        emit(LaneFinished(reviewer, len(reply.findings), usage.duration_seconds, reason))
        units = (FailedUnit(reviewer, files, reason),) if reason is not None else ()
        unreviewed = frozenset(files) if units and not reply.findings else frozenset()
        return ReviewerOutcome(reply.findings, 1, units, tuple(errors), usage, unreviewed)


def tail(text: str) -> str:
    """The last words of a program on one line, without secrets."""
    line = " ".join(redact(text).split())
    return line if len(line) <= 400 else f"... {line[-400:]}"


def found_program(name: str, hint: str) -> str:
    """The absolute path of a program: it is started in the reviewed tree, not where we are. Raises ProgramNotFound."""
    found = find_program(name)
    if found is None:
        raise ProgramNotFound(f"there is no program {name}", program=name, hint=hint)
    return str(Path(found).absolute())


def place(claims: Iterable[ClaimedFinding], task: ReviewTask, *, reviewer: str) -> tuple[Finding, ...]:
    """The claims as findings; a line without a quote is believed, and what has no place is kept and says so."""
    anchorer = Anchorer(task.files, TextReader(task).read, mask=redact, believes="any")
    paths = tuple(file.path for file in task.files)
    findings = []
    for claim in claims:
        name = f"{reviewer}/{claim.reviewer}" if claim.reviewer else reviewer
        origin = Origin(reviewer=name, source=Source.EXTERNAL)
        findings.append(anchorer.place(claim, origin, unit_files=paths))
    return tuple(findings)


class CommandReviewer(ExternalReviewer):
    """Runs a program on the diff of a change and reads what it prints.

    It may print JSON in any known shape, SARIF, Markdown bullets or `path:line:col: severity: message` lines. It runs
    in the reviewed tree, or in an empty directory when the change is not trusted. An exit code other than 0 is no
    failure when findings were printed, as linters do. Printing nothing is one: a program that did not work does so too.
    """

    def __init__(self, argv: Sequence[str], *, info: ReviewerInfo) -> None:
        if not argv or not argv[0]:
            raise ValueError("a command has at least the name of a program")
        self._argv, self.info = tuple(argv), info

    def _refusal(self, task: ReviewTask) -> Reply | None:
        name = self._argv[0]
        why = f"{name} is a relative path, which may lead into the untrusted change"
        hint = "name the program by an absolute path, or by a name on the PATH"
        is_risky = "/" in name and not Path(name).is_absolute() and not task.trusted
        return failed(FAILED, f"{why} ({hint})") if is_risky else None

    async def _ask(self, task: ReviewTask) -> Reply:
        program = found_program(self._argv[0], "install it, or name it by an absolute path")
        with ExitStack() as stack:
            # Programs read settings from where they are, and those of strangers may run anything.
            tree = task.tree or task.snapshot if task.trusted else stack.enter_context(temporary_directory())
            command = Command(
                argv=(program, *self._argv[1:]),
                cwd=tree,
                environment=program_environment(),
                timeout_seconds=task.timeout_seconds,
                max_output_bytes=MAX_OUTPUT_BYTES,
                stdin=unified_diff(task.files),
            )
            completed = await stream(command)
        # Reading takes time that the event loop should not wait for when there is much of it.
        return await asyncio.to_thread(self._read, completed, task)

    def _read(self, completed: Completed, task: ReviewTask) -> Reply:
        if completed.stdout_truncated:
            return failed(FAILED, f"it wrote more than {MAX_OUTPUT_BYTES:,} bytes, so its output is not whole")
        output = completed.stdout.decode("utf-8", "replace")
        if not output.strip():
            return failed(FAILED, _ending(completed)) if completed.exit_code else failed(INVALID_ANSWER, "empty output")
        answer = read_review_answer(output, from_program=True)
        findings = place(answer.findings, task, reviewer=self.info.type)
        reply, ending = Reply(), _ending(completed)
        can_block = any(finding.can_block for finding in findings)
        if answer.problem is not None:
            words = f"{answer.problem}; {ending}" if completed.exit_code else ""
            reply = failed(INVALID_ANSWER, answer.problem, words)
        elif completed.exit_code < 0 or (completed.exit_code and not answer.findings):
            reply = failed(FAILED, ending)
        elif completed.exit_code and not can_block:
            reply = failed(FAILED, f"no finding on the reviewed files says why {ending}")
        elif answer.verdict not in (None, Verdict.PASS.value) and not can_block:
            reply = failed(FAILED, f"its verdict is {answer.verdict}, but no finding on the reviewed files says why")
        elif answer.lost:
            reply = failed(INVALID_ANSWER, answer.lost)
        return replace(reply, findings=findings, notes=answer.dropped, raw=output if reply.kind else "")


def _ending(completed: Completed) -> str:
    how = f"exit code {completed.exit_code}" if completed.exit_code >= 0 else f"signal {-completed.exit_code}"
    words = tail(completed.stderr)
    return f"it ended with {how}: {words}" if words else f"it ended with {how}"


# Each byte as git writes it in a name.
_ESCAPES = dict(zip(b'\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True))
_IN_NAME = [
    f"\\{_ESCAPES.get(byte, f'{byte:03o}')}".encode() if byte in _ESCAPES or not 0x20 <= byte < 0x7F else bytes((byte,))
    for byte in range(256)
]


def unified_diff(files: Iterable[FileChange]) -> bytes:
    """The diff of some files as `git diff --text` would print it: git's own hunks, names quoted as git does."""
    return b"".join(piece for file in files for section in _sections(file) for piece in _pieces(section))


def _quoted(name: bytes) -> bytes:
    """A name as git writes it: between quotes, with escapes, where a byte of it is special."""
    escaped = b"".join(_IN_NAME[byte] for byte in name)
    return name if escaped == name else b'"%s"' % escaped


def _sections(file: FileChange) -> Iterator[FileChange]:
    """The file itself; one that changed its type is deleted and created again, as in git's diffs."""
    if file.status is not FileStatus.TYPE_CHANGED:
        yield file
        return
    bare = replace(file, counts=None, similarity=None)
    hunks = tuple(hunk for hunk in file.hunks if not hunk.new_lines)
    yield replace(bare, status=FileStatus.DELETED, new_path=None, new_mode=None, new_blob=None, hunks=hunks)
    hunks = tuple(hunk for hunk in file.hunks if not hunk.old_lines)
    yield replace(bare, status=FileStatus.ADDED, old_path=None, old_mode=None, old_blob=None, hunks=hunks)


def _pieces(file: FileChange) -> Iterator[bytes]:
    old, new = os.fsencode(file.old_path or file.path), os.fsencode(file.new_path or file.path)
    before, after = _quoted(b"a/" + old), _quoted(b"b/" + new)
    yield b"diff --git %s %s\n" % (before, after)
    old_mode, new_mode = (file.old_mode or "100644").encode(), (file.new_mode or "100644").encode()
    if file.status is FileStatus.ADDED:
        yield b"new file mode %s\n" % new_mode
    elif file.status is FileStatus.DELETED:
        yield b"deleted file mode %s\n" % old_mode
    elif file.old_mode and file.new_mode and old_mode != new_mode:
        yield b"old mode %s\nnew mode %s\n" % (old_mode, new_mode)
    if file.status in (FileStatus.RENAMED, FileStatus.COPIED):
        word = b"rename" if file.status is FileStatus.RENAMED else b"copy"
        if file.similarity is not None:
            yield b"similarity index %d%%\n" % file.similarity
        yield b"%s from %s\n%s to %s\n" % (word, _quoted(old), word, _quoted(new))
    if file.old_blob != file.new_blob:
        nothing = "0" * len(file.old_blob or file.new_blob or "")
        mode = f" {file.new_mode}" if file.old_mode is not None and file.old_mode == file.new_mode else ""
        yield f"index {file.old_blob or nothing}..{file.new_blob or nothing}{mode}\n".encode("ascii")
    names = (
        before if file.old_path is not None else b"/dev/null",
        after if file.new_path is not None else b"/dev/null",
    )
    if file.hunks:
        # A name with a space in it ends with a tab, so that its end is known.
        yield b"--- %s\n+++ %s\n" % tuple(name + b"\t" if b" " in name else name for name in names)
    elif file.binary:
        yield b"Binary files %s and %s differ\n" % names
    for hunk in file.hunks:
        extents = ((hunk.old_start, hunk.old_lines), (hunk.new_start, hunk.new_lines))
        where = [b"%d" % start if lines == 1 else b"%d,%d" % (start, lines) for start, lines in extents]
        section = f" {hunk.section}".encode("utf-8", "replace") if hunk.section else b""
        yield b"@@ -%s +%s @@%s\n" % (*where, section)
        yield hunk.body if hunk.body.endswith(b"\n") else hunk.body + b"\n"
