"""Files that are written for an analyser, and the target that holds them."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from codeloupe.analysers.dataflow import worker
from codeloupe.analysers.dataflow.outline import Outline
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget

Files = Mapping[str, str | bytes]
Lines = Mapping[str, Iterable[int]] | None


def target(root: Path, files: Files, /, added: Lines = None, **more: Any) -> AnalysisTarget:
    """Write the files; all their lines count as added unless said otherwise."""
    lines: dict[str, frozenset[int]] = {}
    for name, text in files.items():
        content = text.encode() if isinstance(text, str) else text
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
        lines[name] = frozenset((added or {}).get(name, range(1, content.count(b"\n") + 1)))
    fields = {"root": root, "files": tuple(files), "added_lines": lines, "trusted": False, "timeout_seconds": 50.0}
    return AnalysisTarget(**{**fields, **more})


def analyse(analyser: Analyser, root: Path, files: Files, /, added: Lines = None, **more: Any) -> AnalyserReport:
    return asyncio.run(analyser.analyse(target(root, files, added, **more)))


def examine_everything(content: bytes, added: frozenset[int]) -> worker.Answer:
    """Return the data-flow worker's answer, for which it reads all parts of the file."""

    def all_parts(outline: Outline, _: object) -> set[int]:
        return set(range(len(outline.parts)))

    with patch.object(worker, "parts_to_read", all_parts):
        return worker.examine(content, added)
