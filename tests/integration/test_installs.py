"""Each documented way to install codeloupe gives a program that works, in an environment of its own."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import codeloupe
from tests.documentation_pages import DOCS, PAGES, PROJECT, all_commands, blocks, commands, name_of, spans
from tests.fresh_install import Install, copy_of_project, tool_variables
from tests.repository import GitRepository

UV_PAGE = DOCS / "uv.md"
FAULTY = "import subprocess\n\n\ndef run(name):\n    subprocess.call('ls ' + name, shell=True)\n"
SOUND = "def total(prices):\n    return sum(prices)\n"
SHOP = '[project]\nname = "shop"\nversion = "1.0"\nrequires-python = ">=3.11"\n'
INSTALLING = ("pip ", "pipx ", "uv ", "uvx ")


class Machine:
    """A folder with a checkout of codeloupe and a project, and the tools that install programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "codeloupe").mkdir(parents=True)
        copy_of_project(folder / "codeloupe")
        shop = GitRepository(folder / "shop")
        shop.commit_files({"pyproject.toml": SHOP, "shop.py": SOUND}, "A shop")
        self.variables = tool_variables(folder)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script in a shell: with uv's cache alone if that has everything, otherwise with the package index."""
        ended = self._shell(script, {**self.variables, "UV_OFFLINE": "1"})
        if ended.returncode != 0:
            ended = self._shell(script, self.variables)
        return ended

    def _shell(self, script: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        words = ("bash", "-e", "-o", "pipefail", "-c", script)
        return subprocess.run(words, cwd=self.folder, env=dict(variables), capture_output=True, text=True, check=False)


@pytest.fixture
def machine() -> Machine:
    """Return a machine on the disk of uv's cache, so that packages are hard links."""
    # The folder of the session's install is removed at the end.
    folder = Path(os.environ["FRESH_INSTALL_FOLDER"]) / f"machine-{os.urandom(4).hex()}"
    return Machine(folder)


def installing_lines() -> list[str]:
    """Return the lines of all pages but the one about uv that install codeloupe, in blocks and in sentences."""
    found = {command.text for command in all_commands() if command.block.page != UV_PAGE}
    for page in PAGES:
        if page != UV_PAGE:
            found |= {span for span in spans(page) if " install " in span and "codeloupe" not in span}
    return sorted(line for line in found if line.startswith(INSTALLING))


def script_of(line: str, environment: Path) -> str:
    """Return a script that types an installing line in the checkout, and then the program in the project."""
    if line.startswith("pip "):
        folder = shlex.quote(str(environment))
        # uv does the same as pip and has the packages in its cache. The soak tier has a test with pip itself.
        words = line.replace("install", f"install --python {folder}", 1)
        command = f"uv venv --quiet --clear {folder}\nuv {words}"
        program = f"{folder}/bin/codeloupe"
    else:
        command = line.replace("install", "install --force", 1)
        program = "codeloupe"
    return f"cd codeloupe\n{command}\ncd ../shop\n{program} version\n{program} review --reviewer offline\n"


def test_each_documented_install_gives_a_program_that_works(machine: Machine) -> None:
    lines = installing_lines()
    assert lines
    for line in lines:
        ended = machine.run(script_of(line, machine.folder / "environment"))
        assert ended.returncode == 0, f"{line}\n{ended.stderr}"
        assert f"codeloupe {codeloupe.__version__}\n" in ended.stdout, line


def test_the_page_about_uv_works_as_it_is_written(machine: Machine) -> None:
    scripts = 0
    for block in blocks(UV_PAGE):
        if block.language == "python":
            (machine.folder / "shop" / "review_head.py").write_text(block.text, encoding="utf-8")
        typed = [command.text for command in commands(block)]
        if typed:
            ended = machine.run("\n".join(typed))
            assert ended.returncode == 0, f"{name_of(UV_PAGE)}:{block.line}\n{ended.stderr}"
            scripts += 1
    assert scripts == 8


def test_the_page_about_uv_names_the_wheel_of_this_version() -> None:
    named = re.findall(r"codeloupe-([\d.]+)-py3-none-any\.whl", UV_PAGE.read_text(encoding="utf-8"))
    assert set(named) == {codeloupe.__version__}


def test_the_fresh_environment_has_the_wheel_and_nothing_of_the_source_tree(fresh_install: Install) -> None:
    code = "import codeloupe, sys; print(codeloupe.__file__, codeloupe.__version__, *sys.path, sep='\\n')"
    ended = subprocess.run((fresh_install.python, "-c", code), cwd="/", capture_output=True, text=True, check=True)
    file, version, *path = ended.stdout.splitlines()
    assert Path(file).is_relative_to(fresh_install.folder)
    assert version == codeloupe.__version__
    assert not [entry for entry in path if entry and Path(entry).is_relative_to(PROJECT / "src")]
    assert not list(fresh_install.folder.glob("lib/python*/site-packages/pytest"))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_pip_installs_the_wheel_with_the_newest_versions_of_its_dependencies(
    machine: Machine, fresh_install: Install
) -> None:
    """Use pip and the package index as people do, without the pinned versions."""
    script = f"python3 -m venv plain\nplain/bin/pip install --quiet {fresh_install.wheel}\nplain/bin/codeloupe demo"
    ended = machine.run(script)
    assert ended.returncode == 0, ended.stderr
    assert "FAIL" in ended.stdout


def test_the_hooks_of_the_page_review_a_commit_and_a_push(
    repository: GitRepository, tmp_path: Path, fresh_install: Install
) -> None:
    subprocess.run(("git", "init", "--quiet", "--bare", str(tmp_path / "remote.git")), check=True)
    repository.commit_files({"README.md": "a shop\n"}, "first")
    repository.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    repository.git("push", "--quiet", "origin", "main")
    for block in blocks(DOCS / "ci.md"):
        if block.is_script:
            [kind] = re.findall(r"hook (pre-\w+)", block.text)
            repository.write(f".git/hooks/{kind}", block.text, executable=True)
    variables = {
        **repository._environment(),
        "PATH": fresh_install.path(),
        "HOME": os.environ["HOME"],
        "CODELOUPE_HOME": os.environ["CODELOUPE_HOME"],
        "CODELOUPE_REVIEWER_TYPE": "offline",
    }

    def git(*words: str) -> int:
        return subprocess.run(("git", *words), cwd=repository.path, env=variables, check=False).returncode

    repository.write("shop.py", FAULTY)
    assert git("add", "shop.py") == 0
    assert git("commit", "--quiet", "--message", "Faulty") == 1
    assert git("commit", "--quiet", "--no-verify", "--message", "Faulty") == 0
    assert git("push", "--quiet", "origin", "main") == 1
    repository.write("shop.py", SOUND)
    assert git("commit", "--quiet", "--all", "--amend", "--message", "Sound") == 0
    assert git("push", "--quiet", "origin", "main") == 0
