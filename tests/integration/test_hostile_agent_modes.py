"""Hostile agent settings × agent × permission mode × verb, through the front door: nothing runs, is written or leaks.

The settings of `tests/hostile_agent_files.py` lie in the directory that an agent works in, at the root of the
repository and above it, all at once. What is covered:

- `agent run`: every agent in every permission mode, with a key; claude_cli, agent_sdk and codex also with a login in
  the home directory, which is where they would write.
- `review`: every agent, on a trusted change and on an untrusted one; reviews have one permission mode.
- `pipeline run`: every agent in a stage that writes, which is the default, and in one that reads; api cannot write.

`make soak` tries them all, `make test` as many as it takes to meet each agent, mode, verb and login.
"""

import contextlib
import hashlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.agent_programs import find
from tests.hostile_agent_files import CANARY, INNER, hostile, set_git_traps
from tests.warm_program import codeloupe

MODES = ("plan", "default", "dontAsk", "acceptEdits", "bypassPermissions")
KEYS = {
    "claude": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "codex": ("OPENAI_API_KEY", "CODEX_API_KEY"),
    "gemini": ("GEMINI_API_KEY",),
}
PROGRAMS = {"claude_cli": "claude", "agent_sdk": "claude", "codex": "codex", "gemini": "gemini", "api": ""}
STRANGERS = (
    *("GITHUB_TOKEN", "GH_TOKEN", "GITLAB_TOKEN", "CI_JOB_TOKEN", "GITLAB_PRIVATE_TOKEN", "BITBUCKET_TOKEN"),
    *("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "NPM_TOKEN", "AWS_SECRET_ACCESS_KEY", "AZURE_CLIENT_SECRET", "PGPASSWORD"),
    *("GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "CODELOUPE_GITHUB_TOKEN", "SSH_AUTH_SOCK"),
)
SECRETS = {name: f"made-up-for-{name}" for name in (*itertools.chain(*KEYS.values()), *STRANGERS)}
PIPELINE = """\
name: hostile
stages:
  - name: work
    step: step.md
    agent: {agent}
    writes: {writes}
"""


@dataclass(frozen=True)
class Case:
    """One run of the program. With a login there is no key in its environment."""

    agent: str
    words: tuple[str, ...]
    login: bool = False

    def __str__(self) -> str:
        return f"{' '.join(self.words)} by {self.agent} with {'login' if self.login else 'key'}"


@dataclass
class Yard:
    """Where all cases run, and what was seen of the programs that they started."""

    folder: Path
    home: Path
    work: Path = Path()
    url: str = ""
    leaks: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def run(self, case: Case) -> list[str]:
        """What went wrong in one case."""
        ended = codeloupe(*case.words, cwd=self.work, environment=self._environment(case))
        writes = {"acceptEdits", "bypassPermissions"} & {*case.words}
        is_refused = (case.agent == "api" and writes) or (os.geteuid() == 0 and "bypassPermissions" in writes)
        expected = (0, 2) if is_refused else (0,)
        return [] if ended.exit_code in expected else [f"{case}: exit {ended.exit_code}: {ended.stderr[-500:]}"]

    def _environment(self, case: Case) -> dict[str, str]:
        # With a login there is no key; an agent with two kinds of key would be asked with the wrong one.
        seconds = [name for names in KEYS.values() for name in names[1:]]
        left_out = (*KEYS["claude"], *KEYS["codex"]) if case.login else seconds
        return {
            **{name: value for name, value in SECRETS.items() if name not in left_out},
            "HOME": str(self.home),
            "CODELOUPE_HOME": str(self.folder / "state" / str(abs(hash(case)))),
            "CODELOUPE_ALLOW_BYPASS": "true",
            **{f"CODELOUPE_{name.upper()}_PATH": str(find(name)) for name in KEYS},
            "CODELOUPE_API_MODEL": "anthropic:claude-stand-in",
            "ANTHROPIC_BASE_URL": self.url,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        }

    def reply(self, _request: RecordedRequest) -> Reply:
        """The answer, after a look at the programs that wait for one."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may end, or not be ours, at any moment
                self._look_at(process)
        return Json({"findings": []})

    def _look_at(self, process: Path) -> None:
        places = (self.folder, Path(tempfile.gettempdir()))
        working_in = (process / "cwd").readlink()
        is_ours = any(working_in.is_relative_to(place) for place in places)
        if not is_ours or (process / "exe").readlink() == Path(sys.executable).resolve():
            return
        command = (process / "cmdline").read_bytes().decode("utf-8", "replace")
        program = next((name for name in KEYS if name in command), "another")
        self.seen.add(program)
        environment = (process / "environ").read_bytes().decode("utf-8", "replace")
        found = {name for name, value in SECRETS.items() if value in environment}
        # What a program starts itself, such as git, has what the program has.
        owners = [program] if program in KEYS else [name for name, keys in KEYS.items() if found & set(keys)][:1]
        allowed = {key for owner in owners for key in KEYS[owner]}
        self.leaks |= {f"{name} in the environment of {program}: {command[:200]!r}" for name in found - allowed}


def _home(folder: Path) -> Path:
    """A home directory with the logins and settings of every program."""
    oauth = {
        "accessToken": "made-up-access",
        "refreshToken": "made-up-refresh",
        "expiresAt": round(time.time() * 1000) + 10**9,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
    }
    files = {
        ".claude/.credentials.json": json.dumps({"claudeAiOauth": oauth}),
        ".claude/settings.json": "{}",
        ".claude.json": '{"hasCompletedOnboarding": true}',
        ".codex/auth.json": json.dumps({"OPENAI_API_KEY": "made-up-login"}),
        ".codex/config.toml": "# mine\n",
        ".gemini/settings.json": "{}",
        ".gemini/oauth_creds.json": "{}",
        ".gemini/trustedFolders.json": "{}",
        ".config/gh/hosts.yml": "github.com: {oauth_token: made-up}\n",
        ".gitconfig": "[user]\n\tname = someone\n",
        ".netrc": "machine example.invalid login me password made-up\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def _digest(folder: Path) -> dict[str, str]:
    """Every file and folder below, with what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in folder.rglob("*")
    }


def _cases(folder: Path, *, every: bool) -> Iterator[Case]:
    """Every combination, or few in which each agent, mode, verb and login is met."""
    for number, (agent, mode) in enumerate(itertools.product(PROGRAMS, MODES)):
        if not every and (number + number // 5 + 2) % 5:
            continue
        words = ("agent", "run", "--agent", agent, "--permission-mode", mode, "-q", f"Look at a.py in {mode}.")
        yield Case(agent, words)
        if agent in ("claude_cli", "agent_sdk", "codex"):
            yield Case(agent, words, login=True)
    for agent, trust in itertools.product(PROGRAMS, ((), ("--untrusted",))):
        if not every and (agent in ("agent_sdk", "codex") or bool(trust) is (agent == "gemini")):
            continue
        yield Case(agent, ("review", "main...HEAD", "--reviewer", agent, "--format", "json", *trust))
    for agent, writes in itertools.product(PROGRAMS, ("true", "false") if every else ("true",)):
        if (agent, writes) != ("api", "true") and (every or agent in ("agent_sdk", "codex")):
            file = folder / f"{agent}-{writes}.yaml"
            file.write_text(PIPELINE.format(agent=agent, writes=writes), encoding="utf-8")
            yield Case(agent, ("pipeline", "run", str(file)))


@pytest.mark.timeout(400)
@pytest.mark.defect("X1")
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_no_settings_of_a_repository_rule_any_agent_in_any_mode_of_any_verb(tmp_path: Path, every: bool) -> None:
    yard = Yard(tmp_path, _home(tmp_path / "home"))
    with hostile(tmp_path / "outer") as trap, StandInServer(reply=yard.reply) as server:
        trap.repository.commit_files({f"{INNER}/b.py": "print('more')\n"}, "change", branch="change")
        yard.work, yard.url = trap.path / INNER, server.url
        definitions = tmp_path / "pipelines"
        definitions.mkdir()
        (definitions / "step.md").write_text("Look at a.py.\n", encoding="utf-8")
        set_git_traps(trap)
        before = _digest(yard.home)
        cases = list(_cases(definitions, every=every))
        with ThreadPoolExecutor(3) as pool:
            problems = [problem for found in pool.map(yard.run, cases) for problem in found]
        after = _digest(yard.home)
        written = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        # Not those of a review, which reads the project's own guidance to a reviewer by itself.
        of_agents = [request for request in server.requests if request.mentions("Look at a.py")]
        spoken = [request.path for request in of_agents if request.mentions(CANARY)]
        assert (problems, trap.sprung(), written, yard.leaks, spoken) == ([], [], set(), set(), [])
        assert yard.seen >= set(KEYS), "a program was not looked at"
        assert trap.repository.git("status", "--porcelain") == b""
