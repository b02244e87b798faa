import pytest

from codeloupe.source import code as code_text
from codeloupe.source.code import CodeText, comments_in, fold, syntax_of, tokens_of_code, words_and_signs
from tests.rows import each


@each(
    "line, expected",
    [
        ("    total=sum( x_1,2.5 )  ", "total = sum ( x_1 , 2 . 5 )"),
        ('say("hi…")', "say ( ' hi . . . ' )"),
        (" \t", ""),
    ],
)
def test_words_and_signs_of_a_line_have_one_space_between_them(line: str, expected: str) -> None:
    assert words_and_signs(fold(line)) == expected


@pytest.mark.defect("V5")
def test_what_formatters_and_comments_change_is_no_other_code() -> None:
    same = [
        ("a.py", "f('x', y)", 'f( "x",y )  # why'),
        ("a.py", "f('x', y)", "f(\n    'x',\n    y,\n)"),
        ("a.py", "x = 'it\\'s'", 'x = "it\'s"'),
        ("a.py", "return a and b", "return (\n    a\n    and b\n)"),
        ("a.py", "from a import b, c", "from a import (\n    b,\n    c,\n)"),
        ("a.py", "assert a, b", "assert a, (\n    b\n)"),
        ("a.ts", "const f = x => g('a')", 'const f = (x) => g("a");  // why'),
        ("a.ts", "call(one, two)", "call(\n  one, /* first */\n  two,\n)"),
        ("a.go", "x := `a b`", "x  :=  `a b` // c"),
        ("a.sql", "SELECT 1", "SELECT 1 -- c"),
        ("a.html", "<b>x</b>", "<b>x</b> <!-- c -->"),
    ]
    different = [
        ("a.py", "a * (b + c)", "a * b + c"),
        ("a.py", "f(x)", "f(y)"),
        ("a.py", "f(x)", "f('x')"),
        ("a.py", "f(x, y)", "f(y, x)"),
        ("a.py", "x = 1 # 2", "x = 2 # 2"),
        ("a.py", "# one thing", "# another thing"),
        ("a.c", "i--;", "i++;"),
        ("a.py", "(a, b)", "a, b, c"),
    ]
    wrong = [pair for pair in same if tokens_of_code(pair[1], pair[0]) != tokens_of_code(pair[2], pair[0])]
    wrong += [pair for pair in different if tokens_of_code(pair[1], pair[0]) == tokens_of_code(pair[2], pair[0])]
    assert wrong == []


ORDERS = """\
import db

LIMITS = {
    "small": 1,
    "large": 9,
}


class Orders:
    page = 20

    @cached
    def total(self, orders):
        # Add them up.
        amount = sum(
            order.price
            for order in orders
        )

        if amount < 0:
            raise ValueError(
                "negative",
            )
        return amount

    def save(self, order):
        '''Store one.

Returns nothing.
        '''
        db.store(order)


start()
"""


def lines_of(code: str, path: str = "a.py") -> list[tuple[int, int]]:
    return [(statement.first, statement.last) for statement in CodeText(code.encode(), path).statement_list()]


def test_statements_are_listed_in_order_without_lines_that_have_no_code() -> None:
    whole = lines_of(ORDERS)
    assert whole[:8] == [(1, 1), (3, 6), (9, 9), (10, 10), (12, 12), (13, 13), (15, 18), (20, 20)]
    assert whole[8:] == [(21, 23), (24, 24), (26, 26), (27, 27), (29, 29), (31, 31), (34, 34)]
    code = CodeText(ORDERS.encode(), "a.py")
    assert code.statement_list()[7].tokens == ("if", "amount", "<", "0", ":")
    assert code.statement_list() is code.statement_list()
    assert CodeText(b"", "a.py").statement_list() == ()


def test_statements_of_some_lines_are_those_that_share_a_line() -> None:
    code = CodeText(ORDERS.encode(), "a.py")
    assert [statement.first for statement in code.statements(17, 20)] == [15, 20]
    assert [statement.first for statement in code.statements(14, 14)] == []
    assert [statement.first for statement in code.statements(-5, 4)] == [1, 3]
    assert [statement.first for statement in code.statements(34, 10**9)] == [34]


@each(
    "code, path, lines",
    [
        ("a = 1\nf(\n    x,\n    [\n        1,\n    ],\n)\nif a:\n    b()\n", "a.py", [(1, 1), (2, 7), (8, 8), (9, 9)]),
        ("let x = a\n  .b()\n  .c();\nlet o = {\n  d: 1,\n};\n", "a.ts", [(1, 3), (4, 4), (5, 5), (6, 6)]),
        # A statement of more than twelve lines is taken by lines.
        ("f(\n" + "    1,\n" * 11 + ")\n", "a.py", [(line, line) for line in range(1, 14)]),
        ("f(\n" + "    1,\n" * 10 + ")\n", "a.py", [(1, 12)]),
        # So is a string of several lines, and the text in it counts.
        ("q = '''\nselect 1\nfrom t\n'''\nrun(q)\n", "a.py", [(1, 1), (2, 2), (3, 3), (5, 5)]),
        # Prose does not continue after a sign.
        ("a =\nb\n", "a.txt", [(1, 1), (2, 2)]),
    ],
)
def test_a_statement_is_its_lines_and_no_more(code: str, path: str, lines: list[tuple[int, int]]) -> None:
    assert lines_of(code, path) == lines


def test_a_large_file_has_a_statement_for_each_line() -> None:
    line = f"call({'1, ' * 100}\n    2)\n"
    code = CodeText(line.encode() * 4_000, "a.py")
    assert len(code.statement_list()) == 8_000
    assert code.statement_list()[1] == (2, 2, ("2", ")"))


def test_the_function_at_a_line_is_the_innermost_definition_around_it() -> None:
    code = CodeText(ORDERS.encode(), "a.py")
    total = tokens_of_code("\n".join(ORDERS.split("\n")[12:24]), "a.py")
    assert {code.function_at(line) for line in range(13, 25)} == {total}
    save = code.function_at(31)
    assert save is not None
    assert (save[:3], save[-6:]) == (("def", "save", "("), ("db", ".", "store", "(", "order", ")"))
    assert {code.function_at(line) for line in range(26, 32)} == {save}
    whole = code.function_at(10)
    assert whole is not None
    assert (whole[:2], whole[-1]) == (("class", "Orders"), ")")
    assert {code.function_at(line) for line in (9, 12)} == {whole}
    for line in (-1, 0, 1, 3, 4, 34, 35, 99):
        assert code.function_at(line) is None


@each(
    "path, code, line, opening",
    [
        ("a.js", "function f(a) {\n  if (a) {\n    go(a)\n  } else {\n    stop()\n  }\n}\nlast()\n", 5, "function f"),
        ("a.c", "int f(\n    int a\n)\n{\n    work(a);\n}\n\nint g()\n{\n    rest();\n}\n", 5, "int f"),
        ("a.c", "int f(\n    int a\n)\n{\n    work(a);\n}\n\nint g()\n{\n    rest();\n}\n", 2, "int f"),
        ("a.go", "func f() {\n\tfor {\n\t\tgo run()\n\t}\n}\n\nfunc g() {\n}\n", 3, "func f"),
        ("a.rb", "def f\n  begin\n    work\n  rescue\n    stop\n  end\nend\n", 5, "def f"),
        ("a.yaml", "build:\n  image: a\ntest:\n  image: b\n", 4, "test :"),
    ],
)
def test_the_function_is_found_by_indentation_in_any_language(path: str, code: str, line: int, opening: str) -> None:
    content = CodeText(code.encode(), path)
    function = content.function_at(line)
    assert function is not None
    assert " ".join(function).startswith(opening)
    following = code.split("\n\n")
    if len(following) > 1:
        assert function == tokens_of_code(following[0], path)


def test_tokens_of_statements_and_functions_ignore_comments_and_quote_style() -> None:
    one = CodeText(b"def f(a):\n    return g('x', a)\n", "a.py")
    other = CodeText(
        b'# New.\ndef f(a):  # why\n\n    # Call it.\n    return g(\n        "x",\n        a,\n    )\n', "a.py"
    )
    assert one.function_at(2) == other.function_at(6)
    assert [statement.tokens for statement in one.statement_list()] == [
        statement.tokens for statement in other.statement_list()
    ]
    changed = CodeText(b"def f(a):\n    return g('y', a)\n", "a.py")
    assert one.function_at(2) != changed.function_at(2)


def test_a_comment_or_attribute_after_a_function_does_not_belong_to_it() -> None:
    code = "fn f() {\n    work();\n}\n\n#[test]\nfn g() {\n    rest();\n}\n"
    changed = code.replace("#[test]", "#[ignore]")
    assert CodeText(code.encode(), "a.rs").function_at(2) == CodeText(changed.encode(), "a.rs").function_at(2)


def test_headers_name_the_definitions_around_a_line() -> None:
    code = CodeText(ORDERS.encode(), "a.py")
    assert code.headers(21) == ("def total", "class Orders :")
    assert code.headers(14) == ("def total", "class Orders :")
    assert code.headers(10) == ("class Orders :",)
    assert code.headers(34) == code.headers(0) == code.headers(99) == ()
    deep = "".join(f"{' ' * depth}def f{depth}():\n" for depth in range(9))
    assert CodeText(deep.encode(), "a.py").headers(9) == tuple(f"def f{depth}" for depth in range(7, 1, -1))


def test_places_are_all_lines_where_a_piece_of_code_is() -> None:
    code = CodeText(b"f(\n    x,\n    [1],\n)\nb()\nf(x, [1])\n", "a.py")
    assert code.places("f(x, [1])") == [(1, 4), (6, 6)]
    assert code.places("f(\n    x,") == [(1, 2), (6, 6)]
    assert code.places("b()\nc()") == code.places("# only words") == []


@pytest.mark.no_cover
@each(
    "text",
    [
        "'\\" * 50_000,
        "(" * 50_000 + ")" * 50_000,
        '"' * 50_001,
        "/*" * 50_000,
        "x\n'" * 30_000,
        "/*\n" * 300_000,
        " x\n" * 200_000,
    ],
)
def test_no_text_takes_long_to_cut_into_tokens(text: str) -> None:
    code = CodeText(text.encode(), "a.js")
    assert code.places("never_there(1)") == []
    assert len(code.statement_list()) <= text.count("\n") + 1
    assert code.function_at(2) is None or text.startswith(" ")


def texts(path: str, line: str) -> list[str]:
    return [text.strip() for text, _ in comments_in(line, syntax_of(path))]


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
    assert [is_alone for _, is_alone in comments_in(line, syntax_of(path))] == alone


@pytest.mark.no_cover
@each("path", ["a.py", "a.js", "a.unheard", "a.html"])
@each("piece", ["'", "\\'", '"\\', "/*", "/**/", "#", "rem ", "`'\"", "<!--", "{#", "'\\'/*x*/"])
def test_a_line_of_nothing_but_signs_is_read_once(path: str, piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = piece * (100_000 // len(piece))
    assert list(comments_in(line, syntax_of(path))) == []
    # As long as no real line is read: to go through it for each sign would not end within the time limit of a test.
    monkeypatch.setattr(code_text, "_LONGEST_LINE", len(line))
    assert sum(len(text) for text, _ in comments_in(line, syntax_of(path))) <= len(line)
