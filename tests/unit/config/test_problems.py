from __future__ import annotations

from codeloupe.config.yaml import Problem, config_error, escape, quote


def test_one_mistake_is_told_on_one_line_with_its_own_hint() -> None:
    error = config_error([Problem("f:1", "a: wrong", "mend it")])
    assert (error.message, error.hint) == ("f:1: a: wrong", "mend it")


def test_many_mistakes_are_counted_and_the_first_twenty_listed() -> None:
    error = config_error([Problem(f"f:{line}", "wrong") for line in range(1, 1501)])
    rows = error.message.splitlines()
    assert rows[:2] == ["the configuration has 1,500 mistakes:", "  f:1: wrong"]
    assert rows[20:] == ["  f:20: wrong", "  and 1,480 more"]
    assert error.hint == "correct each line, then check with `codeloupe config validate`"


def test_whatever_a_terminal_could_act_on_is_escaped() -> None:
    assert escape("ä\x1b[2J\x9b\r\n\t\u202e\u2028\udcff\U000e0001") == (
        r"ä\x1b[2J\x9b\r\n\t\u202e\u2028\udcff\U000e0001"
    )


def test_a_quoted_value_is_cut_short() -> None:
    assert quote("x" * 60) == "'" + "x" * 60 + "'"
    assert quote("x" * 61) == "'" + "x" * 60 + "…'"
