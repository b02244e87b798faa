"""A place in which the commands of the documentation can be typed: a repository, and everything that pages mention.

The program is installed from the wheel, in an environment of its own. The real agent programs talk to the stand-in
model, git to a forge on loopback, and `publish` to a GitHub server on loopback. The page about workers has a Postgres
server and a worker. Nothing leaves the machine.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from codeloupe.system.postgres_server import PostgresServer
from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer, Text
from tests.agent_programs import find
from tests.documentation_pages import PROJECT, Block, name_of
from tests.example_answers import REPOSITORY
from tests.fresh_install import Install
from tests.github_server import github_server
from tests.pipeline_files_model import ExampleModel
from tests.program import PYTHON_HEADER, Ended, codeloupe
from tests.proofs import asks_for_proofs, proofs
from tests.pull_server import PullServer
from tests.repository import GitRepository

BEFORE = "def total(prices):\n    return sum(prices)\n"
AFTER = BEFORE + "\n\ndef average(prices):\n    return total(prices) / cuont(prices)\n"
STAGED = "def first(names):\n    return nmaes[0]\n"
UNSAVED = "def last(names):\n    return nmaes[-1]\n"
# What the model of the pages says about the change; the quote is a line of `AFTER`. Graver, it would be verified, in
# another call of each agent.
FINDING = {
    "file": "src/app.py",
    "line": 6,
    "quote": "    return total(prices) / cuont(prices)",
    "title": "A misspelt name",
    "body": "average() raises NameError.",
    "category": "correctness",
    "severity": "medium",
}
SCHEMA = '{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}'
FULL_NAME = "octo/demo"
PULL_REQUESTS = (7, 12)
# The cheapest agent for a page that names none; only claude writes files as the examples' made-up model wants it.
_AGENTS = dict.fromkeys(("README.md", "examples/README.md", "docs/pipelines.md"), "claude_cli")
_WITH_WORKERS = "docs/scaling.md"
_WITH_DATABASE = (_WITH_WORKERS, "docs/store.md")
_WITH_GEMINI = "docs/review.md"
_OFFLINE = frozenset(
    {
        "README.md",
        "docs/commits.md",
        "examples/README.md",
        "docs/README.md",
        "docs/ci.md",
        "docs/configuration.md",
        "docs/json.md",
        "docs/library.md",
        "docs/publish.md",
        "docs/rounds.md",
        *_WITH_DATABASE,
    }
)


class _RecentRepository(GitRepository):
    """A repository whose commits are of now, as those of somebody who works."""

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in super()._environment().items() if not name.endswith("_DATE")}


class PlayedExample:
    """The model of the example pipeline that was started last."""

    def __init__(self) -> None:
        self.model = ExampleModel("article")

    def choose(self, line: str) -> None:
        """Begin an example anew if the line runs it."""
        named = re.search(r"pipeline run examples/(\w+)", line)
        if named is not None:
            self.model = ExampleModel(named[1])


@dataclass
class Place:
    """Where the commands of one page are typed. `exported` are the variables that the page has set so far."""

    directory: Path
    install: Install
    environment: Mapping[str, str]
    pull_request_url: str
    example: PlayedExample
    exported: list[str] = field(default_factory=list)

    def type(self, line: str) -> Ended:
        """Type a line into a shell; an `export` holds for the lines behind it."""
        line = self._filled(line)
        if line.startswith("export "):
            self.exported.append(line)
        self.example.choose(line)
        return self._run(("bash", "-c", "\n".join((*self.exported, line))))

    def execute(self, block: Block) -> Ended:
        """Run a Python program of a page; a warning in it is an error."""
        return self._run((str(self.install.python), "-W", "error", "-c", block.text))

    def write(self, block: Block) -> None:
        """Put a file that the page shows in its place."""
        assert block.file is not None
        file = self.directory / block.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")

    def _call(self, *words: str) -> Ended:
        """Ask the program for something that a line needs."""
        return codeloupe(*words, cwd=self.directory, environment=self.environment, program=self.install.program)

    def _run(self, words: tuple[str, ...]) -> Ended:
        ended = subprocess.run(
            words, cwd=self.directory, env=dict(self.environment), stdin=subprocess.DEVNULL, capture_output=True,
            encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def _filled(self, line: str) -> str:
        """The line with a real thing for each word in capitals that stands for one, and with a day that is to come."""
        line = re.sub(r"(--expires )\d{4}-\d\d-\d\d", rf"\g<1>{datetime.now(UTC).date() + timedelta(days=90)}", line)
        url = f"{FULL_NAME}#{PULL_REQUESTS[0]}" if "publish" in line else self.pull_request_url
        line = re.sub(r"https://github\.com/OWNER/\w+/pull/\d+", url, line)
        if database := self.environment.get("CODELOUPE_DATABASE"):
            line = re.sub(r"postgresql://\S+", lambda _: f"'{database}'", line)
        # A worker works until it is stopped; the one that does the work of the page is there already.
        line = re.sub(r"^codeloupe worker\b", "codeloupe worker --until-idle", line)
        # `serve` runs until it is stopped, too; test_serve.py tests what it does.
        line = re.sub(r"^codeloupe serve$", "timeout --preserve-status --signal INT 5 codeloupe serve", line)
        is_dismissed = "--undo" in line
        finders: dict[str, Callable[[], str]] = {
            "FINGERPRINT": lambda: self._fingerprint(is_dismissed=is_dismissed),
            "ID": self._review_id,
            "RUN": lambda: "last",
            "JOB": self._job,
        }
        for word, find_one in finders.items():
            if re.search(rf" {word}\b", line):
                line = re.sub(rf" {word}\b", f" {find_one()}", line)
        return line

    def _fingerprint(self, *, is_dismissed: bool) -> str:
        """Return a finding of the last review that is dismissed, or one that is not."""
        shown = self._call("history", "render", "last", "--format", "json")
        aside = self._call("history", "dismiss").stdout
        known = (str(finding["fingerprint"]) for finding in json.loads(shown.stdout)["findings"])
        return next(fingerprint for fingerprint in known if (fingerprint[:8] in aside) == is_dismissed)

    def _job(self) -> str:
        """The newest one."""
        return str(self._call("jobs", "list", "--json").json()["jobs"][0]["job_id"])

    def _review_id(self) -> str:
        listed = self._call("history", "list", "--json")
        return str(re.findall(r'"id": "(\w+)"', listed.stdout)[-1])


@contextmanager
def place_for(page: Path, root: Path, install: Install) -> Iterator[Place]:
    """A place for the commands of one page below `root`; what it needs is started, and ended again."""
    name = name_of(page)
    example = PlayedExample()
    project = _repository(root / "work")
    with (
        StandInServer(reply=lambda request: answer(request, example.model)) as service,
        PullServer(root / "forge") as forge,
        github_server() as github,
        ExitStack() as stack,
    ):
        _forge(project, root / "forge", f"{forge.url}/{FULL_NAME}.git")
        pulls = github.repository(FULL_NAME)
        patch = project.git("diff", "main", "topic", "--", "src/app.py").decode()
        patches = {"src/app.py": patch[patch.index("@@ ") :].rstrip("\n")}
        for number in PULL_REQUESTS:
            pulls.pull_request(patches, head=project.head(), number=number)
        _unsaved(project)
        variables = {
            **os.environ,
            **_agent_variables(service, root / "bin", with_gemini=name == _WITH_GEMINI),
            "PATH": install.path(root / "bin"),
            "CODELOUPE_AGENTS": _AGENTS.get(name, "codex"),
            **({"CODELOUPE_REVIEWER_TYPE": "offline"} if name in _OFFLINE else {}),
            "GITHUB_TOKEN": github.token,
            "GITHUB_API_URL": github.url,
        }
        if name in _WITH_DATABASE:
            database = stack.enter_context(PostgresServer(root / "database", durable=False))
            # A person who changes over to a shared database has a history of reviews that `store migrate` copies.
            codeloupe("review", cwd=project.path, environment=variables, program=install.program)
            variables["CODELOUPE_DATABASE"] = database.url
        if name == _WITH_WORKERS:
            stack.enter_context(_worker(install, variables))
        yield Place(project.path, install, variables, f"{forge.url}/{FULL_NAME}/pull/{PULL_REQUESTS[0]}", example)


@contextmanager
def _worker(install: Install, variables: Mapping[str, str]) -> Iterator[None]:
    """Run a worker, and stop it by a signal."""
    with subprocess.Popen((str(install.program), "worker", "--quiet", "--grace", "1"), env=dict(variables)) as process:
        try:
            yield
        finally:
            process.terminate()
        assert process.wait(30) == 0


def answer(request: RecordedRequest, model: ExampleModel) -> Reply:
    """Return the answer of the model behind every agent of the pages."""
    if request.mentions("Say in three sentences what this repository is for."):
        return Text("It adds prices. It has one module. It has no tests.")
    if request.mentions("## Execution Environment") or request.mentions("verdict = PASS"):
        return model(request)
    if asks_for_proofs(request):
        return proofs(request, "confirmed", "cuont is defined nowhere.")
    if request.mentions("cuont(prices)"):
        return Json({"findings": [FINDING]})
    if request.mentions("What does src/app.py do?"):
        return Json({"answer": "It adds."})
    return Json({"findings": []})


def _repository(directory: Path) -> GitRepository:
    """Branch `topic` with a fault over `main`, and a branch `release`; the files that pages name are there."""
    project = _RecentRepository(directory)
    files = {"src/app.py": BEFORE, "REVIEW.md": "Names are whole words.\n", "prompt.txt": "What does src/app.py do?\n"}
    for name, text in {
        **REPOSITORY,
        **files,
        "ticket.md": "The report needs the average price.\n",
        "answer.json": SCHEMA,
    }.items():
        project.write(name, text)
    project.commit("the shop")
    project.commit_files({"notes.md": "# 1.0\n"}, "docs: notes of the release", branch="release")
    project.checkout("main")
    project.commit_files({"src/app.py": AFTER}, "feat: average of prices", branch="topic")
    return project


def _forge(project: GitRepository, root: Path, url: str) -> None:
    """Put it on a forge with pull requests, and make that its origin."""
    bare = root / f"{FULL_NAME}.git"
    project.git("clone", "--quiet", "--bare", ".", str(bare))
    for name, value in (("remote.origin.url", url), ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")):
        project.git("config", name, value)
    project.git("update-ref", "refs/remotes/origin/main", "main")
    subprocess.run(("git", "-C", str(bare), "symbolic-ref", "HEAD", "refs/heads/main"), check=True)
    subprocess.run(("git", "-C", str(bare), "config", "uploadpack.allowFilter", "true"), check=True)
    for number in PULL_REQUESTS:
        project.git("push", "--quiet", str(bare), f"topic:refs/pull/{number}/head")


def _unsaved(project: GitRepository) -> None:
    """What is staged, what is not saved, and the project's examples, which git does not see."""
    project.write("src/first.py", STAGED)
    project.git("add", "src/first.py")
    project.write("src/last.py", UNSAVED)
    shutil.copytree(PROJECT / "examples", project.path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (project.path / ".git" / "info").mkdir(exist_ok=True)
    project.write(".git/info/exclude", "/examples/\n*.json\n*.xml\n*.sarif\n*.rdjson\n*.html\n")


def _agent_variables(service: StandInServer, bin_directory: Path, *, with_gemini: bool) -> dict[str, str]:
    """Every agent program, with a made-up login at the stand-in; and a `review_command` for the pages that name one."""
    bin_directory.mkdir()
    reviewer = bin_directory / "todo-reviewer"
    reviewer.write_text(f"{PYTHON_HEADER}import sys\nsys.stdin.read()\nprint('{{\"findings\": []}}')\n")
    reviewer.chmod(0o755)
    key = "made-up-" + "for-tests"
    # It takes a second of CPU to ask gemini for its version alone.
    programs = ("claude", "codex", "gemini") if with_gemini else ("claude", "codex")
    return {
        **{f"{vendor}_API_KEY": key for vendor in ("ANTHROPIC", "OPENAI", "GEMINI")},
        **{f"{name}_BASE_URL": service.url for name in ("ANTHROPIC", "GOOGLE_GEMINI")},
        **{f"{name}_BASE_URL": f"{service.url}/v1" for name in ("OPENAI", "CODELOUPE_API")},
        **{f"CODELOUPE_{program.upper()}_PATH": str(find(program)) for program in programs},
        "CODELOUPE_API_MODEL": "openai:any",
        "CODELOUPE_REVIEW_COMMAND": str(reviewer),
    }
