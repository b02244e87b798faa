"""The first day with codeloupe as a script: each function is one thing that a new user does.

`Day` types each line into a shell and writes down everything that appears, as a transcript: `$ ` before a line that was
typed, `! ` before a line of stderr, and `= ` before an exit code that is not 0. Words in capitals replace names, times
and places that are not the same every day.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.documentation_pages import DOCS, blocks
from tests.fresh_install import Install, copy_of_project, tool_variables
from tests.repository import GitRepository

# The programs that a new user has; agents that happen to be on this machine are not among them.
_PROGRAMS = ("basename", "bash", "cat", "env", "git", "ls", "mkdir", "sed", "sh", "uname")
_CHANGING = (
    (r"\b[0-9a-f]{40}\b", "COMMIT"),
    (r"\bfrom [0-9a-f]{12}\b", "from COMMIT"),
    (r"\([0-9a-f]{12} to$", "(COMMIT to"),
    (r"^[0-9a-f]{12}\)$", "COMMIT)"),
    (r"(# >>> codeloupe pre-push) [0-9a-f]{12}", r"\1 CHECKSUM"),
    (r"codeloupe='(ROOT/program/bin/codeloupe)'", r"codeloupe=\1"),
    (r"\babout \d+ tokens", "about N tokens"),
    (r"\b\d+\.\d s\b", "N s"),
    (r"\bduration: \d+(?:\.\d+)?s", "duration: N s"),
    (r"\b\d+\.\d+\.\d+\b", "VERSION"),
    (r"\b\d{4}-\d\d-\d\dT?[ \d:.+]*(?:UTC|Z)?", "TIME "),
    (r"[ \t]+$", ""),
)
_ANALYSER_DONE = re.compile(r"^! codeloupe: [\w-]+ done in ")

SHOP = {
    "shop/__init__.py": "",
    "shop/prices.py": "def total(prices):\n    return sum(prices)\n",
    "shop/orders.py": 'def key(order):\n    return f"order-{order}"\n',
    "web/cart.js": "export function count(items) {\n  return items.length;\n}\n",
    "deploy/release.sh": '#!/bin/sh\nset -eu\nrsync -a build/ "$1"\n',
    "README.md": "# Shop\n\nIt sells things.\n",
}
FAULTY = """\
import subprocess


def invoice(number, printer):
    subprocess.run(f"lp -d {printer} invoices/{number}.pdf", shell=True, check=True)


def find(connection, name):
    return connection.execute(f"SELECT * FROM orders WHERE customer = '{name}'")
"""
SOUND = """\
import subprocess


def invoice(number, printer):
    subprocess.run(["lp", "-d", printer, f"invoices/{number}.pdf"], check=True)


def find(connection, name):
    return connection.execute("SELECT * FROM orders WHERE customer = ?", [name])
"""


@dataclass
class Day:
    """A machine of a new user, and the transcript of the lines typed there so far."""

    root: Path
    variables: Mapping[str, str]
    cwd: Path
    transcript: list[str] = field(default_factory=list)

    def type(self, line: str) -> str:
        """Type a line, write down what appears, and return stdout."""
        words = ("bash", "-c", line)
        ended = subprocess.run(
            words, cwd=self.cwd, env=dict(self.variables), stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        stdout = ended.stdout.decode("utf-8", "backslashreplace")
        stderr = ended.stderr.decode("utf-8", "backslashreplace")
        lines = [f"$ {line}", *stdout.splitlines(), *(f"! {row}".rstrip() for row in stderr.splitlines())]
        if ended.returncode != 0:
            lines.append(f"= {ended.returncode}")
        self.transcript += _in_order([self._without_changes(row) for row in lines])
        return stdout

    def write(self, name: str, text: str, *, executable: bool = False) -> None:
        """Write a file, as with an editor."""
        file = self.cwd / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        if executable:
            file.chmod(0o755)
        self.transcript.append(f"# writes {name}")

    def _without_changes(self, row: str) -> str:
        row = row.replace(str(self.root), "ROOT")
        for pattern, word in _CHANGING:
            row = re.sub(pattern, word, row)
        return row


def _in_order(rows: list[str]) -> list[str]:
    """Return the rows with those of neighbouring analysers in the order of their names, since they run at once."""
    ordered: list[str] = []
    together: list[str] = []
    for row in rows:
        if _ANALYSER_DONE.match(row):
            together.append(row)
            continue
        ordered += sorted(together)
        together = []
        ordered.append(row)
    return ordered + sorted(together)


def begin(root: Path, install: Install) -> Day:
    """Return the machine of a user who has git, pre-commit, uv, the wheel, and a server with two repositories."""
    root.mkdir()
    variables = tool_variables(root)
    tools = root / "tools"
    for name in _PROGRAMS:
        found = shutil.which(name)
        assert found is not None, name
        (tools / name).symlink_to(found)
    (tools / "pre-commit").symlink_to(Path(sys.executable).with_name("pre-commit"))
    shutil.copy2(install.wheel, root / install.wheel.name)
    shop = _shop(root / "made")
    _serve(shop, root / "server" / "shop.git")
    program = GitRepository(root / "program-source")
    copy_of_project(program.path)
    program.commit("The version to install")
    _serve(program, root / "server" / "codeloupe.git")
    identity = {"user.name": "Ada", "user.email": "ada@example.invalid", "protocol.file.allow": "always"}
    settings = {f"GIT_CONFIG_KEY_{at}": name for at, name in enumerate(identity)}
    settings |= {f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(identity.values())}
    path = os.pathsep.join((str(root / "program" / "bin"), str(tools)))
    places = {
        "PATH": path,
        "HOME": str(root / "home"),
        "XDG_CACHE_HOME": str(root / "home" / ".cache"),
        "CODELOUPE_HOME": str(root / "home" / "codeloupe"),
        "GIT_CONFIG_COUNT": str(len(identity)),
    }
    return Day(root, {**variables, **settings, **places}, root)


def _shop(folder: Path) -> GitRepository:
    """Return a project with a history: a merge, a rename, a file that was removed, a tag and binary content."""
    shop = GitRepository(folder)
    shop.commit_files(SHOP, "A small shop")
    shop.git("tag", "v1.0")
    for number in range(1, 13):
        shop.commit_files({"docs/notes.md": "".join(f"- note {line}\n" for line in range(number))}, f"Note {number}")
    shop.commit_files({"web/logo.png": b"\x89PNG\r\n\x1a\n" + bytes(64), "old.py": "x = 1\n"}, "Add a logo")
    shop.commit_files({"shop/discounts.py": "RATE = 5\n"}, "Discounts", branch="discounts")
    shop.checkout("main")
    shop.commit_files({"README.md": "# Shop\n\nIt sells good things.\n"}, "Say more")
    shop.git("merge", "--quiet", "--no-ff", "--message", "Merge discounts", "discounts")
    shop.git("mv", "shop/orders.py", "shop/ordering.py")
    shop.remove("old.py")
    shop.commit("Rename orders")
    return shop


def _serve(repository: GitRepository, bare: Path) -> None:
    bare.parent.mkdir(exist_ok=True)
    repository.git("clone", "--quiet", "--bare", ".", str(bare))


def install_the_wheel(day: Day, wheel: str) -> None:
    """Install into a fresh environment, without extras."""
    line = f"uv venv --quiet program && uv pip install --quiet --python program ./{wheel}"
    is_there = subprocess.run(
        ("bash", "-c", line), cwd=day.cwd, env={**day.variables, "UV_OFFLINE": "1"}, capture_output=True, check=False
    )
    if is_there.returncode != 0:
        shutil.rmtree(day.cwd / "program", ignore_errors=True)
        subprocess.run(("bash", "-c", line), cwd=day.cwd, env=dict(day.variables), check=True)
    day.type("codeloupe version")


def look_around(day: Day) -> None:
    """See what it does, and what is missing."""
    day.type("codeloupe demo")
    day.type('git clone --quiet "file://$PWD/server/shop.git" shop')
    day.cwd = day.root / "shop"
    day.type("codeloupe doctor")


def review_a_change(day: Day) -> None:
    """Make a branch with two faults, and review it."""
    day.type("git switch --quiet -c invoices")
    day.write("shop/invoices.py", FAULTY)
    day.type("git add shop && git commit --quiet -m 'Print invoices'")
    day.type("codeloupe review --preview")
    day.type("codeloupe review")


def set_findings_aside(day: Day) -> None:
    """Dismiss one finding and put the other into the baseline, by the ids that the report shows."""
    shown = subprocess.run(
        ("bash", "-c", "codeloupe history render last --format json"),
        cwd=day.cwd,
        env=dict(day.variables),
        capture_output=True,
        text=True,
        check=False,
    )
    first, second = re.findall(r'"fingerprint": "([0-9a-f]{8})', shown.stdout)
    day.type(f"codeloupe history dismiss {first} --reason 'the printer is a constant'")
    day.type("codeloupe review --quiet --format concise")
    day.type(f"codeloupe baseline add {second} --reason 'replaced in the next release'")
    day.type("codeloupe review")


def make_a_page(day: Day) -> None:
    """Write the review as a page to share."""
    day.type("codeloupe history render last --format html -o ../review.html")


def run_pre_commit(day: Day, *, installs: bool = False) -> None:
    """Use our hooks with pre-commit.

    `installs` lets pre-commit install codeloupe by itself with pip, from the package index, as it does for a user.
    Otherwise it takes the program on the PATH.
    """
    rev = subprocess.run(
        ("git", "rev-parse", "HEAD"), cwd=day.root / "program-source", capture_output=True, text=True, check=True
    )
    language = "" if installs else ", language: system"
    hooks = "".join(f"      - {{id: {name}{language}}}\n" for name in ("codeloupe-staged", "codeloupe"))
    address = f"file://{day.root}/server/codeloupe.git"
    day.write(
        ".pre-commit-config.yaml", f"repos:\n  - repo: {address}\n    rev: {rev.stdout.strip()}\n    hooks:\n{hooks}"
    )
    day.type("git add --all")
    day.type("pre-commit run --all-files")
    day.type("pre-commit run --all-files")


def install_the_push_hook(day: Day) -> None:
    """Look at the hook, and let codeloupe write it."""
    day.type("codeloupe hook install pre-push --dry-run")
    day.type("codeloupe hook install pre-push --yes")


def remove_the_push_hook(day: Day) -> None:
    """Remove the hook; a file that only had our lines is gone."""
    day.type("codeloupe hook uninstall pre-push --yes")
    day.type("ls .git/hooks/pre-push")


def push(day: Day) -> None:
    """Push a faulty commit, which is stopped, and a sound one."""
    day.type("git commit --quiet --no-verify -m 'Use codeloupe'")
    day.write("shop/search.py", FAULTY.replace("orders", "things"))
    day.type("git add shop && git commit --quiet --no-verify -m 'Search'")
    day.type("git push --quiet origin invoices")
    day.write("shop/search.py", SOUND.replace("orders", "things"))
    day.type("git add shop && git commit --quiet --no-verify --amend -m 'Search'")
    day.type("git push --quiet origin invoices")
    day.type("git status --short --branch")


def check_a_pipeline(day: Day) -> None:
    """Write the pipeline of the tour, and see what it would do, without a model."""
    [pipeline] = [block.text for block in blocks(DOCS / "getting-started.md") if block.file == "tour/pipeline.yaml"]
    day.write("tour/pipeline.yaml", pipeline)
    day.type('echo "Say in three sentences what this repository is for." > tour/describe.md')
    day.type("codeloupe pipeline validate tour")
    day.type("codeloupe pipeline run tour --dry-run")
