"""A review of what is new says in its report which grave findings it leaves out: a pass must not look like more."""

from __future__ import annotations

from pathlib import Path

from codeloupe.reports.text import render_text
from tests.repository import GitRepository
from tests.rounds_material import Rounds

FAULTY = "def work(items):\n    return bug_a(items)\n"


def test_what_earlier_reviews_left_open_stands_in_the_report_of_what_is_new(tmp_path: Path) -> None:
    project = GitRepository(tmp_path / "project")
    project.write("a.py", "x = 1\n")
    project.commit("base")
    project.checkout("feature", new=True)
    project.write("a.py", FAULTY)
    project.commit("faulty")
    rounds = Rounds(project)
    assert rounds.review().exit_code == 1
    since = rounds.review(since_last=True)
    told = "earlier reviews left 1 open finding of high or above, not in this review"
    assert [(error.kind, error.message) for error in since.errors] == [("left_open", told)]
    assert rounds.notes == [told]
    assert told in " ".join(render_text(since, width=100, color=False).split())
