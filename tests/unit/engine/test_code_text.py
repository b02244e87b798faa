import pytest

from codeloupe.engine import code_text
from codeloupe.engine.code_text import comments_in, syntax_of
from tests.rows import each


def texts(path: str, line: str) -> list[str]:
    return [comment.text.strip() for comment in comments_in(line, syntax_of(path))]


COMMENTS = """
a.py|x = 1  # here
a.rb|x = 1 # here
Makefile|all: # here
a.js|x() // here
a.js|x(/* here */)
a.ts| * here
a.java|    * here */
a.go|x := `a` // here
a.rs|fn f<'a>(x: &'a str) // here
a.sql|select 1 -- here
a.lua|x = 1 -- here
a.hs|x = 1 {- here -}
a.clj|(def x 'y) ; here
a.tex|words % here
a.erl|x() -> y. % here
a.html|<p>it's <!-- here --></p>
a.xml|<!-- here -->
a.vue|<a> <!-- here -->
a.css|a { /* here */ }
a.php|$x = 1; # here
a.ml|let x = 1 (* here *)
a.pas|x := 1; { here }
a.bat|@REM here
a.cmd|rem here
a.vb|x = 1 ' here
a.f90|x = 1 ! here
a.vim|set x " here
a.j2|{{ x }} {# here #}
a.ps1|$x = 1 <# here #>
a.unheard|x ; here
a.unheard|rem here
A.PY|x # here
"""
STRINGS = r"""
a.py|x = "# here"
a.py|x = '# here'
a.py|x = 'it\'s # here'
a.py|'''See # here.'''
a.py|x = a % here
a.py|x = a // here
a.js|x = `// here`
a.js|url = 'http://here'
a.html|<p># here // here</p>
a.css|a { color: #here }
a.bat|echo theorem here
a.unheard|x = "# here"
a.unheard|theorem here
a.py|plain words
"""


def test_comments_are_told_from_strings_and_other_signs() -> None:
    for table, expected in ((COMMENTS, ["here"]), (STRINGS, [])):
        for row in table.strip().split("\n"):
            path, _, line = row.partition("|")
            assert texts(path, line) == expected, row
    # A line may have several comments and code between them.
    line = "/* a */ x = '/* b */' /* c */ // d"
    assert texts("a.js", line) == ["a", "c", "d"]
    # An apostrophe opens no string.
    assert texts("a.js", "// don't") == ["don't"]
    assert texts("a.unheard", "it's fine # here") == ["here"]


@each(
    ("path", "line", "alone"),
    [
        *(("a.py", line, [alone]) for line, alone in (("  # x", True), ("y  # x", False))),
        *(("a.js", line, [False]) for line in ("/* x */ y", "f(/* x */)")),
        *(("a.jsx", line, [True]) for line in ("  /* x */  \r", "  {/* x */}")),
        ("a.js", "y /* a */ /* b */", [False, False]),
    ],
)
def test_a_comment_knows_whether_it_is_alone_on_its_line(path: str, line: str, alone: list[bool]) -> None:
    assert [comment.alone for comment in comments_in(line, syntax_of(path))] == alone


@pytest.mark.no_cover
@each("path", ["a.py", "a.js", "a.unheard", "a.html"])
@each("piece", ["'", "\\'", '"\\', "/*", "/**/", "#", "rem ", "`'\"", "<!--", "{#", "'\\'/*x*/"])
def test_a_line_of_nothing_but_signs_is_read_once(path: str, piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = piece * (100_000 // len(piece))
    assert list(comments_in(line, syntax_of(path))) == []
    # As long as no real line is read: to go through it for each sign would not end within the time limit of a test.
    monkeypatch.setattr(code_text, "_LONGEST_LINE", len(line))
    assert sum(len(comment.text) for comment in comments_in(line, syntax_of(path))) <= len(line)
