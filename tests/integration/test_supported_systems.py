"""The page of the supported systems says what the code checks, and an unsupported system gets one clear sentence."""

import json
import re
import subprocess
import tomllib
from typing import Any

import pytest
from trove_classifiers import classifiers as known_classifiers

from codeloupe.agents.gemini.agent import GeminiAgent
from codeloupe.cli.main import build_parser
from codeloupe.git.command import MINIMUM_VERSION, WANTED_VERSION
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.store.postgres_upgrade import OLDEST_SERVER
from codeloupe.system.postgres_server import installed_versions
from tests.documentation_pages import DOCS, PROJECT
from tests.fresh_install import Install

PAGE = (DOCS / "supported-systems.md").read_text(encoding="utf-8")
# A Python that looks like the one of Windows: without the modules and the names that it does not have.
WINDOWS = """
import os, signal, sys
sys.platform = "win32"
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("fork", "getuid", "geteuid", "killpg", "setsid", "O_NOFOLLOW", "O_NONBLOCK"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGQUIT"):
    delattr(signal, name)
"""
SENTENCE = "codeloupe does not run on Windows yet; use Linux, macOS or the Windows Subsystem for Linux"


def project() -> dict[str, Any]:
    return dict(tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def on_windows(install: Install, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = (str(install.python), "-I", "-c", WINDOWS + code, *words)
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [(), ("review",), ("doctor",), ("version",), ("--help",), ("pipeline", "list")])
def test_on_windows_every_command_ends_with_one_sentence(words: tuple[str, ...], fresh_install: Install) -> None:
    start = "from codeloupe.cli.main import main\nsys.exit(main())"
    ended = on_windows(fresh_install, start, *words)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"{SENTENCE}\n")


def test_on_windows_the_library_says_the_same(fresh_install: Install) -> None:
    ended = on_windows(fresh_install, "import codeloupe\nprint(codeloupe.__version__)\ncodeloupe.review")
    assert ended.stdout.strip()
    assert ended.stderr.splitlines()[-1] == f"ImportError: {SENTENCE}"


def test_the_page_names_the_python_versions_of_the_package() -> None:
    [oldest] = re.findall(r"^>=(3\.\d+)$", project()["requires-python"])
    assert f"needs Python {oldest} or newer" in PAGE
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project()["classifiers"]))
    assert claimed[0] == oldest
    assert f"tested with Python {', '.join(claimed[:-1])} and {claimed[-1]}." in PAGE


def test_every_classifier_is_a_registered_one_and_windows_is_not_claimed() -> None:
    claimed = project()["classifiers"]
    assert [one for one in claimed if one not in known_classifiers] == []
    systems = [one for one in claimed if one.startswith("Operating System")]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]
    for name, supported in (("Linux", "yes"), ("macOS", "yes"), ("Windows", "no")):
        assert f"| {name} | {supported} |" in PAGE


def test_no_address_of_the_project_is_made_up() -> None:
    assert "urls" not in project()


def test_the_page_names_the_git_versions_that_the_code_checks() -> None:
    oldest = ".".join(map(str, MINIMUM_VERSION))
    assert f"needs git {oldest} or newer" in PAGE
    [parallel] = re.findall(r"and (2\.\d+) for pipelines with parallel stages", WANTED_VERSION)
    assert f"parallel stages need git {parallel} or newer" in PAGE


def test_the_page_names_the_agent_programs_that_the_tests_drive() -> None:
    pinned = json.loads((PROJECT / "tests" / "agents" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    dev = (PROJECT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    [sdk] = re.findall(r"^claude-agent-sdk==([\d.]+)", dev, re.MULTILINE)
    rows = {cells[1].strip(" `"): row for row in PAGE.splitlines() if len(cells := row.split("|")) > 3}
    assert set(AGENT_NAMES) <= set(rows)
    assert f"claude-agent-sdk {sdk} |" in rows["agent_sdk"]
    assert f"the version bundled with claude-agent-sdk {sdk}" in rows["claude_cli"]
    assert pinned["@openai/codex"] in rows["codex"]
    assert pinned["@google/gemini-cli"] in rows["gemini"]
    assert f"Gemini CLI {'.'.join(map(str, GeminiAgent.oldest))} or newer" in rows["gemini"]


def test_the_page_names_the_oldest_postgres() -> None:
    assert f"| Postgres | {OLDEST_SERVER // 10_000} or newer" in PAGE


def test_the_page_names_the_postgres_of_the_tests() -> None:
    assert f"The tests use Postgres {max(installed_versions())}." in PAGE


def test_the_page_names_the_shells_of_the_completion() -> None:
    [shells] = re.findall(r"`codeloupe completion` prints a script for (.+)\.", PAGE)
    for shell in re.findall(r"\w+", shells.replace("and", "")):
        assert build_parser(["completion"]).parse_args(["completion", shell]).shell == shell
    with pytest.raises(SystemExit):
        build_parser(["completion"]).parse_args(["completion", "fish"])
    assert "fish" not in PAGE
