"""Runs as they are stored, and their copies for people."""

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.pipeline import Approval, PipelineEvent, RunRecord, StageState
from codeloupe.store.records import from_json, pack, read_json, to_json
from codeloupe.store.run_copies import append_copy, write_copy
from codeloupe.store.run_records import VERSION, Holder, read_state, state_text
from tests.rows import each
from tests.unit.store.history_samples import any_of
from tests.unit.store.run_samples import START, attempt, critique, failed_try, run, stage

NAME = "00000001"


def document(**changes: Any) -> str:
    """Return a stored state with some keys changed."""
    before = run(1, stage("write", StageState.GATING, attempt(1, critique()), failures=(failed_try(),)))
    return json.dumps({**json.loads(to_json(before)), **changes})


def read(text: str, name: str = NAME) -> RunRecord:
    return read_state(name, pack(text), "here")


class TestJson:
    @pytest.mark.requirement("S9")
    @settings(suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow], max_examples=25)
    @given(before=any_of(RunRecord))
    def test_any_run_comes_back_exactly(self, before: RunRecord) -> None:
        known = replace(before, version=VERSION)
        after = read(to_json(known), known.run_id)
        # An int in the place of a bool is equal, but is written in another way.
        assert (after, to_json(after)) == (known, to_json(known))

    @given(event=any_of(PipelineEvent), answer=any_of(Approval))
    def test_any_event_and_answer_come_back_exactly_in_one_line(self, event: PipelineEvent, answer: Approval) -> None:
        assert from_json(PipelineEvent, read_json(to_json(event))) == event
        assert from_json(Approval, read_json(to_json(answer))) == answer
        assert "\n" not in to_json(event)

    def test_a_state_is_plain_json_and_missing_fields_have_defaults(self) -> None:
        elsewhere = datetime(2026, 3, 14, 11, 12, 0, 5, tzinfo=timezone(timedelta(hours=2)))
        written = json.loads(to_json(run(1, started_at=elsewhere)))
        assert (written["version"], written["started_at"]) == (1, "2026-03-14T11:12:00.000005+02:00")
        assert (written["inputs"], written["file"]) == ({"topic": "otters"}, "/pipelines/article.yaml")
        older = {**json.loads(document()), "colour": "red"}
        del older["reason"], older["stages"][0]["attempts"], older["inputs"]
        after = read(json.dumps(older))
        assert (after.reason, after.stages[0].attempts, dict(after.inputs)) == ("", (), {})

    @each(
        ("changed", "words"),
        [
            (
                {"version": VERSION + 1, "stages": "in another form"},
                f"a newer codeloupe wrote it .version {VERSION + 1}",
            ),
            *(({"version": odd}, "no version") for odd in (None, "1", True, 0, 1.0)),
            ({"run_id": 7}, r"\$.run_id"),
            ({"state": "asleep"}, r"'asleep' - at `\$.state`"),
            ({"stages": [{}]}, r"`name` - at `\$.stages\[0\]`"),
            ({"started_at": "2026-03-14T09:12:00"}, r"timezone component - at `\$.started_at`"),
        ],
    )
    def test_a_damaged_state_is_refused_with_the_place_of_the_damage(self, changed: Any, words: str) -> None:
        with pytest.raises(StoreError, match=words):
            read(document(**changed))
        whole = document()
        for data in (*(whole[:cut] for cut in range(0, 1200, 97)), "null", "[" * 99_999, '{"version":1}'):
            with pytest.raises(StoreError):
                read(data)

    def test_a_value_that_is_not_data_is_not_written(self) -> None:
        for record in (run(1, inputs={"a": object()}), run(1, reason=10**5000)):
            with pytest.raises(StoreError, match=f"cannot write the state of the run {NAME}"):
                state_text(record)

    def test_the_state_of_another_run_is_refused(self) -> None:
        with pytest.raises(StoreError, match="it belongs to another run, '00000001'"):
            read(document(), "00000002")


@each(
    ("holder", "words"),
    [
        (Holder(), "another process"),
        (Holder(7), "process 7"),
        (Holder(7, START), "process 7 (since 2026-03-14 09:12:00+00:00)"),
        (Holder(7, START, "there"), "process 7 on there (since 2026-03-14 09:12:00+00:00)"),
    ],
)
def test_a_holder_names_its_process_and_another_host(holder: Holder, words: str) -> None:
    assert str(holder) == words


class TestCopies:
    def test_a_copy_replaces_a_link_and_is_private(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.write_text("of the user")
        copy = tmp_path / "run" / "output.md"
        copy.parent.mkdir()
        copy.symlink_to(outside)
        write_copy(copy, [b"one ", b"two"])
        assert (copy.read_text(), copy.is_symlink(), outside.read_text()) == ("one two", False, "of the user")
        assert copy.stat().st_mode & 0o777 == 0o600

    def test_a_journal_never_follows_a_link_or_waits_for_a_pipe(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        outside = tmp_path / "outside"
        outside.write_text("of the user")
        (tmp_path / "link").symlink_to(outside)
        os.mkfifo(tmp_path / "pipe")
        for name in ("link", "pipe"):
            append_copy(tmp_path / name, b"a line\n")
        assert outside.read_text() == "of the user"
        assert caplog.text.count("cannot write the copy") == 2

    def test_a_copy_that_fails_leaves_no_temporary_file(self, tmp_path: Path) -> None:
        (tmp_path / "taken").mkdir()
        write_copy(tmp_path / "taken", [b"data"])
        assert [path.name for path in tmp_path.iterdir()] == ["taken"]
