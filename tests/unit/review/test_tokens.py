from __future__ import annotations

from codeloupe.review.tokens import estimate_tokens
from tests.unit.review.samples import changed


def test_no_files_cost_nothing() -> None:
    assert estimate_tokens(()) == 0


def test_the_estimate_grows_linearly_with_the_diff() -> None:
    small = estimate_tokens([changed("a.py", b"+x = 1\n" * 100)])
    large = estimate_tokens([changed("a.py", b"+x = 1\n" * 1000)])
    assert 100 < small < 300
    assert 9 * small < large < 10 * small
