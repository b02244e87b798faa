"""The same changes through other reviewers, with the stand-in as their model and no way out of the machine.

Only with BENCH_PEERS=1: it installs them, each into an environment of its own below .cache/bench-peers. One that needs
another Python than ours finds it by BENCH_PEERS_PYTHON, or is told as missing. They ask one model as they come, with
an answer that finds nothing, so what is compared is what they do around a model, not what they find.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions
from pathlib import Path

from bench.lifelike import branch_diff, make_lifelike_change
from bench.overhead import CHANGES, least_of, overhead_row, reviewed
from bench.table import BenchRow
from codeloupe.testing import Reply, Text

_FOLDER = Path(__file__).resolve().parent.parent / ".cache" / "bench-peers"
# One that both know, with room for the large change.
_MODEL = "gpt-4o"
# A package that carries the tables with which both count tokens; they would download them otherwise.
_TABLES = "litellm/litellm_core_utils/tokenizers"
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


@dataclass(frozen=True, slots=True)
class _Peer:
    """A reviewer: what is installed, how it is asked for the branch, what it is told, and what it takes for "none"."""

    name: str
    packages: tuple[str, ...]
    command: tuple[str, ...]
    variables: Callable[[str], Mapping[str, str]]
    answer: Reply

    @property
    def folder(self) -> Path:
        return _FOLDER / self.name


_PEERS = (
    _Peer(
        name="gito",
        packages=("gito.bot", "litellm"),
        command=("-v0", "review", "reservations..main"),
        variables=lambda url: {
            "LLM_API_TYPE": "openai",
            "LLM_API_BASE": f"{url}/v1",
            "LLM_API_KEY": "sk-stand-in",
            "MODEL": _MODEL,
        },
        answer=Text("[]"),
    ),
    _Peer(
        name="pr-agent",
        packages=("pr-agent",),
        command=("--diff-file", "../change.diff", "review"),
        variables=lambda url: {
            "OPENAI__KEY": "sk-stand-in",
            "OPENAI__API_BASE": f"{url}/v1",
            "CONFIG__MODEL": _MODEL,
            "CONFIG__FALLBACK_MODELS": "[]",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
        answer=Text(_NO_ISSUES_YAML),
    ),
)


def rows() -> Iterator[BenchRow]:
    """Each change through codeloupe and through each of the others; one that cannot be had is told as that."""
    with tempfile.TemporaryDirectory() as directory:
        for change, size in CHANGES.items():
            root = Path(directory) / change / "repository"
            make_lifelike_change(root, size)
            (root.parent / "change.diff").write_bytes(branch_diff(root))
            yield reviewed(change, root)
            for peer in _PEERS:
                yield _measured(peer, change, root)


def _measured(peer: _Peer, change: str, root: Path) -> BenchRow:
    name = f"{peer.name} on the {change} change"
    try:
        _install(peer)
        command = [str(peer.folder / "bin" / peer.name), *peer.command]
        run, requests = least_of(1, command, root, partial(_variables, peer), answer=peer.answer)
        if not requests:
            return BenchRow(name, "it asked no model", None, None)
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[-160:].replace("|", "/")
        return BenchRow(name, f"not measured: {reason}", None, None)
    return overhead_row(f"{peer.name} {_version(peer)} on the {change} change", root, run, requests)


def _variables(peer: _Peer, url: str) -> Mapping[str, str]:
    return {**peer.variables(url), "TIKTOKEN_CACHE_DIR": str(_packages(peer) / _TABLES)}


def _version(peer: _Peer) -> str:
    found = distributions(name=peer.packages[0], path=[str(_packages(peer))])
    return next((distribution.version for distribution in found), "of an unknown version")


def _packages(peer: _Peer) -> Path:
    return next(peer.folder.glob("lib/python3*/site-packages"))


def _install(peer: _Peer) -> None:
    """Once. RuntimeError when it cannot be had here."""
    done = peer.folder / ".installed"
    if done.exists():
        return
    uv = str(Path(sys.executable).with_name("uv"))
    python = os.environ.get("BENCH_PEERS_PYTHON", sys.executable)
    _run(uv, "venv", "--quiet", "--clear", "--python", python, str(peer.folder))
    inside = str(peer.folder / "bin" / "python")
    _run(uv, "pip", "install", "--quiet", "--only-binary", ":all:", "--python", inside, *peer.packages)
    done.touch()


def _run(*command: str) -> None:
    completed = subprocess.run(command, capture_output=True, check=False)
    if completed.returncode:
        raise RuntimeError(completed.stderr.decode(errors="replace"))
