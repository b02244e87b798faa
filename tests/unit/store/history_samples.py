"""Reviews, sweeps and records for the tests of the history: ordinary ones, and any that the model allows."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

from codeloupe.model.agent import Usage
from codeloupe.model.change import Commit
from codeloupe.model.finding import Claim, Finding, Source
from codeloupe.model.history import ReviewRecord, SweepRecord
from codeloupe.model.review import Review, ReviewerInfo
from codeloupe.model.sweep import CommitCategory, CommitReview, CommitSweep, CommitVerdict
from tests.unit.reports.examples import finding, review

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)  # a Monday
REPOSITORY = "root:" + "a" * 40
WORK_TREE = "tree:shop"

# Any code point, halves of surrogate pairs among them.
_short = st.text(st.characters(exclude_categories=()), max_size=8)
_plain: dict[Any, st.SearchStrategy[Any]] = {
    # Some are long enough to be compressed.
    str: _short | _short.map(lambda text: text * 200),
    int: st.integers(),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    NoneType: st.none(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    date: st.dates(),
    Path: _short.map(Path),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, whatever fields the model has by now."""
    if kind in _plain:
        return _plain[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind)
        made: Any = kind
        return st.builds(made, **{field.name: any_of(hints[field.name]) for field in fields(kind)})
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return st.one_of(*map(any_of, arguments))
    if get_origin(kind) is Literal:
        return st.sampled_from(arguments)
    if get_origin(kind) is Annotated:
        return any_of(arguments[0])
    if get_origin(kind) is Mapping:
        return st.dictionaries(any_of(arguments[0]), any_of(arguments[1]), max_size=2)
    assert get_origin(kind) in (tuple, frozenset), kind
    # A finding has at least one claim.
    fewest = 1 if arguments[0] is Claim else 0
    return st.lists(any_of(arguments[0]), min_size=fewest, max_size=2).map(get_origin(kind))


any_review: st.SearchStrategy[Review] = any_of(Review)
any_finding: st.SearchStrategy[Finding] = any_of(Finding)
any_sweep: st.SearchStrategy[CommitSweep] = any_of(CommitSweep)


def identifier(number: int) -> str:
    """An id as reviews have it: 32 characters, of which the first eight tell them apart."""
    return f"{number:08x}" + "0" * 24


def at(**elapsed: float) -> datetime:
    """So much later than the start."""
    return START + timedelta(**elapsed)


def named(fingerprint: str, **changes: Any) -> Finding:
    """A finding that is known by its fingerprint."""
    return finding(**{"fingerprint": fingerprint, "expert": "security", "source": Source.ANALYSER, **changes})


def record(number: int = 1, *findings: Finding, **changes: Any) -> ReviewRecord:
    """A saved review with these findings, one day after the one before it; fields of the review go in as well."""
    of_review = {field.name for field in fields(Review)}
    made = review(
        *findings,
        **{
            "review_id": identifier(number),
            "usage": Usage(requests=2, cost_usd=0.25, duration_seconds=10.0),
            **{name: value for name, value in changes.items() if name in of_review},
        },
    )
    others = {name: value for name, value in changes.items() if name not in of_review}
    return ReviewRecord(
        **{
            "review": made,
            "saved_at": at(days=number % 1000),
            "repository": REPOSITORY,
            "work_tree": WORK_TREE,
            "repository_label": "shop",
            "branch": "topic",
            "tool_version": "0.1",
            "prompt_version": "1",
            **others,
        }
    )


def commit_review(number: int, *findings: Finding, **changes: Any) -> CommitReview:
    """One commit of a sweep, reviewed with these findings."""
    commit = Commit(
        sha=f"{number:040x}",
        author="Ada | Example",
        email="ada@example.invalid",
        time=at(hours=number),
        subject=f"fix: number {number}",
        body="",
        files=("a.py",),
        insertions=1,
        deletions=2,
        parents=("b" * 40,),
    )
    values = {
        "commit": commit,
        "category": CommitCategory.BUG_FIX,
        "experts": ("reliability",),
        "review": review(*findings, review_id=identifier(1000 + number), usage=Usage(requests=1, cost_usd=0.5)),
        "score": 0.7,
        "verdict": CommitVerdict.FIX if findings else CommitVerdict.LEAVE,
        **changes,
    }
    return CommitReview(**values)


def sweep_record(number: int, *commits: CommitReview, **changes: Any) -> SweepRecord:
    """A saved sweep of these commits."""
    sweep = CommitSweep(
        sweep_id=identifier(number),
        description="since 24 hours ago",
        reviewer=ReviewerInfo("codex", "as requested"),
        commits=commits,
        summary=f"{len(commits)} commits reviewed",
        exit_code=0,
        score=0.7,
        usage=Usage(requests=3, cost_usd=1.5, duration_seconds=30.0),
    )
    return SweepRecord(
        **{
            "sweep": sweep,
            "saved_at": at(days=number % 1000),
            "repository": REPOSITORY,
            "work_tree": WORK_TREE,
            "repository_label": "shop",
            "branch": "main",
            **changes,
        }
    )
