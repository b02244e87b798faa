"""The offline review of an ordinary large change: 60 files, about 9,500 lines, four languages."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.changes import git, make_change
from bench.table import BenchRow
from bench.timing import best_seconds, quiet

_SECONDS_ALLOWED = 3.0


def rows() -> Iterator[BenchRow]:
    """The whole program, start included, against three seconds and against bare git and bare Python."""
    program = str(Path(sys.executable).with_name("codeloupe"))
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "repository"
        make_change(root, files=60, lines=9_500)
        words = [program, "review", "--commit", "HEAD", "--format", "json", "-q"]
        found = json.loads(subprocess.run(words, cwd=root, capture_output=True, check=False).stdout)
        if not found["complete"] or not found["findings"]:
            raise RuntimeError("the review that is measured did not work")
        seconds = best_seconds(lambda: quiet(words, cwd=root, expected=(1,)), times=3)
        diff = best_seconds(lambda: git(root, "diff", "HEAD~1", "HEAD"), times=3)
        lines = git(root, "diff", "--numstat", "HEAD~1", "HEAD")
    count = sum(int(line.split(b"\t")[0]) for line in lines.splitlines())
    detail = f"{seconds:.2f} s, {len(found['findings'])} findings in {count:,} lines"
    yield BenchRow("offline review of 60 files / 3 s", detail, seconds / _SECONDS_ALLOWED, 1.0)
    yield BenchRow("offline review of 60 files / its git diff", f"{seconds:.2f} s / {diff:.3f} s", seconds / diff, None)
