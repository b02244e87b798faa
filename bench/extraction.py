"""Reading an answer: an ordinary answer against its limit of time, large and hostile ones by size.

Ten times the text has to take about ten times as long. Times are the best of several runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

from bench.table import BenchRow
from bench.timing import best_seconds
from codeloupe.reviewers.answers import read_review

_ORDINARY_RUNS = 50
_LARGE_RUNS = 3
_ORDINARY_FINDINGS = 10
_ORDINARY_LIMIT_MS = 10.0
_MEGABYTE = 1_000_000
_GROWTH_LIMIT = 20.0
_HOSTILE = {"brackets": "[1, {", "open strings": '{"a": "b" c, ', "quotes": '"', "fences": "```json\n"}


def rows() -> Iterator[BenchRow]:
    """The rows of the table."""
    items = [_item(number) for number in range(_ORDINARY_FINDINGS)]
    exact = f"```json\n{json.dumps({'findings': items})}\n```\n"
    yield _ordinary("read an ordinary answer, as asked", exact)
    yield _ordinary("read an ordinary answer, with text around the JSON", f"Here it is:\n{exact}")
    yield _ordinary("read an ordinary answer, in lines", "".join(map(_line, range(_ORDINARY_FINDINGS))))
    yield _growth("read a large answer", _answer)
    yield _growth("read a large answer with text around the JSON", lambda size: f"So:\n{_answer(size)}")
    yield _growth("read a large answer with broken JSON", lambda size: _answer(size).replace("},{", ",},{"))
    yield _growth("read a large answer that is cut off", lambda size: _answer(size)[:-3])
    yield _growth("read a large answer in lines", lambda size: "".join(map(_line, range(size // len(_line(0))))))
    for name, piece in _HOSTILE.items():
        yield _growth(f"read nothing but {name}", partial(_repeated, piece))


def _ordinary(name: str, text: str) -> BenchRow:
    answer = read_review(text)
    if len(answer.claims) != _ORDINARY_FINDINGS:
        raise RuntimeError(f"{name}: {len(answer.claims)} claims, {answer.problem}")
    seconds = best_seconds(lambda: read_review(text), times=_ORDINARY_RUNS)
    measured = f"{len(text) / 1000:.1f} kB, {_ORDINARY_FINDINGS} findings"
    return BenchRow(name, measured, seconds * 1000, _ORDINARY_LIMIT_MS, unit=" ms")


def _growth(name: str, text_of: Callable[[int], str]) -> BenchRow:
    texts = [text_of(size) for size in (_MEGABYTE, 10 * _MEGABYTE)]
    small, large = (best_seconds(partial(read_review, text), times=_LARGE_RUNS) for text in texts)
    return BenchRow(f"{name}: 10 MB against 1 MB", f"{large:.2f} s against {small:.2f} s", large / small, _GROWTH_LIMIT)


def _repeated(piece: str, size: int) -> str:
    return piece * (size // len(piece))


def _answer(size: int) -> str:
    items = [_item(number) for number in range(size // len(json.dumps(_item(0))))]
    return json.dumps({"findings": items}, separators=(",", ":"))


def _item(number: int) -> dict[str, object]:
    return {
        "file": f"package/module{number:06}.py",
        "line": number + 1,
        "quote": f"    value = compute({number:06}, other)",
        "title": f"The result of call {number:06} is not used",
        "body": "It is computed and thrown away.\n\nThe caller expects it in `value`, which keeps what it had before.",
        "category": "correctness",
        "severity": "medium",
        "suggestion": "return value",
    }


def _line(number: int) -> str:
    return (
        f"- HIGH correctness: the result of call {number:06} is not used (package/module{number:06}.py:{number + 1})\n"
    )
