"""The first day with codeloupe, from the wheel to the first push: everything that appears is as expected.

`RENEW_TRANSCRIPT=1 python -m pytest tests/integration/test_first_day.py` writes the transcript anew; read its diff.
"""

import os
import tempfile
from pathlib import Path

import pytest

from tests import first_day
from tests.fresh_install import Install

TRANSCRIPT = Path(__file__).parents[1] / "data" / "first_day.txt"


@pytest.mark.timeout(300)
def test_the_first_day(fresh_install: Install) -> None:
    # A path of the same length everywhere, so that lines with a path are wrapped alike.
    with tempfile.TemporaryDirectory(prefix="day-", dir="/tmp") as folder:
        live_through(Path(folder) / "d", fresh_install)


def live_through(root: Path, fresh_install: Install) -> None:
    day = first_day.begin(root, fresh_install)
    first_day.install_the_wheel(day, fresh_install.wheel.name)
    first_day.look_around(day)
    first_day.review_a_change(day)
    first_day.set_findings_aside(day)
    first_day.make_a_page(day)
    first_day.install_the_push_hook(day)
    first_day.run_pre_commit(day)
    first_day.push(day)
    first_day.remove_the_push_hook(day)
    first_day.check_a_pipeline(day)
    page = (root / "review.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "SELECT * FROM orders" in page
    text = "\n".join(day.transcript) + "\n"
    if os.environ.get("RENEW_TRANSCRIPT"):
        TRANSCRIPT.write_text(text, encoding="utf-8")
    assert text.splitlines() == TRANSCRIPT.read_text(encoding="utf-8").splitlines()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_pre_commit_installs_codeloupe_by_itself(fresh_install: Install) -> None:
    root = fresh_install.folder.parent / "pre-commit-day"
    day = first_day.begin(root, fresh_install)
    first_day.install_the_wheel(day, fresh_install.wheel.name)
    day.type('git clone --quiet "file://$PWD/server/shop.git" shop')
    day.cwd = root / "shop"
    first_day.run_pre_commit(day, installs=True)
    assert [row for row in day.transcript if row.startswith("= ")] == []
    assert [row for row in day.transcript if "Passed" in row], day.transcript
