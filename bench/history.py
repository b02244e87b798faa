"""The history of a hundred thousand findings: how long until a list or a review is on the screen."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.changes import git
from bench.table import BenchRow
from bench.timing import best_seconds
from codeloupe.model.agent import Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Proof, Severity
from codeloupe.model.history import ReviewRecord
from codeloupe.model.review import Coverage, Policy, Review, ReviewerInfo, Verdict
from codeloupe.store.history import DatabaseHistory, name_work_tree
from codeloupe.store.sqlite import SqliteDatabase
from tests.findings_material import make_finding

_REVIEWS = 1_000
_FINDINGS_EACH = 100
_SECONDS_ALLOWED = 0.2
_TIMES = 20


def rows() -> Iterator[BenchRow]:
    """The whole program, its start included; what that is alone tells an empty history."""
    with tempfile.TemporaryDirectory() as directory:
        root, home = Path(directory) / "repository", Path(directory) / "home"
        root.mkdir()
        git(root, "init", "--quiet", "--template=", "--initial-branch=main")
        git(root, "commit", "--quiet", "--allow-empty", "--message=empty")
        first = git(root, "rev-parse", "HEAD").decode().strip()
        _fill(home / "codeloupe.sqlite3", f"root:{first}", work_tree=name_work_tree(root))
        start = best_seconds(lambda: _run(["history", "list"], root, Path(directory) / "empty"), times=_TIMES)
        some = _identifier(_REVIEWS // 2)
        for words, limit in (
            (["list"], 1.0),
            (["show", some], 1.0),
            (["show"], 1.0),
            (["render", some, "--format", "json", "--fail-on", "critical"], None),
            (["compare", some, "last"], None),
            (["trends"], None),
        ):
            whole = best_seconds(lambda words=words: _run(["history", *words], root, home), times=_TIMES)  # type: ignore[misc]  # a default binds the loop variable
            shown = " ".join(words[:2]).replace(some, "ID")
            name = f"history {shown}, {_REVIEWS * _FINDINGS_EACH:,} findings / {_SECONDS_ALLOWED} s"
            detail = f"{whole * 1000:.0f} ms, beside {start * 1000:.0f} ms to list an empty history"
            yield BenchRow(name, detail, whole / _SECONDS_ALLOWED, limit)


def _run(words: list[str], root: Path, home: Path) -> None:
    program = str(Path(sys.executable).with_name("codeloupe"))
    completed = subprocess.run(
        [program, *words], cwd=root, env={**os.environ, "CODELOUPE_HOME": str(home)}, capture_output=True, check=False
    )
    if completed.returncode not in (0, 1) or not completed.stdout:
        raise RuntimeError(f"codeloupe {' '.join(words)} ended with {completed.returncode}: {completed.stderr!r}")


def _fill(path: Path, repository: str, *, work_tree: str) -> None:
    """A thousand reviews of a branch, two a day: each finds ten new defects, and ten old ones are gone."""
    with SqliteDatabase(path) as database:
        history = DatabaseHistory(database)
        now = datetime.now(UTC)
        for number in range(_REVIEWS):
            history.save(
                ReviewRecord(
                    review=_review(number),
                    saved_at=now - timedelta(hours=12 * (_REVIEWS - number)),
                    repository=repository,
                    work_tree=work_tree,
                    repository_label="repository",
                    branch="main",
                )
            )


def _identifier(number: int) -> str:
    return f"{number:08x}" + "0" * 24


def _review(number: int) -> Review:
    findings = tuple(_finding(number, index) for index in range(_FINDINGS_EACH))
    return Review(
        review_id=_identifier(number),
        scope=Scope(ScopeKind.BRANCH, "a" * 40, None, "topic and its working tree against main"),
        reviewer=ReviewerInfo("claude_cli", "installed and logged in", "a-model"),
        verdict=Verdict.FAIL,
        complete=True,
        exit_code=1,
        summary=f"{_FINDINGS_EACH} findings",
        policy=Policy(),
        findings=findings,
        coverage=Coverage(files_total=40, files_reviewed=40, units_total=80),
        usage=Usage(requests=80, input_tokens=200_000, output_tokens=9_000, cost_usd=0.9, duration_seconds=75.0),
    )


def _finding(number: int, index: int) -> Finding:
    which = number * 10 + index
    return make_finding(
        file=f"package/part{which % 40}/module{which % 7}.py",
        line_start=which % 900 + 1,
        line_end=which % 900 + 2,
        severity=Severity(which % 4),
        category="correctness",
        title="The last page is left out when the number of items is a multiple of its size",
        body="`pages` rounds down, so that the items behind the last whole page are never asked for. " * 3,
        evidence="    pages = len(items) // size\n    for page in range(pages):",
        reporter="claude_cli",
        suggestion="Round up: `pages = -(-len(items) // size)`.",
        expert=("correctness", "security", "tests")[which % 3],
        fingerprint=f"{which:032x}",
        proof=Proof.CONFIRMED,
        status=FindingStatus.FIXED if index < 10 else FindingStatus.OPEN if index < 90 else FindingStatus.NEW,
        seen_by=("claude_cli correctness 1",),
    )
