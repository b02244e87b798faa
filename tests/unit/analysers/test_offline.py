import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.analysers.interface import (
    Analyser,
    AnalyserReport,
    AnalysisTarget,
    Issue,
    is_prose_file,
    is_test_file,
)
from codeloupe.analysers.offline import OfflineReviewer
from codeloupe.analysers.ruff import RuffAnalyser
from codeloupe.analysers.secrets import SecretsAnalyser
from codeloupe.errors import AnalyserFailed, ProcessTimedOut
from codeloupe.model.change import Change, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.events import Event, LaneFinished, Warned
from codeloupe.model.finding import Severity, Source
from codeloupe.model.ports import Plan, ReviewerResult
from codeloupe.model.review import FailedUnit
from tests.endings import PATIENCE_SECONDS
from tests.rows import each

TOKEN = "gh" + "p_" + "q8Zr3LwXn5Kd9VtYb2Hc7Mf4Sg6Jp1Ra0TeU"
Behaviour = Callable[[AnalysisTarget], Awaitable[AnalyserReport]]


class ScriptedAnalyser(Analyser):
    """An analyser that does what the test says, on files with one ending, and remembers its target."""

    def __init__(self, behaviour: Behaviour, *, name: str = "scripted", ending: str = "") -> None:
        self._behaviour = behaviour
        self.name = name
        self._ending = ending
        self.targets: list[AnalysisTarget] = []

    def accepts(self, path: str, start: bytes = b"") -> bool:
        return path.endswith(self._ending)

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        self.targets.append(target)
        return await self._behaviour(target)

    async def version(self) -> str:
        return "1"


def reporting(*issues: Issue, failed: Mapping[str, str] | None = None, **more: str) -> ScriptedAnalyser:
    async def behaviour(_: AnalysisTarget) -> AnalyserReport:
        return AnalyserReport(issues, failed or {})

    return ScriptedAnalyser(behaviour, **more)


def issue(
    line: int, end: int | None = None, *, rule: str = "rule", file: str = "a.py", title: str = "A title"
) -> Issue:
    return Issue(
        file=file,
        line_start=line,
        line_end=end or line,
        rule=rule,
        severity=Severity.MEDIUM,
        category="correctness",
        title=title,
        body="A body.",
        suggestion="A suggestion.",
    )


def written(root: Path, name: str, content: str | bytes, *, added: range | None = None) -> FileChange:
    """Put a file into the snapshot, with the change that added some of its lines, or all."""
    data = content.encode() if isinstance(content, str) else content
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data)
    return changed(name, data, added=added)


def changed(name: str, data: bytes, *, added: range | None = None) -> FileChange:
    rows = data.removesuffix(b"\n").split(b"\n")
    chosen = added if added is not None else range(1, len(rows) + 1)
    body = b"".join((b"+" if number in chosen else b" ") + row + b"\n" for number, row in enumerate(rows, start=1))
    hunk = Hunk(1, len(rows) - len(chosen), 1, len(rows), body, added=len(chosen))
    return FileChange(name, name, FileStatus.MODIFIED, "100644", "100644", hunks=(hunk,))


def plan_of(root: Path, files: Sequence[FileChange], **more: Any) -> Plan:
    change = Change(Scope(ScopeKind.UNCOMMITTED, None, None, "test"), tuple(files))
    fields = {"change": change, "files": tuple(files), "snapshot": root, "trusted": False}
    return Plan(**{**fields, "timeout_seconds": PATIENCE_SECONDS, **more})


def review(
    root: Path, files: Sequence[FileChange], *analysers: Analyser, events: list[Event] | None = None, **more: Any
) -> ReviewerResult:
    sink = [] if events is None else events
    reviewer = OfflineReviewer(analysers, why="a reason")
    return asyncio.run(reviewer.review(plan_of(root, files, **more), sink.append))


def test_a_finding_carries_the_issue_its_place_and_the_verbatim_line(tmp_path: Path) -> None:
    change = written(tmp_path, "a.py", "one\n    two = 2  # x\nthree\n")
    high = replace(issue(3, rule="high"), severity=Severity.HIGH)
    claim, *others = review(tmp_path, [change], reporting(issue(3, rule="low"), high, issue(2))).claims
    assert [other.rule for other in others] == ["high", "low"]
    assert (claim.file, claim.line_start, claim.line_end) == ("a.py", 2, 2)
    assert claim.evidence == "    two = 2  # x"
    assert (claim.title, claim.body, claim.suggestion) == ("A title", "A body.", "A suggestion.")
    assert (claim.severity, claim.category) == (Severity.MEDIUM, "correctness")
    assert (claim.reporter, claim.rule, claim.seen_by) == ("scripted", "rule", ("scripted",))
    assert (claim.source, claim.anchored, claim.outside_change) == (Source.ANALYSER, True, False)


@each(
    ("start", "end", "anchored"),
    [(1, 1, None), (1, 2, None), (3, 3, 3), (1, 3, 3), (4, 9, 4), (2, 9, 3), (6, 9, None), (5, 5, 5)],
)
def test_only_what_touches_an_added_line_is_kept_and_it_is_anchored_there(
    tmp_path: Path, start: int, end: int, anchored: int | None
) -> None:
    change = written(tmp_path, "a.py", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", added=range(3, 6))
    claims = review(tmp_path, [change], reporting(issue(start, end))).claims
    assert [claim.line_start for claim in claims] == ([] if anchored is None else [anchored])


def test_a_silenced_issue_is_a_claim_that_says_so(tmp_path: Path) -> None:
    change = written(tmp_path, "a.py", "one  # noqa\ntwo\n")
    events: list[Event] = []
    silenced = replace(issue(1), silenced_by="# noqa")
    result = review(tmp_path, [change], reporting(silenced, issue(2)), events=events)
    # A later round needs it, to tell a silenced finding from a fixed one.
    assert [(claim.line_start, claim.silenced_by) for claim in result.claims] == [(1, "# noqa"), (2, "")]
    assert [event.findings for event in events if isinstance(event, LaneFinished)] == [1]


def test_evidence_is_readable_and_at_most_five_lines_and_a_thousand_characters(tmp_path: Path) -> None:
    lines = [*(b"line %d" % number for number in range(1, 20)), b"x" * 5000, b"caf\xe9 = 1\r", b""]
    change = written(tmp_path, "a.py", b"\n".join(lines))
    many, wide, odd = review(tmp_path, [change], reporting(issue(2, 19), issue(20), issue(21))).claims
    assert many.evidence == "line 2\nline 3\nline 4\nline 5\nline 6"
    assert (wide.evidence, odd.evidence) == ("x" * 1000, "caf\ufffd = 1")


@pytest.mark.program
def test_reports_of_one_defect_are_one_finding_and_different_ones_stay_apart(tmp_path: Path) -> None:
    secret = written(tmp_path, "src/a.py", f'password = "{TOKEN}"\n')
    swallowed = written(tmp_path, "a.py", "try:\n    print()\nexcept:\n    pass\n")
    two = written(tmp_path, "b.py", "import os; print(unknown)\n")
    (claim,) = review(tmp_path, [secret], RuffAnalyser(), SecretsAnalyser()).claims
    assert (claim.rule, claim.reporter) == ("github-token", "detect-secrets")
    assert (claim.severity, claim.seen_by) == (Severity.HIGH, ("detect-secrets", "ruff"))
    (claim,) = review(tmp_path, [swallowed], RuffAnalyser()).claims
    assert (claim.line_start, claim.seen_by) == (3, ("ruff",))
    assert [found.rule for found in review(tmp_path, [two], RuffAnalyser()).claims] == ["F821", "F401"]


def test_the_analyser_that_looks_closest_words_the_finding_of_a_defect(tmp_path: Path) -> None:
    change = written(tmp_path, "a.py", "one\ntwo\n")
    close = replace(issue(1, rule="py-x", title="Closer"), defect="x")
    far = replace(issue(1, rule="S1", title="Farther"), defect="x", severity=Severity.HIGH)
    other = replace(issue(2, rule="S1"), defect="x")
    result = review(tmp_path, [change], reporting(far, other, name="ruff"), reporting(close, name="dataflow"))
    assert [(claim.line_start, claim.title, claim.severity, claim.seen_by) for claim in result.claims] == [
        (1, "Closer", Severity.MEDIUM, ("dataflow", "ruff")),
        (2, "A title", Severity.MEDIUM, ("ruff",)),
    ]


def test_an_issue_is_quiet_if_a_closer_look_covers_its_line(tmp_path: Path) -> None:
    async def cleared(_: AnalysisTarget) -> AnalyserReport:
        return AnalyserReport((issue(3, rule="x"),), quiet={"a.py": {2: frozenset({"x"}), 3: frozenset({"x"})}})

    change = written(tmp_path, "a.py", "1\n2\n3\n4\n", added=range(2, 5))
    issues = [replace(issue(line, 4, rule=f"S{line}"), defect="x") for line in (1, 4)]
    result = review(tmp_path, [change], reporting(*issues, name="ruff"), ScriptedAnalyser(cleared, name="dataflow"))
    # The first issue starts before the change. The other two are not cleared: an analyser does not clear its own.
    assert [(claim.rule, claim.line_start) for claim in result.claims] == [("x", 3), ("S4", 4)]


@pytest.mark.program
def test_a_secret_is_masked_in_every_finding_of_its_line(tmp_path: Path) -> None:
    change = written(tmp_path, "src/a.py", f'print(unknown, "{TOKEN}")\nx = 1\n')
    telling = reporting(issue(1, 2, file="src/a.py", title=f"About {TOKEN}"), name="telling")
    result = review(tmp_path, [change], RuffAnalyser(), SecretsAnalyser(), telling)
    assert {found.reporter for found in result.claims} == {"ruff", "detect-secrets", "telling"}
    assert TOKEN not in repr(result)
    assert {found.evidence.split("\n")[0] for found in result.claims} == {'print(unknown, "ghp_********")'}
    assert "About ghp_********" in {found.title for found in result.claims}


@pytest.mark.program
def test_a_secret_across_the_cut_of_long_evidence_and_the_body_of_a_key_are_masked(tmp_path: Path) -> None:
    change = written(tmp_path, "src/a.py", " " * 980 + f'x = "{TOKEN}"\n')
    (claim,) = review(tmp_path, [change], SecretsAnalyser()).claims
    assert TOKEN[4:12] not in claim.evidence
    body = [TOKEN[4:] * 2, TOKEN[10:] * 2]
    lines = ["-----BEGIN " + "PRIVATE KEY-----", *body, "-----END " + "PRIVATE KEY-----", ""]
    change = written(tmp_path, "src/key.pem", "\n".join(lines))
    result = review(tmp_path, [change], SecretsAnalyser(), reporting(issue(1, 4, file="src/key.pem")))
    assert len(result.claims) == 2
    assert not [row for row in body if row[4:20] in repr(result)]


FAILURES = [
    (AnalyserFailed("it broke", analyser="broken", hint="mend it"), "it broke (mend it)"),
    (ProcessTimedOut("broken did not finish", program="broken"), "broken did not finish"),
    (ZeroDivisionError("division by zero"), "it crashed with ZeroDivisionError: division by zero"),
    (None, "it did not finish within 0.2 s (raise the time limit, or review less at once)"),
]


@each(("error", "reason"), FAILURES)
def test_an_analyser_that_fails_or_hangs_takes_nothing_from_the_others(
    tmp_path: Path, error: Exception | None, reason: str
) -> None:
    async def broken(_: AnalysisTarget) -> AnalyserReport:
        if error is None:
            await asyncio.Event().wait()
        raise error or AssertionError

    files = [written(tmp_path, name, "1\n") for name in ("a.py", "b.py")]
    events: list[Event] = []
    limits = {} if error else {"timeout_seconds": 0.2}
    analysers = (ScriptedAnalyser(broken, name="broken"), reporting(issue(1)))
    result = review(tmp_path, files, *analysers, events=events, **limits)
    assert [found.reporter for found in result.claims] == ["scripted"]
    assert result.units_failed == (FailedUnit("broken", ("a.py", "b.py"), reason),)
    assert [(item.kind, item.message) for item in result.errors] == [
        ("analyser_failed", f"broken could not review: {reason}")
    ]
    assert result.units_total == 2
    finished = {event.lane: event for event in events if isinstance(event, LaneFinished)}
    assert finished["broken"].failure == reason
    assert (finished["scripted"].findings, finished["scripted"].failure) == (1, None)


def test_a_file_that_an_analyser_could_not_read_is_a_failed_unit(tmp_path: Path) -> None:
    files = [written(tmp_path, name, "1\n") for name in ("a.py", "b.py")]
    events: list[Event] = []
    result = review(tmp_path, files, reporting(issue(1), failed={"b.py": "it is odd"}), events=events)
    assert result.units_failed == (FailedUnit("scripted", ("b.py",), "it is odd"),)
    assert len(result.claims) == 1
    assert Warned("scripted could not review 1 file: b.py: it is odd") in events


def test_of_a_bare_diff_secrets_are_found_and_the_other_analysers_say_that_they_could_not(tmp_path: Path) -> None:
    change = changed("src/a.py", f'x = 1\ny = "{TOKEN}"\n'.encode(), added=range(2, 3))
    result = review(tmp_path, [change], RuffAnalyser(), SecretsAnalyser(), without_content=frozenset({"src/a.py"}))
    (claim,) = result.claims
    assert (claim.rule, claim.line_start, claim.evidence) == ("github-token", 2, 'y = "ghp_********"')
    assert result.units_failed == (FailedUnit("ruff", ("src/a.py",), "only the diff is known, not the whole file"),)
    assert result.units_total == 2


def test_files_that_do_not_exist_after_the_change_are_not_looked_at_and_missing_ones_are_not_clean(
    tmp_path: Path,
) -> None:
    deleted = FileChange("gone.py", None, FileStatus.DELETED, hunks=(Hunk(1, 1, 0, 0, b"-x\n", deleted=1),))
    link = replace(changed("link.py", b"target\n"), new_mode="120000")
    renamed = FileChange("old.py", "new.py", FileStatus.RENAMED, similarity=100)
    analyser = reporting()
    result = review(tmp_path, [deleted, link, renamed], analyser)
    # The analyser has nothing to say about them, so that earlier claims in them end.
    everything = frozenset({"gone.py", "link.py", "new.py"})
    assert result == ReviewerResult(completed={"scripted": everything, "links": everything}, usage=result.usage)
    result = review(tmp_path, [changed("missing.py", b"1\n")], analyser)
    assert [(unit.unit, unit.files) for unit in result.units_failed] == [("snapshot", ("missing.py",))]
    assert analyser.targets == []


def test_no_link_leads_out_of_the_snapshot(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "a.py").write_text("print(unknown)\n", encoding="utf-8")
    (root / "link.py").symlink_to(outside / "a.py")
    (root / "directory").symlink_to(outside)
    names = ("link.py", "directory/a.py", "../outside/a.py", str(outside / "a.py"), "nul\0.py")
    result = review(root, [changed(name, b"print(unknown)\n") for name in names], RuffAnalyser())
    assert result.claims == ()
    assert {unit.files[0] for unit in result.units_failed} == set(names)


def test_an_analyser_gets_only_the_files_it_accepts_and_their_added_lines(tmp_path: Path) -> None:
    files = [written(tmp_path, "a.py", "1\n2\n3\n", added=range(2, 4)), written(tmp_path, "a.js", "1\n")]
    python, nothing = reporting(ending=".py"), reporting(ending=".go")
    events: list[Event] = []
    result = review(tmp_path, files, python, nothing, trusted=True, timeout_seconds=7.0, events=events)
    (target,) = python.targets
    assert (target.root, target.files, target.added_lines) == (tmp_path, ("a.py",), {"a.py": frozenset({2, 3})})
    assert (target.trusted, target.timeout_seconds) == (True, 7.0)
    assert nothing.targets == []
    assert result.units_total == 1
    assert len(events) == 1


def test_cancellation_is_passed_on_to_every_analyser_and_raised(tmp_path: Path) -> None:
    ended: list[str] = []

    async def cancelled() -> None:
        started = asyncio.Barrier(3)

        async def behaviour(_: AnalysisTarget) -> AnalyserReport:
            try:
                await started.wait()
                await asyncio.Event().wait()
            finally:
                ended.append("ended")
            raise AssertionError

        reviewer = OfflineReviewer([ScriptedAnalyser(behaviour, name=name) for name in "ab"], why="")
        plan = plan_of(tmp_path, [written(tmp_path, "a.py", "1\n")])
        running = asyncio.ensure_future(reviewer.review(plan, lambda _: None))
        await started.wait()
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert ended == ["ended", "ended"]


def test_tests_and_prose_are_known_by_their_directory_or_name() -> None:
    tests = ["tests/a.py", "src/Test/a.py", "test_a.py", "a_test.go", "a.spec.ts", "web/__tests__/a.js", "conftest.py"]
    others = ["src/a.py", "contest.py", "latest/a.py", "attestation.go", "src/testify.py", "test"]
    assert [path for path in (*tests, *others) if is_test_file(path)] == tests
    prose = ["README.md", "docs/conf.py", "examples/a.py", ".env.example", "locales/de.json"]
    others = ["src/a.py", "docker/a.yaml", "md", "document.py"]
    assert [path for path in (*prose, *others) if is_prose_file(path)] == prose
