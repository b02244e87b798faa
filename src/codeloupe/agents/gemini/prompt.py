"""The prompt as the gemini program takes it for text.

The program reads every file that is mentioned as `@path`, and the directory of that name with all its files; a diff
is full of `@`. No setting turns this off. So an invisible character is put behind each `@`, which makes it the name
of no file, and the model is told about it.
"""

from __future__ import annotations

import re

from codeloupe.agents.calls.schemas import schema_words
from codeloupe.model.agent import AgentRequest, full_prompt

JOINER = "\u2060"
_MENTION = re.compile(r"@(?=\S)")
_ESCAPED_JOINER = re.compile(r"@\\u2060", re.IGNORECASE)
_WARNING = (
    "In this message an invisible character, a word joiner (U+2060), stands behind each @ that is followed by a word."
    " It only keeps the @ from being taken for the mention of a file and is not part of the text: read a plain @"
    " there, and write a plain @ in the answer.\n\n"
)


def prompt_input(request: AgentRequest) -> str:
    """What the program reads: the prompt, what it has no place of its own for, and the schema in words."""
    head = ""
    if request.append_system_prompt and request.system_prompt is None:
        head = f"{request.append_system_prompt}\n\n"
    tail = "" if request.output_schema is None else schema_words(request.output_schema)
    text = f"{head}{full_prompt(request)}{tail}"
    if _MENTION.search(text):
        return _WARNING + _MENTION.sub(f"@{JOINER}", text)
    # A line before it, since a prompt that begins with a slash would be a command of the program.
    return f"\n{text}" if text.startswith("/") else text


def restored(answer: str) -> str:
    """The answer of a model with a plain `@` where it repeats one with the invisible character."""
    return _ESCAPED_JOINER.sub("@", answer.replace(f"@{JOINER}", "@"))
