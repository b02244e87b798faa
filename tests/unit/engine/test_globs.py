from codeloupe.engine.globs import Globs
from codeloupe.model.scope import check_pattern
from tests.rows import each

# A pattern, the paths that it fits, and after the bar those that it does not.
PATTERNS = """
*.py            a.py deep/down/a.py | a.pyc
docs            docs/a/b.md | mydocs/a.md
docs/           docs/a.md |
src/*.py        src/a.py | src/x/a.py other/src/a.py
/src/*.py       src/a.py |
src/**/*.py     src/a.py src/x/y/a.py |
**/test_*.py    test_a.py x/test_a.py |
src/**          src/x/y |
a?c.txt         abc.txt | a/c.txt
[ab].txt        b.txt |
[!ab].txt       c.txt | a.txt
[^ab].txt       c.txt |
[!ab]x          | /x
a+(b).txt       a+(b).txt |
a.b             | aXb
a[b             a[b |
[]a].txt        ].txt |
[!]a].txt       b.txt | ].txt
[a-]            - |
[a-c-e]         b - | d
[\\d]           d | 7
[a--b&&c||d~~e] & |
[[]             [ |
a[]b            a[]b |
a[!]b           a[!]b |
a[b/c]d         a[b/c]d |
[.-0]x          | /x
a[.-0]b         | a/b
[z-a]           | m
[!z-a]          m |
[😀-🙏]         😐 |
caf\udce9       caf\udce9 |
a**b            a/x/b ab |
a**/b           a/b axx/y/b | ab
a/**/b/**/c     a/b/c a/x/b/y/z/c/below | a/c/b
**              any/thing |
a/**            | a
*b*c            abbc x/abc/below | b/c
"""


@each("row", PATTERNS.strip().split("\n"))
def test_a_pattern_fits_paths_as_git_reads_it(row: str) -> None:
    pattern, _, paths = row.partition(" ")
    fitting, _, others = paths.rpartition("|")
    reasons = {path: Globs((), (pattern,)).unwanted(path) for path in (*fitting.split(), *others.split())}
    assert reasons == dict.fromkeys(fitting.split(), f"by the pattern {pattern}") | dict.fromkeys(others.split())


def test_without_include_patterns_everything_is_wanted_and_exclude_wins() -> None:
    assert Globs((), ()).unwanted("any/thing") is None
    assert Globs((), ("new\nline",)).unwanted("new\nline") is not None
    globs = Globs(("src/**",), ("*.js",))
    assert globs.unwanted("src/a.py") is None
    assert globs.unwanted("docs/a.py") == "no include pattern fits"
    assert globs.unwanted("src/a.js") == "by the pattern *.js"


@each(
    ("pattern", "path"),
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
)
def test_a_hostile_pattern_ends_on_a_hostile_path(pattern: str, path: str) -> None:
    # A star that goes back over what another one took would not end within the time limit of a test.
    assert Globs((), (pattern,)).unwanted(path) is None


@each(
    ("pattern", "problem"),
    [
        ("[z-a].py", "its range from 'z' to 'a' runs backwards"),
        ("src/[!9-0]", "its range from '9' to '0' runs backwards"),
        ("", "it names no file"),
        ("//", "it names no file"),
        ("./src/**", "it has `.` where a path has the name of a folder or file"),
        ("../other", "it has `..` where a path has the name of a folder or file"),
        ("a//b", "it has nothing where a path has the name of a folder or file"),
        *((usable, None) for usable in ("*.py", "/src/", "a/**", "[a-z]*", "[", "...", ".github/**", "[a/b]", "**")),
    ],
)
def test_only_a_pattern_that_makes_no_sense_is_complained_about(pattern: str, problem: str | None) -> None:
    assert check_pattern(pattern) == problem
