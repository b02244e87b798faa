import asyncio
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.engine.identity import PlacesOfNow, is_touched
from codeloupe.engine.rounds import IncrementalReviewer, already_seen, digests, unseen
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.ports import ReviewerOutcome, ReviewTask
from codeloupe.testing import ScriptedAgent
from tests.review_factories import answer, claim, make_reviewer, make_task, named
from tests.unit.engine.samples import finding

HUNK = Hunk(1, 1, 1, 2, b" a\n+b\n", section="def f", added=1)
FILE = FileChange("a.py", "a.py", FileStatus.MODIFIED, "100644", "100644", hunks=(HUNK,))


def reviewed(
    task: ReviewTask, look: tuple[frozenset[str], tuple[Finding, ...]], agent: ScriptedAgent
) -> ReviewerOutcome:
    return asyncio.run(IncrementalReviewer(make_reviewer(agent), *look).review(task, lambda _event: None))


def about(name: str, number: int = 3) -> Finding:
    quote = f"value_{number} = compute('{name}', {number}, 'some text to fill it')"
    return replace(finding(file=name, line=number + 1, evidence=quote), fingerprint=f"{name} {number}")


def test_a_hunk_is_known_wherever_it_is_but_not_with_another_file_mode_section_or_line() -> None:
    moved = replace(FILE, hunks=(replace(HUNK, old_start=90, new_start=95),))
    assert unseen([moved], digests([FILE])) == ()
    others = [
        replace(FILE, old_path="b.py", new_path="b.py"),
        replace(FILE, new_mode="100755"),
        replace(FILE, old_path="was.py", status=FileStatus.RENAMED),
        replace(FILE, hunks=(replace(HUNK, section="def g"),)),
        replace(FILE, hunks=(replace(HUNK, body=b" a\n+c\n"),)),
    ]
    assert unseen(others, digests([FILE])) == tuple(others)
    # The same hunk again is not known by the first.
    again = replace(HUNK, old_start=50, new_start=51)
    [left] = unseen([replace(FILE, hunks=(HUNK, again))], digests([FILE]))
    assert left.hunks == (again,)


def _numbered(file: FileChange) -> set[tuple[str, int | None, int | None, bytes]]:
    return {(line.kind, line.old_number, line.new_number, line.text) for hunk in file.hunks for line in hunk.lines()}


@pytest.mark.defect("V1")
def test_of_a_long_hunk_the_parts_with_new_lines_are_left_with_the_right_numbers() -> None:
    chance = random.Random(7)
    failures: list[object] = []
    for case in range(300):
        rows = [
            chance.choice((b" ", b"+", b"+", b"-"))
            + chance.choice((b"", b"def f():", b"    x = %d" % chance.randrange(9)))
            for _ in range(chance.randrange(1, 160))
        ]
        before = _file_of(rows, ended=case % 3 > 0)
        changed = list(rows)
        places = [chance.randrange(len(rows)) for _ in range(chance.randrange(1, 3))]
        for place in places:
            changed[place] = rows[place][:1] + b"    new_%d = 1" % place
        now = _file_of(changed, ended=case % 3 > 0)
        left, seen = unseen([now], digests([before])), already_seen([now], digests([before]))
        shown, known = (_numbered(left[0]) if left else set()), _numbered(seen[0])
        if any(not any(b"new_%d " % place in line[3] for line in shown) for place in places):
            failures.append((case, "a new line is not shown"))
        if any(b"new_" in line[3] for line in known):
            failures.append((case, "a new line counts as seen"))
        if shown - _numbered(now) or known - _numbered(now):
            failures.append((case, "a line has another number"))
        if shown | known != _numbered(now):
            failures.append((case, "a line is neither"))
        if len(shown) > 40 * len(places) + 20:
            failures.append((case, f"{len(shown)} of {len(rows)} rows are asked about again"))
    assert failures == []


def _file_of(rows: list[bytes], *, ended: bool) -> FileChange:
    """A file with one hunk of some rows; without an end its last row has git's marker behind it."""
    body = b"\n".join(rows) + (b"\n" if ended else b"\n\\ No newline at end of file\n")
    old, new = (sum(row[:1] in signs for row in rows) for signs in ((b" ", b"-"), (b" ", b"+")))
    hunk = Hunk(5 - (not old), old, 7 - (not new), new, body, added=sum(row[:1] == b"+" for row in rows))
    return FileChange("a.py", "a.py", FileStatus.MODIFIED, "100644", "100644", hunks=(hunk,))


@pytest.mark.defect("V1")
def test_lines_put_in_above_leave_the_rest_of_a_long_hunk_known() -> None:
    rows = [
        b"+def f_%d():" % (n // 7) if n % 7 == 0 else b"+" if n % 7 == 6 else b"+    x_%d = 1" % n for n in range(700)
    ]
    now = _file_of([b"+import os", b"+", *rows], ended=True)
    [left] = unseen([now], digests([_file_of(rows, ended=True)]))
    assert sum(hunk.new_lines for hunk in left.hunks) < 60


def test_only_what_is_new_is_asked_about_and_the_rest_is_carried_over(tmp_path: Path) -> None:
    task = make_task(tmp_path, named(["a.py", "b.py"]))
    agent = ScriptedAgent([answer(claim("b.py"))])
    look = (digests(task.files[:1]), (about("a.py"), about("b.py")))
    outcome = reviewed(task, look, agent)
    assert sorted((one.file, one.status) for one in outcome.findings) == [
        ("a.py", FindingStatus.OPEN),
        ("b.py", FindingStatus.NEW),
    ]
    assert all("=== b.py" in request.prompt and "=== a.py" not in request.prompt for request in agent.requests)


def test_what_is_carried_over_keeps_its_state_and_what_is_gone_is_not_carried(tmp_path: Path) -> None:
    task = make_task(tmp_path, named(["a.py", "b.py"]))
    refuted = replace(about("a.py"), status=FindingStatus.REFUTED, verification="refuted: guarded")
    gone = replace(about("a.py", 5), evidence="this_is_not_there_any_more()")
    agent = ScriptedAgent([answer()])
    outcome = reviewed(task, (digests(task.files), (refuted, gone)), agent)
    assert (agent.requests, outcome.findings) == ((), (refuted,))
    # One without a place is carried unless its whole file is asked about.
    vague = replace(about("a.py"), anchored=False)
    assert reviewed(task, (digests(task.files[:1]), (vague,)), agent).findings == (vague,)
    assert reviewed(task, (digests(task.files[1:]), (vague,)), agent).findings == ()


def test_where_an_earlier_finding_is_now(tmp_path: Path) -> None:
    # Lines that are there twice keep their order when they move.
    same = "risky_call(argument)\n"
    task = make_task(tmp_path, {"a.py": same + "\n" * 39 + same})
    old = [replace(finding(line=line, evidence=same.strip()), fingerprint=str(line)) for line in (41, 81)]
    assert [one.line_start for one in PlacesOfNow(task).placed(old)] == [1, 41]
    # A finding in a deleted file is touched by its old lines.
    deleted = FileChange("a.py", None, FileStatus.DELETED, hunks=(Hunk(1, 9, 0, 0, b"-x\n" * 9, deleted=9),))
    assert [is_touched(finding(line=line), [deleted]) for line in (5, 50)] == [True, False]
