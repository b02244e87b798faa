"""What a review sends to a model, by what the stand-in server received: tokens, and whether every hunk is there.

Real tokenizers have to be downloaded, so there are three measures that know nothing of each other: our own estimate,
the pieces into which tokenizers cut before anything else, and bytes. What is claimed must hold under each of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from codeloupe.engine.plan import tokens_of
from codeloupe.git.diff import parse_diff
from codeloupe.testing import RecordedRequest

_PIECE = re.compile(r"[A-Za-z]+|[0-9]{1,3}|\n|[^\sA-Za-z0-9]")
_BYTES_PER_TOKEN = 3.5
_LINE_NUMBER = re.compile(r"^:[0-9]+\n", re.MULTILINE)
# Where the vendors' APIs have the texts of a prompt; all else of a request is counted as the JSON that it is.
_PROMPT_KEYS = ("system", "messages", "systemInstruction", "contents", "instructions", "input")


def _pieces(text: str) -> int:
    return sum(1 for _ in _PIECE.finditer(text))


def _bytes(text: str) -> int:
    return round(len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN)


MEASURES: Mapping[str, Callable[[str], int]] = {"estimate": tokens_of, "pieces": _pieces, "bytes / 3.5": _bytes}


def tokens_in(text: str) -> dict[str, int]:
    """The tokens of a text by each measure."""
    return {name: measure(text) for name, measure in MEASURES.items()}


def tokens_sent(requests: Sequence[RecordedRequest]) -> dict[str, int]:
    """The tokens of whole requests by each measure: instructions, messages, schemas and options."""
    texts = [_whole(request) for request in requests]
    return {name: sum(map(measure, texts)) for name, measure in MEASURES.items()}


def times_sent(diff: bytes, requests: Sequence[RecordedRequest]) -> dict[str, int]:
    """How often each hunk stands in the prompts, whole and under the name of its file, by its place.

    The diff must be made with the flags that the review itself uses, since others cut hunks elsewhere.
    """
    sent = [part for request in requests for part in _file_parts(_LINE_NUMBER.sub("", prompt_of(request)))]
    times: dict[str, int] = {}
    for file in parse_diff(diff):
        texts = [f"{text}\n" for path, text in sent if path == file.path]
        for hunk in file.hunks:
            place = f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@"
            body = hunk.body.decode()
            times[f"{file.path} {place}"] = sum(
                text.count(f"\n{place}\n{body}") + text.count(f"\n{place} {hunk.section}\n{body}") for text in texts
            )
    return times


def lines_not_sent(diff: bytes, requests: Sequence[RecordedRequest]) -> set[str]:
    """The added lines of a diff that stand in no prompt."""
    sent = {line[1:] for request in requests for line in prompt_of(request).split("\n")}
    added = (line for file in parse_diff(diff) for hunk in file.hunks for line in hunk.lines() if line.kind == "added")
    return {line.text.decode() for line in added} - sent


def _file_parts(prompt: str) -> Iterator[tuple[str, str]]:
    """The files of a prompt with what is sent of them: each begins with `=== path`, and facts in brackets."""
    for part in prompt.split("\n=== ")[1:]:
        first, _, rest = part.partition("\n")
        yield first.partition(" (")[0], f"\n{rest}"


def prompt_of(request: RecordedRequest) -> str:
    """The texts of a request that a model reads as prompts."""
    return "\n".join(_texts([_messages(request.body.get(key)) for key in _PROMPT_KEYS]))


def _whole(request: RecordedRequest) -> str:
    rest = {key: value for key, value in request.body.items() if key not in _PROMPT_KEYS}
    tools = [item for item in request.body.get("input") or () if _is_tools(item)]
    return f"{prompt_of(request)}\n{json.dumps([rest, *tools])}"


def _messages(value: Any) -> Any:
    return [item for item in value if not _is_tools(item)] if isinstance(value, list) else value


def _is_tools(item: Any) -> bool:
    """Whether it is one of the tools that codex has among the messages of some models."""
    return isinstance(item, dict) and "tools" in item


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
