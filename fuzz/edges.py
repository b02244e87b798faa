"""Which steps from line to line the program took, of its own lines alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import codeloupe

_SOURCE = str(Path(codeloupe.__file__).parent)

Edge = tuple[CodeType, int, int]


def edges_of(call: Callable[[], object]) -> set[Edge]:
    """The steps that a call took. What it raises is the caller's business."""
    edges: set[Edge] = set()

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_SOURCE):
            return None
        before = code.co_firstlineno

        def step(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal before
            if event == "line":
                edges.add((code, before, frame.f_lineno))
                before = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(None)
    return edges
