"""Joint calls: the targets of several commits in one call of an analyser."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.analysers import joint
from codeloupe.analysers.interface import (
    Analyser,
    AnalyserReport,
    AnalysisTarget,
    Issue,
    is_prose_file,
    is_test_file,
)
from codeloupe.analysers.joint import JointCalls
from codeloupe.errors import AnalyserFailed
from codeloupe.model.change import Moment
from codeloupe.model.finding import Severity
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS
from tests.rows import each


class GatedAnalyser(Analyser):
    """Reports one issue for each file, with the file's content as its title. Its first call waits for the gate."""

    name = "gated"

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.targets: list[AnalysisTarget] = []
        self.cancelled_calls = 0
        self.refuse: Callable[[AnalysisTarget], Awaitable[dict[str, str]]] = _refuse_nothing

    def accepts(self, path: str, start: bytes = b"") -> bool:
        return bool(path)

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        self.targets.append(target)
        self.begun.set()
        try:
            if len(self.targets) == 1:
                await self.gate.wait()
            failed = await self.refuse(target)
        except asyncio.CancelledError:
            self.cancelled_calls += 1
            raise
        issues = tuple(_issue(target, file) for file in target.files if file not in failed)
        sensitive = {file: {1: (_content(target, file),)} for file in target.files}
        quiet = {file: {1: frozenset({_content(target, file)})} for file in target.files}
        return AnalyserReport(issues, failed, sensitive, quiet)

    async def version(self) -> str:
        return "1"

    async def has_begun(self) -> None:
        """Wait until the first call waits for the gate."""
        await self.begun.wait()

    @property
    def files_of_calls(self) -> list[list[str]]:
        return [list(target.files) for target in self.targets]


async def _refuse_nothing(_target: AnalysisTarget) -> dict[str, str]:
    return {}


def _content(target: AnalysisTarget, file: str) -> str:
    return (target.root / file).read_text()


def _issue(target: AnalysisTarget, file: str) -> Issue:
    lines = target.added_lines[file]
    return Issue(
        file=file,
        line_start=min(lines),
        line_end=max(lines),
        rule="r",
        severity=Severity.LOW,
        category="correctness",
        title=_content(target, file),
        body="A body.",
    )


def made_target(parent: Path, number: int, *files: str, trusted: bool = True) -> AnalysisTarget:
    """Return a target in a folder of its own, whose files contain the number."""
    root = parent / str(number)
    names = files or ("a.py",)
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"content {number}")
    added = {name: frozenset({number}) for name in names}
    return AnalysisTarget(root=root, files=names, added_lines=added, trusted=trusted, timeout_seconds=PATIENCE_SECONDS)


def titles(report: AnalyserReport) -> list[tuple[str, int, str]]:
    return [(issue.file, issue.line_start, issue.title) for issue in report.issues]


async def analysed(analyser: GatedAnalyser, targets: list[AnalysisTarget]) -> list[AnalyserReport | BaseException]:
    """Analyse the first target, and the others while it runs."""
    calls = JointCalls(analyser)
    tasks = [asyncio.create_task(calls.analyse(target)) for target in targets]
    await analyser.has_begun()
    analyser.gate.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def run(analyser: GatedAnalyser, targets: list[AnalysisTarget]) -> list[AnalyserReport | BaseException]:
    return asyncio.run(asyncio.wait_for(analysed(analyser, targets), PATIENCE_SECONDS))


def reports_of(results: list[AnalyserReport | BaseException]) -> list[AnalyserReport]:
    reports = [result for result in results if isinstance(result, AnalyserReport)]
    assert len(reports) == len(results), results
    return reports


def test_targets_that_wait_are_analysed_together_each_gets_its_own(tmp_path: Path) -> None:
    analyser = GatedAnalyser()
    targets = [made_target(tmp_path, number, "a.py", "tests/b.py") for number in range(1, 5)]
    reports = reports_of(run(analyser, targets))
    together = [f"{number}/{file}" for number in (2, 3, 4) for file in ("a.py", "tests/b.py")]
    assert analyser.files_of_calls == [["a.py", "tests/b.py"], together]
    for number, report in enumerate(reports, start=1):
        text = f"content {number}"
        assert titles(report) == [("a.py", number, text), ("tests/b.py", number, text)]
        assert report.sensitive == {"a.py": {1: (text,)}, "tests/b.py": {1: (text,)}}
        assert report.quiet == {"a.py": {1: frozenset({text})}, "tests/b.py": {1: frozenset({text})}}
        assert report.failed == {}


def test_a_single_target_is_analysed_as_it_is(tmp_path: Path) -> None:
    analyser = GatedAnalyser()
    target = made_target(tmp_path, 1)
    run(analyser, [target])
    assert analyser.targets == [target]


def test_trusted_and_untrusted_targets_are_never_mixed(tmp_path: Path) -> None:
    analyser = GatedAnalyser()
    targets = [made_target(tmp_path, number, trusted=number % 2 == 0) for number in range(6)]
    reports = reports_of(run(analyser, targets))
    assert [len(titles(report)) for report in reports] == [1] * 6
    assert analyser.files_of_calls == [["a.py"], ["1/a.py", "3/a.py", "5/a.py"], ["2/a.py", "4/a.py"]]
    assert [target.trusted for target in analyser.targets] == [True, False, True]


def test_targets_of_other_places_or_with_moments_are_analysed_alone(tmp_path: Path) -> None:
    async def moment_of(_file: str, _line: bytes) -> Moment:
        return Moment.UNKNOWN

    analyser = GatedAnalyser()
    own = [replace(made_target(tmp_path, number), moment_of=moment_of) for number in (2, 3)]
    elsewhere = made_target(tmp_path / "elsewhere", 4)
    here = made_target(tmp_path, 5)
    run(analyser, [made_target(tmp_path, 1), *own, elsewhere, here])
    assert analyser.targets[1:] == [*own, elsewhere, here]


def test_a_commit_that_breaks_a_joint_call_fails_alone(tmp_path: Path) -> None:
    async def break_down(target: AnalysisTarget) -> dict[str, str]:
        if any("content 3" in _content(target, file) for file in target.files):
            raise AnalyserFailed("it broke", analyser="gated")
        return {}

    analyser = GatedAnalyser()
    analyser.refuse = break_down
    results = run(analyser, [made_target(tmp_path, number) for number in range(1, 6)])
    assert [isinstance(result, AnalyserFailed) for result in results] == [False, False, True, False, False]
    assert len(analyser.targets) == 6


def test_a_commit_that_hangs_a_joint_call_times_out_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(target: AnalysisTarget) -> dict[str, str]:
        if any("content 3" in _content(target, file) for file in target.files):
            await asyncio.sleep(FAR_TOO_LONG_SECONDS)
        return {}

    analyser = GatedAnalyser()
    analyser.refuse = hang
    targets = [made_target(tmp_path, number) for number in range(1, 6)]
    results = run(analyser, [replace(target, timeout_seconds=0.5) for target in targets])
    assert [isinstance(result, TimeoutError) for result in results] == [False, False, True, False, False]


def test_a_target_with_a_failed_file_is_analysed_by_itself(tmp_path: Path) -> None:
    async def fail_together(target: AnalysisTarget) -> dict[str, str]:
        return {file: "no time" for file in target.files if file.startswith("3/")}

    analyser = GatedAnalyser()
    analyser.refuse = fail_together
    reports = reports_of(run(analyser, [made_target(tmp_path, number) for number in range(1, 5)]))
    assert analyser.files_of_calls == [["a.py"], ["2/a.py", "3/a.py", "4/a.py"], ["a.py"]]
    assert [report.failed for report in reports] == [{}] * 4
    assert titles(reports[2]) == [("a.py", 3, "content 3")]


@each(("name", "most"), [("_MOST_FILES", 2), ("_MOST_BYTES", len("content 1") * 2)])
def test_a_joint_call_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    monkeypatch.setattr(joint, name, most)
    analyser = GatedAnalyser()
    reports_of(run(analyser, [made_target(tmp_path, number) for number in range(1, 6)]))
    assert [len(files) for files in analyser.files_of_calls] == [1, 2, 2]


def test_cancelling_one_caller_takes_nothing_from_the_others(tmp_path: Path) -> None:
    async def go() -> tuple[GatedAnalyser, list[AnalyserReport | BaseException]]:
        analyser = GatedAnalyser()
        calls = JointCalls(analyser)
        tasks = [asyncio.create_task(calls.analyse(made_target(tmp_path, number))) for number in range(1, 5)]
        await analyser.has_begun()
        tasks[2].cancel()
        analyser.gate.set()
        return analyser, await asyncio.gather(*tasks, return_exceptions=True)

    analyser, results = asyncio.run(go())
    assert isinstance(results[2], asyncio.CancelledError)
    assert [isinstance(result, AnalyserReport) for result in results] == [True, True, False, True]
    assert analyser.files_of_calls == [["a.py"], ["2/a.py", "4/a.py"]]
    assert analyser.cancelled_calls == 0


def test_cancelling_all_callers_ends_the_call_before_they_end(tmp_path: Path) -> None:
    async def go() -> tuple[int, GatedAnalyser, AnalyserReport]:
        analyser = GatedAnalyser()
        calls = JointCalls(analyser)
        first = asyncio.create_task(calls.analyse(made_target(tmp_path, 1)))
        await analyser.has_begun()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        cancelled = analyser.cancelled_calls
        # The next caller is served as if nothing had happened.
        return cancelled, analyser, await calls.analyse(made_target(tmp_path, 2))

    cancelled, analyser, report = asyncio.run(asyncio.wait_for(go(), PATIENCE_SECONDS))
    assert cancelled == 1
    assert titles(report) == [("a.py", 2, "content 2")]
    assert len(analyser.targets) == 2


def test_a_numbered_folder_changes_no_rule_by_path() -> None:
    paths = ("a.py", "tests/a.py", "pkg/test_a.py", "docs/a.md", "a/__init__.py", "spec/a.js", "x.txt", "conftest.py")
    for path in paths:
        for folder in ("0", "7", "12345"):
            assert is_test_file(f"{folder}/{path}") == is_test_file(path)
            assert is_prose_file(f"{folder}/{path}") == is_prose_file(path)
