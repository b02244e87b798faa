"""Same defect: how many judged duplicates are joined, and how many comments that people kept apart.

The data is public and not part of this project. `BENCH_SAME_DEFECT` names a folder with two checkouts: `martian`
(withmartian/code-review-benchmark) and `aacr` (alibaba/aacr-bench).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from bench.table import BenchRow
from codeloupe.findings.merge import merge
from codeloupe.findings.places import Places
from codeloupe.findings.same_defect import SIMILAR, likeness
from codeloupe.model.change import Change, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.finding import Claim, Finding, Severity, Source
from codeloupe.model.ports import Plan

_VARIABLE = "BENCH_SAME_DEFECT"
_JUDGED = "offline/results/anthropic_claude-opus-4-5-20251101/evaluations.json"
_KEPT_APART = "dataset/positive_samples.json"
_DATA = Path(__file__).parent.parent / "tests" / "data"
Pair = tuple[str, str]


def rows() -> Iterator[BenchRow]:
    """Measure the function of `findings/same_defect.py` on each set of pairs."""
    folder = os.environ.get(_VARIABLE)
    if folder is None:
        words = f"not measured: set {_VARIABLE} to a folder with the checkouts `martian` and `aacr`"
        yield BenchRow("same defect: judged duplicates and comments kept apart", words, None, None)
    else:
        yield from _public_rows(Path(folder))
    yield from _own_rows()


def _public_rows(folder: Path) -> Iterator[BenchRow]:
    duplicates = list(_judged_duplicates(folder / "martian" / _JUDGED))
    joined = sum(_are_alike(*pair) for pair in duplicates)
    missed = 1 - joined / len(duplicates)
    yield BenchRow(
        "same defect: judged duplicates of other reviewers not joined",
        f"{joined} of {len(duplicates)} joined",
        missed,
        0.30,
        unit="",
    )
    apart = list(_kept_apart(folder / "aacr" / _KEPT_APART))
    joined = sum(_are_alike(*pair) for pair in apart)
    measured = f"{joined} of {len(apart)} joined"
    yield BenchRow("same defect: comments that people kept apart, joined", measured, joined, 27, unit="")


def _own_rows() -> Iterator[BenchRow]:
    pairs = read_pairs()
    different = [(_text(one["first"]), _text(one["second"])) for one in pairs["different_on_one_line"]]
    joined = sum(_are_alike(*pair) for pair in different)
    measured = f"{joined} of {len(different)} joined"
    share = joined / len(different)
    yield BenchRow("same defect: different defects on one line, joined", measured, share, 0.05, unit="")
    unprompted = [(_text(one["first"]), _text(one["second"])) for one in pairs["next_round"]]
    joined = sum(_are_alike(*pair) for pair in unprompted)
    measured = f"{joined} of {len(unprompted)} joined by their words alone, without the list of open findings"
    yield BenchRow("same defect: reports of two runs that know nothing of each other", measured, None, None)

    recognised = [is_recognised(one, answer) for one, answer in next_rounds()]
    measured = f"{sum(recognised)} of {len(recognised)} recognised"
    missed = 1 - sum(recognised) / len(recognised)
    yield BenchRow("same defect: findings of the next round not recognised", measured, missed, 0.10, unit="")


def read_pairs() -> dict[str, Any]:
    """Return the pairs of findings that were written before the function."""
    pairs: dict[str, Any] = json.loads((_DATA / "same_defect_pairs.json").read_text(encoding="utf-8"))
    return pairs


def next_rounds() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each finding with the answer of a model that was shown it in the list of open findings."""
    known = {one["id"]: one for one in read_pairs()["next_round"]}
    for answer in json.loads((_DATA / "next_round_answers.json").read_text(encoding="utf-8")):
        yield known[answer["id"]], answer["answer"]


def is_recognised(known: dict[str, Any], answer: dict[str, Any]) -> bool:
    """Tell whether the merge gives one of the answer's claims to the earlier finding."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / known["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(known["code"] + "\n", encoding="utf-8")
        rows = [f"+{line}" for line in known["code"].split("\n")]
        hunk = Hunk(0, 0, 1, len(rows), ("\n".join(rows) + "\n").encode(), added=len(rows))
        file = FileChange(None, known["file"], FileStatus.ADDED, hunks=(hunk,))
        change = Change(Scope(ScopeKind.BRANCH, None, None, "a branch"), (file,))
        plan = Plan(change=change, files=(file,), snapshot=Path(folder), trusted=True, timeout_seconds=60)
        places = Places(plan)
        last = len(rows)
        name = hashlib.sha256(known["id"].encode()).hexdigest()[:32]
        claim = _claim_at(known, known["first"], last)
        earlier = Finding(claims=(replace(claim, code=places.state(claim)),), severity=claim.severity, fingerprint=name)
        reports = [_claim_at(known, one, last) for one in answer["findings"]]
        return bool(merge(reports, [earlier], places)[0].reports)


def _claim_at(known: dict[str, Any], report: dict[str, Any], last_line: int) -> Claim:
    return Claim(
        reporter="agent",
        source=Source.AGENT,
        severity=Severity.parse(report["severity"]),
        title=report["title"],
        body=report["body"],
        file=known["file"],
        line_start=1,
        line_end=last_line,
        evidence=known["code"],
        names_finding=report.get("id", ""),
    )


def _judged_duplicates(path: Path) -> Iterator[Pair]:
    """Yield the pairs of comments, by different tools, that a judge matched with the same known defect."""
    for tools in json.loads(path.read_text(encoding="utf-8")).values():
        by_defect: defaultdict[str, set[str]] = defaultdict(set)
        for result in tools.values():
            for match in result.get("true_positives", ()):
                by_defect[match["golden_comment"]].add(match["matched_candidate"])
        for comments in by_defect.values():
            yield from combinations(sorted(comments), 2)


def _kept_apart(path: Path) -> Iterator[Pair]:
    """Yield the pairs of comments on overlapping lines that annotators listed as two."""
    for change in json.loads(path.read_text(encoding="utf-8")):
        for one, other in combinations(change["comments"], 2):
            if one["path"] == other["path"] and one.get("side") == other.get("side") and _overlap(one, other):
                yield one["note"], other["note"]


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    first, last = sorted((one["from_line"] or 0, one["to_line"] or 0))
    other_first, other_last = sorted((other["from_line"] or 0, other["to_line"] or 0))
    return first <= other_last and other_first <= last


def _text(report: dict[str, str]) -> str:
    return f"{report['title']}\n{report['body']}"


def _are_alike(one: str, other: str) -> bool:
    return likeness(_claim(one), _claim(other)) >= SIMILAR


def _claim(text: str) -> Claim:
    return Claim(reporter="agent", source=Source.AGENT, severity=Severity.HIGH, title="", body=text, file="a.py")
