"""The same changes through codeloupe and through other reviewers, with the stand-in server as their model.

Only with BENCH_PEERS=1. Every program is installed into its own environment below .cache/bench-peers and cannot reach
anything outside of this machine. A peer that needs another Python finds it by BENCH_PEERS_PYTHON; otherwise its rows
say why it was not measured. Sizes and requests are measured with an answer that finds nothing, so they show the work
around a model, and not what a reviewer finds. The last rows show what each program makes of bad answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from bench.lifelike import branch_diff, make_lifelike_change
from bench.overhead import CHANGES, ProgramRun, least_of, run_program, share_sent, surroundings
from bench.prompt_tokens import tokens_in, tokens_sent
from bench.table import BenchRow
from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer, Status, Text

_PROJECT = Path(__file__).resolve().parent.parent
_FOLDER = _PROJECT / ".cache" / "bench-peers"
# A model that all of them know, with room for the large change.
_MODEL = "gpt-4o"
# A package that carries the tables with which the peers count tokens; they would download them otherwise.
_TABLES = "litellm/litellm_core_utils/tokenizers"
_TIMES = {"small": 3, "large": 1}
_PATIENCE_SECONDS = 240
_FAR_LINE = 99_999
_MALFORMED = Text('Here is the review you asked for: {"findings": [{"title": "Cut')
_NO_ISSUES_YAML = """```yaml
review:
  estimated_effort_to_review_[1-5]: |
    1
  relevant_tests: |
    No
  key_issues_to_review: []
  security_concerns: |
    No
```"""
_FAR_YAML = """```yaml
review:
  key_issues_to_review:
    - relevant_file: |
        FILE
      issue_header: |
        Possible Bug
      issue_content: |
        The total is wrong.
      start_line: 99999
      end_line: 99999
```"""


@dataclass(frozen=True, slots=True)
class _Peer:
    """A reviewer: its package, the command that reviews the branch, and its variables.

    `source` is where the package comes from if not from the registry, `extra` what an API model needs besides, and
    `helpers` what only the measurement needs. `nothing` is an answer without findings, and `far` one with a finding at
    a line that no file has. `shown` are the files in which it writes its report beside its output.
    """

    name: str
    package: str
    command: tuple[str, ...]
    variables: Callable[[str], Mapping[str, str]]
    nothing: Reply
    far: Callable[[str], Reply]
    source: str = ""
    extra: str = ""
    helpers: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return _FOLDER / self.name

    @property
    def program(self) -> str:
        return str(self.folder / "bin" / self.name)

    @property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python3*/site-packages"))


def _far_finding(file: str) -> Reply:
    finding = {"file": file, "line": _FAR_LINE, "quote": "total = wrong", "title": "The total is wrong"}
    return Json({"findings": [{**finding, "body": "It is wrong.", "category": "correctness", "severity": "high"}]})


def _far_issue(_file: str) -> Reply:
    lines = [{"start_line": _FAR_LINE, "end_line": _FAR_LINE}]
    issue: dict[str, Any] = {"title": "The total is wrong", "details": "It is wrong.", "severity": 1, "confidence": 1}
    return Text(json.dumps([{**issue, "tags": ["bug"], "affected_lines": lines}]))


_PEERS = (
    _Peer(
        name="codeloupe",
        package="codeloupe",
        source=str(_PROJECT),
        extra=f"{_PROJECT}[api]",
        command=("review", "--reviewer", "api", "--fresh"),
        variables=lambda url: {
            "CODELOUPE_API_MODEL": f"openai:{_MODEL}",
            "CODELOUPE_API_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "sk-stand-in",
        },
        nothing=Json({"findings": []}),
        far=_far_finding,
    ),
    _Peer(
        name="gito",
        package="gito.bot",
        helpers=("litellm",),
        command=("-v0", "review", "reservations..main"),
        variables=lambda url: {
            "LLM_API_TYPE": "openai",
            "LLM_API_BASE": f"{url}/v1",
            "LLM_API_KEY": "sk-stand-in",
            "MODEL": _MODEL,
        },
        nothing=Text("[]"),
        far=_far_issue,
        shown=("code-review-report.md",),
    ),
    _Peer(
        name="pr-agent",
        package="pr-agent",
        command=("--diff-file", "../change.diff", "review"),
        variables=lambda url: {
            "OPENAI__KEY": "sk-stand-in",
            "OPENAI__API_BASE": f"{url}/v1",
            "CONFIG__MODEL": _MODEL,
            "CONFIG__FALLBACK_MODELS": "[]",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        nothing=Text(_NO_ISSUES_YAML),
        far=lambda file: Text(_FAR_YAML.replace("FILE", file)),
    ),
)


def rows() -> Iterator[BenchRow]:
    """Measure each program; one that cannot be installed has one row that says so."""
    with tempfile.TemporaryDirectory() as directory:
        roots: dict[str, Path] = {}
        for change, size in CHANGES.items():
            roots[change] = Path(directory) / change / "repository"
            make_lifelike_change(roots[change], size)
            (roots[change].parent / "change.diff").write_bytes(branch_diff(roots[change]))
        for peer in _PEERS:
            try:
                yield _installed(peer)
                yield from _measured(peer, roots)
            except (RuntimeError, OSError) as error:
                reason = " ".join(str(error).split())[-160:].replace("|", "/")
                yield BenchRow(peer.name, f"not measured: {reason}", None, None)


def _measured(peer: _Peer, roots: Mapping[str, Path]) -> Iterator[BenchRow]:
    yield BenchRow(f"{peer.name} --help", f"{_help_seconds(peer):.2f} s of CPU", None, None)
    for change, root in roots.items():
        run, requests = least_of(
            _TIMES[change], [peer.program, *peer.command], root, lambda url: _variables(peer, url), answer=peer.nothing
        )
        yield _overhead(f"{peer.name} on the {change} change", root, run, requests)
    small = roots["small"]
    far = peer.far(_changed_file(small))
    yield _mishap(peer, small, "a malformed answer", _MALFORMED)
    yield _mishap(peer, small, "a rate limit that never ends", Status(429, retry_after=1))
    yield _mishap(peer, small, f"a finding at line {_FAR_LINE}", far)


def _help_seconds(peer: _Peer) -> float:
    """Return the least CPU of several starts; other programs on the machine change the wall time."""
    with tempfile.TemporaryDirectory() as home:
        place = Path(home)
        environment = {**surroundings(place), "COLUMNS": "100"}
        starts = [run_program([peer.program, "--help"], cwd=place, environment=environment) for _ in range(5)]
    return min(start.cpu_seconds for start in starts)


def _overhead(name: str, root: Path, run: ProgramRun, requests: tuple[RecordedRequest, ...]) -> BenchRow:
    diff = branch_diff(root)
    sent, in_diff = tokens_sent(requests)["estimate"], tokens_in(diff.decode())["estimate"]
    detail = (
        f"{run.cpu_seconds:.2f} s of CPU, {run.wall_seconds:.2f} s of wall, {len(requests)} request(s), "
        f"{sent:,} tokens sent for a diff of {in_diff:,}, {share_sent(diff, requests):.0%} of the added lines sent"
    )
    return BenchRow(f"tokens sent / tokens of the diff, {name}", detail, sent / in_diff, None)


def _mishap(peer: _Peer, root: Path, title: str, answer: Reply) -> BenchRow:
    """Show what a program makes of an answer: its exit code, how often it asks, and its last words."""
    reports = [root / name for name in peer.shown]
    for report in reports:
        report.unlink(missing_ok=True)
    with StandInServer(reply=lambda _request: answer) as server, tempfile.TemporaryDirectory() as home:
        variables = {**_variables(peer, server.url), **surroundings(Path(home))}
        started = time.monotonic()
        try:
            ended = subprocess.run(
                [peer.program, *peer.command],
                cwd=root, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_SECONDS,
                check=False,
            )  # fmt: skip
            how, said = f"exit code {ended.returncode}", ended.stdout + ended.stderr
        except subprocess.TimeoutExpired as error:
            how, said = f"still at work after {_PATIENCE_SECONDS} s", (error.stdout or b"") + (error.stderr or b"")
        seconds = time.monotonic() - started
        requests = len(server.requests)
    text = said.decode(errors="replace")
    for report in reports:
        if report.is_file():
            text = f"{text}\n{report.read_text(encoding='utf-8', errors='replace')}"
    if os.environ.get("BENCH_PEERS_OUTPUT"):
        place = Path(os.environ["BENCH_PEERS_OUTPUT"]) / f"{peer.name} {title}.txt"
        place.write_text(text, encoding="utf-8")
    detail = f"{how}, {requests} request(s), {seconds:.1f} s"
    if str(_FAR_LINE) in title:
        shows = "shows" if str(_FAR_LINE) in text else "does not show"
        detail += f", the report {shows} that line"
    return BenchRow(f"{peer.name}: {title}", detail, None, None)


def _changed_file(root: Path) -> str:
    """Return the path of a file that the change of a repository modifies."""
    for line in branch_diff(root).decode().splitlines():
        if line.startswith("+++ b/"):
            return line.removeprefix("+++ b/")
    raise RuntimeError("the change modifies no file")


def _variables(peer: _Peer, url: str) -> Mapping[str, str]:
    return {**peer.variables(url), "TIKTOKEN_CACHE_DIR": str(peer.packages / _TABLES)}


def _installed(peer: _Peer) -> BenchRow:
    """Install a program alone, measure that, and add its helpers. Raise RuntimeError if it cannot be installed here."""
    uv = str(Path(sys.executable).with_name("uv"))
    python = os.environ.get("BENCH_PEERS_PYTHON", sys.executable)
    _run(uv, "venv", "--quiet", "--clear", "--python", python, str(peer.folder))
    inside = str(peer.folder / "bin" / "python")
    install = (uv, "pip", "install", "--quiet", "--link-mode", "copy", "--python", inside)
    _run(*install, peer.source or peer.package)
    version, size = _version_and_size(peer)
    detail = f"version {version}, {size}"
    if peer.extra:
        _run(*install, peer.extra)
        detail += f"; for API models {_version_and_size(peer)[1]}"
    if peer.helpers:
        _run(*install, *peer.helpers)
    return BenchRow(f"{peer.name} installed", detail, None, None)


def _version_and_size(peer: _Peer) -> tuple[str, str]:
    found = list(distributions(path=[str(peer.packages)]))
    version = next(each.version for each in found if each.name.lower() == peer.package)
    files = [*peer.packages.rglob("*"), *(peer.folder / "bin").rglob("*")]
    size = sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())
    return version, f"{size / 1e6:.0f} MB, {len(found) - 1} dependencies"


def _run(*command: str) -> None:
    completed = subprocess.run(command, capture_output=True, check=False)
    if completed.returncode:
        raise RuntimeError(completed.stderr.decode(errors="replace"))
