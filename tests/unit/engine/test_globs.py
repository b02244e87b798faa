from __future__ import annotations

from codeloupe.engine.globs import Globs
from codeloupe.model.scope import check_pattern
from tests.unit.engine.samples import each_row


def test_a_pattern_fits_paths_as_in_gitignore() -> None:
    # A pattern fits a path.
    def check(pattern: str, path: str) -> None:
        assert Globs((), (pattern,)).unwanted(path) == f"by the pattern {pattern}"

    each_row(
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
        check,
    )

    # A pattern does not fit a path.
    def check_1(pattern: str, path: str) -> None:
        assert Globs((), (pattern,)).unwanted(path) is None

    each_row(
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
        check_1,
    )
    # Without include patterns everything is wanted.
    assert Globs((), ()).unwanted("any/thing") is None
    # An include pattern leaves the rest out and exclude wins.
    globs = Globs(("src/**",), ("*.js",))
    assert globs.unwanted("src/a.py") is None
    assert globs.unwanted("docs/a.py") == "no include pattern fits"
    assert globs.unwanted("src/a.js") == "by the pattern *.js"


def test_brackets_and_stars_mean_what_git_means() -> None:
    # An unclosed bracket is a plain character.
    assert Globs((), ("a[b",)).unwanted("a[b") is not None

    # Brackets hold characters and ranges and never a slash.
    def check(pattern: str, path: str, fits: bool) -> None:
        assert (Globs((), (pattern,)).unwanted(path) is not None) is fits

    each_row(
        [
            ("[]a].txt", "].txt", True),
            ("[!]a].txt", "].txt", False),
            ("[!]a].txt", "b.txt", True),
            ("[a-]", "-", True),
            ("[a-c-e]", "b", True),
            ("[a-c-e]", "-", True),
            ("[a-c-e]", "d", False),
            ("[\\d]", "7", False),
            ("[\\d]", "d", True),
            ("[a--b&&c||d~~e]", "&", True),
            ("[[]", "[", True),
            ("a[]b", "a[]b", True),
            ("a[!]b", "a[!]b", True),
            ("a[b/c]d", "a[b/c]d", True),
            ("[.-0]x", "/x", False),
            ("a[.-0]b", "a/b", False),
            ("[z-a]", "m", False),
            ("[!z-a]", "m", True),
            ("[😀-🙏]", "😐", True),
            ("caf\udce9", "caf\udce9", True),
        ],
        check,
    )

    # Two stars cross folders wherever they stand.
    def check_2(pattern: str, path: str, fits: bool) -> None:
        assert (Globs((), (pattern,)).unwanted(path) is not None) is fits

    each_row(
        [
            ("a**b", "a/x/b", True),
            ("a**b", "ab", True),
            ("a**/b", "a/b", True),
            ("a**/b", "axx/y/b", True),
            ("a**/b", "ab", False),
            ("a/**/b/**/c", "a/b/c", True),
            ("a/**/b/**/c", "a/x/b/y/z/c/below", True),
            ("a/**/b/**/c", "a/c/b", False),
            ("**", "any/thing", True),
            ("a/**", "a", False),
            ("*b*c", "abbc", True),
            ("*b*c", "x/abc/below", True),
            ("*b*c", "b/c", False),
        ],
        check_2,
    )


def test_a_hostile_pattern_ends_on_a_hostile_path() -> None:
    def check(pattern: str, path: str) -> None:
        # A star that goes back over what another one took would not end within the time limit of a test.
        assert Globs((), (pattern,)).unwanted(path) is None

    each_row(
        [
            ("*a*a*a*a*a*a*a*ab", "a" * 100_000),
            ("**a**a**a**a**a**b", "a/" * 50_000),
            ("**a*a*a*a*b", "a" * 100_000),
            ("**/a*a/**/a*a/**/a*b/**/c", "aa/" * 30_000),
            ("/".join(["**", "*a*"] * 200) + "/b", "aa/" * 1_000),
            ("*" + "a" * 500 + "b", "a" * 4_096),
            ("[" * 4_096, "a" * 4_096),
            ("*[!b]" * 800 + "b", "a" * 4_096),
        ],
        check,
    )


def test_only_a_pattern_that_makes_no_sense_is_complained_about() -> None:
    # What is wrong with a pattern is told.
    def check(pattern: str, problem: str) -> None:
        assert check_pattern(pattern) == problem

    each_row(
        [
            ("[z-a].py", "its range from 'z' to 'a' runs backwards"),
            ("src/[!9-0]", "its range from '9' to '0' runs backwards"),
            ("", "it names no file"),
            ("//", "it names no file"),
            ("./src/**", "it has `.` where a path has the name of a folder or file"),
            ("../other", "it has `..` where a path has the name of a folder or file"),
            ("a//b", "it has nothing where a path has the name of a folder or file"),
        ],
        check,
    )

    # A usable pattern is not complained about.
    def check_1(pattern: str) -> None:
        assert check_pattern(pattern) is None

    each_row(["*.py", "/src/", "a/**", "[a-z]*", "[", "...", ".github/**", "[a/b]", "**"], check_1)
