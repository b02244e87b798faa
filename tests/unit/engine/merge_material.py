"""The labelled pairs of review comments, as findings of two looks."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec.structs import replace

from codeloupe.model.finding import Finding
from tests.unit.engine.samples import finding

_PAIRS = Path(__file__).with_name("merge_pairs.yaml")


class Pair(NamedTuple):
    """Two findings, and whether they tell of one defect."""

    one: Finding
    other: Finding
    same: bool

    def __str__(self) -> str:
        return f"{self.one.title} | {self.other.title}"


@cache
def labelled_pairs() -> tuple[Pair, ...]:
    return tuple(_pair(entry) for entry in yaml.safe_load(_PAIRS.read_text(encoding="utf-8")))


def _pair(entry: dict[str, Any]) -> Pair:
    first, second = entry["at"]
    codes = entry["code"], entry.get("code_b", entry["code"])
    return Pair(_seen("one", first, codes[0], entry["a"]), _seen("other", second, codes[1], entry["b"]), entry["same"])


def _seen(look: str, line: int, code: str, comment: list[str]) -> Finding:
    category, title, body, *rule = comment
    made = finding(line=line, evidence=code, category=category, title=title)
    more = {"body": body, "rule": rule[0] if rule else None, "reviewer": look, "seen_by": (look,)}
    return replace(made, line_end=line + code.count("\n"), **more)
