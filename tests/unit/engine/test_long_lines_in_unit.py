"""A line that was not sent whole is a gap in its own file: the others of its unit were read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from codeloupe.engine.prompt import MAX_LINE_BYTES
from codeloupe.testing import ScriptedAgent
from tests.review_factories import answer, make_reviewer, make_task

HIDDEN = "x = 1;" + " " * MAX_LINE_BYTES + "steal()\n"


def test_only_the_files_with_long_lines_could_not_be_reviewed(tmp_path: Path) -> None:
    files = {"a.py": "x = 1\n", "b.py": HIDDEN, "c.py": "y = 2\n", "d.py": HIDDEN}
    agent = ScriptedAgent([answer()])
    outcome = asyncio.run(make_reviewer(agent).review(make_task(tmp_path, files), lambda _event: None))
    assert len(agent.requests) == 1
    [failed] = outcome.units_failed
    assert (failed.unit, failed.files) == ("b.py and 1 more file", ("b.py", "d.py"))
    assert outcome.errors[0].message.startswith("scripted could not review b.py and 1 more file: ")
