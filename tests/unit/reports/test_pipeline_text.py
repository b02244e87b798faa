"""A run as text: what a person needs to know at a glance, in any width, whatever agents wrote."""

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.model.pipeline import CriticVerdict, RecoveryStep, RunRecord, StageState, WorkspaceKind
from codeloupe.reports.page import Page, cells
from codeloupe.reports.pipeline import Places, Tree, next_steps, render_run, render_runs
from tests.rows import each
from tests.unit.store.run_samples import START, at, attempt, critique, failed_try, run, stage
from tests.unit.store.run_strategies import any_value

S = StageState
PLACES = Places(directory=Path("/state/pipelines/00000001"))
NOW = at(hours=1, minutes=10)
any_run: Any = any_value(RunRecord)


def shown(record: RunRecord, *, width: int = 120, **options: Any) -> str:
    given_options = {"color": False, "now": NOW, **options}
    return render_run(record, given_options.pop("places", PLACES), width=width, **given_options)


def line_with(text: str, words: str) -> str:
    [found] = [line for line in text.splitlines() if words in line]
    return found


REWORKED = stage(
    "write",
    S.COMPLETED,
    attempt(1, critique(CriticVerdict.REWORK, score=50, summary="No source.", blockers=("rivers",))),
    attempt(2, critique(CriticVerdict.REWORK, score=70, summary="Long.", blockers=("too long",), fixes=("cut it",))),
    attempt(3, critique(CriticVerdict.REWORK, score=60, summary="Worse.", blockers=("worse",))),
    chosen=2,
    max_attempts=3,
    needs=("research",),
    ended_at=at(minutes=3),
)


class TestTheTree:
    def test_each_stage_has_its_sign_state_attempt_score_agent_cost_and_time(self) -> None:
        done = stage("research", S.COMPLETED, attempt(1, critique()), chosen=1, max_attempts=3, ended_at=at(seconds=40))
        text = shown(run(1, done, stage("write", needs=("research",))))
        assert text.splitlines()[0] == "article  running  00000001 · 10 min 0 s · $0.06"
        assert line_with(text, "research") == (
            "├─ ✔ research  completed  attempt 1 of 3 · score 82 · $0.06 · 40.0 s · claude_cli sonnet"
        )
        assert line_with(text, "critic") == "│     critic PASS 82: Sound."
        assert line_with(text, "write") == "╰─ · write     pending"

    def test_the_attempt_that_was_taken_is_named_and_all_are_told(self) -> None:
        text = shown(run(1, stage("research"), REWORKED))
        assert "attempt 2 of 3 taken · score 70" in line_with(text, "write")
        told = [line.strip("│╰ ") for line in text.splitlines()[3:9]]
        assert told == [
            "attempt 1: critic REWORK 50: No source.",
            "attempt 2: critic REWORK 70: Long.",
            "✖ too long",
            "→ cut it",
            "attempt 3: critic REWORK 60: Worse.",
            "",
        ]
        assert "rivers" in shown(run(1, REWORKED), verbose=True)

    def test_a_person_who_has_it_tried_again_gives_it_as_many_attempts_more(self) -> None:
        again = stage("write", S.RUNNING, *map(attempt, (1, 2, 3)), max_attempts=3, attempts_before=3)
        assert "attempt 4 of 6" in line_with(shown(run(1, again)), "write")

    @each(
        ("most", "made", "words"),
        [(1, 1, ""), (0, 1, "attempt 1 ·"), (0, 2, "attempt 2 ·"), (3, 1, "attempt 1 of 3"), (2, 3, "attempt 3 ·")],
    )
    def test_the_limit_is_told_where_it_is_known_and_means_something(self, most: int, made: int, words: str) -> None:
        record = stage("write", S.COMPLETED, *map(attempt, range(1, made + 1)), chosen=made, max_attempts=most)
        line = line_with(shown(run(1, record)), "write")
        assert words in line if words else "attempt" not in line

    def test_what_a_stage_follows_is_told_unless_it_is_the_one_above(self) -> None:
        needs = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
        text = shown(run(1, *(stage(name, needs=before) for name, before in needs.items())))
        assert "after" not in line_with(text, "· b ")
        assert line_with(text, "· c ").endswith("after a")
        assert line_with(text, "· d ").endswith("after b, c")

    def test_why_a_stage_waits_and_which_calls_failed_is_told(self) -> None:
        waits = stage(
            "write",
            S.AWAITING_APPROVAL,
            reason="three attempts, the best with 30",
            failures=(failed_try(), failed_try(step=RecoveryStep.RESUME, kind="TimedOut", message="m", hint="wait")),
        )
        text = shown(run(1, waits, state=S.AWAITING_APPROVAL, reason="a person has to decide"))
        assert text.splitlines()[1] == "a person has to decide"
        assert "╰─ ? write  awaiting approval" in text
        assert "three attempts, the best with 30" in text
        assert "call failed: Overloaded: no room now" in text
        assert "resumed session failed: TimedOut: m (wait)" in text
        gate = stage("write", S.FAILED, failures=(failed_try(gate=1),))
        assert "gate 2 could not decide: Overloaded" in shown(run(1, gate))

    def test_calls_that_failed_on_the_way_to_a_result_are_counted(self) -> None:
        done = stage("write", S.COMPLETED, attempt(1), chosen=1, failures=(failed_try(), failed_try()))
        assert "2 earlier calls failed" in shown(run(1, done))
        whole = shown(run(1, done), verbose=True)
        assert "call failed, 2 times in all: " in whole
        assert whole.count("no room now") == 1

    @pytest.mark.defect("P5")
    def test_a_failure_that_is_settled_is_only_counted(self) -> None:
        passed = critique(CriticVerdict.PASS)
        rows = [
            (stage("a", S.AWAITING_APPROVAL, attempt(1, tree="t"), failures=(failed_try(attempt=1),)), False),
            (stage("a", S.AWAITING_APPROVAL, attempt(1, tree=""), failures=(failed_try(attempt=1),)), True),
            (stage("a", S.AWAITING_APPROVAL, failures=(failed_try(attempt=1),), failures_before=1), False),
            (stage("a", S.GATING, attempt(1, passed, tree="t"), failures=(failed_try(attempt=1, gate=0),)), False),
            (stage("a", S.GATING, attempt(1, passed, tree="t"), failures=(failed_try(attempt=1, gate=1),)), True),
            (stage("a", S.RUNNING, attempt(1, tree="t"), failures=(failed_try(attempt=2),)), True),
        ]
        for record, is_open in rows:
            text = shown(run(1, record))
            assert ("no room now" in text, "1 earlier call failed" in text) == (is_open, not is_open), record
        joined = failed_try(kind="workspace_error", message="cannot merge the work of a and b")
        text = shown(run(1, stage("c", S.AWAITING_APPROVAL, failures=(joined,))))
        assert "      cannot merge the work of a and b\n" in text  # no call was made

    @each("state", list(StageState))
    def test_every_state_has_a_sign_a_word_and_a_colour(self, state: StageState) -> None:
        record = run(1, stage("write", state), state=state)
        plain = shown(record, ascii_only=True)
        assert state.value.replace("_", " ") in plain
        assert plain.isascii()
        assert "\x1b[" in shown(record, color=True)


class TestTheEnd:
    def test_the_result_the_patch_and_how_to_apply_it_are_told(self) -> None:
        places = Places(
            directory=Path("/state/r 1"), result=Path("/state/r 1/result"), patch=Path("/state/r 1/result.patch")
        )
        record = run(1, state=S.COMPLETED, workspace=WorkspaceKind.WORKTREE)
        command, meaning = "Next      git apply '/state/r 1/result.patch'", "  puts the result into your working tree"
        assert shown(record, places=places).splitlines()[-4:] == [
            "Result    /state/r 1/result",
            "Patch     /state/r 1/result.patch",
            "Files     /state/r 1",
            command + meaning,
        ]
        assert shown(record, places=places, width=60).splitlines()[-2:] == [command, " " * 11 + meaning]
        assert "git apply" not in shown(replace(record, workspace=WorkspaceKind.DIRECTORY), places=places)

    @each(
        ("state", "commands"),
        [
            (
                S.AWAITING_APPROVAL,
                [
                    "approve 00000001 'my stage' --resume",
                    "resume 00000001 --retry 'my stage'",
                    "reject 00000001 'my stage' --resume",
                ],
            ),
            (S.FAILED, ["resume 00000001 --retry 'my stage'"]),
            (S.INTERRUPTED, ["resume 00000001"]),
            (S.RUNNING, ["status 00000001 --follow"]),
            (S.PENDING, ["status 00000001 --follow"]),
            (S.CANCELLED, []),
            (S.COMPLETED, []),
        ],
    )
    def test_what_to_do_next_depends_on_where_it_stopped(self, state: StageState, commands: list[str]) -> None:
        record = run(1, stage("my stage", state, attempt(1)), stage("other"), state=state)
        wanted = [f"codeloupe pipeline {command}" for command in commands]
        assert [command for command, _ in next_steps(record, PLACES)] == wanted
        assert all(command in shown(record) for command in wanted)

    @pytest.mark.defect("P5")
    def test_where_nothing_was_made_there_is_nothing_to_approve(self) -> None:
        waits = stage("a", S.AWAITING_APPROVAL, wants_approval="escalation", failures=(failed_try(),))
        record = run(1, waits, state=S.AWAITING_APPROVAL)
        assert not any("approve" in command for command, _ in next_steps(record, PLACES))
        command = "codeloupe pipeline resume 00000001 --accept-changes --retry b"
        advised = replace(waits, failures=(failed_try(hint=f"let b need c; then `{command}`"),))
        commands = [command for command, _ in next_steps(replace(record, stages=(advised,)), PLACES)]
        assert commands == [command, "codeloupe pipeline reject 00000001 a --resume"]


class TestLayout:
    @each("ascii_only", [False, True])
    @each("width", [40, 60, 80, 100])
    def test_no_line_of_the_tree_is_wider_than_the_terminal(self, ascii_only: bool, width: int) -> None:
        said = critique(CriticVerdict.FAIL, summary="Long words. " * 30, blockers=("x" * 200, "y " * 100))
        wordy = stage("漢字" * 4, S.FAILED, attempt(1, said), reason="because " * 30)
        text = shown(run(1, wordy, REWORKED, reason="why " * 60), width=width, ascii_only=ascii_only)
        assert max(map(cells, text.split("\n\n")[0].splitlines())) <= width
        assert "漢字" in text or ascii_only

    def test_without_colour_there_is_no_escape_and_with_it_the_same_words(self) -> None:
        record = run(1, stage("research"), REWORKED)
        assert "\x1b" not in shown(record)
        assert re.sub(r"\x1b\[[0-9;]*m", "", shown(record, color=True)) == shown(record)

    @each("hostile", ["\x1b[2J", "a\nb", "\u202egnp", "::error::x", "##[group]", "\udcff", "\0"])
    def test_nothing_that_an_agent_wrote_acts_on_the_terminal(self, hostile: str) -> None:
        said = critique(CriticVerdict.REWORK, summary=hostile, blockers=(hostile,), fixes=(hostile,))
        made = attempt(1, said, agent=hostile, model=hostile, notes=(hostile,), artifacts=(hostile,))
        failures = (failed_try(message=hostile, kind=hostile),)
        failed = stage(hostile, S.FAILED, made, reason=hostile, failures=failures, needs=(hostile, "x"))
        record = run(1, failed, pipeline=hostile, reason=hostile)
        text = shown(record, verbose=True, places=Places(directory=Path(f"/{hostile}")))
        assert not re.search(r"(?m)^\s*::|##\[|a\nb", text)
        assert not {unicodedata.category(character) for character in text.replace("\n", "")} & {"Cc", "Cf", "Cs"}

    @settings(max_examples=25, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
    @given(record=any_run, width=st.integers(1, 200), brief=st.booleans(), ascii_only=st.booleans())
    def test_any_run_can_be_shown(self, record: RunRecord, width: int, brief: bool, ascii_only: bool) -> None:
        text = shown(record, width=width, ascii_only=ascii_only, verbose=brief, now=START)
        text.encode("ascii" if ascii_only else "utf-8")
        rows = Tree(page=Page(width=width, ascii_only=ascii_only), now=START, brief=brief).rows(record)
        assert len(rows) > len(record.stages)
        assert "\n" not in "".join(row.plain for row in rows)
        if brief:
            assert len(rows) <= 1 + 2 * len(record.stages)


class TestTheList:
    def test_the_runs_stand_in_a_table_and_what_cannot_be_read_below(self) -> None:
        done = run(2, stage("a", S.COMPLETED, attempt(1), chosen=1), stage("b"), state=S.FAILED, pipeline="build")
        text = render_runs(
            [done, run(1)], {"x": "x is damaged\x1b"}, width=100, color=False, ascii_only=False, now=at(hours=1)
        )
        lines = text.splitlines()
        assert lines[0].split() == ["RUN", "STARTED", "PIPELINE", "STATE", "STAGES", "COST", "TIME"]
        assert " ".join(lines[1].split()) == "00000002 2026-03-14 11:12 build failed 1/2 $0.05 2 min 0 s"
        assert lines[2].split()[-4:] == ["0/2", "-", "0.0", "s"]
        assert lines[3] == "x is damaged\\x1b"
