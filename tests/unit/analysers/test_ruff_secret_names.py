"""ruff knows passwords by the name of a variable; one that is named after what a secret has is none."""

from __future__ import annotations

from codeloupe.analysers.ruff import Diagnostic, LineNumbers, rule_issues
from tests.rows import each


def is_told(code: str, message: str) -> bool:
    found = Diagnostic(index=0, code=code, message=message, fix=None, first_row=1, last_row=1)
    return bool(list(rule_issues("a.py", [found], LineNumbers(b"x\n"))))


@each("name", ["API_TOKEN_ENV", "PASSWORD_FIELD", "SECRET_NAME", "tokenUrl"])
def test_the_name_or_place_of_a_secret_is_no_finding(name: str) -> None:
    assert not is_told("S105", f'Possible hardcoded password assigned to: "{name}"')
    assert not is_told("S107", f'Possible hardcoded password assigned to function default: "{name}"')


@each("name", ["PASSWORD", "api_token", "client_secret"])
def test_a_secret_is_one(name: str) -> None:
    assert is_told("S105", f'Possible hardcoded password assigned to: "{name}"')
    assert is_told("S106", f'Possible hardcoded password assigned to argument: "{name}"')


def test_other_rules_are_told_whatever_they_name() -> None:
    assert is_told("F821", 'Undefined name "token_name"')
