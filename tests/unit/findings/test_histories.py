"""Histories of claims, from the sentences of the design: who says what in which round, and what it comes to."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from codeloupe.model.finding import Severity
from codeloupe.model.review import Policy
from tests.histories import AGENT, COMMAND, RUFF, Step, World, agent, command, described, ruff, step

CODE = """\
import json

LIMIT = read_limit()


def load(path):
    handle = open(path)
    data = handle.read()
    return json.loads(data)


def save(path, data):
    target = path + ".new"
    write(target, data)
"""
OPEN, OPEN_CHANGED = "handle = open(path)", 'handle = open(path, encoding="utf-8")'
LIMIT, LIMIT_CHANGED = "LIMIT = read_limit()", "LIMIT = read_limit(default=5)"
WRITE = "write(target, data)"
NOWHERE = "close_all(handles)"

IN_STATEMENT = {"app.py": CODE.replace(OPEN, OPEN_CHANGED)}
IN_FUNCTION = {"app.py": CODE.replace("json.loads(data)", "json.loads(data, strict=False)")}
ELSEWHERE = {"app.py": CODE.replace('".new"', '".tmp"')}
IN_GLOBAL = {"app.py": CODE.replace(LIMIT, LIMIT_CHANGED)}
IN_COMMENT = {"app.py": CODE.replace(OPEN, f"{OPEN}  # read once")}
IN_OTHER_FILE = {"new.py": "value = 1\n"}
_IMPORTS = CODE[: CODE.index("def load")]
_LOAD = CODE[CODE.index("def load") : CODE.index("def save")]
_SAVE = CODE[CODE.index("def save") :]
MOVED = {"app.py": f"{_IMPORTS}{_SAVE}\n\n{_LOAD.rstrip()}\n"}
MOVED_TO_OTHER_FILE = {"app.py": f"{_IMPORTS}{_SAVE}", "other.py": f"import json\n\n\n{_LOAD.rstrip()}\n"}
COPIED = f"{CODE}\n\ndef load_again(path):\n    {OPEN}\n    return handle\n"
REWRITTEN = {"app.py": "def load(path):\n    return Path(path).read_text()\n"}
BASE = {"app.py": CODE.replace(LIMIT, "LIMIT = 3").replace(OPEN, "handle = opened(path)")}

WITH_OTHER_FILE = {**BASE, "other.py": "import json\n"}

LEAK = "The opened file handle is never closed after reading"
LEAK_AGAIN = "Opened file handle stays unclosed when reading configuration fails"
TRAVERSAL = "Untrusted path allows directory traversal outside the root"

HIGH, CRITICAL, MEDIUM = agent(OPEN, LEAK), agent(OPEN, LEAK, "critical"), agent(OPEN, LEAK, "medium")
HIGH_ON_CHANGED = agent(OPEN_CHANGED, LEAK)
CONFIRMED = step(HIGH, proof="confirmed")
UNPROVEN = step(HIGH, proof="unproven")
REFUTED = step(HIGH, proof="refuted")
UNVERIFIED = step(HIGH, proof="failed")
BELOW = step(MEDIUM)
S1, S1_ON_CHANGED = ruff(OPEN, "S1", words=LEAK), ruff(OPEN_CHANGED, "S1", words=LEAK)
S1_MEDIUM = ruff(OPEN, "S1", "medium", words=LEAK)
EXTERNAL = command(OPEN, LEAK)

AGENT_FAILED, RUFF_FAILED, COMMAND_FAILED = frozenset({AGENT}), frozenset({RUFF}), frozenset({COMMAND})
APP = frozenset({"app.py"})
NO_VERIFY = Policy(verify=False)
FAIL_ON_MEDIUM, FAIL_ON_LOW = Policy(fail_on=Severity.MEDIUM), Policy(fail_on=Severity.LOW)
FAIL_ON_CRITICAL = Policy(fail_on=Severity.CRITICAL)


def history(
    rule: str,
    *steps: Step,
    ends: str,
    asked: int = 0,
    exit_code: int | None = None,
    base: Mapping[str, str] | None = None,
) -> object:
    """A row: after its last step, the findings, the number of claims verified in it, and the exit code.

    The exit code is 1 if a finding counts as high or critical, and otherwise 0, unless the row says something else.
    """
    if exit_code is None:
        exit_code = int("high" in ends or "critical" in ends)
    return pytest.param(steps, ends, asked, exit_code, base, id=rule)


FIRST_ROUND = [
    history("without earlier rounds every claim is new", step(HIGH, S1, proof="confirmed"), ends="new high", asked=1),
    history("a confirmed claim counts as made", CONFIRMED, ends="new high", asked=1),
    history("an unproven claim counts one step below the threshold", UNPROVEN, ends="new medium", asked=1),
    history(
        "an unproven critical claim counts no more than a high one",
        step(CRITICAL, proof="unproven"),
        ends="new medium",
        asked=1,
    ),
    history("a refuted claim does not count", REFUTED, ends="refuted", asked=1),
    history("a claim whose verification failed is pending", UNVERIFIED, ends="new pending", asked=1, exit_code=3),
    history("without a verifier a high claim is pending", step(HIGH, verifies=False), ends="new pending", exit_code=3),
    history("a medium claim of an agent counts without proof", BELOW, ends="new medium"),
    history("an analyser's claim counts as made without proof", step(S1), ends="new high"),
    history("an external reviewer's claim counts as made without proof", step(EXTERNAL), ends="new high"),
    history("a silenced report of an analyser makes no finding", step(ruff(OPEN, "S1", silenced_by="noqa")), ends=""),
    history(
        "two agents with similar words report one defect",
        step(HIGH, agent(OPEN, LEAK_AGAIN, by="codex"), proof="confirmed"),
        ends="new high",
        asked=1,
    ),
    history(
        "two agents with the same words make one claim",
        step(HIGH, agent(OPEN, LEAK, by="codex"), proof="confirmed"),
        ends="new high",
        asked=1,
    ),
    history(
        "other words on one statement are another defect",
        step(HIGH, agent(OPEN, TRAVERSAL), proof="confirmed"),
        ends="new high; new high",
        asked=2,
    ),
    history(
        "two agents three lines apart report one defect",
        step(agent(LIMIT, LEAK), agent("def load(path):", LEAK, by="codex"), proof="confirmed"),
        ends="new high",
        asked=1,
    ),
    history(
        "two agents four lines apart report two defects",
        step(agent(LIMIT, LEAK), agent(OPEN, LEAK, by="codex"), proof="confirmed"),
        ends="new high; new high",
        asked=2,
    ),
    history(
        "two analyser rules are never the same defect",
        step(ruff(OPEN, "S1", words=LEAK), ruff(OPEN, "S2", words=LEAK)),
        ends="new high; new high",
    ),
    history(
        "two rules stay apart although an agent agrees with both",
        step(
            ruff(OPEN, "S1", words=LEAK),
            agent("data = handle.read()", LEAK),
            ruff("return json.loads(data)", "S2", words=LEAK),
            proof="confirmed",
        ),
        ends="new high; new high",
        asked=1,
    ),
    history(
        "an agent's rule name does not keep defects apart",
        step(HIGH, ruff(OPEN, "S1", "medium", words=LEAK_AGAIN), proof="refuted"),
        ends="new medium",
        asked=1,
    ),
    history(
        "one rule on two statements stays two although an agent agrees",
        step(HIGH, S1, ruff("data = handle.read()", "S1", words=LEAK), proof="confirmed"),
        ends="new high; new high",
        asked=1,
    ),
    history(
        "one look's claims on two statements are two defects",
        step(HIGH, agent("return json.loads(data)", LEAK), proof="confirmed"),
        ends="new high; new high",
        asked=2,
    ),
]

CONFIRMED_ROWS = [
    history("confirmed, repeated, nothing changed: stays", CONFIRMED, step(HIGH), ends="open high"),
    history("confirmed, repeated in other words: stays", CONFIRMED, step(agent(OPEN, LEAK_AGAIN)), ends="open high"),
    history(
        "confirmed, repeated by another agent: stays", CONFIRMED, step(agent(OPEN, LEAK, by="codex")), ends="open high"
    ),
    history(
        "two agents three lines apart report one defect in the next round too",
        step(agent(LIMIT, LEAK), agent("def load(path):", LEAK, by="codex"), proof="confirmed"),
        step(agent(LIMIT, LEAK), agent("def load(path):", LEAK, by="codex")),
        ends="open high",
    ),
    history(
        "a second agent three lines from a known defect reports that defect",
        step(agent(LIMIT, LEAK), proof="confirmed"),
        step(agent(LIMIT, LEAK), agent("def load(path):", LEAK, by="codex")),
        ends="open high",
    ),
    history(
        "confirmed, silent, its function moved to another file: verified, and only a refutation ends it",
        CONFIRMED,
        step(files=MOVED_TO_OTHER_FILE, proof="unproven"),
        ends="open high",
        asked=1,
        base=WITH_OTHER_FILE,
    ),
    history(
        "confirmed, silent, its function moved and its file left the change: verified",
        CONFIRMED,
        step(files=MOVED_TO_OTHER_FILE, left=APP, proof="unproven"),
        ends="open high",
        asked=1,
        base=WITH_OTHER_FILE,
    ),
    history(
        "confirmed, silent, its file replaced by two copies: stays",
        CONFIRMED,
        step(files={"app.py": None, "one.py": CODE, "two.py": CODE}),
        ends="open high",
    ),
    history(
        "confirmed, silent, its new file renamed and its statement changed: verified",
        CONFIRMED,
        step(files={"app.py": None, "one.py": CODE.replace(OPEN, OPEN_CHANGED)}, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "confirmed, silent in a fresh round, file unchanged: verified again",
        CONFIRMED,
        step(fresh=True, proof="refuted"),
        ends="refuted",
        asked=1,
    ),
    history(
        "confirmed, repeated, its function changed: stays", CONFIRMED, step(HIGH, files=IN_FUNCTION), ends="open high"
    ),
    history(
        "confirmed, repeated, a comment changed: stays",
        CONFIRMED,
        step(agent(f"{OPEN}  # read once", LEAK), files=IN_COMMENT),
        ends="open high",
    ),
    history(
        "confirmed, repeated, statement changed, confirmed: stays",
        CONFIRMED,
        step(HIGH_ON_CHANGED, files=IN_STATEMENT, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "confirmed, repeated, statement changed, unproven: counts lower",
        CONFIRMED,
        step(HIGH_ON_CHANGED, files=IN_STATEMENT, proof="unproven"),
        ends="open medium",
        asked=1,
    ),
    history(
        "confirmed, repeated, statement changed, refuted: ends",
        CONFIRMED,
        step(HIGH_ON_CHANGED, files=IN_STATEMENT, proof="refuted"),
        ends="refuted",
        asked=1,
    ),
    history(
        "confirmed, repeated, statement changed, verification failed: stays confirmed",
        CONFIRMED,
        step(HIGH_ON_CHANGED, files=IN_STATEMENT, proof="failed"),
        ends="open high",
        asked=1,
    ),
    history("confirmed, silent, file unchanged: stays", CONFIRMED, step(), ends="open high"),
    history("confirmed, silent, another file changed: stays", CONFIRMED, step(files=IN_OTHER_FILE), ends="open high"),
    history(
        "confirmed, silent, same statement, refuted: ends",
        CONFIRMED,
        step(files=ELSEWHERE, proof="refuted"),
        ends="refuted",
        asked=1,
    ),
    history(
        "confirmed, silent, same statement, unproven: stays confirmed",
        CONFIRMED,
        step(files=IN_FUNCTION, proof="unproven"),
        ends="open high",
        asked=1,
    ),
    history(
        "confirmed, silent, same statement, verification failed: stays",
        CONFIRMED,
        step(files=IN_FUNCTION, proof="failed"),
        ends="open high",
        asked=1,
    ),
    history(
        "confirmed, silent, same statement, confirmed: stays",
        CONFIRMED,
        step(files=ELSEWHERE, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "confirmed, silent, statement changed, refuted: fixed",
        CONFIRMED,
        step(files=IN_STATEMENT, proof="refuted"),
        ends="fixed",
        asked=1,
    ),
    history(
        "confirmed, silent, statement changed, unproven: fixed",
        CONFIRMED,
        step(files=IN_STATEMENT, proof="unproven"),
        ends="fixed",
        asked=1,
    ),
    history(
        "confirmed, silent, statement changed, confirmed: stays",
        CONFIRMED,
        step(files=IN_STATEMENT, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "confirmed, silent, statement changed, verification failed: stays",
        CONFIRMED,
        step(files=IN_STATEMENT, proof="failed"),
        ends="open high",
        asked=1,
    ),
    history(
        "confirmed, silent, all code rewritten, unproven: fixed",
        CONFIRMED,
        step(files=REWRITTEN, proof="unproven"),
        ends="fixed",
        asked=1,
    ),
    history(
        "confirmed, its unit failed, statement changed: stays",
        CONFIRMED,
        step(files=IN_STATEMENT, failed=AGENT_FAILED),
        ends="open high",
    ),
    history("confirmed, its code was covered: stays", CONFIRMED, step(files=ELSEWHERE, asks=False), ends="open high"),
    history(
        "confirmed, no agent took part: stays", CONFIRMED, step(files=IN_STATEMENT, off=AGENT_FAILED), ends="open high"
    ),
    history(
        "confirmed, its expert was not asked: stays",
        step(agent(OPEN, LEAK, expert="tests"), proof="confirmed"),
        step(files=IN_STATEMENT, experts=frozenset({"security"})),
        ends="open high",
    ),
    history(
        "a claim that stays can end in a later round",
        CONFIRMED,
        step(files=IN_STATEMENT, failed=AGENT_FAILED),
        step(proof="unproven"),
        ends="fixed",
        asked=1,
    ),
]

UNPROVEN_ROWS = [
    history("unproven, repeated, file unchanged: stays", UNPROVEN, step(HIGH), ends="open medium"),
    history(
        "unproven, repeated, another file changed: stays", UNPROVEN, step(HIGH, files=IN_OTHER_FILE), ends="open medium"
    ),
    history(
        "unproven, repeated, file changed, confirmed: counts as made",
        UNPROVEN,
        step(HIGH, files=ELSEWHERE, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "unproven, repeated, file changed, refuted: ends",
        UNPROVEN,
        step(HIGH, files=ELSEWHERE, proof="refuted"),
        ends="refuted",
        asked=1,
    ),
    history(
        "unproven, repeated, file changed, verification failed: stays",
        UNPROVEN,
        step(HIGH, files=ELSEWHERE, proof="failed"),
        ends="open medium",
        asked=1,
    ),
    history("unproven, silent, file unchanged: stays", UNPROVEN, step(), ends="open medium"),
    history(
        "unproven, silent, same statement, refuted: ends",
        UNPROVEN,
        step(files=ELSEWHERE, proof="refuted"),
        ends="refuted",
        asked=1,
    ),
    history(
        "unproven, silent, same statement, unproven: stays",
        UNPROVEN,
        step(files=ELSEWHERE, proof="unproven"),
        ends="open medium",
        asked=1,
    ),
    history(
        "unproven, silent, statement changed, unproven: fixed",
        UNPROVEN,
        step(files=IN_STATEMENT, proof="unproven"),
        ends="fixed",
        asked=1,
    ),
    history(
        "unproven, its unit failed: stays",
        UNPROVEN,
        step(files=IN_STATEMENT, failed=AGENT_FAILED),
        ends="open medium",
        exit_code=3,
    ),
]

REFUTED_ROWS = [
    history("refuted, repeated on the same change: stays refuted", REFUTED, step(HIGH), ends="refuted"),
    history(
        "refuted, repeated in other words on the same change: stays",
        REFUTED,
        step(agent(OPEN, LEAK_AGAIN)),
        ends="refuted",
    ),
    history(
        "refuted, repeated twice on the same change: stays refuted", REFUTED, step(HIGH), step(HIGH), ends="refuted"
    ),
    history(
        "refuted, repeated on another change, confirmed: counts",
        REFUTED,
        step(HIGH, files=ELSEWHERE, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "refuted, repeated, another file changed: verified again",
        REFUTED,
        step(HIGH, files=IN_OTHER_FILE, proof="unproven"),
        ends="open medium",
        asked=1,
    ),
    history(
        "refuted, repeated on another change, verification failed: pending",
        REFUTED,
        step(HIGH, files=ELSEWHERE, proof="failed"),
        ends="open pending",
        asked=1,
        exit_code=3,
    ),
    history(
        "refuted, repeated on another change without verification: counts as made",
        REFUTED,
        step(HIGH, files=ELSEWHERE, policy=NO_VERIFY),
        ends="open high",
    ),
    history("refuted, silent on another change: stays refuted", REFUTED, step(files=ELSEWHERE), ends="refuted"),
    history(
        "refuted, its unit failed: stays refuted",
        REFUTED,
        step(files=ELSEWHERE, failed=AGENT_FAILED),
        ends="refuted",
        exit_code=3,
    ),
    history(
        "refuted, silent once, then repeated on another change: verified",
        REFUTED,
        step(files=ELSEWHERE),
        step(HIGH, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "refuted, another defect on its statement is verified",
        REFUTED,
        step(agent(OPEN, TRAVERSAL), proof="confirmed"),
        ends="refuted; new high",
        asked=1,
    ),
    history(
        "refuted as high, repeated as critical: the critical claim is verified",
        REFUTED,
        step(CRITICAL, proof="confirmed"),
        ends="open critical",
        asked=1,
    ),
    history(
        "refuted, its change came back, repeated: stays refuted",
        REFUTED,
        step(files=ELSEWHERE),
        step(HIGH, files={"app.py": CODE}),
        ends="refuted",
    ),
]

UNVERIFIED_ROWS = [
    history(
        "not verified yet, repeated: verified", UNVERIFIED, step(HIGH, proof="confirmed"), ends="open high", asked=1
    ),
    history(
        "not verified yet, silent, file unchanged: verified",
        UNVERIFIED,
        step(proof="unproven"),
        ends="open medium",
        asked=1,
    ),
    history("not verified yet, silent, refuted: ends", UNVERIFIED, step(proof="refuted"), ends="refuted", asked=1),
    history(
        "not verified yet, silent, statement changed, unproven: fixed",
        UNVERIFIED,
        step(files=IN_STATEMENT, proof="unproven"),
        ends="fixed",
        asked=1,
    ),
    history(
        "not verified yet, silent, statement changed, refuted: fixed",
        UNVERIFIED,
        step(files=IN_STATEMENT, proof="refuted"),
        ends="fixed",
        asked=1,
    ),
    history(
        "not verified yet, repeated, statement changed, unproven: counts lower",
        UNVERIFIED,
        step(HIGH_ON_CHANGED, files=IN_STATEMENT, proof="unproven"),
        ends="open medium",
        asked=1,
    ),
    history(
        "not verified yet, its unit failed: verified",
        UNVERIFIED,
        step(files=IN_STATEMENT, failed=AGENT_FAILED, proof="unproven"),
        ends="open medium",
        asked=1,
        exit_code=3,
    ),
    history(
        "not verified yet, its code was covered: verified",
        UNVERIFIED,
        step(asks=False, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history("not verified twice: stays pending", UNVERIFIED, step(), ends="open pending", asked=1, exit_code=3),
]

BELOW_ROWS = [
    history(
        "below the threshold, repeated, function changed: stays",
        BELOW,
        step(MEDIUM, files=IN_FUNCTION),
        ends="open medium",
    ),
    history("below the threshold, silent, function changed: fixed", BELOW, step(files=IN_FUNCTION), ends="fixed"),
    history(
        "below the threshold, silent, other function changed: stays", BELOW, step(files=ELSEWHERE), ends="open medium"
    ),
    history("below the threshold, silent, nothing changed: stays", BELOW, step(), ends="open medium"),
    history("below the threshold, silent, a comment changed: stays", BELOW, step(files=IN_COMMENT), ends="open medium"),
    history(
        "below the threshold, outside a function, statement changed: fixed",
        step(agent(LIMIT, LEAK, "low")),
        step(files=IN_GLOBAL),
        ends="fixed",
    ),
    history(
        "below the threshold, outside a function, others changed: stays",
        step(agent(LIMIT, LEAK, "low")),
        step(files=IN_STATEMENT),
        ends="open low",
    ),
    history(
        "below the threshold, its unit failed: stays",
        BELOW,
        step(files=IN_FUNCTION, failed=AGENT_FAILED),
        ends="open medium",
        exit_code=3,
    ),
    history(
        "below the threshold, its expert was not asked: stays",
        step(agent(OPEN, LEAK, "low", expert="tests")),
        step(files=IN_FUNCTION, experts=frozenset({"security"})),
        ends="open low",
    ),
    history(
        "unanchored, file changed, silent, but not asked about: stays",
        step(agent(NOWHERE, LEAK, "medium")),
        step(files=ELSEWHERE, asks=False),
        ends="open medium",
    ),
    history(
        "unanchored, file changed, silent, asked about all of it: fixed",
        step(agent(NOWHERE, LEAK, "medium")),
        step(files=ELSEWHERE),
        ends="fixed",
    ),
    history("below the threshold, function moved, silent: stays", BELOW, step(files=MOVED), ends="open medium"),
    history("verify off: a high claim counts as made", step(HIGH, policy=NO_VERIFY), ends="new high"),
    history(
        "verify off, repeated: stays",
        step(HIGH, policy=NO_VERIFY),
        step(HIGH, policy=NO_VERIFY, files=IN_FUNCTION),
        ends="open high",
    ),
    history(
        "verify off, silent, function changed: fixed",
        step(HIGH, policy=NO_VERIFY),
        step(policy=NO_VERIFY, files=IN_FUNCTION),
        ends="fixed",
    ),
    history(
        "verify off, silent, other function changed: stays",
        step(HIGH, policy=NO_VERIFY),
        step(policy=NO_VERIFY, files=ELSEWHERE),
        ends="open high",
    ),
    history(
        "verify on again: the claim is verified",
        step(HIGH, policy=NO_VERIFY),
        step(proof="unproven"),
        ends="open medium",
        asked=1,
    ),
]

ANALYSER_ROWS = [
    history("an analyser that is silent on the file: fixed", step(S1), step(), ends="fixed"),
    history("an analyser that failed: stays", step(S1), step(files=IN_STATEMENT, failed=RUFF_FAILED), ends="open high"),
    history(
        "an analyser's claim hidden by a comment: silenced",
        step(S1),
        step(
            ruff(f"{OPEN}  # noqa: S1", "S1", words=LEAK, silenced_by="noqa: S1"),
            files={"app.py": CODE.replace(OPEN, f"{OPEN}  # noqa: S1")},
        ),
        ends="silenced",
    ),
    history(
        "an analyser's claim in a deleted file: gone", step(S1), step(files={"app.py": None}), ends="gone", base=BASE
    ),
    history("an analyser's claim in an excluded file: gone", step(S1), step(excluded=APP), ends="gone"),
    history("an analyser's claim whose file left the change: gone", step(S1), step(left=APP), ends="gone"),
    history("an agent's claim whose file left the change: gone", CONFIRMED, step(left=APP), ends="gone"),
    history("an agent's claim in an excluded file: gone", CONFIRMED, step(excluded=APP), ends="gone"),
    history(
        "an agent's claim in a deleted file: gone", CONFIRMED, step(files={"app.py": None}), ends="gone", base=BASE
    ),
    history(
        "a claim whose analyser did not take part: stays",
        step(S1),
        step(off=RUFF_FAILED),
        ends="open high",
    ),
    history(
        "an analyser that reports a changed statement: stays",
        step(S1),
        step(S1_ON_CHANGED, files=IN_STATEMENT),
        ends="open high",
    ),
    history(
        "an analyser that reports it elsewhere in the file: stays",
        step(S1),
        step(ruff("return Path(path).read_text()", "S1", words=LEAK), files=REWRITTEN),
        ends="open high",
    ),
    history("an analyser that reports it more severely: counts so", step(S1_MEDIUM), step(S1), ends="open high"),
    history("an analyser that reports it less severely: counts so", step(S1), step(S1_MEDIUM), ends="open medium"),
    history("fixed, then reported again: regressed", step(S1), step(), step(S1), ends="regressed high"),
    history(
        "an agent's claim is gone, then reported again: regressed and verified",
        CONFIRMED,
        step(left=APP),
        step(HIGH, proof="confirmed"),
        ends="regressed high",
        asked=1,
    ),
    history(
        "an agent's claim was gone, its file is back, agents are silent: stays as it was",
        CONFIRMED,
        step(excluded=APP),
        step(),
        ends="regressed high",
    ),
    history("gone is listed once", CONFIRMED, step(left=APP), step(left=APP), ends=""),
    history(
        "gone for two rounds, its file is back: stays as it was",
        CONFIRMED,
        step(left=APP),
        step(left=APP),
        step(),
        ends="regressed high",
    ),
    history(
        "accepted by the baseline, joined by a claim on another statement: counts",
        step(S1),
        step(S1, agent("data = handle.read()", LEAK), accepts="baseline", proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history("gone, then reported again: regressed", step(S1), step(excluded=APP), step(S1), ends="regressed high"),
    history(
        "silenced, then reported again: regressed",
        step(S1),
        step(ruff(OPEN, "S1", words=LEAK, silenced_by="noqa")),
        step(S1),
        ends="regressed high",
    ),
    history("a fixed finding is listed once", step(S1), step(), step(), ends=""),
    history(
        "a fixed claim of an agent, repeated, is verified as new",
        CONFIRMED,
        step(files=IN_STATEMENT, proof="unproven"),
        step(HIGH_ON_CHANGED, proof="confirmed"),
        ends="regressed high",
        asked=1,
    ),
    history(
        "dismissed, its statement changed, repeated: verified and counts",
        CONFIRMED,
        step(HIGH, accepts="dismissal"),
        step(HIGH_ON_CHANGED, files=IN_STATEMENT, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "accepted by the baseline, its function renamed: still accepted",
        step(S1),
        step(S1, files={"app.py": CODE.replace("def load(", "def loaded(")}, accepts="baseline"),
        ends="suppressed",
    ),
    history(
        "accepted by the baseline, copied to another function: the copy counts",
        step(S1),
        step(ruff(OPEN, "S1", words=LEAK, number=2), files={"app.py": COPIED}, accepts="baseline"),
        ends="fixed; new high",
    ),
    history("an external reviewer that is silent: fixed", step(EXTERNAL), step(), ends="fixed"),
    history(
        "an external reviewer that failed: stays",
        step(EXTERNAL),
        step(files=IN_STATEMENT, failed=COMMAND_FAILED),
        ends="open high",
    ),
    history(
        "an external reviewer that reports a changed statement: stays",
        step(EXTERNAL),
        step(command(OPEN_CHANGED, LEAK), files=IN_STATEMENT),
        ends="open high",
    ),
    history(
        "an external reviewer that reports it less severe: stays as it was",
        step(EXTERNAL),
        step(command(OPEN, LEAK, "low")),
        ends="open high",
    ),
    history(
        "an external reviewer that reports it more severe: counts more",
        step(command(OPEN, LEAK, "low")),
        step(EXTERNAL),
        ends="open high",
    ),
    history(
        "an external reviewer that reports it elsewhere: stays",
        step(EXTERNAL),
        step(command("return Path(path).read_text()", LEAK), files=REWRITTEN),
        ends="open high",
    ),
    history(
        "an agent's report does not repeat an external claim",
        step(EXTERNAL),
        step(HIGH, proof="refuted"),
        ends="fixed",
        asked=1,
    ),
    history(
        "one rule on two statements stays two in a later round",
        step(S1, agent("data = handle.read()", LEAK), proof="confirmed"),
        step(S1, ruff("data = handle.read()", "S1", words=LEAK)),
        ends="open high; new high",
    ),
    history(
        "two rules stay apart in a later round too",
        step(S1, HIGH, proof="confirmed"),
        step(S1, HIGH, ruff(OPEN, "S2", words=LEAK)),
        ends="open high; new high",
    ),
]

MERGED_ROWS = [
    history(
        "analyser medium, agent critical unproven: stays medium (F5)",
        step(S1_MEDIUM, CRITICAL, proof="unproven"),
        ends="new medium",
        asked=1,
    ),
    history(
        "analyser medium, agent critical refuted: stays medium",
        step(S1_MEDIUM, CRITICAL, proof="refuted"),
        ends="new medium",
        asked=1,
    ),
    history(
        "analyser medium, agent critical confirmed: critical",
        step(S1_MEDIUM, CRITICAL, proof="confirmed"),
        ends="new critical",
        asked=1,
    ),
    history(
        "analyser medium, agent critical not verified: medium and pending",
        step(S1_MEDIUM, CRITICAL),
        ends="new medium pending",
        asked=1,
        exit_code=3,
    ),
    history("analyser high, agent high not verified: not pending", step(S1, HIGH), ends="new high", asked=1),
    history(
        "analyser high, agent critical not verified: blocks and is pending",
        step(S1, CRITICAL),
        ends="new high pending",
        asked=1,
    ),
    history(
        "agent silent, analyser still reports: stays (F3)",
        step(S1, HIGH, proof="confirmed"),
        step(S1, files=IN_FUNCTION, proof="refuted"),
        ends="open high",
        asked=1,
    ),
    history(
        "agent refuted, analyser still reports: stays (F3)", step(S1, HIGH, proof="refuted"), step(S1), ends="open high"
    ),
    history(
        "analyser silent, agent's confirmed claim stays",
        step(S1, HIGH, proof="confirmed"),
        step(HIGH),
        ends="open high",
    ),
    history("analyser silent, agent's refuted claim: fixed", step(S1, HIGH, proof="refuted"), step(), ends="fixed"),
    history(
        "analyser silent, agent's unproven claim counts lower",
        step(S1, HIGH, proof="unproven"),
        step(),
        ends="open medium",
    ),
    history("an analyser joins an agent's finding of an earlier round", UNPROVEN, step(S1), ends="open high"),
    history(
        "an agent joins an analyser's finding of an earlier round",
        step(S1_MEDIUM),
        step(S1_MEDIUM, HIGH, proof="unproven"),
        ends="open medium",
        asked=1,
    ),
    history(
        "file excluded: analyser's and agent's claims are gone together",
        step(S1, HIGH, proof="confirmed"),
        step(excluded=APP),
        ends="gone",
    ),
]

SEVERITY_ROWS = [
    history("a less severe repetition changes nothing", CONFIRMED, step(MEDIUM), ends="open high"),
    history(
        "a more severe repetition is verified: confirmed",
        BELOW,
        step(HIGH, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "a more severe repetition, refuted: the earlier claim stays",
        BELOW,
        step(HIGH, proof="refuted"),
        ends="open medium",
        asked=1,
    ),
    history(
        "a more severe repetition, not verified: pending",
        BELOW,
        step(HIGH),
        ends="open medium pending",
        asked=1,
        exit_code=3,
    ),
    history(
        "confirmed high, repeated as critical, not verified: still blocks",
        CONFIRMED,
        step(CRITICAL),
        ends="open high pending",
        asked=1,
    ),
    history(
        "confirmed high, repeated as critical, refuted: high",
        CONFIRMED,
        step(CRITICAL, proof="refuted"),
        ends="open high",
        asked=1,
    ),
    history(
        "confirmed high, repeated as critical, confirmed: critical",
        CONFIRMED,
        step(CRITICAL, proof="confirmed"),
        ends="open critical",
        asked=1,
    ),
    history(
        "fail_on medium: a medium claim needs proof",
        step(MEDIUM, policy=FAIL_ON_MEDIUM),
        ends="new pending",
        asked=1,
        exit_code=3,
    ),
    history(
        "fail_on medium: an unproven claim counts as low",
        step(HIGH, proof="unproven", policy=FAIL_ON_MEDIUM),
        ends="new low",
        asked=1,
    ),
    history(
        "fail_on medium: a confirmed medium claim blocks",
        step(MEDIUM, proof="confirmed", policy=FAIL_ON_MEDIUM),
        ends="new medium",
        asked=1,
        exit_code=1,
    ),
    history(
        "fail_on medium: a low claim counts without proof",
        step(agent(OPEN, LEAK, "low"), policy=FAIL_ON_MEDIUM),
        ends="new low",
    ),
    history(
        "fail_on low: an unproven claim is listed, not counted",
        step(HIGH, proof="unproven", policy=FAIL_ON_LOW),
        ends="unproven",
        asked=1,
    ),
    history(
        "fail_on low: a confirmed low claim blocks",
        step(agent(OPEN, LEAK, "low"), proof="confirmed", policy=FAIL_ON_LOW),
        ends="new low",
        asked=1,
        exit_code=1,
    ),
    history(
        "fail_on low: a low claim that is not verified is pending",
        step(agent(OPEN, LEAK, "low"), policy=FAIL_ON_LOW),
        ends="new pending",
        asked=1,
        exit_code=3,
    ),
    history(
        "fail_on critical: a high claim still needs proof",
        step(HIGH, proof="unproven", policy=FAIL_ON_CRITICAL),
        ends="new medium",
        asked=1,
    ),
    history(
        "fail_on lowered later: a medium claim is verified",
        BELOW,
        step(MEDIUM, proof="refuted", policy=FAIL_ON_MEDIUM),
        ends="refuted",
        asked=1,
    ),
    history(
        "fail_on low: an unproven claim stays listed when repeated",
        step(HIGH, proof="unproven", policy=FAIL_ON_LOW),
        step(HIGH, policy=FAIL_ON_LOW),
        ends="unproven",
    ),
]

IGNORED = {"app.py": CODE.replace(OPEN, f"{OPEN}  # codeloupe: ignore closed by the caller")}
ON_IGNORED = f"{OPEN}  # codeloupe: ignore closed by the caller"
SUPPRESSION_ROWS = [
    history("baseline: suppressed and not verified", UNVERIFIED, step(HIGH, accepts="baseline"), ends="suppressed"),
    history("dismissal: suppressed and not verified", UNVERIFIED, step(HIGH, accepts="dismissal"), ends="suppressed"),
    history("comment: suppressed and not verified", step(agent(ON_IGNORED, LEAK), files=IGNORED), ends="suppressed"),
    history("baseline: an analyser's claim is suppressed", step(S1), step(S1, accepts="baseline"), ends="suppressed"),
    history(
        "baseline: silent and not reviewed stays suppressed",
        CONFIRMED,
        step(asks=False, accepts="baseline"),
        ends="suppressed",
    ),
    history(
        "baseline: a more severe claim of an agent is verified",
        BELOW,
        step(MEDIUM, accepts="baseline"),
        step(HIGH, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "dismissal: a more severe claim of an agent is verified",
        BELOW,
        step(MEDIUM, accepts="dismissal"),
        step(HIGH, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "comment: a more severe claim of an agent is verified",
        step(agent(ON_IGNORED, LEAK, "medium"), files=IGNORED),
        step(agent(ON_IGNORED, LEAK, "high"), proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "baseline: an analyser's more severe report counts",
        step(S1_MEDIUM),
        step(S1_MEDIUM, accepts="baseline"),
        step(S1),
        ends="open high",
    ),
    history(
        "dismissal: an analyser's more severe report counts",
        step(S1_MEDIUM),
        step(S1_MEDIUM, accepts="dismissal"),
        step(S1),
        ends="open high",
    ),
    history(
        "baseline: a less severe repetition stays suppressed",
        step(S1),
        step(S1, accepts="baseline"),
        step(S1_MEDIUM),
        ends="suppressed",
    ),
    history(
        "baseline: a changed statement is not suppressed",
        step(S1),
        step(S1, accepts="baseline"),
        step(S1_ON_CHANGED, files=IN_STATEMENT),
        ends="open high",
    ),
    history(
        "dismissal: a changed statement is not suppressed",
        step(S1),
        step(S1, accepts="dismissal"),
        step(S1_ON_CHANGED, files=IN_STATEMENT),
        ends="open high",
    ),
    history(
        "baseline: a changed comment leaves it suppressed",
        step(S1),
        step(S1, accepts="baseline"),
        step(ruff(f"{OPEN}  # read once", "S1", words=LEAK), files=IN_COMMENT),
        ends="suppressed",
    ),
    history(
        "baseline: a moved statement stays suppressed",
        step(S1),
        step(S1, accepts="baseline"),
        step(S1, files=MOVED),
        ends="suppressed",
    ),
    history(
        "baseline: another defect on the statement counts",
        step(S1),
        step(S1, ruff(OPEN, "S2"), accepts="baseline"),
        ends="suppressed; new high",
    ),
    history(
        "baseline: a suppression that is removed lets it count",
        CONFIRMED,
        step(HIGH, accepts="baseline"),
        step(HIGH, drops_acceptance=True),
        ends="open high",
    ),
    history(
        "baseline: removed before a verification, verified then",
        UNVERIFIED,
        step(HIGH, accepts="baseline"),
        step(HIGH, drops_acceptance=True, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "dismissal: undone before a verification, verified then",
        UNVERIFIED,
        step(HIGH, accepts="dismissal"),
        step(HIGH, drops_acceptance=True, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "comment: an untrusted change is not suppressed",
        step(agent(ON_IGNORED, LEAK), files=IGNORED, trusted=False, proof="confirmed"),
        ends="new high",
        asked=1,
    ),
    history(
        "comment: a removed comment lets the claim count",
        step(ruff(ON_IGNORED, "S1"), files=IGNORED),
        step(ruff(OPEN, "S1"), files={"app.py": CODE}),
        ends="open high",
    ),
    history(
        "a suppressed claim of a silent analyser: fixed", step(S1), step(S1, accepts="baseline"), step(), ends="fixed"
    ),
]

PLACE_ROWS = [
    history(
        "a renamed file keeps a confirmed claim, repeated",
        CONFIRMED,
        step(agent(OPEN, LEAK, file="lib.py"), renamed={"app.py": "lib.py"}),
        ends="open high",
        base=BASE,
    ),
    history(
        "a renamed file keeps a confirmed claim, silent",
        CONFIRMED,
        step(renamed={"app.py": "lib.py"}),
        ends="open high",
        base=BASE,
    ),
    history(
        "a renamed file keeps a refuted claim refuted, silent",
        REFUTED,
        step(renamed={"app.py": "lib.py"}),
        ends="refuted",
        base=BASE,
    ),
    history(
        "a renamed file keeps an analyser's claim",
        step(S1),
        step(ruff(OPEN, "S1", file="lib.py"), renamed={"app.py": "lib.py"}),
        ends="open high",
        base=BASE,
    ),
    history(
        "a new file under another name keeps a claim",
        CONFIRMED,
        step(agent(OPEN, LEAK, file="lib.py"), renamed={"app.py": "lib.py"}),
        ends="open high",
    ),
    history("a moved function keeps a confirmed claim, repeated", CONFIRMED, step(HIGH, files=MOVED), ends="open high"),
    history(
        "a moved function keeps a confirmed claim, silent",
        CONFIRMED,
        step(files=MOVED, proof="unproven"),
        ends="open high",
        asked=1,
    ),
    history(
        "a copied statement is another defect",
        CONFIRMED,
        step(
            HIGH,
            agent(OPEN, LEAK, number=2, by="codex"),
            files={"app.py": f"{CODE}\n\n{_LOAD.replace('load', 'load_again')}"},
            proof="confirmed",
        ),
        ends="open high; new high",
        asked=1,
    ),
    history(
        "the same words four lines away are another defect",
        CONFIRMED,
        step(agent(WRITE, LEAK), proof="confirmed"),
        ends="open high; new high",
        asked=1,
    ),
    history(
        "the same words in another file are another defect",
        CONFIRMED,
        step(agent("value = 1", LEAK, file="new.py"), files=IN_OTHER_FILE, proof="confirmed"),
        ends="open high; new high",
        asked=1,
    ),
    history(
        "in later rounds a neighbouring statement is another defect",
        CONFIRMED,
        step(agent("data = handle.read()", LEAK), proof="confirmed"),
        ends="open high; new high",
        asked=1,
    ),
]

ID_ROWS = [
    history(
        "an id at its finding's place repeats it in any words",
        CONFIRMED,
        step(agent(OPEN, TRAVERSAL, names="first")),
        ends="open high",
    ),
    history(
        "an id at another place does not count",
        CONFIRMED,
        step(agent(WRITE, TRAVERSAL, names="first"), proof="confirmed"),
        ends="open high; new high",
        asked=1,
    ),
    history(
        "an id in another file does not count",
        CONFIRMED,
        step(agent("value = 1", LEAK, file="new.py", names="first"), files=IN_OTHER_FILE, proof="confirmed"),
        ends="open high; new high",
        asked=1,
    ),
    history(
        "an unknown id does not count",
        CONFIRMED,
        step(agent(OPEN, TRAVERSAL, names="0123456789ab"), proof="confirmed"),
        ends="open high; new high",
        asked=1,
    ),
    history(
        "an id follows its finding to a changed statement",
        CONFIRMED,
        step(agent(OPEN_CHANGED, TRAVERSAL, names="first"), files=IN_STATEMENT, proof="confirmed"),
        ends="open high",
        asked=1,
    ),
    history(
        "an id of a finding that is not open does not count",
        REFUTED,
        step(agent(OPEN, TRAVERSAL, names="first"), proof="confirmed"),
        ends="refuted; new high",
        asked=1,
    ),
    history(
        "a critical claim that names an analyser's finding needs proof",
        step(S1),
        step(S1, agent(OPEN, TRAVERSAL, "critical", names="first"), proof="refuted"),
        ends="open high",
        asked=1,
    ),
]

UNANCHORED = agent(NOWHERE, LEAK)
UNANCHORED_ROWS = [
    history(
        "confirmed but unanchored: pending",
        step(UNANCHORED, proof="confirmed"),
        ends="new pending",
        asked=1,
        exit_code=3,
    ),
    history("unproven and unanchored: counts lower", step(UNANCHORED, proof="unproven"), ends="new medium", asked=1),
    history("refuted and unanchored: does not count", step(UNANCHORED, proof="refuted"), ends="refuted", asked=1),
    history("unanchored below the threshold: counts", step(agent(NOWHERE, LEAK, "medium")), ends="new medium"),
    history(
        "unanchored claims in a file with similar words are one",
        step(UNANCHORED, agent("close_none()", LEAK_AGAIN, by="codex"), proof="unproven"),
        ends="new medium",
        asked=1,
    ),
    history(
        "an unanchored claim does not match an anchored one",
        step(UNANCHORED, agent(OPEN, LEAK, by="codex"), proof="unproven"),
        ends="new medium; new medium",
        asked=2,
    ),
    history(
        "unanchored, confirmed, repeated, file unchanged: stays pending",
        step(UNANCHORED, proof="confirmed"),
        step(UNANCHORED),
        ends="open pending",
        exit_code=3,
    ),
    history(
        "unanchored, confirmed, repeated, file changed: verified again",
        step(UNANCHORED, proof="confirmed"),
        step(UNANCHORED, files=ELSEWHERE, proof="refuted"),
        ends="refuted",
        asked=1,
    ),
    history(
        "unanchored, confirmed, silent, file changed, unproven: fixed",
        step(UNANCHORED, proof="confirmed"),
        step(files=ELSEWHERE, proof="unproven"),
        ends="fixed",
        asked=1,
    ),
    history(
        "unanchored, unproven, silent, file changed, refuted: fixed",
        step(UNANCHORED, proof="unproven"),
        step(files=ELSEWHERE, proof="refuted"),
        ends="fixed",
        asked=1,
    ),
    history(
        "unanchored, not verified, silent, file changed, unproven: fixed",
        step(UNANCHORED),
        step(files=ELSEWHERE, proof="unproven"),
        ends="fixed",
        asked=1,
    ),
    history(
        "unanchored below the threshold, silent, file changed: fixed",
        step(agent(NOWHERE, LEAK, "low")),
        step(files=ELSEWHERE),
        ends="fixed",
    ),
    history(
        "unanchored below the threshold, silent, file unchanged: stays",
        step(agent(NOWHERE, LEAK, "low")),
        step(),
        ends="open low",
    ),
    history(
        "unanchored, confirmed, its unit failed: stays pending",
        step(UNANCHORED, proof="confirmed"),
        step(files=ELSEWHERE, failed=AGENT_FAILED),
        ends="open pending",
        exit_code=3,
    ),
]

ROWS = [
    *FIRST_ROUND,
    *CONFIRMED_ROWS,
    *UNPROVEN_ROWS,
    *REFUTED_ROWS,
    *UNVERIFIED_ROWS,
    *BELOW_ROWS,
    *ANALYSER_ROWS,
    *MERGED_ROWS,
    *SEVERITY_ROWS,
    *SUPPRESSION_ROWS,
    *PLACE_ROWS,
    *ID_ROWS,
    *UNANCHORED_ROWS,
]


@pytest.mark.parametrize(("steps", "ends", "asked", "exit_code", "base"), ROWS)
def test_history(
    steps: tuple[Step, ...], ends: str, asked: int, exit_code: int, base: Mapping[str, str] | None, tmp_path: Path
) -> None:
    world = World(tmp_path, {"app.py": CODE}, base=base)
    review = world.play(steps)
    found = "; ".join(described(finding) for finding in review.findings)
    assert (found, len(world.verifier.asked), review.exit_code) == (ends, asked, exit_code)
