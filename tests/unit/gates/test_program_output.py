from __future__ import annotations

import pytest

from codeloupe.gates.program_output import last_words


def test_what_a_terminal_would_obey_is_gone_or_shown() -> None:
    assert last_words(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07 plain \x1b(B \xff") == "red  plain \\x1b(B \ufffd"


def test_of_a_line_that_was_written_over_the_last_state_counts() -> None:
    assert last_words("10 %\r50 %\r100 %\r\ndone\r\n") == "100 %\ndone"


def test_the_last_lines_are_kept_and_long_ones_are_cut() -> None:
    words = last_words("\n".join(f"line {number}" for number in range(500)))
    assert words.startswith("line 440\n")
    assert last_words("x" * 9_000) == f"{'x' * 500} ..."
    assert len(last_words("\n".join(["y" * 400] * 60))) <= 6_004


def test_a_secret_is_masked_before_anything_is_cut() -> None:
    secret = "ghp_" + "a1B2" * 9
    assert "a1B2" not in last_words("x" * 480 + " " + secret)


@pytest.mark.parametrize("piece", ["\x1b[", "\x1b]", "\x1b[0;0;", "\r", "\x1b]x\x1b"])
def test_the_end_of_hostile_output_is_told(piece: str) -> None:
    # Work that grows with the square of this size would not end within the time limit of a test.
    assert last_words(piece * (400_000 // len(piece)) + "\nthe end").endswith("the end")
