"""The search: mutate what reached something new, keep what reaches more, make small what fell."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic, process_time

from fuzz.edges import Edge, edges_of
from fuzz.mutation import mutated, pumped
from fuzz.target import Fell, Target

CORPUS = Path(__file__).with_name("corpus")
_MOST_KEPT_BYTES = 40_000
_SLOW_KEPT_BYTES = 4096
_SLOWEST_SECONDS = 0.15
_LONGEST_SECONDS = 4.0
# Four times the bytes take four times as long, or sixteen times where the time is quadratic.
_STEEPEST = 10.0
_MOST_SLOW = 5
_SHRINK_SECONDS = 5.0
# Tracing takes several times as long as the call itself.
_TRACED_SHARE = 0.3
# Of all time, what goes into pumped inputs at most.
_PUMP_SHARE = 0.2


class Search:
    """One run over one target. `fell` are the inputs that broke something, by where and how they did."""

    def __init__(self, target: Target, *, seed: int) -> None:
        self.target = target
        self.runs = 0
        self.edges: set[Edge] = set()
        self.fell: dict[str, bytes] = {}
        self._pool: list[bytes] = []
        self._random = Random(seed)  # noqa: S311 - it must be repeatable, not secret
        self._pump_seconds = 0.0

    def run(self, seconds: float) -> None:
        """Search for so long, after the corpus and the seeds were tried."""
        began = told = monotonic()
        for data in (*(file.read_bytes() for file in corpus_files(self.target.name)), *self.target.seeds()):
            self._try(data, keep=True)
        while (now := monotonic()) - began < seconds:
            parent = self._random.choice(self._pool[-40:] if self._random.random() < 0.3 else self._pool)
            data = mutated(self._random, parent, others=self._pool, words=self.target.words)
            self._try(data, keep=False)
            if self._pump_seconds < _PUMP_SHARE * (now - began):
                self._pump(self._random.choice(self._pool))
            if now - told > 60:
                told = now
                _say(f"{now - began:5.0f} s  {self}")

    def __str__(self) -> str:
        counts = f"{self.runs:,} runs, {len(self.edges):,} edges, {len(self._pool):,} inputs, {len(self.fell):,} fell"
        return f"{self.target.name}: {counts}"

    def kept(self) -> list[bytes]:
        """The smallest inputs that together reach what was reached, as far as the corpus has room."""
        kept: list[bytes] = []
        reached: set[Edge] = set()
        room = _MOST_KEPT_BYTES
        for data in sorted(self._pool, key=len):
            edges = edges_of(lambda data=data: _quietly(self.target.search, data))  # type: ignore[misc]
            if not edges <= reached and len(data) <= room:
                kept.append(data)
                reached |= edges
                room -= len(data)
        return kept

    def _try(self, data: bytes, *, keep: bool) -> None:
        self.runs += 1
        if keep or self._random.random() < _TRACED_SHARE:
            edges = edges_of(lambda: _quietly(self.target.search, data))
            if keep or not edges <= self.edges:
                self._pool.append(data)
            self.edges |= edges
        self._check(data, self.target.check)

    def _check(self, data: bytes, check: Callable[[bytes], object]) -> None:
        how = failure(check, data)
        if how and how not in self.fell:
            self.fell[how] = smaller(data, lambda other: failure(check, other) == how)
            _say(f"FELL {self.target.name}: {how}\n  {self.fell[how]!r}")

    def _pump(self, parent: bytes) -> None:
        """Take the time of an input with one part repeated many times, and of one with a quarter of that."""
        began = monotonic()
        before, middle, behind = pumped(self._random, parent, size=self.target.most_bytes)
        data = before + middle + behind
        seconds = self._seconds(data)
        if seconds > _SLOWEST_SECONDS:
            quarter = self._seconds(before + middle[: len(middle) // 4] + behind)
            seconds = min(seconds, self._seconds(data))
            if seconds > _STEEPEST * quarter or seconds > _LONGEST_SECONDS:
                how = f"slow: {seconds:.1f} s for {len(data):,} bytes, {quarter:.2f} s for a quarter of it"
                self._keep_slow(how, before + middle[:_SLOW_KEPT_BYTES] + behind)
        self._pump_seconds += monotonic() - began

    def _keep_slow(self, how: str, data: bytes) -> None:
        if sum(known.startswith("slow") for known in self.fell) < _MOST_SLOW:
            self.fell[how] = data
            _say(f"FELL {self.target.name}: {how}\n  {data[:300]!r}")

    def _seconds(self, data: bytes) -> float:
        began = process_time()
        _quietly(self.target.search, data)
        return process_time() - began


def failure(check: Callable[[bytes], object], data: bytes) -> str:
    """How the check of an input fell, and where; empty when it holds."""
    try:
        check(data)
    except Fell as error:
        return f"Fell: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
    return ""


def smaller(data: bytes, falls: Callable[[bytes], bool]) -> bytes:
    """A part of the input that still falls: pieces are taken out, half of it first, for some seconds at most."""
    end = monotonic() + _SHRINK_SECONDS
    size = max(len(data) // 2, 1)
    while size and monotonic() < end:
        start = 0
        while start < len(data) and monotonic() < end:
            less = data[:start] + data[start + size :]
            if falls(less):
                data = less
            else:
                start += size
        size //= 2
    return data


def corpus_files(name: str) -> list[Path]:
    """The kept inputs of a target, in the order of their names."""
    return sorted((CORPUS / name).glob("*.input"))


def save(search: Search) -> None:
    """Put what is worth keeping in the place of what was kept; inputs that fell once stay for good."""
    folder = CORPUS / search.target.name
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {f"{_name(data)}.input": data for data in search.kept()}
    wanted |= {f"fell-{_name(data)}.input": data for data in search.fell.values()}
    for file in corpus_files(search.target.name):
        if file.name not in wanted and not file.name.startswith("fell-"):
            file.unlink()
    for name, data in wanted.items():
        (folder / name).write_bytes(data)


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _quietly(call: Callable[[bytes], object], data: bytes) -> None:
    # Whatever it is, the check tells of it.
    with contextlib.suppress(Exception):
        call(data)


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()
