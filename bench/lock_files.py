"""Alarms on real changes of lock files, as a ratio to the number of changes.

With CODELOUPE_BENCH_REPOSITORIES=FOLDER the changes come from the history of each git repository in the folder, with
or without a work tree. The folder may also contain folders with a bare repository named `repo`. Each alarm of high or
medium severity is printed. `lock_files_judged.toml` says for each alarm that was judged whether it is true. An alarm
that was not judged counts as false.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from bench.prompt_tokens import REPOSITORIES
from bench.table import BenchRow
from codeloupe.analysers.lock_files import review_lock_file
from codeloupe.model.finding import Claim, Severity

MOST_FALSE_ALARMS_IN_200 = 1.0
# A smaller sample says little about other repositories.
FEWEST_CHANGES = 200
FEWEST_REPOSITORIES = 8
FEWEST_FORMATS = 6
# The newest changes of each lock file. A file of a megabyte takes seconds to parse, so large ones get fewer.
_NEWEST_CHANGES = 25
_MOST_BYTES_PER_FILE = 12 * 1024**2
_NAMES = (
    *("package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "pdm.lock"),
    *("Pipfile.lock", "Cargo.lock", "Gemfile.lock", "go.sum", "go.work.sum", "composer.lock", "*requirements*.txt"),
    *("requirements/*.txt",),
)
# Fixtures are written by hand, and copies of other projects are not changed by this one.
_NOT_REAL = frozenset(("test", "tests", "fixtures", "vendor", "node_modules"))
_NO_OBJECT = "0" * 40
JUDGED = Path(__file__).with_name("lock_files_judged.toml")


@dataclass(frozen=True, slots=True)
class LockChange:
    """One commit's change of one lock file, by the object names of its contents."""

    repository: str
    commit: str
    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The alarms on one change, or the reason why the file could not be read."""

    change: LockChange
    alarms: tuple[Claim, ...] = ()
    unread: str = ""

    @property
    def format(self) -> str:
        """Return the name of the file, and one name for all requirements files."""
        name = PurePosixPath(self.change.path).name
        return "requirements" if name.endswith(".txt") else name


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the user should look at the reported fact, and why."""

    is_true: bool
    reason: str


_NOT_JUDGED = Verdict(is_true=False, reason="not judged")


def rows() -> Iterator[BenchRow]:
    """Measure the repositories of the given folder, or yield a row that says how to give one."""
    folder = os.environ.get(REPOSITORIES)
    if not folder:
        yield BenchRow("lock files", f"not measured: set {REPOSITORIES} to a folder of git repositories", None, None)
        return
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(max_workers=2) as pool:
        for found in pool.map(measure_repository, repositories_in(Path(folder))):
            outcomes += found
    judged = _judged()
    false_alarms: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.unread:
            print(outcome.change, "unread:", outcome.unread, file=sys.stderr)
        for claim in outcome.alarms:
            verdict = judged.get((outcome.change.commit, outcome.change.path, str(claim.rule)), _NOT_JUDGED)
            print(_alarm_line(outcome.change, claim, verdict), file=sys.stderr)
            if not verdict.is_true:
                false_alarms[outcome.format] += 1
    yield from _format_rows(outcomes, false_alarms)
    yield _total_row(outcomes, false_alarms.total())


def _total_row(outcomes: list[Outcome], false_alarms: int) -> BenchRow:
    """Return the row with the limit. Its text says if the sample is too small."""
    repositories = len({outcome.change.repository for outcome in outcomes})
    formats = len({outcome.format for outcome in outcomes})
    alarms = sum(len(outcome.alarms) for outcome in outcomes)
    detail = (
        f"{len(outcomes):,} changes of {formats} formats in {repositories} repositories: {alarms:,} alarms, "
        f"{false_alarms:,} of them false or not judged"
    )
    is_large = len(outcomes) >= FEWEST_CHANGES and repositories >= FEWEST_REPOSITORIES and formats >= FEWEST_FORMATS
    if not is_large:
        detail += (
            f"; the sample is too small: at least {FEWEST_CHANGES} changes, {FEWEST_REPOSITORIES} repositories and "
            f"{FEWEST_FORMATS} formats are needed"
        )
    ratio = 200 * false_alarms / max(len(outcomes), 1)
    return BenchRow("lock files, false alarms in 200 changes", detail, ratio, MOST_FALSE_ALARMS_IN_200, unit="")


def _format_rows(outcomes: list[Outcome], false_alarms: Counter[str]) -> Iterator[BenchRow]:
    by_format: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_format[outcome.format].append(outcome)
    for name, found in sorted(by_format.items()):
        alarms = sum(len(outcome.alarms) for outcome in found)
        unread = sum(bool(outcome.unread) for outcome in found)
        repositories = len({outcome.change.repository for outcome in found})
        detail = (
            f"{len(found):,} changes in {repositories} repositories: {alarms:,} alarms, "
            f"{false_alarms[name]:,} of them false or not judged, {unread:,} files unread"
        )
        yield BenchRow(f"lock files, {name}, per 200", detail, 200 * false_alarms[name] / len(found), None, unit="")


def _alarm_line(change: LockChange, claim: Claim, verdict: Verdict) -> str:
    place = f"{change.repository} {change.commit} {change.path}"
    return f"{place} {claim.rule} [{verdict.reason}] {claim.title}: {claim.body[:200]} {claim.evidence[:200].strip()}"


def _judged() -> dict[tuple[str, str, str], Verdict]:
    """Return the verdict on each judged alarm by commit, path and rule."""
    text = JUDGED.read_text(encoding="utf-8")
    found: dict[tuple[str, str, str], Verdict] = {}
    for row in tomllib.loads(text)["alarms"]:
        verdict = Verdict(row["is_true"], row["reason"])
        found[row["commit"], row["path"], row["rule"]] = verdict
    return found


def repositories_in(folder: Path) -> list[Path]:
    """Return the git directories in a folder: `*/.git`, bare repositories, and bare repositories at `*/repo`."""
    found: list[Path] = []
    for place in sorted(folder.iterdir()):
        for candidate in (place / ".git", place, place / "repo"):
            if (candidate / "HEAD").is_file() and (candidate / "objects").is_dir():
                found.append(candidate)
                break
    return found


def measure_repository(directory: Path) -> list[Outcome]:
    """Run the analyser on the newest changes of each lock file in a repository."""
    outcomes: list[Outcome] = []
    size_by_path: Counter[str] = Counter()
    with _Objects(directory) as objects:
        for change in lock_changes(directory):
            if size_by_path[change.path] > _MOST_BYTES_PER_FILE:
                continue
            old = None if change.old == _NO_OBJECT else objects.read(change.old)
            new = objects.read(change.new)
            if new is None or (change.old != _NO_OBJECT and old is None):
                continue
            size_by_path[change.path] += len(new) + len(old or b"")
            if change.path.endswith(".txt") and b"--hash=" not in new + (old or b""):
                continue
            outcomes.append(_outcome(change, old, new))
    return outcomes


def lock_changes(directory: Path) -> Iterator[LockChange]:
    """Yield the newest changes of each lock file on the main line of a repository, each side by its object name."""
    name = directory.name
    if name in (".git", "repo"):
        name = directory.parent.name
    patterns = [f":(icase,glob)**/{pattern}" for pattern in _NAMES]
    words = ("log", "--first-parent", "--diff-merges=first-parent", "--find-renames", "--raw", "-z", "--no-abbrev")
    listed = _git(directory, *words, "--format=commit %H", "--", *patterns)
    commit = ""
    count_by_path: Counter[str] = Counter()
    fields = iter(listed.decode("utf-8", "surrogateescape").split("\0"))
    for field in fields:
        text = field.strip()
        if text.startswith("commit "):
            commit = text.split(" ")[1]
            continue
        if not text.startswith(":"):
            continue
        old_mode, new_mode, old, new, status = text.split(" ")
        path = next(fields)
        if status.startswith("R"):
            old_path = path
            path = next(fields)
            # The analyser compares a moved file with its old content, unless the name of the file is another one.
            if PurePosixPath(old_path).name != PurePosixPath(path).name:
                old = _NO_OBJECT
        if not _NOT_REAL.isdisjoint(PurePosixPath(path).parts):
            continue
        is_file = new_mode.startswith("100") and old_mode[1:4] in ("100", "000")
        count_by_path[path] += 1
        if is_file and count_by_path[path] <= _NEWEST_CHANGES:
            yield LockChange(name, commit, path, old, new)


def _outcome(change: LockChange, old: bytes | None, new: bytes) -> Outcome:
    lines_before = frozenset((old or b"").split(b"\n"))
    added: set[int] = set()
    for number, line in enumerate(new.split(b"\n"), start=1):
        if line not in lines_before:
            added.add(number)
    try:
        claims = review_lock_file(change.path, old, new, frozenset(added))
    except ValueError as error:
        return Outcome(change, unread=str(error))
    return Outcome(change, tuple(claim for claim in claims if claim.severity is not Severity.LOW))


def _git(directory: Path, *words: str) -> bytes:
    return subprocess.run(["git", f"--git-dir={directory}", *words], check=True, capture_output=True).stdout


class _Objects:
    """Reads objects of a repository through one git process."""

    def __init__(self, directory: Path) -> None:
        command = ["git", f"--git-dir={directory}", "cat-file", "--batch"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, or None if the repository does not have it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name}\n".encode())
        self._process.stdin.flush()
        header = self._process.stdout.readline().split()
        if header[-1] == b"missing":
            return None
        content = self._process.stdout.read(int(header[2]))
        self._process.stdout.read(1)
        return content
