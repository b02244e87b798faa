"""A model behind the stand-in server that plays an example pipeline with made-up answers.

It knows by what it reads which stage or gate asks, and writes files as a model does: by tools of the agent's program.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from codeloupe.testing import Json, RecordedRequest, Reply, Text, ToolUse
from tests.example_answers import ANSWERS, Answer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_CRITIC_ANSWER = "verdict = PASS: every requirement is met."
_STAGE_PROMPT = "## Execution Environment"
# In the instructions that the claude program adds.
_WORKING_DIRECTORY = re.compile(r"^ - Primary working directory: (.+)$", re.MULTILINE)


class ExampleModel:
    """Answers one example, from any thread. `asked` counts the calls by who made them, whatever their turns."""

    def __init__(self, example: str, reviews: Sequence[Mapping[str, Any]] = ()) -> None:
        self.asked: Counter[str] = Counter()
        self._answers = ANSWERS[example]
        self._reviews = reviews
        self._steps = {
            role: (EXAMPLES / example / "steps" / f"{role}.md").read_text(encoding="utf-8").splitlines()[0]
            for role in self._answers
            if not role.startswith("critic of ")
        }
        self._lock = threading.Lock()

    def __call__(self, request: RecordedRequest) -> Reply:
        role = self._role(request)
        turns = sum(1 for name in _tools_used(request) if name != "StructuredOutput")
        with self._lock:
            self.asked[role] += turns == 0
            number = self.asked[role] - 1
        if role == "review":
            return Json({"findings": list(self._reviews[number : number + 1])})
        answers = self._answers[role]
        answer = answers[min(number, len(answers) - 1)]
        steps = list(_steps(answer, request))
        return steps[min(turns, len(steps) - 1)]

    def _role(self, request: RecordedRequest) -> str:
        stage = next((stage for stage, line in self._steps.items() if request.mentions(line)), "")
        if request.mentions(_CRITIC_ANSWER):
            return f"critic of {stage}"
        return stage if request.mentions(_STAGE_PROMPT) else "review"


def _tools_used(request: RecordedRequest) -> Iterator[str]:
    for message in request.body.get("messages", []):
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use":
                yield block["name"]


def _steps(answer: Answer, request: RecordedRequest) -> Iterator[Reply]:
    """The turns of a call: a file is read before it is written, since it may be there from an earlier attempt."""
    for name, text in answer.files.items():
        file = str(Path(_workspace(request)) / name)
        yield ToolUse("Read", {"file_path": file})
        yield ToolUse("Write", {"file_path": file, "content": text})
    yield Text(answer.text) if answer.value is None else Json(answer.value)


def _workspace(request: RecordedRequest) -> str:
    found = next(found for text in request.strings() if (found := _WORKING_DIRECTORY.search(text)))
    return found[1]
