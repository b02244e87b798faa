"""Who is buying a call, and for how long that counts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from codeloupe.store.ledger import Claim, Owner
from tests.rows import rows

HERE = Owner.here()
ELSEWHERE = Owner("another machine", 1, "token")


def ended_process() -> int:
    child = subprocess.Popen((sys.executable, "-S", "-c", ""))
    child.wait()
    return child.pid


@rows("owner", [HERE, ELSEWHERE, Owner("", 7, ""), Owner("a process 3 token b", 7, "x token y")])
def test_an_owner_is_read_back_from_its_text(owner: Owner) -> None:
    assert Owner.parse(str(owner)) == owner


@rows("text", ["", "somebody", "m process x token y", "m process -4 token y", "m process ² token y"])
def test_a_text_that_names_no_process_names_nobody(text: str) -> None:
    assert Owner.parse(text) is None


def test_two_owners_of_one_process_are_two() -> None:
    assert HERE.process_id == os.getpid()
    assert Owner.here() != HERE


def test_a_process_that_runs_is_not_gone() -> None:
    assert not HERE.is_gone()
    assert not replace(HERE, process_id=1).is_gone()


def test_a_process_that_ended_is_gone_where_processes_can_be_told_apart() -> None:
    assert replace(HERE, process_id=ended_process()).is_gone() is bool(HERE.machine)


def test_a_process_that_was_killed_is_gone_before_its_parent_asks_how_it_ended() -> None:
    child = subprocess.Popen((sys.executable, "-S", "-c", "import time; time.sleep(60)"))
    owner = replace(HERE, process_id=child.pid)
    assert not owner.is_gone()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.is_gone() is bool(HERE.machine)
    child.wait()


def test_of_other_machines_nothing_is_known() -> None:
    number = ended_process()
    assert not replace(ELSEWHERE, process_id=number).is_gone()
    assert not Owner("", number, "token").is_gone()
    assert not replace(HERE, process_id=10**30).is_gone()


def test_a_claim_holds_until_its_lease_runs_out() -> None:
    claim = Claim.until(1000.0, owner=ELSEWHERE, lease_seconds=60)
    assert claim.holds(1000.0)
    assert claim.holds(1059.9)
    assert not claim.holds(1060.0)


def test_a_clock_that_was_set_back_does_not_keep_a_claim_for_ever() -> None:
    claim = Claim.until(1000.0, owner=ELSEWHERE, lease_seconds=60)
    assert claim.holds(999.0)
    assert claim.holds(940.0)
    assert not claim.holds(939.0)


def test_a_claim_of_somebody_unknown_holds_for_its_lease() -> None:
    assert Claim("who knows", 60, 1060).holds(1000)


@rows("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_lease_is_some_seconds(seconds: float) -> None:
    with pytest.raises(ValueError, match="a lease lasts some seconds"):
        Claim.until(0, owner=HERE, lease_seconds=seconds)
