"""What the program loads before it works, and how it ends: both cost every user time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from codeloupe.cli.main import VERBS
from codeloupe.model.agent import AGENT_NAMES
from tests.program import PROGRAM
from tests.rows import each

pytestmark = pytest.mark.program

HEAVY = ("pydantic", "rich", "yaml", "jsonschema", "claude_agent_sdk", "importlib.metadata", "email", "http")


def loaded_by(program: str) -> set[str]:
    """The modules that are loaded when a piece of Python has run in an interpreter of its own."""
    code = f"import sys\n{program}\nprint(*sys.modules)"
    ended = subprocess.run((sys.executable, "-I", "-c", code), capture_output=True, text=True, check=True)
    return set(ended.stdout.splitlines()[-1].split())


def test_the_help_loads_no_verb_at_all() -> None:
    loaded = loaded_by("from codeloupe.cli.main import build_parser; build_parser(['']).format_help()")
    assert loaded.isdisjoint({f"codeloupe.cli.{name}" for name in VERBS})
    assert loaded.isdisjoint({"asyncio", "dataclasses", "json", *HEAVY})


def test_an_agent_call_loads_only_what_it_needs() -> None:
    loaded = loaded_by("import codeloupe.cli.agent, codeloupe.agents.claude.cli")
    assert loaded.isdisjoint(HEAVY)
    others = {f"codeloupe.agents.{name}" for name in AGENT_NAMES if name != "claude_cli"}
    assert loaded.isdisjoint(
        {*others, "codeloupe.analysers", "codeloupe.engine.run", "codeloupe.engine.prompt", "codeloupe.testing"}
    )


def test_a_report_without_colour_takes_no_console() -> None:
    page = "from codeloupe.reports.page import Page, prose; Page(width=40).wrap(prose('word ' * 40))"
    assert "rich.console" not in loaded_by(page)


class TestTheEnd:
    """With a `sitecustomize` that does something in the program's own process before it starts."""

    def ended(self, tmp_path: Path, custom: str, *words: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "sitecustomize.py").write_text(custom)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run((str(PROGRAM), *words), capture_output=True, text=True, check=False, env=environment)

    def test_what_was_registered_for_the_exit_is_done(self, tmp_path: Path) -> None:
        ended = self.ended(tmp_path, "import atexit; atexit.register(print, 'at the exit')", "version")
        assert ended.returncode == 0
        assert ended.stdout.splitlines()[1:] == ["at the exit"]

    def test_a_thread_that_is_left_is_waited_for(self, tmp_path: Path) -> None:
        custom = (
            "import threading\n"
            "def after_all():\n"
            "    threading.main_thread().join()\n"
            "    print('last', flush=True)\n"
            "threading.Thread(target=after_all).start()\n"
        )
        assert self.ended(tmp_path, custom, "version").stdout.splitlines()[1:] == ["last"]

    @each(
        ("words", "code"), [(["version"], 0), (["--help"], 0), (["agent"], 2), (["nonsense"], 2), (["--nonsense"], 2)]
    )
    def test_the_interpreter_is_not_taken_apart_and_the_exit_code_stays(
        self, tmp_path: Path, words: list[str], code: int
    ) -> None:
        custom = (
            "import os, sys\n"
            "class Last:\n"
            "    def __del__(self, write=os.write): write(2, b'taken apart')\n"
            "sys.last_of_all = Last()\n"
        )
        ended = self.ended(tmp_path, custom, *words)
        assert ended.returncode == code
        assert "taken apart" not in ended.stderr
