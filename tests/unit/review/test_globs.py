from __future__ import annotations

import pytest

from codeloupe.review.globs import Globs


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "a.py"),
        ("*.py", "deep/down/a.py"),
        ("docs", "docs/a/b.md"),
        ("docs/", "docs/a.md"),
        ("src/*.py", "src/a.py"),
        ("/src/*.py", "src/a.py"),
        ("src/**/*.py", "src/a.py"),
        ("src/**/*.py", "src/x/y/a.py"),
        ("**/test_*.py", "test_a.py"),
        ("**/test_*.py", "x/test_a.py"),
        ("src/**", "src/x/y"),
        ("a?c.txt", "abc.txt"),
        ("[ab].txt", "b.txt"),
        ("[!ab].txt", "c.txt"),
        ("[^ab].txt", "c.txt"),
        ("a+(b).txt", "a+(b).txt"),
        ("new\nline", "new\nline"),
    ],
)
def test_a_pattern_fits_a_path(pattern: str, path: str) -> None:
    assert Globs((), (pattern,)).unwanted(path) == f"by the pattern {pattern}"


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "a.pyc"),
        ("src/*.py", "src/x/a.py"),
        ("src/*.py", "other/src/a.py"),
        ("docs", "mydocs/a.md"),
        ("a?c.txt", "a/c.txt"),
        ("[!ab].txt", "a.txt"),
        ("[!ab]x", "/x"),
        ("a.b", "aXb"),
    ],
)
def test_a_pattern_does_not_fit_a_path(pattern: str, path: str) -> None:
    assert Globs((), (pattern,)).unwanted(path) is None


def test_without_include_patterns_everything_is_wanted() -> None:
    assert Globs((), ()).unwanted("any/thing") is None


def test_an_include_pattern_leaves_the_rest_out_and_exclude_wins() -> None:
    globs = Globs(("src/**",), ("*.js",))
    assert globs.unwanted("src/a.py") is None
    assert globs.unwanted("docs/a.py") == "no include pattern fits"
    assert globs.unwanted("src/a.js") == "by the pattern *.js"


def test_an_unclosed_bracket_is_a_plain_character() -> None:
    assert Globs((), ("a[b",)).unwanted("a[b") is not None
