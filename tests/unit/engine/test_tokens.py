from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.engine.plan import header_tokens, hunk_tokens, tokens_of
from codeloupe.model.change import FileChange, FileStatus
from tests.unit.engine.plan_samples import added_file, estimate_tokens
from tests.unit.engine.samples import changed, each_row

SOURCES = sorted((Path(__file__).parents[3] / "src" / "codeloupe").rglob("*.py"))


def test_no_files_cost_nothing() -> None:
    assert estimate_tokens(()) == 0
    assert tokens_of("") == tokens_of(b"") == 0


def test_the_estimate_grows_linearly_with_the_diff() -> None:
    small = estimate_tokens([changed("a.py", b"+x = 1\n" * 100)])
    large = estimate_tokens([changed("a.py", b"+x = 1\n" * 1000)])
    assert 300 < small < 600
    assert 9 * small < large < 10 * small


def test_source_code_has_three_to_four_bytes_a_token() -> None:
    code = b"".join(path.read_bytes() for path in SOURCES)
    assert 3.3 < len(code) / tokens_of(code) < 4.2


def test_an_estimate_is_near_what_a_tokenizer_counts() -> None:
    def check(text: str, tokens: int) -> None:
        assert abs(tokens_of(text) - tokens) <= 3

    each_row(
        [
            # Counted by hand as the vendors' tokenizers cut: words with the space before them, marks, runs of digits.
            ("The review of a change is complete when every file was read.", 13),
            ("    if total is None:\n        return compute(first, second)\n", 15),
            ('{"name": "a", "line": 12, "severity": "high"}\n', 19),
        ],
        check,
    )


def test_indentation_is_nearly_free() -> None:
    assert tokens_of("\n" + " " * 40 + "x") == tokens_of("\nx")


def test_text_and_its_bytes_weigh_the_same_whatever_is_in_them() -> None:
    assert tokens_of("中文 é\udcff") == tokens_of("中文 é\udcff".encode("utf-8", "surrogatepass")) > 3


def test_a_change_is_its_hunks_and_the_names_above_them() -> None:
    file = added_file("src/a.py", 20)
    assert estimate_tokens([file, file]) == 2 * (header_tokens(file) + hunk_tokens(file.hunks[0]))
    renamed = FileChange("a", "b", FileStatus.RENAMED)
    assert estimate_tokens([renamed]) == header_tokens(renamed) < 12


def test_ten_megabytes_weigh_as_much_as_their_lines() -> None:
    line = b"+    value = (a, b)  # \xff\n"
    assert tokens_of(line * 400_000) == pytest.approx(400_000 * tokens_of(line), rel=0.1)
