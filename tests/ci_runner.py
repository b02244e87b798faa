"""Runs the steps of our composite action as a GitHub runner would: same shell, same variables, same files."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parent.parent
ACTION = PROJECT / "action.yml"
_BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
_TOKEN = re.compile(r"\s*(?:('[^']*')|(==|!=|&&|\|\||[()])|([A-Za-z_][\w.-]*))\s*")


def evaluated(expression: str, contexts: Mapping[str, Any]) -> Any:
    """The value of the part of GitHub's expressions that our files use: paths, texts, comparisons, and, or, brackets.

    A value that is not there is None, as on a runner. Raises ValueError for what is not understood, so that no test
    passes by mistake.
    """

    def value(path: str) -> Any:
        found: Any = contexts
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def translated(token: re.Match[str]) -> str:
        if token[3] and token[3].split(".", 1)[0] not in contexts:
            raise ValueError(f"{token[3]} is no context")
        signs = {"&&": " and ", "||": " or "}
        return f"value({token[3]!r})" if token[3] else signs.get(token[2], token[2]) if token[2] else token[1]

    if not re.fullmatch(f"(?:{_TOKEN.pattern})+", expression.strip()):
        raise ValueError(f"{expression!r} is not understood")
    try:
        return eval(_TOKEN.sub(translated, expression.strip()), {"__builtins__": {}, "value": value})
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is not an expression") from error


def inserted(template: object, contexts: Mapping[str, Any]) -> str:
    """A text with its `${{ }}` filled in, as a runner hands it over in a variable."""

    def text(found: re.Match[str]) -> str:
        value = evaluated(found[1], contexts)
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return re.sub(r"(?s)\$\{\{(.*?)\}\}", text, str(template))


def read_yaml(path: Path) -> Any:
    """A file of CI. YAML takes the word `on` for true."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if isinstance(document, dict) and True in document:
        document["on"] = document.pop(True)
    return document


@dataclass(frozen=True, slots=True)
class StepEnd:
    name: str
    exit_code: int
    said: str
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ActionEnd:
    """How the action ended: the steps that ran, its outputs, and the summary of the job."""

    steps: tuple[StepEnd, ...]
    outputs: Mapping[str, str]
    summary: str

    @property
    def exit_code(self) -> int:
        """That of the step that failed, or 0."""
        return next((step.exit_code for step in self.steps if step.exit_code), 0)

    def step(self, name: str) -> StepEnd:
        return next(step for step in self.steps if step.name == name)


@dataclass(frozen=True)
class Runner:
    """A runner with a checkout, the event of a job in the `github` context, and variables of that job.

    `path` are folders in front of the PATH. `temporary` is RUNNER_TEMP.
    """

    checkout: Path
    temporary: Path
    github: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)
    path: tuple[Path, ...] = (Path(sys.executable).parent,)

    def run(self, **inputs: str) -> ActionEnd:
        """Run the action with inputs, whose names have `_` where the file has `-`."""
        action = read_yaml(ACTION)
        declared = action["inputs"]
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        unknown = given.keys() - declared.keys()
        assert not unknown, f"the action has no such inputs: {unknown}"
        values = {name: given.get(name, about.get("default", "")) for name, about in declared.items()}
        self.temporary.mkdir(exist_ok=True)
        contexts: dict[str, Any] = {"inputs": values, "github": self.github, "steps": {}}
        ended: list[StepEnd] = []
        for step in action["runs"]["steps"]:
            failed = any(one.exit_code for one in ended)
            if failed or not evaluated(step.get("if", "'yes'"), contexts):
                continue
            ended.append(self._step(step, contexts))
            if "id" in step:
                contexts["steps"][step["id"]] = {"outputs": ended[-1].outputs}
        outputs = {name: inserted(about["value"], contexts) for name, about in action["outputs"].items()}
        summary = self.temporary / "summary"
        return ActionEnd(tuple(ended), outputs, summary.read_text(encoding="utf-8") if summary.exists() else "")

    def _step(self, step: Mapping[str, Any], contexts: Mapping[str, Any]) -> StepEnd:
        script = self.temporary / "script.sh"
        script.write_text(step["run"], encoding="utf-8")
        output = self.temporary / "output"
        output.write_text("", encoding="utf-8")
        assert step["shell"] == "bash"
        completed = subprocess.run(
            (*_BASH, str(script)),
            cwd=self.checkout,
            env={**self._environment(output), **{k: inserted(v, contexts) for k, v in step.get("env", {}).items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        rows = [line.partition("=") for line in output.read_text(encoding="utf-8").splitlines()]
        said = completed.stdout.decode("utf-8", "replace")
        return StepEnd(step["name"], completed.returncode, said, {name: value for name, _, value in rows})

    def _environment(self, output: Path) -> dict[str, str]:
        return {
            **os.environ,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.temporary / "summary"),
            "GITHUB_ACTION_PATH": str(PROJECT),
            "RUNNER_TEMP": str(self.temporary),
            **self.variables,
            "PATH": os.pathsep.join((*map(str, self.path), os.environ["PATH"])),
        }
