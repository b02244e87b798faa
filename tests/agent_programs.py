"""Where the real agent programs are that the tests drive. One that is not there fails the test; it is never skipped."""

import importlib.util
import os
import sys
from pathlib import Path

from codeloupe.testing import StandInServer

KEY = "made-up-" + "for-tests"
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


def agents_at(server: StandInServer, *names: str) -> dict[str, str]:
    """The environment in which these agents, or all of them, are logged in to the stand-in."""
    anthropic = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
    claude = anthropic | {"CODELOUPE_CLAUDE_PATH": str(find("claude"))}
    path = {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    openai = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{server.url}/v1", "CODELOUPE_CODEX_PATH": str(find("codex"))}
    google = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": server.url}
    known = {
        "agent_sdk": claude,
        "claude_cli": claude,
        "codex": openai | path,
        "gemini": google | path | {"CODELOUPE_GEMINI_PATH": str(find("gemini"))},
        "api": anthropic | {"CODELOUPE_API_MODEL": "anthropic:claude-stand-in", "CODELOUPE_API_BASE_URL": server.url},
    }
    return {name: value for agent in names or known for name, value in known[agent].items()}
