"""A diff from elsewhere may say that a file differs and show nothing of it: that is never a file that was reviewed."""

from __future__ import annotations

from codeloupe.engine.select import SelectionRules, select_by_diff
from codeloupe.git.diff import parse_diff
from codeloupe.model.review import SkipReason
from tests.unit.engine.samples import change, each_row


def gaps(diff: bytes, *, trusted: bool = True) -> dict[str, bool]:
    """For each file that is left out, whether that is a gap."""
    selection = select_by_diff(change(*parse_diff(diff)), SelectionRules(believe_content=trusted))
    assert {skip.reason for skip in selection.skipped} <= {SkipReason.NOT_SHOWN}
    return {skip.file: skip.is_gap for skip in selection.skipped}


def differs(path: str) -> bytes:
    name = path.encode()
    return b"diff --git a/%s b/%s\nindex 1111111..2222222 100644\nBinary files a/%s and b/%s differ\n" % ((name,) * 4)


def test_code_that_a_diff_calls_binary_is_a_gap() -> None:
    def check(path: str) -> None:
        assert gaps(differs(path)) == {path: True}

    each_row(["app.py", "run.bat", "Makefile", "deploy/Dockerfile", "api.proto"], check)


def test_a_picture_that_a_diff_calls_binary_is_a_gap_only_if_the_change_is_not_trusted() -> None:
    assert gaps(differs("logo.png")) == {"logo.png": False}
    assert gaps(differs("logo.png"), trusted=False) == {"logo.png": True}


def test_a_link_that_becomes_code_which_is_not_shown_is_a_gap() -> None:
    link = (
        b"diff --git a/a.py b/a.py\ndeleted file mode 120000\nindex 3594e94..0000000\n--- a/a.py\n+++ /dev/null\n"
        b"@@ -1 +0,0 @@\n-target\n\\ No newline at end of file\n"
    )
    code = b"diff --git a/a.py b/a.py\nnew file mode 100644\nindex 0000000..b1e7281\n"
    assert gaps(link + code + b"Binary files /dev/null and b/a.py differ\n") == {"a.py": True}
    shown = b"--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+x = 1\n"
    assert gaps(link + code + shown) == {}


def test_binary_code_that_only_moved_has_nothing_to_read() -> None:
    moved = b"diff --git a/a.py b/b.py\nsimilarity index 100%\nrename from a.py\nrename to b.py\n"
    assert gaps(moved) == {}
