from __future__ import annotations

import json

from codeloupe.model.baseline import BaselineEntry, EntryStanding, EntryState
from codeloupe.reports.baseline_text import list_json, render_list, render_pruned


def test_hostile_text_does_nothing_to_a_terminal_or_a_log() -> None:
    hostile = "\x1b[31m\u202e::error::x\n##[group]"
    entry = BaselineEntry(fingerprint="ab" * 16, file=hostile, title=hostile, reason=hostile, owner=hostile)
    standing = [EntryStanding(entry, EntryState.USED)]
    shown = render_list(standing, review=hostile, width=100, color=False, ascii_only=False)
    shown += render_pruned(standing, dry_run=False, ascii_only=False)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "##[" not in shown
    assert not any(line.lstrip().startswith("::") for line in shown.split("\n"))
    assert json.loads(list_json(standing, review=None))["entries"][0]["title"] == hostile
