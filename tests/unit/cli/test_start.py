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
        {*others, "codeloupe.analysers", "codeloupe.engine", "codeloupe.reviewers.prompt", "codeloupe.testing"}
    )


def test_a_report_without_colour_takes_no_console_and_progress_without_a_live_line_no_rich() -> None:
    page = "from codeloupe.reports.page import Page, prose; Page(width=40).wrap(prose('word ' * 40))"
    assert "rich.console" not in loaded_by(page)
    progress = (
        "from codeloupe.cli.progress import ProgressDisplay, ProgressMode\n"
        "from codeloupe.model.events import Warned\n"
        "for mode in (ProgressMode.PLAIN, ProgressMode.SILENT):\n"
        "    with ProgressDisplay(stream=sys.stderr, mode=mode) as display: display.emit(Warned('x'))\n"
    )
    assert "rich" not in loaded_by(progress)


AT_EXIT = "import atexit; atexit.register(print, 'at the exit')"
THREAD = (
    "import threading\n"
    "def after_all():\n"
    "    threading.main_thread().join()\n"
    "    print('last', flush=True)\n"
    "threading.Thread(target=after_all).start()\n"
)
TAKEN_APART = (
    "import os, sys\n"
    "class Last:\n"
    "    def __del__(self, write=os.write): write(2, b'taken apart')\n"
    "sys.last_of_all = Last()\n"
)


@each(
    ("custom", "word", "code", "last"),
    [
        (AT_EXIT, "version", 0, "at the exit"),
        (THREAD, "version", 0, "last"),
        *((TAKEN_APART, word, 0, "") for word in ("version", "--help")),
        *((TAKEN_APART, word, 2, "") for word in ("agent", "nonsense", "--nonsense")),
    ],
)
def test_at_the_end_what_is_left_is_waited_for_and_the_interpreter_is_not_taken_apart(
    tmp_path: Path, custom: str, word: str, code: int, last: str
) -> None:
    # It does something in the program's own process before that starts.
    (tmp_path / "sitecustomize.py").write_text(custom)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run((str(PROGRAM), word), capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == code
    assert "taken apart" not in ended.stderr
    if last:
        assert ended.stdout.splitlines()[1:] == [last]
