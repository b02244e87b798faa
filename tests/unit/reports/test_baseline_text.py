from __future__ import annotations

import json
from datetime import date
from typing import Any

from codeloupe.model.baseline import BaselineEntry, EntryStanding, EntryState
from codeloupe.reports.baseline_text import list_json, pruned_json, render_added, render_list, render_pruned


def standing(state: EntryState = EntryState.USED, **more: Any) -> EntryStanding:
    values: dict[str, Any] = {"fingerprint": "ab" * 16, "file": "a.py", "title": "Built from text", "reason": "legacy"}
    return EntryStanding(BaselineEntry(**{**values, **more}), state)


def listed(*entries: EntryStanding, review: str | None = "review 12", width: int = 100, color: bool = False) -> str:
    return render_list(entries, review=review, width=width, color=color, ascii_only=False)


def test_the_entries_are_a_table_with_a_sum_below() -> None:
    text = listed(
        standing(owner="me", expires=date(2030, 1, 2)),
        standing(EntryState.UNUSED, fingerprint="cd" * 16, title=""),
        standing(EntryState.EXPIRED, file="", reason="old: #12"),
    )
    assert text == (
        "FINGERPRINT   STATE    EXPIRES     OWNER  FILE  TITLE            REASON\n"
        "abababababab  used     2030-01-02  me     a.py  Built from text  legacy\n"
        "cdcdcdcdcdcd  unused   -           -      a.py  -                legacy\n"
        "abababababab  expired  -           -      -     Built from text  old: #12\n"
        "\n"
        "3 entries: 1 used, 1 unused, 1 expired, by review 12.\n"
        "`codeloupe baseline prune` removes 2 entries.\n"
    )


def test_without_a_review_the_sum_says_so() -> None:
    text = listed(standing(EntryState.UNSEEN), review=None)
    assert text.endswith("1 entry: 1 unseen, without a review that shows what is used.\n")


def test_an_empty_baseline_says_how_to_begin() -> None:
    assert listed() == "codeloupe-baseline.yaml has no entries; `codeloupe baseline add` makes them.\n"


def test_a_long_reason_is_cut_to_the_width_and_colour_is_only_there_when_asked_for() -> None:
    text = listed(standing(reason="word " * 50), width=80)
    assert max(map(len, text.split("\n"))) <= 80
    assert "\x1b" not in text
    assert "\x1b[" in listed(standing(), color=True)


def test_hostile_text_does_nothing_to_a_terminal_or_a_log() -> None:
    hostile = "\x1b[31m\u202e::error::x\n##[group]"
    entry = standing(file=hostile, title=hostile, reason=hostile, owner=hostile)
    shown = listed(entry, review=hostile) + render_pruned([entry], dry_run=False, ascii_only=False)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "##[" not in shown
    assert not any(line.lstrip().startswith("::") for line in shown.split("\n"))
    assert json.loads(list_json([entry], review=None))["entries"][0]["title"] == hostile


def test_the_json_has_every_field() -> None:
    document = json.loads(list_json([standing(owner="me", expires=date(2030, 1, 2), evidence="x", line=4)], review="r"))
    assert document == {
        "schema_version": 1,
        "file": "codeloupe-baseline.yaml",
        "review": "r",
        "entries": [
            {
                "fingerprint": "ab" * 16,
                "file": "a.py",
                "title": "Built from text",
                "evidence": "x",
                "reason": "legacy",
                "owner": "me",
                "expires": "2030-01-02",
                "line": 4,
                "state": "used",
            }
        ],
    }
    removed = json.loads(pruned_json([standing(EntryState.EXPIRED)], dry_run=True))
    assert (removed["dry_run"], removed["removed"][0]["state"], removed["removed"][0]["owner"]) == (
        True,
        "expired",
        None,
    )


def test_what_was_added_is_told() -> None:
    entry = standing().entry
    line = "  abababababab  a.py  Built from text\n"
    assert render_added([entry], [], ascii_only=False) == f"Added 1 entry in codeloupe-baseline.yaml:\n{line}"
    both = render_added([entry, entry], [entry], ascii_only=False)
    assert both == f"Added 2 entries, renewed 1 entry in codeloupe-baseline.yaml:\n{line * 3}"
    assert render_added([], [entry], ascii_only=False).startswith("Renewed 1 entry in ")
    assert render_added([], [], ascii_only=False).startswith("Nothing to add")
    assert render_added([entry] * 60, [], ascii_only=False).endswith("  and 10 more\n")


def test_what_was_pruned_is_told() -> None:
    gone = [standing(EntryState.EXPIRED), standing(EntryState.UNUSED)]
    assert render_pruned(gone, dry_run=False, ascii_only=False) == (
        "Removed 2 entries from codeloupe-baseline.yaml:\n"
        "  abababababab  expired  a.py  Built from text\n"
        "  abababababab  unused   a.py  Built from text\n"
    )
    assert render_pruned(gone, dry_run=True, ascii_only=False).startswith("Would remove 2 entries")
    assert render_pruned([], dry_run=True, ascii_only=False).startswith("Nothing to remove")


def test_a_poor_terminal_gets_ascii_alone() -> None:
    entry = standing(title="é" * 60, reason="é").entry
    assert render_added([entry], [], ascii_only=True).isascii()
    assert render_pruned([standing(title="x" * 60)], dry_run=False, ascii_only=True).isascii()
