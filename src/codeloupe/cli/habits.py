"""Words that people type by habit from other programs: ruff, git, gh, pre-commit, pytest, claude, codex, npm, docker.

A habit that means exactly one of our options, values or commands is an alias. Any other is a pointer: the command
fails, and its hint names the right words. An alias works in each command that has the option it stands for. No habit
replaces a word that the command has itself, and no help lists habits.
"""

from __future__ import annotations

from collections.abc import Mapping

# The option that a habit means, perhaps with its value. If there are several, the first one that the command has.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    # scopes, as in git, gh and pre-commit
    "--cached": ("--staged",),
    "--last": ("--commit HEAD", "--max 1"),
    "--last-commit": ("--commit HEAD", "--max 1"),
    "--rev": ("--commit",),
    "--revision": ("--commit",),
    "--sha": ("--commit",),
    "--pull-request": ("--pr",),
    "--mr": ("--pr",),
    "--merge-request": ("--pr",),
    "--base-branch": ("--base",),
    "--target-branch": ("--base",),
    "--compare-branch": ("--base",),
    "--stdin": ("--diff-file -",),
    "--after": ("--since",),
    "--before": ("--until",),
    "-n": ("--max", "--limit"),
    "--max-count": ("--max", "--limit"),
    "--max": ("--limit",),
    "--limit": ("--max",),
    "-C": ("--repo", "--working-dir"),
    "--cd": ("--repo", "--working-dir"),
    "--cwd": ("--repo", "--working-dir"),
    "--directory": ("--repo", "--working-dir"),
    "--repo": ("--working-dir",),
    # agents, as in claude, codex and gemini
    "--agent": ("--reviewer",),
    "--agents": ("--reviewer",),
    "--reviewers": ("--reviewer",),
    "--reviewer": ("--agent",),
    "--backend": ("--reviewer", "--agent"),
    "--offline": ("--lanes offline", "--reviewer offline"),
    "--expert": ("--experts",),
    "-m": ("--model",),
    "--reasoning-effort": ("--effort",),
    "--max-cost": ("--max-budget-usd",),
    "--max-budget": ("--max-budget-usd",),
    "--budget": ("--max-budget-usd",),
    "--output-schema": ("--schema",),
    "--json-schema": ("--schema",),
    "-j": ("--concurrency",),
    "--jobs": ("--concurrency",),
    "--parallel": ("--concurrency",),
    "--no-cache": ("--fresh",),
    # output
    "--dry-run": ("--preview",),
    "--dry": ("--dry-run", "--preview"),
    "--json": ("--format json",),
    "--format json": ("--json",),
    "--output-format json": ("--format json", "--json"),
    "--output-format": ("--format",),
    "--sarif": ("--format sarif",),
    "--markdown": ("--format markdown",),
    "--html": ("--format html",),
    "--output-file": ("--output",),
    "--out": ("--output",),
    "--save": ("--output",),
    "--no-color": ("--color never",),
    "--no-colour": ("--color never",),
    "--no-colors": ("--color never",),
    "--colour": ("--color",),
    "--silent": ("--quiet",),
    "-?": ("--help",),
}
_AGENTS = {
    "claude": "claude_cli",
    "claude-cli": "claude_cli",
    "claude-code": "claude_cli",
    "claude_code": "claude_cli",
    "sdk": "agent_sdk",
    "agent-sdk": "agent_sdk",
    "claude-sdk": "agent_sdk",
    "claude_sdk": "agent_sdk",
    "claude-agent-sdk": "agent_sdk",
    "claude_agent_sdk": "agent_sdk",
    "codex-cli": "codex",
    "codex_cli": "codex",
    "openai-codex": "codex",
    "gemini-cli": "gemini",
    "gemini_cli": "gemini",
    "google-gemini": "gemini",
}
# The value that a habit means, by option.
VALUES: Mapping[str, Mapping[str, str]] = {
    "--agent": _AGENTS,
    "--reviewer": {
        **_AGENTS,
        "analyser": "offline",
        "analysers": "offline",
        "analyzers": "offline",
        "static": "offline",
        "review-gate": "cerberus",
    },
    "--format": {
        "github-actions": "github",
        "gha": "github",
        "actions": "github",
        "gitlab": "gitlab-codequality",
        "codequality": "gitlab-codequality",
        "code-quality": "gitlab-codequality",
        "codeclimate": "gitlab-codequality",
        "junit-xml": "junit",
        "junitxml": "junit",
        "md": "markdown",
        "htm": "html",
        "full": "text",
        "plain": "text",
        "short": "concise",
    },
}
_OPENAI = "`codex` is OpenAI's program; `api` with `--model openai:NAME` asks a model of OpenAI"
_API = "`api` asks any model by its API: give its provider and name to `--model`, such as openai:gpt-5"
_COMMAND = "`command` runs your own program as the reviewer; the `review_command` setting names it"
_EXIT_ZERO = "`--fail-on critical` exits 1 only for critical findings; in a shell, `|| true` ignores the exit code"
_AGENT_POINTERS = {
    **dict.fromkeys(("openai", "gpt", "chatgpt"), _OPENAI),
    **dict.fromkeys(("litellm", "ollama", "openrouter"), _API),
    "anthropic": "`claude_cli` is Claude Code, `agent_sdk` the Claude Agent SDK, and `api` asks a model by its API",
    "google": "`gemini` is Google's program; `api` asks a model by its API",
}
# The hint for a value that is not ours, by the option.
VALUE_POINTERS: Mapping[str, Mapping[str, str]] = {
    "--agent": _AGENT_POINTERS,
    "--reviewer": {
        **_AGENT_POINTERS,
        **dict.fromkeys(("aider", "copilot", "cursor"), _COMMAND),
        "local": f"`offline` runs only static analysers; {_API}",
        "none": "`offline` runs only static analysers, without an agent",
    },
    "--fail-on": dict.fromkeys(("none", "never", "off"), _EXIT_ZERO),
}
# The command that a habit means. An empty name is the program itself; `*` is any command that has others below it.
COMMANDS: Mapping[str, Mapping[str, str]] = {
    "": {"init": "config init", "dismiss": "history dismiss", "agents": "agent list"},
    "config": {"list": "show", "ls": "show"},
    "history": {"log": "list"},
    "*": {"ls": "list", "rm": "remove", "delete": "remove", "view": "show", "check": "validate"},
}
_REVIEW = "`codeloupe review` reviews a change; `codeloupe review --reviewer offline` runs only static analysers"
_LOGIN = "agents have their own logins, such as `claude` and `codex login`; `codeloupe doctor` shows what is ready"
_HOOK = "`codeloupe hook install pre-push` reviews each push, `codeloupe hook install pre-commit` each commit"
_UPDATE = "codeloupe is updated by the program that installed it; `codeloupe version` prints what is installed"
_ACCEPT = (
    "`codeloupe history dismiss` dismisses a finding; `codeloupe baseline add a.py:12 --reason WHY` accepts it for all"
)
_ASK = "`codeloupe agent run PROMPT` asks an agent"
_PUBLISH = "`codeloupe publish github` posts a review on a pull request"
_GITLAB = (
    "`codeloupe review --format gitlab-codequality -o gl-code-quality-report.json` writes a report that GitLab shows"
)
_SETTINGS = "edit codeloupe.yaml; `codeloupe config init` writes one, and `codeloupe config show` shows every setting"
_FIX = "codeloupe changes no file; `codeloupe review --format json` gives a coding agent what to fix"
# The hint for a command that does not exist, by the command it was looked for in.
COMMAND_POINTERS: Mapping[str, Mapping[str, str]] = {
    "": {
        **dict.fromkeys(("check", "lint", "scan", "analyze", "analyse", "audit", "inspect"), _REVIEW),
        **dict.fromkeys(("login", "logout", "auth"), _LOGIN),
        **dict.fromkeys(("install", "uninstall", "hooks", "pre-commit", "pre-push"), _HOOK),
        **dict.fromkeys(("update", "upgrade", "self-update"), _UPDATE),
        **dict.fromkeys(("ignore", "suppress", "accept"), _ACCEPT),
        **dict.fromkeys(("ask", "chat", "exec", "prompt"), _ASK),
        **dict.fromkeys(("comment", "post", "github"), _PUBLISH),
        **dict.fromkeys(("settings", "configure", "setup"), _SETTINGS),
        **dict.fromkeys(("pr", "mr"), f"`codeloupe review --pr 12` reviews a pull request; {_PUBLISH}"),
        **dict.fromkeys(("queue", "workers"), "`codeloupe jobs list` shows the jobs on workers"),
        **dict.fromkeys(("db", "database"), "`codeloupe store show` shows where data is stored"),
        **dict.fromkeys(("cost", "costs", "budget", "usage"), "`codeloupe spending` shows the cost of agent calls"),
        **dict.fromkeys(("clean", "cache", "gc"), "`codeloupe history prune --older-than 90d` removes old reviews"),
        "gitlab": _GITLAB,
        "fix": _FIX,
        "run": f"`codeloupe review` reviews a change; {_ASK}; `codeloupe pipeline run FILE` runs a pipeline",
        "diff": "`codeloupe review` reviews a change; `codeloupe review --preview` lists its files",
        "commit": "`codeloupe review --commit HEAD` reviews one commit; `codeloupe commits` reviews many",
        "branch": "`codeloupe review --base main` reviews this branch",
        "staged": "`codeloupe review --staged` reviews what is staged",
        "log": "`codeloupe history list` shows stored reviews; `codeloupe commits` reviews commits",
        "status": (
            "`codeloupe review --preview` shows what would be reviewed, `codeloupe doctor` what is installed, "
            "`codeloupe pipeline status` a run"
        ),
        "explain": "`codeloupe history show -v` shows the last review with all its findings",
        "report": "`codeloupe history render last --format html -o review.html` writes a stored review as a page",
        "resume": "`codeloupe review --resume` continues a review, `codeloupe pipeline resume last` a run",
    },
    "publish": {"gitlab": _GITLAB},
    "config": dict.fromkeys(("get", "set", "unset", "edit"), _SETTINGS),
    "pipeline": {
        **dict.fromkeys(("show", "view"), "`codeloupe pipeline status` shows a run"),
        **dict.fromkeys(("log", "logs"), "`codeloupe pipeline status -v` shows every attempt of a run"),
        **dict.fromkeys(("preview", "plan"), "`codeloupe pipeline run --dry-run` shows what a run would do"),
        "start": "`codeloupe pipeline run` starts a run",
        "continue": "`codeloupe pipeline resume` continues a run",
        "retry": "`codeloupe pipeline resume --retry STAGE` runs a stage again",
    },
}
_BY_TIME = "`codeloupe commits --since '1 day ago'` reviews commits by time"
_CONFIG = (
    "settings come from codeloupe.yaml at the root of the repository, and from CODELOUPE_* variables; "
    "`codeloupe config show` shows them"
)
_EVERYTHING = "`codeloupe review 0..HEAD` reviews every committed file"
_TWO_ENDS = "give both ends as a range: `codeloupe review main...HEAD`"
_PATHS = "give files and folders as arguments: `codeloupe review src/app.py`"
_VERSION = "`codeloupe --version` prints the version"
_LOG = "`git log --oneline --since='1 day ago'` lists the commits, at no cost"
_REDIRECT = "the result is printed; redirect it to a file: > FILE"
_RENDER = "`codeloupe history render last --format json` prints a stored review as JSON"
_CONFIGURED: Mapping[str, str] = dict.fromkeys(("--config", "-c", "--settings"), _CONFIG)
_ANY: Mapping[str, str] = {**_CONFIGURED, "--version": _VERSION, "-V": _VERSION}
# For commands that print their result, and write no file.
_PRINTING: Mapping[str, str] = {**_ANY, "--output": _REDIRECT, "-o": _REDIRECT}
_REVIEWING: Mapping[str, str] = {
    **_ANY,
    **dict.fromkeys(("--fix", "--autofix", "--apply", "--write"), _FIX),
    "--watch": "run it again after each change: an agent is asked only about new code",
    "--no-progress": "`--quiet` prints only the result",
}
_DIFF = "`--diff-file FILE` reviews a diff; `--preview` lists the files of the change"
_SEVERITIES = "`--fail-on` is the severity to exit 1 at, `--min-severity` the severity to show findings at"
_EXIT_ZERO_NAMES = ("--exit-zero", "--no-fail", "--soft-fail", "--no-error")
# The hint for an option that does not exist, by the command.
OPTION_POINTERS: Mapping[str, Mapping[str, str]] = {
    "review": {
        **_REVIEWING,
        **dict.fromkeys(_EXIT_ZERO_NAMES, _EXIT_ZERO),
        **dict.fromkeys(("--ignore", "--ignore-rule", "--disable"), f"{_ACCEPT}; `--exclude GLOB` skips files"),
        **dict.fromkeys(("--since", "--until", "--after", "--before", "--author"), _BY_TIME),
        **dict.fromkeys(("--all-files", "--all", "-a"), f"{_EVERYTHING}; `codeloupe review` reviews this branch"),
        **dict.fromkeys(("--from", "--to", "--from-ref", "--to-ref", "--head", "--range"), _TWO_ENDS),
        **dict.fromkeys(("--files", "--file", "--path", "--paths", "-f"), _PATHS),
        "--select": "`--experts A,B` chooses the experts of agents",
        **dict.fromkeys(("--severity", "--fail-level", "--level"), _SEVERITIES),
        "--unstaged": "`--uncommitted` reviews what is not committed, staged or not",
        "--branch": "`--base main` reviews this branch; `codeloupe review main...other` reviews another one",
        **dict.fromkeys(("--diff", "--patch", "-p"), _DIFF),
        "--prompt": "`--context-file FILE` says what the change is for; REVIEW.md in the repository gives instructions",
    },
    "commits": {
        **_REVIEWING,
        **dict.fromkeys(_EXIT_ZERO_NAMES, "findings are exit code 1 only with `--strict`"),
        "--fail-on": "`--strict` exits 1 if there is a high or critical finding",
        "--commit": "`codeloupe review --commit HEAD` reviews one commit",
        "--staged": "`codeloupe review --staged` reviews what is staged",
        "--all": "`--branch NAME` names a branch; one sweep reviews one branch",
        "--no-merges": "a merge is reviewed as one change; `--merges` reviews the commits inside it",
        **dict.fromkeys(("--preview", "--dry-run"), _LOG),
    },
    "agent run": {
        **_PRINTING,
        **dict.fromkeys(("-p", "--prompt", "--print"), "give the prompt as an argument: `codeloupe agent run PROMPT`"),
        **dict.fromkeys(
            ("--dangerously-skip-permissions", "--yolo", "--full-auto"),
            "`--permission-mode bypassPermissions` lets the agent do everything without asking",
        ),
        **dict.fromkeys(("--allowedTools", "--allowed-tools"), "`--tools A,B` names the tools that the agent has"),
    },
    "pipeline run": _PRINTING,
    "history show": {**_PRINTING, "--json": _RENDER, "--format": _RENDER},
    "history list": {**_PRINTING, "--since": "`--limit N` shows the newest N"},
    "config schema": {**_PRINTING, "--json": "it prints JSON already"},
    "pipeline schema": {**_PRINTING, "--json": "it prints JSON already"},
    "hook": {**_ANY, "--staged": "`codeloupe hook pre-commit` reviews what is staged"},
    "": {
        **_CONFIGURED,
        "-v": "`codeloupe --version` prints the version; `codeloupe review -v` logs what it does",
        "-C": "`codeloupe review --repo DIR` works in another directory",
        "--repo": "options follow the command: `codeloupe review --repo DIR`",
        "--login": _LOGIN,
        "--print": _ASK,
        "-p": _ASK,
    },
}


def option_pointer(command: str, option: str) -> str:
    """Return the hint for an option that a command does not have, or an empty text."""
    return OPTION_POINTERS.get(command, _PRINTING).get(option, "")
