"""The ledger in the database: owners, limits and what can be learnt about it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import fields, replace

from codeloupe.model.agent import AgentRequest, PermissionMode
from codeloupe.store.ledger import Asked, DatabaseLedger, content_key, is_repeatable
from codeloupe.store.owner import Owner
from codeloupe.store.sqlite import SqliteDatabase
from tests.rows import each
from tests.unit.store.samples import SetClock, request, request_fields, requests, result

DAY = 86_400.0
ELSEWHERE = Owner("another machine", 1, "token")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "codeloupe.sqlite3"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase(path) as opened:
        yield opened


@pytest.fixture
def ledger(database: SqliteDatabase, clock: SetClock) -> DatabaseLedger:
    return DatabaseLedger(database, clock=clock, max_age_days=10**6)


@pytest.fixture
def other(path: Path, clock: SetClock) -> Iterator[DatabaseLedger]:
    with SqliteDatabase(path) as opened:
        yield DatabaseLedger(opened, clock=clock, max_age_days=10**6, owner=ELSEWHERE)


def keys(database: SqliteDatabase) -> list[str]:
    return [key for (key,) in database.select("SELECT key FROM results ORDER BY key")]


class TestOwners:
    def test_what_another_finished_since_we_asked_is_not_bought_again(
        self, ledger: DatabaseLedger, other: DatabaseLedger
    ) -> None:
        assert ledger.get("k") is None
        assert other.claim("k", lease_seconds=60)
        other.put("k", result())
        assert not ledger.claim("k", lease_seconds=60)
        assert ledger.get("k") is not None
        assert ledger.claim("k", lease_seconds=60)

    def test_nobody_ends_or_extends_the_claim_of_another(
        self, ledger: DatabaseLedger, other: DatabaseLedger, clock: SetClock
    ) -> None:
        assert other.claim("k", lease_seconds=60)
        assert not ledger.claim("k", lease_seconds=60)
        ledger.release("k")
        ledger.renew("k", lease_seconds=600)
        assert ledger.is_claimed("k")
        clock.now += 61
        assert not ledger.is_claimed("k")


def pruned(database: SqliteDatabase, clock: SetClock, **limits: float) -> None:
    """Apply these limits, as the first `put` does an hour after the last pruning."""
    database.change("DELETE FROM maintenance")
    last = DatabaseLedger(database, clock=clock, **limits)  # type: ignore[arg-type]  # by name
    last.put("~last", result(""))


class TestLimits:
    def test_what_is_too_old_goes(self, database: SqliteDatabase, ledger: DatabaseLedger, clock: SetClock) -> None:
        for age in (100, 91, 89, 0):
            clock.now = 1e9 - age * DAY
            ledger.put(f"{age:03}", result())
            assert ledger.claim(f"{age:03}", lease_seconds=60)
        pruned(database, clock)
        assert keys(database) == ["000", "089", "~last"]
        assert database.select("SELECT name FROM leases") == [("call 000",)]

    def test_then_the_oldest_until_the_rest_fits(
        self, database: SqliteDatabase, ledger: DatabaseLedger, clock: SetClock
    ) -> None:
        for number in (3, 1, 2, 0):
            clock.now = 1e9 - number
            ledger.put(str(number), result(os.urandom(1000).hex()))
        ((size_bytes,),) = database.select("SELECT sum(size_bytes) FROM results")
        pruned(database, clock, max_gb=(size_bytes / 2 + 500) / 1024**3)
        assert keys(database) == ["0", "1", "~last"]

    def test_a_ledger_is_pruned_again_after_an_hour(self, database: SqliteDatabase, clock: SetClock) -> None:
        before = DatabaseLedger(database, clock=lambda: clock.now - 100 * DAY, max_age_days=10**6)
        ledger = DatabaseLedger(database, clock=clock)
        before.put("old", result())
        # `before` has pruned the database just now.
        database.change("DELETE FROM maintenance")
        ledger.put("new", result())
        assert keys(database) == ["new"]
        before.put("old", result())
        ledger.put("newer", result())
        assert keys(database) == ["new", "newer", "old"]
        clock.now += 3601
        database.change("UPDATE maintenance SET done_at = done_at - 3601")
        ledger.put("newest", result())
        assert keys(database) == ["new", "newer", "newest"]

    def test_a_limit_that_cannot_be_kept_now_does_not_cost_the_result(
        self, database: SqliteDatabase, clock: SetClock
    ) -> None:
        DatabaseLedger(database, clock=lambda: 1.0, max_age_days=10**6).put("old", result())
        database.change("DELETE FROM maintenance")
        database.change("CREATE TRIGGER stuck BEFORE DELETE ON results BEGIN SELECT raise(ABORT, 'stuck'); END")
        DatabaseLedger(database, clock=clock).put("new", result())
        assert keys(database) == ["new", "old"]


HERE = Owner.here()


@each("owner", [HERE, ELSEWHERE, Owner("", 7, ""), Owner("a process 3 token b", 7, "x token y")])
def test_an_owner_is_read_back_from_its_text(owner: Owner) -> None:
    assert Owner.parse(str(owner)) == owner
    for text in ("", "somebody", "m process x token y", "m process -4 token y", "m process ² token y"):
        assert Owner.parse(text) is None


@pytest.mark.program
def test_a_process_is_gone_once_it_ended_where_processes_can_be_told_apart() -> None:
    assert not HERE.is_gone()
    assert not replace(HERE, process_id=1).is_gone()
    child = subprocess.Popen((sys.executable, "-S", "-c", "import time; time.sleep(60)"))
    owner = replace(HERE, process_id=child.pid)
    assert not owner.is_gone()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.is_gone() is bool(HERE.machine), "before its parent asks how it ended"
    child.wait()
    assert owner.is_gone() is bool(HERE.machine)
    # Of other machines nothing is known.
    for other in (replace(owner, machine="another"), replace(owner, machine=""), replace(HERE, process_id=10**30)):
        assert not other.is_gone()


def test_a_clock_that_was_set_back_does_not_keep_a_claim_for_ever(
    ledger: DatabaseLedger, other: DatabaseLedger, clock: SetClock
) -> None:
    assert other.claim("k", lease_seconds=60)
    held = []
    for seconds in (-1, -59, -1):
        clock.now += seconds
        held.append(ledger.is_claimed("k"))
    assert held == [True, True, False]


NOT_SHAPING: dict[str, Any] = {
    "working_dir": Path("elsewhere"),
    "timeout_seconds": 1.5,
    "idle_timeout_seconds": 2.5,
    "max_attempts": 2,
    "max_budget_usd": 0.25,
    "labels": {"unit": "3"},
    # A call that resumes has no key, and without a session there is nothing to fork.
    "fork_session": True,
}


def key(of: AgentRequest, **changes: Any) -> str:
    asked = {"agent": "scripted", "model": "m", "service": None, "trust": "trusted"}
    who = Asked(**{name: changes.pop(name, value) for name, value in asked.items()})
    return content_key(of, who, **changes)


def shape(of: AgentRequest) -> list[str]:
    """What must be equal for two keys to be equal; the order of names inside mappings counts."""
    return [repr(getattr(of, name)) for name in request_fields]


@given(before=requests, other=requests)
def test_a_change_of_one_field_changes_the_key_just_where_it_shapes_the_answer(
    before: AgentRequest, other: AgentRequest
) -> None:
    assert {field.name for field in fields(AgentRequest)} == request_fields.keys() | NOT_SHAPING.keys()
    for name, value in NOT_SHAPING.items():
        assert key(before) == key(replace(before, **{name: value})), name
    for name in request_fields:
        after = replace(before, **{name: getattr(other, name)})
        assert (key(before) == key(after)) == (shape(before) == shape(after)), name


def test_the_parts_around_the_request_do_not_run_into_each_other() -> None:
    variants: list[dict[str, Any]] = [
        {"agent": "ab", "model": "c"},
        {"agent": "a", "model": "bc"},
        {"agent": "a", "model": None},
        {"agent": "a", "model": "null"},
        {"extra": {"a": "b", "c": "d"}},
        {"extra": {"a": 'b"],["c","d'}},
        {"tree": "x"},
        {"extra": {"tree": "x"}},
        {"version": "x"},
        {"service": "http://127.0.0.1:1"},
        {"trust": "untrusted"},
        {},
    ]
    assert len({key(request(), **variant) for variant in variants}) == len(variants)
    # Half a character is not the whole one.
    texts = ["\ud83d", "\ude00", "\ud83d\ude00", "\N{GRINNING FACE}", "\\ud83d"]
    assert len({key(request(prompt=text)) for text in texts}) == len(texts)


def test_the_order_of_a_schema_and_of_the_context_counts_since_the_model_sees_it() -> None:
    properties = {"why": {"type": "string"}, "verdict": {"type": "string"}}
    turned = dict(reversed(properties.items()))
    assert key(request(output_schema={"properties": properties})) != key(request(output_schema={"properties": turned}))
    assert key(request(context={"a": "1", "b": "2"})) != key(request(context={"b": "2", "a": "1"}))
    assert key(request(), extra={"a": "1", "b": "2"}) == key(request(), extra={"b": "2", "a": "1"})


def test_a_frozen_schema_has_the_key_of_a_plain_one_and_what_is_no_json_none() -> None:
    frozen = MappingProxyType({"properties": MappingProxyType({"a": MappingProxyType({"type": "string"})})})
    plain = {"properties": {"a": {"type": "string"}}}
    assert key(request(output_schema=frozen)) == key(request(output_schema=plain))
    with pytest.raises(TypeError, match="dictionary"):
        key(request(output_schema={"enum": {1, 2}}))


def test_the_key_is_the_same_in_every_run_of_every_version() -> None:
    """A change here means that nothing stored before is found again: then it is meant, and the format is raised."""
    asked = request(prompt="p\ud800", context={"t": "x"}, output_schema={"type": "object"}, tools=("Read",))
    assert key(asked, tree="t") == "40caea1d823bc2c5ce726d9a9a251ff4cc19e704c709f9276358a6b2680c3312"


@each(
    ("mode", "session", "expected"),
    [
        (PermissionMode.PLAN, None, True),
        (PermissionMode.DEFAULT, None, True),
        (PermissionMode.DONT_ASK, None, True),
        (PermissionMode.ACCEPT_EDITS, None, False),
        (PermissionMode.BYPASS, None, False),
        (PermissionMode.DONT_ASK, "session", False),
        (PermissionMode.DONT_ASK, "", False),
    ],
)
def test_only_a_call_that_changes_nothing_and_resumes_nothing_is_repeatable(
    mode: PermissionMode, session: str | None, expected: bool
) -> None:
    assert is_repeatable(request(permission_mode=mode, resume_session=session)) is expected
