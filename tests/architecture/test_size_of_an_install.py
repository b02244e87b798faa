"""What a base install puts on the disk: people take it into every CI job."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

from tests.architecture.sources import PROJECT

_MOST_BYTES = 130_000_000


def test_a_base_install_stays_under_130_mb() -> None:
    pinned = (PROJECT / "requirements" / "base.txt").read_text(encoding="utf-8")
    names = re.findall(r"^([A-Za-z0-9_.-]+)==", pinned, re.MULTILINE)
    assert len(names) > 10
    # Of wheels for other systems nothing is installed here; those are not told by name in the file.
    files = {
        path.resolve()
        for name in names
        for file in distribution(name).files or ()
        if (path := Path(str(file.locate()))).is_file()
    }
    own = {path for path in (PROJECT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert sum(path.stat().st_size for path in files | own) < _MOST_BYTES
