"""Rounds of reviews by scripted agents on a real repository, for the tests of what a verdict may rest on."""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from codeloupe import AgentRequest, AgentResult, BaseScope, Event, Finding, Review, Runtime, Settings
from codeloupe.agents.calls.limiter import Timing
from codeloupe.testing import AgentStep, Json, ScriptedAgent
from tests.repository import GitRepository

FILE = "jobs/backup.py"
CALL = "    name = folders[number].strip()"
CODE = f"def pack(folders, number, target):\n{CALL}\n    return (name, target)\n"
ASKS_AGAIN = "Reply with the JSON value only"
REASON = "The caller checks the number before."


def without_waiting() -> Timing:
    """Return a timing whose waits between attempts take no time."""
    return Timing(sleep=lambda _seconds: asyncio.sleep(0))


def claim(severity: str = "critical", **more: Any) -> dict[str, Any]:
    """Return a claim about the call in `CODE`, as a model reports it."""
    return {
        "file": FILE,
        "line": 2,
        "quote": CALL,
        "body": "number may be the length of folders, which raises an IndexError.",
        "title": "Folder index may be out of range",
        "category": "correctness",
        "severity": severity,
        **more,
    }


def said(text: str) -> AgentResult:
    """Return an answer in text, without structured output."""
    return AgentResult(success=True, output=text, raw_output=text, agent="", model="scripted")


def structured(value: Any) -> AgentResult:
    """Return an answer from the agent's own channel for structured output, whatever its shape."""
    text = json.dumps(value)
    return AgentResult(success=True, output=text, raw_output=text, structured=value, agent="", model="scripted")


def is_verification(request: AgentRequest) -> bool:
    """Return whether a request asks for proofs of a claim."""
    return request.labels["unit"].startswith("verify ")


def proof_value(proof: str, reason: str = REASON) -> dict[str, Any]:
    """Return the answer to a verification of one claim."""
    return {"proofs": [{"claim": 1, "reason": reason, "proof": proof, "suggestion": "", "replacement": ""}]}


def proof_answer(request: AgentRequest, proof: str, reason: str = REASON) -> Json:
    """Return the answer to a verification in the form that the request asks for."""
    properties = (request.output_schema or {}).get("properties", {})
    if "proofs" in properties:
        return Json(proof_value(proof, reason))
    return Json({"reason": reason, "proof": proof})


class Model:
    """A scripted agent that reports `claims`, or gives `answers` in turn, and answers verifications by `proof`.

    The last of the answers repeats. `proof` is a word, or a step such as an error.
    """

    def __init__(
        self,
        *claims: Mapping[str, Any],
        answers: Sequence[AgentStep] = (),
        proof: "str | AgentStep" = "confirmed",
        name: str = "scripted",
        **options: Any,
    ) -> None:
        self.claims = list(claims)
        self.answers = list(answers)
        self.proof = proof
        self.agent = ScriptedAgent([self._step], name=name, **options)

    def _step(self, request: AgentRequest) -> AgentStep:
        if is_verification(request):
            if isinstance(self.proof, str):
                return proof_answer(request, self.proof)
            return self.proof
        if not self.answers:
            return Json({"findings": [one for one in self.claims if one["file"] in request.prompt]})
        if len(self.answers) > 1:
            return self.answers.pop(0)
        return self.answers[0]

    @property
    def questions(self) -> list[AgentRequest]:
        """Return the requests for a review so far."""
        return [request for request in self.agent.requests if not is_verification(request)]

    @property
    def verifications(self) -> list[AgentRequest]:
        """Return the requests for a verification so far."""
        return [request for request in self.agent.requests if is_verification(request)]


class Rounds:
    """A branch that is reviewed again and again, with one state directory for all reviews."""

    def __init__(self, repository: GitRepository, state: Path, files: Mapping[str, str]) -> None:
        self.repository = repository
        self.state = state
        self.events: list[Event] = []
        repository.commit_files({"README.md": "Jobs for the night.\n"})
        repository.commit_files(files, branch="nightly")

    def commit(self, files: Mapping[str, str]) -> None:
        """Commit files on the branch."""
        self.repository.commit_files(files)

    def review(
        self, *models: Model, fresh: bool = False, since_last: bool = False, base: str = "main", **settings: Any
    ) -> Review:
        """Review the branch with these models, the first one first; without a model by the analysers."""
        if not models:
            settings = {"reviewer_type": "offline", **settings}
        agents = [model.agent for model in models]

        async def run() -> Review:
            chosen = Settings(**settings)
            timing = without_waiting()
            async with Runtime(chosen, agents=agents, state_directory=self.state, timing=timing) as runtime:
                return await runtime.review(
                    BaseScope(base),
                    repo=self.repository.path,
                    fresh=fresh,
                    since_last=since_last,
                    emit=self.events.append,
                )

        return asyncio.run(run())


def outcome(review: Review) -> tuple[str, bool, int]:
    """Return the verdict, the completeness and the exit code of a review."""
    return review.verdict.value, review.complete, review.exit_code


INCOMPLETE = ("INCOMPLETE", False, 3)


def only(review: Review) -> Finding:
    """Return the one finding of a review."""
    [finding] = review.findings
    return finding


WORDS = (
    ("Result of the call is not checked", "A failure goes unnoticed, and the caller works with stale data."),
    ("Division by zero for an empty list", "The length of the list may be zero, which raises ZeroDivisionError."),
    ("User input reaches the query unescaped", "The value of the request is put into the statement as it is."),
    ("Handle is never closed", "The file stays open when the following call raises an exception."),
    ("Time zone is lost", "The naive datetime is compared with an aware one, which raises TypeError."),
    ("Race between check and use", "Another process may create the entry between both calls."),
    ("Last element is never visited", "The range ends one element before the end of the sequence."),
    ("Amount is rounded too early", "Cents are lost since the sum is rounded before the tax is added."),
)
NAMES = ("orders", "invoices", "carts", "users", "prices", "offers", "routes", "parcels", "refunds", "tickets")
EDITS = ("nothing", "lines above", "first statement changed", "first statement removed")


class Pair(NamedTuple):
    """Two statements of one file, and the same words claimed of the first in one round, of the second in the next."""

    file: str
    edit: str
    before: str
    after: str
    first: dict[str, Any]
    second: dict[str, Any]


def make_pair(number: int) -> Pair:
    """Return a pair; the number decides words, statements and the edit between both rounds."""
    chance = random.Random(number)
    edit = EDITS[number // 3 % len(EDITS)]
    first, second = (_statement(number % 3, name, chance) for name in chance.sample(NAMES, 2))
    before = _module(first, second)
    after = before
    if edit == "lines above":
        after = f"import os\n\n{before}"
    elif edit == "first statement changed":
        after = _module(first.replace("(", "(audit, ", 1), second)
    elif edit == "first statement removed":
        after = _module("", second)
    title, body = WORDS[number % len(WORDS)]
    file = f"pairs/module{number:03}.py"
    words = {"file": file, "title": title, "body": body, "severity": "medium"}
    return Pair(
        file,
        edit,
        before,
        after,
        claim(**words, quote=first.rstrip("\n"), line=_line_of(first, before)),
        claim(**words, quote=second.rstrip("\n"), line=_line_of(second, after)),
    )


def _statement(form: int, name: str, chance: random.Random) -> str:
    """Return one statement on one or several lines; statements of the same form have lines in common."""
    limit = chance.randrange(1_000)
    if form == 0:
        return f"    {name} = load_{name}(source, limit={limit})\n"
    if form == 1:
        return f"    {name} = send_{name}(\n        {limit},\n        timeout=30,\n        retries=3,\n    )\n"
    return f"    {name} = (\n        query_{name}({limit})\n        .filter(active=True)\n        .all()\n    )\n"


def _module(first: str, second: str) -> str:
    """Return a module with both statements in functions of their own."""
    functions = {"one": first, "between": "    check(source)\n", "two": second}
    texts = [
        f"def step_{name}(source):\n    log(source)\n{text}    return source\n" for name, text in functions.items()
    ]
    return "\n\n".join(texts)


def _line_of(statement: str, text: str) -> int:
    return text[: text.index(statement)].count("\n") + 1
