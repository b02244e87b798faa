"""Inputs from other inputs: bytes and lines taken out, doubled, moved and put in, and words of the target's own."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

MOST_BYTES = 4096
_ODD = (
    *(bytes([value]) for value in b"\0\t\n\r\x1b\"'`{}[]()<>:;,-+*#@!/\\|&%$=~_ 019"),
    b"\xff",
    b"\r\n",
    b"\\u0000",
    b"\\n",
    b'\\"',
    *(sign.encode() for sign in "\u202e\u2028\u200d\ufeff\ufe0f\u00a0\u0085é🔍\U000e0041"),
    b"\xed\xb0\x80",
    b"99999999999999999999",
    b"-1",
    b"1e999",
    b"NaN",
)


def mutated(random: Random, parent: bytes, *, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A new input: the parent after a few random steps."""
    data = parent
    for _ in range(random.choice((1, 1, 1, 2, 2, 4, 8))):
        data = _step(random, data, others=others, words=words)
    return data[:MOST_BYTES]


def pumped(random: Random, data: bytes, *, size: int) -> tuple[bytes, bytes, bytes]:
    """The input in three parts, whose middle is to be repeated until there are so many bytes."""
    start, end = _slice(random, data)
    middle = data[start:end] or b" "
    return data[:start], middle * (size // len(middle) + 1), data[end:]


def _slice(random: Random, data: bytes) -> tuple[int, int]:
    if random.random() < 0.4:
        ends = [0, *(place + 1 for place, byte in enumerate(data) if byte == 0x0A), len(data)]
        start, end = sorted((random.choice(ends), random.choice(ends)))
        return start, end
    start = random.randint(0, len(data))
    return start, min(len(data), start + random.choice((1, 1, 2, 3, 8, 30)))


def _step(random: Random, data: bytes, *, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    start, end = _slice(random, data)
    piece = data[start:end]
    match random.randrange(8):
        case 0:
            return data[:start] + data[end:]
        case 1:
            return data[:end] + piece * random.choice((1, 1, 2, 9)) + data[end:]
        case 2:
            place = random.randint(0, len(data))
            return data[:place] + piece + data[place:]
        case 3:
            return data[:start] + random.choice(_ODD) + data[end if random.random() < 0.5 else start :]
        case 4 | 5:
            return data[:start] + random.choice(words) + data[end if random.random() < 0.5 else start :]
        case 6:
            other = random.choice(others)
            first, last = _slice(random, other)
            return data[:start] + other[first:last] + data[end if random.random() < 0.5 else start :]
        case _:
            other = random.choice(others)
            return data[:start] + other[random.randint(0, len(other)) :]
