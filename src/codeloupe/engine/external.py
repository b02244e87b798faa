"""Reviewers that are other programs: any one that takes a unified diff, and Cerberus, which asks several agents.

What they print is read like any model's answer, and believed as little.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import logging
import math
import os
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.ask import INVALID_ANSWER
from codeloupe.engine.calls import shortened
from codeloupe.engine.parse.review_answer import read_review_answer
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.verdict import judge
from codeloupe.errors import ProcessError, ProcessFailed, ProcessTimedOut, ProgramNotFound
from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange, FileStatus, ScopeKind
from codeloupe.model.events import LaneFinished, Warned
from codeloupe.model.finding import ClaimedFinding, Finding, Source
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError, Verdict
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import Command, Completed, find_program, program_environment, run, stream
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex

_TIMEOUT = "timeout"
_FATAL = "fatal"
_FAILED = "external_failed"
_MAX_OUTPUT_BYTES = 16 * 1024 * 1024
_DETAIL_CHARACTERS = 64 * 1024
_log = logging.getLogger(__name__)


class Reply(Struct, frozen=True):
    """What came of it: findings, and notes. With a `kind`, which is a short stable word, it is not a whole review.

    Then `reason` is the phrase for coverage, `words` says more where there is more, and `raw` could not be read.
    """

    kind: str = ""
    reason: str = ""
    words: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    raw: str = ""


class ExternalReviewer:
    """A program that reviews the whole change in one run, unless `_refusal` says why it cannot; `_usage` of a run."""

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
            kind = _TIMEOUT if timed_out else _FATAL if isinstance(error, ProgramNotFound) else _FAILED
            reply = Reply(kind, _TIMEOUT if timed_out else words, words)
        except Exception as error:  # noqa: BLE001 - whatever its output leads to, it is this reviewer that failed
            _log.warning("the reviewer %s failed", reviewer, exc_info=True)
            reply = Reply(_FAILED, f"unexpected error: {type(error).__name__}: {error}")
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


def _tail(text: str) -> str:
    """The last words of a program on one line, without secrets."""
    line = " ".join(redact(text).split())
    return line if len(line) <= 400 else f"... {line[-400:]}"


def _found_program(name: str, hint: str) -> str:
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
        return Reply(_FAILED, f"{why} ({hint})") if is_risky else None

    async def _ask(self, task: ReviewTask) -> Reply:
        program = _found_program(self._argv[0], "install it, or name it by an absolute path")
        with ExitStack() as stack:
            # Programs read settings from where they are, and those of strangers may run anything.
            tree = task.tree or task.snapshot if task.trusted else stack.enter_context(temporary_directory())
            command = Command(
                argv=(program, *self._argv[1:]),
                cwd=tree,
                environment=program_environment(),
                timeout_seconds=task.timeout_seconds,
                max_output_bytes=_MAX_OUTPUT_BYTES,
                stdin=unified_diff(task.files),
            )
            completed = await stream(command)
        # Reading takes time that the event loop should not wait for when there is much of it.
        return await asyncio.to_thread(self._read, completed, task)

    def _read(self, completed: Completed, task: ReviewTask) -> Reply:
        if completed.stdout_truncated:
            return Reply(_FAILED, f"it wrote more than {_MAX_OUTPUT_BYTES:,} bytes, so its output is not whole")
        output = completed.stdout.decode("utf-8", "replace")
        if not output.strip():
            return Reply(_FAILED, _ending(completed)) if completed.exit_code else Reply(INVALID_ANSWER, "empty output")
        answer = read_review_answer(output, from_program=True)
        findings = place(answer.findings, task, reviewer=self.info.type)
        reply, ending = Reply(), _ending(completed)
        can_block = any(finding.can_block for finding in findings)
        if answer.problem is not None:
            words = f"{answer.problem}; {ending}" if completed.exit_code else ""
            reply = Reply(INVALID_ANSWER, answer.problem, words)
        elif completed.exit_code < 0 or (completed.exit_code and not answer.findings):
            reply = Reply(_FAILED, ending)
        elif completed.exit_code and not can_block:
            reply = Reply(_FAILED, f"no finding on the reviewed files says why {ending}")
        elif answer.verdict not in (None, Verdict.PASS.value) and not can_block:
            reply = Reply(_FAILED, f"its verdict is {answer.verdict}, but no finding on the reviewed files says why")
        elif answer.lost:
            reply = Reply(INVALID_ANSWER, answer.lost)
        return replace(reply, findings=findings, notes=answer.dropped, raw=output if reply.kind else "")


def _ending(completed: Completed) -> str:
    how = f"exit code {completed.exit_code}" if completed.exit_code >= 0 else f"signal {-completed.exit_code}"
    words = _tail(completed.stderr)
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
    names = (b"/dev/null" if file.old_path is None else before, b"/dev/null" if file.new_path is None else after)
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


_GATE = "review-gate"
_Document = Mapping[str, Any]
_ACTIVE = "a review was active in this session already; it was resolved, and its result was not taken"
_STALE = "a review of another change was left active; codeloupe starts its own"
_ORDER = (Verdict.PASS, Verdict.NEEDS_WORK, Verdict.FAIL)
_SESSION_ID = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Its reviewers are the vendors' programs; their keys and where their logins are is all that they get.
_LOGIN_NAMES = (
    *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("CLAUDE_CONFIG_DIR", "OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"),
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
)
_VERDICTS = {0: (Verdict.PASS,), 1: (Verdict.FAIL, Verdict.NEEDS_WORK)}
# What other exit codes mean.
_ENDINGS = {
    2: (INVALID_ANSWER, "invalid answer: the gate could not read what its reviewers said"),
    4: (_FATAL, "the gate has no reviewers (install claude, codex or gemini)"),
    5: (_FATAL, "the gate had an internal error"),
}


class CerberusReviewer(ExternalReviewer):
    """Has the review-gate review a range or a commit of a repository.

    Its verdict counts only when its exit code and its document agree, and when findings on the reviewed files explain
    it. It reviews commits alone, and trusted ones alone: it starts git and agents as the repository configures them.
    In `state_directory` is the lock between reviews. The gate keeps its state under `session_id`, by default a new one.
    Raises ValueError for one that is no plain name: the gate makes a path of it.
    """

    # The gate does not say how often it asks its agents, and what they cost.
    _usage = Usage(requests=1, unknown_costs=1)

    def __init__(
        self, settings: Settings, repo: Path, state_directory: Path, *, info: ReviewerInfo, session_id: str | None
    ) -> None:
        if session_id is not None and not _SESSION_ID.fullmatch(session_id):
            raise ValueError(f"{session_id!r} is not a session id: letters, digits, dots and dashes make one")
        self._settings, self._repo, self._state_directory = settings, repo, state_directory
        self.info, self._session_id = info, session_id

    def _refusal(self, task: ReviewTask) -> Reply | None:
        scope = task.change.scope
        if not task.trusted:
            why = "it starts git and agents as the reviewed repository configures them, so it gets no untrusted change"
            return Reply(_FAILED, f"{why} (choose another reviewer_type)")
        base = scope.base[:12] if scope.base else "BASE"
        why = f"the gate reviews commits only, and this is {scope.description} (commit it, then review {base}..HEAD)"
        return Reply(_FAILED, why) if scope.head is None else None

    async def _ask(self, task: ReviewTask) -> Reply:
        deadline = time.monotonic() + task.timeout_seconds
        hint = "install the Cerberus plugin, or set review_gate_path to its review-gate"
        program = _found_program(self._settings.review_gate_path or _GATE, hint)
        here = self._repo.resolve()
        # The gate takes patterns of files from where it is: the top of the work tree.
        repository = next((place for place in (here, *here.parents) if (place / ".git").exists()), here)
        scope = task.change.scope
        is_commit = scope.kind is ScopeKind.COMMIT or scope.base is None
        selected = ("--commit", scope.head or "") if is_commit else (f"{scope.base}..{scope.head}",)
        with ExitStack() as stack:
            context: tuple[str, ...] = ()
            # The gate refuses an empty one.
            if task.intent.context.strip():
                file = stack.enter_context(temporary_directory()) / "context.md"
                file.write_text(task.intent.context, encoding="utf-8", errors="replace")
                context = ("--context-file", str(file))
            # What is to be reviewed comes last: the gate takes any number of commits.
            arguments = (*_left_out(task), *context, *self._settings.review_gate_arguments, *selected)
            gate = _Gate(program, arguments, repository, session_id=self._session_id, deadline=deadline)
            async with _lock(self._state_directory, repository, deadline=deadline):
                return await self._attempts(gate, task)

    async def _attempts(self, gate: _Gate, task: ReviewTask) -> Reply:
        notes: list[str] = []
        if not await gate.spawn():
            notes.append(_ACTIVE)
            await gate.resolve()
            if not await gate.spawn():
                return Reply(_FAILED, "another review became active in this session (give it one of its own)")
        completed, document = await gate.wait()
        if completed.exit_code in (2, 3) and isinstance(first := _judged(completed, document), Reply):
            notes.append(f"the first attempt failed: {first.reason}")
            # Where one is active still, it is our own.
            await gate.spawn()
            completed, document = await gate.wait()
        return await asyncio.to_thread(self._read, completed, document, task, notes)

    def _read(self, completed: Completed, document: _Document, task: ReviewTask, notes: list[str]) -> Reply:
        said, findings, dropped = _judged(completed, document), tuple[Finding, ...](), tuple[str, ...]()
        reply = said if isinstance(said, Reply) else Reply()
        if document:
            # Reviewers of the gate that failed are in the notes: the others made its verdict.
            answer = read_review_answer("", structured={**document, "parse_errors": []})
            findings, dropped = place(answer.findings, task, reviewer=self.info.type), answer.dropped
            # A verdict may be due to findings that could not be read or placed; it must not be lost with them.
            judged = judge(findings, complete=True)
            if isinstance(said, Verdict) and answer.problem is not None:
                reply = Reply(INVALID_ANSWER, answer.problem)
            elif isinstance(said, Verdict) and _ORDER.index(said) > _ORDER.index(judged):
                unlike = f"its verdict is {said.value}, but its findings on reviewed files give {judged.value}"
                reply = Reply(_FAILED, unlike)
        raw = completed.stdout.decode("utf-8", "replace") if reply.kind else ""
        return replace(reply, findings=findings, notes=(*notes, *_parse_errors(document), *dropped), raw=raw)


def _left_out(task: ReviewTask) -> Iterator[str]:
    """Arguments that keep files of the change out, under both of their names; each pattern means that file alone."""
    wanted = {name for file in task.files for name in (file.old_path, file.new_path)}
    names = dict.fromkeys(name for file in task.change.files for name in (file.old_path, file.new_path) if name)
    for name in names:
        if name not in wanted:
            yield from ("--exclude", re.sub(r"([*?\[\\])", r"\\\1", name))


def _parse_errors(document: _Document) -> list[str]:
    """What the gate says about reviewers whose answers it could not use."""
    listed = document.get("parse_errors")
    return [
        ": ".join(str(item[key]) for key in ("reviewer", "error", "details") if item.get(key))
        if isinstance(item, dict)
        else str(item)
        for item in (listed if isinstance(listed, list) else ())
    ]


def _judged(completed: Completed, document: _Document) -> Verdict | Reply:
    """The verdict when the exit code and the document agree on one, else what such an ending means."""
    code, said, status = completed.exit_code, document.get("consensus_verdict"), document.get("status")
    if code == 3:
        return Reply(_TIMEOUT, _TIMEOUT, "its reviewers did not finish in time (raise the time limit)")
    if code in _VERDICTS and not document:
        return Reply(INVALID_ANSWER, f"invalid json: exit code {code}, but no JSON document")
    if code in _VERDICTS:
        is_whole = status not in ("timeout", "error", "no_reviewers")
        verdict = next((verdict for verdict in _VERDICTS[code] if is_whole and verdict.value == said), None)
        unlike = f"its exit code {code} and its verdict {said!r} (status {status!r}) do not agree"
        return verdict or Reply(_FAILED, unlike)
    kind, reason = _ENDINGS.get(code, (_FAILED, f"the gate ended with exit code {code}"))
    because = "; ".join(_parse_errors(document)) or _tail(completed.stderr)
    return Reply(kind, f"{reason}: {because}" if because else reason)


class _Gate:
    """The review-gate for one session, until a deadline of the monotonic clock. All methods raise ProcessError."""

    def __init__(
        self, program: str, arguments: tuple[str, ...], repository: Path, *, session_id: str | None, deadline: float
    ) -> None:
        self._program, self._arguments, self._repository = program, arguments, repository
        self._session_id, self._deadline = session_id or str(uuid.uuid4()), deadline

    async def spawn(self) -> bool:
        """Start a review; False when one is active in this session already. Raises ProcessFailed when it refuses."""
        completed = await self._run(("spawn-code-review", "--max-rounds", "0", *self._arguments))
        said = f"{completed.stderr}\n{completed.stdout.decode('utf-8', 'replace')}"
        if completed.exit_code != 0 and "already active" not in said.lower():
            raise _refused(f"{_GATE} did not start the review, exit code {completed.exit_code}", completed)
        return completed.exit_code == 0

    async def resolve(self) -> None:
        """End the review that is active in this session, whosever it is. Raises ProcessFailed when it cannot be."""
        completed = await self._run(("resolve", "--reason", _STALE))
        if completed.exit_code != 0:
            unresolved = f"another review is active in this session of the {_GATE}, and it could not be resolved"
            raise _refused(unresolved, completed, hint=f"run `{_GATE} resolve`, or give another session")

    async def wait(self) -> tuple[Completed, _Document]:
        """Wait for the review to end, as long as the caller gives, and end it for good; what it printed, if JSON."""
        timeout = str(math.ceil(self._seconds_left()))
        words = ("wait", "--json", "--finalize", "--session-id", self._session_id, "--timeout", timeout)
        # A little longer than the gate itself waits, so that it can say what it has.
        completed = await self._run(words, grace=5.0)
        document = None
        with suppress(ValueError, RecursionError):
            document = json.loads(completed.stdout.decode("utf-8", "replace"))
        return completed, document if isinstance(document, dict) else {}

    async def _run(self, argv: tuple[str, ...], *, grace: float = 0) -> Completed:
        # Not `stream`: what is left running by a start are the gate's reviewers, and `stream` would end them.
        return await run(
            Command(
                argv=(self._program, *argv),
                cwd=self._repository,
                environment=program_environment(_LOGIN_NAMES, {"CLAUDE_SESSION_ID": self._session_id}),
                timeout_seconds=self._seconds_left() + grace,
                max_output_bytes=_MAX_OUTPUT_BYTES,
            )
        )

    def _seconds_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ProcessTimedOut(f"{_GATE} had no time left", program=_GATE, hint="raise the time limit")
        return left


def _refused(what: str, completed: Completed, *, hint: str = "") -> ProcessFailed:
    said = _tail(f"{completed.stderr}\n{completed.stdout.decode('utf-8', 'replace')}") or "it said nothing"
    return ProcessFailed(f"{what}: {said}", program=_GATE, status=completed.exit_code, hint=hint)


@asynccontextmanager
async def _lock(state_directory: Path, repository: Path, *, deadline: float) -> AsyncIterator[None]:
    """Hold the lock of a repository: reviews that share the gate's state must not overlap. Raises ProcessError."""
    # The gate keeps its state by the path of the repository.
    name = hashlib.sha256(os.fsencode(repository.resolve())).hexdigest()[:16]
    try:
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (state_directory / f"{_GATE}-{name}.lock").open("ab")
    except OSError as error:
        why = f"no lock can be made in {state_directory}, so another review may be running ({error.strerror})"
        hint = "set CODELOUPE_HOME to a directory that may be written"
        raise ProcessError(why, program=_GATE, hint=hint) from error
    with file:
        while True:
            # It belongs to this opening of the file, so we exclude ourselves as well.
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() >= deadline:
                why = f"another review of {repository} by the {_GATE} did not end in time"
                raise ProcessTimedOut(why, program=_GATE, hint="wait for it, or raise the time limit")
            await asyncio.sleep(0.05)
        yield
