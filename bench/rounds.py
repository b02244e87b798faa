"""The second review of a branch with ten thousand findings, beside the first."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.table import BenchRow
from codeloupe.engine import Job, run_review
from codeloupe.findings.earlier import Earlier
from codeloupe.model.change import Change, Effort, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.finding import Claim, Finding, Severity, Source
from codeloupe.model.ports import AGENTS, EventSink, Plan, ReviewerResult
from codeloupe.model.review import Policy, Review, ReviewerInfo
from codeloupe.planning.prepare import Prepared
from codeloupe.planning.select import Selection
from codeloupe.planning.units import plan_units

_FILES = 100
_FINDINGS_EACH = 100
_RATIO_ALLOWED = 1.5
_TIMES = 3
_SUBJECTS = ("handle", "query", "password", "counter", "request", "response", "timeout", "directory", "socket", "lock")
_DEFECTS = (
    "is never closed after an exception was raised",
    "comes from an untrusted caller and is not validated",
    "overflows because nothing limits its length",
    "is shared between threads without synchronisation",
    "keeps growing, since entries are never removed",
    "is written to the log in clear text",
    "may be missing, and then the fallback is wrong",
    "rounds down and loses the remainder",
    "is compared with the wrong operator",
    "has a default that other calls change",
)


class _Stub:
    """Reports the same claims in every review."""

    def __init__(self, claims: Sequence[Claim], reporter: str) -> None:
        self.info = ReviewerInfo(reporter, "for a measurement")
        self._claims = tuple(claims)
        self._reporter = reporter

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:  # noqa: ARG002 - the interface has it
        """Return the claims."""
        files = frozenset(file.path for file in plan.files)
        return ReviewerResult(claims=self._claims, completed={self._reporter: files}, units_total=1)


def rows() -> Iterator[BenchRow]:
    """Measure a second review of unchanged code, of moved code, and one in which every second finding is fixed."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        first_code = _prepared(root / "first", above=0)
        moved_code = _prepared(root / "moved", above=3)
        for source, reporter in ((Source.ANALYSER, "ruff"), (Source.AGENT, AGENTS)):
            claims = _claims(source, reporter, above=0)
            moved = _claims(source, reporter, above=3)
            first_seconds, first = _measured(first_code, claims, reporter, None)
            for what, code, reported in (
                ("unchanged", first_code, claims),
                ("moved", moved_code, moved),
                ("every second one reported", moved_code, moved[::2]),
            ):
                seconds, second = _measured(code, reported, reporter, first.findings)
                if len(second.findings) != len(first.findings):
                    raise RuntimeError(f"{len(first.findings)} findings became {len(second.findings)}")
                detail = f"{seconds:.2f} s of processor time, the first review {first_seconds:.2f} s"
                name = f"second review of {len(first.findings):,} {source.value} findings, {what}"
                yield BenchRow(name, detail, seconds / first_seconds, _RATIO_ALLOWED)


def _measured(
    plan: Prepared, claims: Sequence[Claim], reporter: str, earlier: tuple[Finding, ...] | None
) -> tuple[float, Review]:
    """Return the fewest seconds of processor time that a review took, and the review.

    The reviewers are stubs, so the review waits for nothing, and other programs on the machine do not count.
    """
    best = float("inf")
    review: Review | None = None
    for _ in range(_TIMES):
        job = Job(plan=plan, policy=Policy(), reviewers=(_Stub(claims, reporter),), earlier=Earlier(findings=earlier))
        started = time.process_time()
        review = asyncio.run(run_review(job, started=time.monotonic(), emit=lambda _event: None))
        best = min(best, time.process_time() - started)
    if review is None:
        raise RuntimeError("nothing was measured")
    return best, review


def _code(number: int, *, above: int) -> list[str]:
    """Return the lines of a file: some comments, and a function around each statement that is reported."""
    lines = ["# added later"] * above
    for index in range(_FINDINGS_EACH):
        lines += [
            f"def work_{index}(items, limit):",
            f"    result_{index} = compute(items, {number}, {index})",
            f"    for item in result_{index}:",
            "        limit.check(item)",
            f"    return result_{index}",
            "",
        ]
    return lines


def _prepared(root: Path, *, above: int) -> Prepared:
    files: list[FileChange] = []
    for number in range(_FILES):
        lines = _code(number, above=above)
        path = _path(number)
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(lines) + "\n", encoding="utf-8")
        body = "".join(f"+{line}\n" for line in lines).encode()
        hunk = Hunk(0, 0, 1, len(lines), body, added=len(lines))
        files.append(FileChange(None, path, FileStatus.ADDED, new_mode="100644", hunks=(hunk,)))
    change = Change(Scope(ScopeKind.BRANCH, "a" * 40, None, "a branch"), tuple(files))
    return Prepared(
        change=change,
        files=change.files,
        snapshot=root,
        trusted=True,
        timeout_seconds=60.0,
        units=plan_units(change.files, effort=Effort.MEDIUM, experts=()),
        selection=Selection(change.files, ()),
        place=root,
    )


def _path(number: int) -> str:
    return f"package/part{number % 10}/module{number}.py"


def _claims(source: Source, reporter: str, *, above: int) -> list[Claim]:
    """Return a claim on the second line of each function; those of agents are below the proof threshold."""
    claims: list[Claim] = []
    for number in range(_FILES):
        lines = _code(number, above=above)
        for index in range(_FINDINGS_EACH):
            line = above + 6 * index + 2
            subject = _SUBJECTS[index % len(_SUBJECTS)]
            defect = _DEFECTS[(index // len(_SUBJECTS) + number) % len(_DEFECTS)]
            claims.append(
                Claim(
                    reporter=reporter,
                    source=source,
                    severity=Severity.MEDIUM,
                    title=f"The {subject} {defect}",
                    body=f"In `work_{index}` the {subject} of result_{index} {defect}. Callers rely on it.",
                    file=_path(number),
                    line_start=line,
                    line_end=line,
                    evidence=lines[line - 1],
                    rule=f"S{index % 20}" if source is Source.ANALYSER else None,
                )
            )
    return claims
