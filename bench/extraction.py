"""Reading what a model answered: an ordinary answer against its limit of time, large and hostile ones by size.

Ten times the text has to take about ten times as long. Times are the best of several runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

from bench.table import BenchRow
from bench.timing import best_seconds
from codeloupe.engine.parse.review_answer import read_review_answer

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
    yield _ordinary(
        "read an ordinary answer, as asked", f"Here it is:\n```json\n{json.dumps({'findings': items})}\n```\n"
    )
    yield _ordinary("read an ordinary answer, with broken JSON", repr({"findings": items}))
    yield _ordinary("read an ordinary answer, in Markdown", "".join(map(_bullets, range(_ORDINARY_FINDINGS))))
    yield _growth("read a large answer", _answer)
    yield _growth("read a large answer with broken JSON", lambda size: _answer(size).replace("},{", ",},{"))
    yield _growth("read a large answer that is cut off", lambda size: _answer(size)[:-3])
    yield _growth(
        "read a large answer in Markdown", lambda size: "".join(map(_bullets, range(size // len(_bullets(0)))))
    )
    for name, piece in _HOSTILE.items():
        yield _growth(f"read nothing but {name}", partial(_repeated, piece))


def _ordinary(name: str, text: str) -> BenchRow:
    answer = read_review_answer(text)
    if len(answer.findings) != _ORDINARY_FINDINGS or answer.problem:
        raise RuntimeError(f"{name}: {len(answer.findings)} findings, {answer.problem}")
    seconds = best_seconds(lambda: read_review_answer(text), times=_ORDINARY_RUNS)
    measured = f"{len(text) / 1000:.1f} kB, {_ORDINARY_FINDINGS} findings"
    return BenchRow(name, measured, seconds * 1000, _ORDINARY_LIMIT_MS, unit=" ms")


def _growth(name: str, text_of: Callable[[int], str]) -> BenchRow:
    texts = [text_of(size) for size in (_MEGABYTE, 10 * _MEGABYTE)]
    small, large = (best_seconds(partial(read_review_answer, text), times=_LARGE_RUNS) for text in texts)
    return BenchRow(f"{name}: 10 MB against 1 MB", f"{large:.2f} s against {small:.2f} s", large / small, _GROWTH_LIMIT)


def _repeated(piece: str, size: int) -> str:
    return piece * (size // len(piece))


def _answer(size: int) -> str:
    items = [_item(number) for number in range(size // len(json.dumps(_item(0))))]
    return f"So:\n{json.dumps({'findings': items}, separators=(',', ':'))}"


def _item(number: int) -> dict[str, object]:
    return {
        "file": f"package/module{number:06}.py",
        "line": number + 1,
        "quote": f"    value = compute({number:06}, other)",
        "title": f"The result of call {number:06} is not used",
        "body": "It is computed and thrown away.\n\nThe caller expects it in `value`, which keeps what it had before.",
        "category": "correctness",
        "severity": "medium",
        "confidence": 0.7,
        "suggestion": "return value",
    }


def _bullets(number: int) -> str:
    return (
        f"- **Severity:** HIGH\n- **Category:** correctness\n- **Description:** Call {number:06} is not used\n"
        f"- **Evidence:** package/module{number:06}.py:{number + 1} - value = compute({number:06}, other)\n\n"
    )
