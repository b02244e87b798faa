"""Where the real agent programs are that the tests drive. One that is not there fails the test; it is never skipped."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def find(name: str) -> Path:
    """The program `claude`, `codex` or `gemini`; fails the test in words when it is not installed."""
    path = _claude() if name == "claude" else PROJECT / ".cache" / "agents" / "node_modules" / ".bin" / name
    if path is None or not path.exists():
        raise AssertionError(f"the agent program {name} is not installed: run `make test`, which sets it up")
    return path


def _claude() -> Path | None:
    """The native binary inside the Agent SDK's wheel."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "_bundled" / "claude"
