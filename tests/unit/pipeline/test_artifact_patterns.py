from __future__ import annotations

import pytest

from codeloupe.pipeline.artifact_patterns import matches, matches_any


@pytest.mark.parametrize(
    ("path", "pattern", "top", "anywhere"),
    [
        ("a.md", "*.md", True, True),
        ("sub/a.md", "*.md", False, True),
        ("a.MD", "*.md", False, False),
        ("a.md", "a.md", True, True),
        ("sub/a.md", "a.md", False, True),
        ("sub/a.md", "sub/a.md", True, True),
        ("sub/a.md", "./sub/a.md", True, True),
        ("sub/a.md", "/sub/a.md", True, True),
        ("sub/a.md", "sub/*.md", True, True),
        ("sub/deep/a.md", "sub/*.md", False, False),
        ("sub/deep/a.md", "sub/**/*.md", True, True),
        ("sub/a.md", "sub/**/*.md", True, True),
        ("a.md", "**/*.md", True, True),
        ("x/y/z/a.md", "**/a.md", True, True),
        ("x/y/z/a.md", "x/**", True, True),
        ("other/a.md", "x/**", False, False),
        ("[draft].md", "[draft].md", True, True),
        ("d.md", "[draft].md", True, True),
        ("a\nb.md", "*.md", True, True),
        ("", "*", True, True),
    ],
)
def test_a_glob_means_names_or_whole_paths(path: str, pattern: str, top: bool, anywhere: bool) -> None:
    assert matches(path, pattern, recursive=False) is top
    assert matches(path, pattern, recursive=True) is anywhere


def test_one_of_several_globs_is_enough() -> None:
    assert matches_any("a.md", ("*.txt", "*.md"), recursive=False)
    assert not matches_any("a.md", (), recursive=True)


def test_many_stars_find_an_end() -> None:
    # Trying every way to share out the path among the stars would not end within the time limit of a test.
    assert not matches("a/" * 300 + "b", "**/" * 60 + "c", recursive=True)
    assert not matches("a" * 255, "*a" * 30 + "b", recursive=True)
