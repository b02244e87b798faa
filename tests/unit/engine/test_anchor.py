import pytest
from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.identity import with_fingerprints
from codeloupe.engine.quotes import MASK
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Finding, Severity
from codeloupe.system.redaction import redact
from tests.rows import each
from tests.unit.engine.anchor_material import ORIGIN, anchorer_of, changed_file, claim, place, where
from tests.unit.engine.samples import finding

CODE = """\
import os

def load(path, retries=3):
    handle = open(path)
    data = handle.read()

    if not data:
        return None
    return parse(data)


def save(path, data):
    if not data:
        return None
    with open(path, "w") as handle:
        handle.write(data)
"""


def lines_of(quote: str, code: str | bytes = CODE, *, line: int | None = None) -> tuple[int | None, ...] | None:
    finding = place(quote, code, line=line)
    return (finding.line_start, finding.line_end) if finding.anchored else None


@each(
    "quote, lines",
    [
        # In spite of white space and broken lines.
        ("    handle = open(path)", (4, 4)),
        ("handle = open(path)", (4, 4)),
        ("handle=open( path )", (4, 4)),
        ("handle = open(path)\ndata = handle.read()", (4, 5)),
        ("    data = handle.read()\n    if not data:", (5, 7)),
        ("data = handle.read()\n\n\n\nif not data:\n", (5, 7)),
        ("\ufeffhandle = open(path)\u200b", (4, 4)),
        ("with open(path, \u201cw\u201d) as handle:", (15, 15)),
        ("open(path, retries", None),
        ("with open(path,", (15, 15)),
        ("(path, retries=3):\n    handle = open", (3, 4)),
        ("handle = open(path) data = handle.read()", (4, 5)),
        ("with open(\n    path,\n    'w'\n)", None),
        ('with open(\n    path,\n    "w"\n) as handle:', (15, 15)),
        # With an ellipsis for what was left out.
        ("def load(path, retries=3):\n    ...\n    return parse(data)", (3, 9)),
        ("def load(path, retries=3):\n    # ...\n    return parse(data)", (3, 9)),
        ("def load(path, retries=3):\n    // …\n    return parse(data)", (3, 9)),
        ("def load(path, ...):\n    handle = open(path)", (3, 4)),
        ("def load(...", (3, 3)),
        ("...\n    data = handle.read()\n...", (5, 5)),
        ("def load(path...\n    data = handle.read()", (3, 5)),
        ("def save(path, data):\n...\ndata = handle.read()", None),
        ("with open(... as other:", None),
        ("...", None),
        # Among words when it is marked as code.
        ("In `load` the call `handle = open(path)` is never closed", (4, 4)),
        ("```handle = open(path)```", (4, 4)),
        ("In `load` the call `handle = open(other)` is never closed", None),
    ],
)
def test_the_quote_is_found(quote: str, lines: tuple[int, int] | None) -> None:
    assert lines_of(quote) == lines


@each(
    "quote",
    [
        "~~~\nhandle = open(path)\ndata = handle.read()\n~~~",
        "     handle = open(path)\n+    data = handle.read()",
        "@@ -1,3 +1,4 @@ x\n handle = open(path)\n+data = handle.read()",
        "=== a.py\n+    handle = open(path)\n+    data = handle.read()",
        "  4\thandle = open(path)\n  5\tdata = handle.read()",
        "4→    handle = open(path)\n5→    data = handle.read()",
        "L4: handle = open(path)\nL5: data = handle.read()",
        "4 handle = open(path)\n5 data = handle.read()",
        "+4: handle = open(path)\n+5: data = handle.read()",
        "handle = open(path)\\ndata = handle.read()",
        '"handle = open(path)\\n\\tdata = handle.read()"',
        "a.py:4: handle = open(path)\ndata = handle.read()",
        "-    handle = open(other)\n+    handle = open(path)\n+    data = handle.read()",
        "```python title=a.py\nhandle = open(path)\ndata = handle.read()\n```",
        "> handle = open(path)\n> data = handle.read()",
        "* handle = open(path)\n* data = handle.read()",
        "- handle = open(path)\n- data = handle.read()",
        "4:5: handle = open(path)\n5:5: data = handle.read()",
        "4. handle = open(path)\n5. data = handle.read()",
        "handle = open(path)  # <-- never closed\ndata = handle.read()",
        "handle = open(path)\ndata = handle.read() // ← leaks",
    ],
)
def test_the_quote_is_found_without_fences_escapes_and_margins(quote: str) -> None:
    assert lines_of(quote) == (4, 5)


def test_the_quote_is_found_in_its_most_literal_reading() -> None:
    # Of json and of html escapes.
    code = 'x = 1\nprint("a\\tb", p->q && r)\ny = 2\n'
    assert lines_of('print(\\"a\\\\tb\\", p->q && r)', code) == (2, 2)
    assert lines_of("print(&quot;a\\tb&quot;, p-&gt;q &amp;&amp; r)", code) == (2, 2)
    assert lines_of('print("a\\tb", p->q && r)', code) == (2, 2)
    # In its most literal reading.
    assert lines_of("`first()`", "first()\n`first()`\n") == (2, 2)
    assert lines_of("'- a = 1'", "a = 1\n- a = 1\n'- a = 1'\n") == (3, 3)
    code = "steps:\n  - name: build\n  name: build\n  1: first\n  first\n"
    assert lines_of("- name: build", code) == (2, 2)
    assert lines_of("1: first", code) == (4, 4)


LONG = "value = " + "1 + " * 1000 + "2"


@each(
    "quote, code, line, lines",
    [
        # A file that is not UTF-8 or has other line ends.
        ("name = 'caf\ufffd'", b"x\nname = 'caf\xe9'\ny\n", None, (2, 2)),
        ("name = 'caf<0xE9>'", b"x\nname = 'caf\xe9'\ny\n", None, (2, 2)),
        ("beta = 2\ngamma = 3", b"alpha = 1\r\nbeta = 2\r\n\r\ngamma = 3\r\n", None, (2, 4)),
        ("gamma = 3", b"alpha = 1\nbeta = 2\ngamma = 3", None, (3, 3)),
        # Characters that the prompt makes visible or cuts off, and composed letters.
        ("if admin<U+202E>:", "x\nif admin\u202e:\n    pass\n", None, (2, 2)),
        ("if admin<U+0001×3>:", "x\nif admin\x01\x01\x01:\n    pass\n", None, (2, 2)),
        (LONG[:2000] + " [cut: 2,009 more bytes]", f"x\n{LONG}\ny\n", None, (2, 2)),
        ("print('caf\u00e9')", "x\nprint('cafe\u0301')\n", None, (2, 2)),
        # What is short is found only on the stated line.
        ("y()", "if x:\n    y()\nelse:\n    z()\n", None, (2, 2)),
        ("x:", "if x:\n    y()\nelse:\n    z()\n", 1, None),
        ("if x", "if x:\n    y()\nelse:\n    z()\n", 1, (1, 1)),
        ("if x", "if x:\n    y()\nelse:\n    z()\n", 3, None),
        ("}", "{\n}\n", 2, (2, 2)),
        ("}", "{\n}\n", 1, None),
        # Nor does it begin or end within a word.
        ("count = 1", "account = 1\naccount = 10\n", None, None),
        ("count = 1", "let count = 1;\naccount = 10\n", None, (1, 1)),
    ],
)
def test_the_quote_is_found_in_any_text(
    quote: str, code: str | bytes, line: int | None, lines: tuple[int, int] | None
) -> None:
    assert lines_of(quote, code, line=line) == lines


def test_a_quote_that_is_not_there_has_no_line_whatever_was_stated_and_keeps_its_words() -> None:
    other = ["handle = open(other_path)", "handle = open(path)\nother = handle.read()", "a.py:4", "a.py:4 - "]
    for quote in ("", " \n\t", "}", "x", "-", "```\n```", "\0", "\ud800", *other):
        finding = place(quote, CODE, line=4)
        assert (finding.anchored, finding.file, finding.line_start, finding.evidence) == (False, "a.py", None, quote)
    assert [lines_of("invented = 1", line=line) for line in (None, -1, 0, 6, 99999, 10**30)] == [None] * 6
    # Is cut when it is endless.
    finding = place("no such line " * 100_000, CODE)
    assert (finding.anchored, len(finding.evidence)) == (False, 4000)


@pytest.mark.defect("V7")
def test_fragments_of_two_lines_that_stand_apart_are_placed_at_the_named_one_or_the_first() -> None:
    quote = "handle = open(path)\nreturn parse(data)"
    assert lines_of(quote) == (4, 4)
    assert lines_of(quote, line=4) == (4, 4)
    assert lines_of(quote, line=9) == (9, 9)
    assert lines_of("return parse(data)\nhandle = open(path)") == (9, 9)
    assert lines_of("return parse(data)\nhandle = open(pa", line=4) == (4, 4)
    assert lines_of("handle = open(path)\nother = handle.read()", line=4) is None


@pytest.mark.defect("V7")
def test_fragments_cut_within_a_word_are_placed_where_they_stand() -> None:
    whole = ("handle = open(path)", "return parse(data)", "data = handle.read()", 'with open(path, "w") as handle:')
    lost = []
    for line in whole:
        number = next(row for row, text in enumerate(CODE.split("\n"), start=1) if line in text)
        for end in range(7, len(line)):
            lost += [line[:end]] * (lines_of(line[:end], line=number) != (number, number))
            # Without a number the beginning of the line is enough, if it is long enough to tell.
            lost += [f"{line[:end]} without"] * (end > 14 and lines_of(line[:end]) is None)
        for start in range(1, len(line) - 7):
            lost += [line[start:]] * (lines_of(line[start:], line=number) != (number, number))
    assert lost == []
    assert lines_of("andle = op") is None


REPEATED = "".join(f"step({number})\nreturn None\n" for number in range(50))


def test_repeated_lines() -> None:
    # Go to the nearest.
    assert all(abs(place("return None", REPEATED, line=line).first_line - line) <= 1 for line in (1, 2, 33, 34, 99))
    # Go to the first without a stated line, and to one in the margin.
    assert lines_of("return None", REPEATED) == (2, 2)
    assert lines_of("return None", REPEATED, line=99999) == (2, 2)
    assert lines_of("34 | return None", REPEATED) == (34, 34)
    assert lines_of("a.py:34 - return None", REPEATED) == (34, 34)
    # Go to a changed line before a nearer one that is not.
    old = REPEATED.replace("step(40)\nreturn None\n", "step(40)\nreturn 0\n")
    finding = place("return None", REPEATED, old=old, line=5)
    assert (where(finding), finding.outside_change) == (("a.py", 82, 82), False)
    # Go to a line that the diff shows before one that it does not.
    old = REPEATED.replace("step(40)\n", "step(forty)\n")
    assert where(place("return None", REPEATED, old=old, line=5)) == ("a.py", 78, 78)
    # Are found near the stated line among very many.
    assert lines_of("same = 1\nsame = 1", "same = 1\n" * 5000, line=3000) == (3000, 3001)


@pytest.mark.defect("V4")
def test_repeated_lines_stay_where_number_and_quote_agree_whatever_was_changed_elsewhere() -> None:
    shown = REPEATED.replace("step(40)\nreturn None\n", "step(40)\nreturn 0\n")
    wrong = {}
    for line in range(2, 100, 2):
        for quote in ("return None", "    return None", "urn None", "+return None", f"{line} | return None"):
            found = where(place(quote, REPEATED, old=shown, line=line))
            if found != ("a.py", line, line):
                wrong[line, quote] = found
    assert wrong == {}
    # A part of the named line, which is a whole line elsewhere.
    assert where(place("first()", "first()\nvalue = first()\nlast = value\n", line=2)) == ("a.py", 2, 2)


def test_the_range() -> None:
    # Is that of the quote when the numbers are positions in the diff.
    new = "".join(f"line_{number} = {number}\n" for number in range(1, 200))
    old = new.replace("line_150 = 150\n", "")
    assert where(place("line_150 = 150", new, old=old, line=4, end=5)) == ("a.py", 150, 150)
    # Goes as far as the reviewer says when its beginning is right.
    for line, end, expected in ((4, 9, 9), (3, 9, 4), (4, 2, 4), (4, 10**9, 4)):
        assert where(place("handle = open(path)", CODE, line=line, end=end)) == ("a.py", 4, expected)
    # Has the files own text as evidence, within limits.
    assert place("data=handle.read()\nif not  data:", CODE).evidence == "    data = handle.read()\n\n    if not data:"
    assert place("open(path, 'w'", CODE.replace('"', "'")).evidence == "    with open(path, 'w') as handle:"
    assert place("b = 2", b"a = 1\r\nb = 2 \r\n").evidence == "b = 2 "
    code = "".join(f"line_{number} = {'1' * 80}\n" for number in range(1, 190))
    finding = place(code, code)
    assert (where(finding), len(finding.evidence) <= 4000) == (("a.py", 1, 189), True)


OLD = "def f(x):\n    check(x)\n    lock.release()\n    return x\n\n\ndef g():\n    pass\n"
NEW = "def f(x):\n    return x\n\n\ndef g():\n    pass\n"
FAR = "".join(f"x{number} = 1\n" for number in range(30)) + "lock.release()\n"
TAKEN = "def f():\n    lock.take()\n"


def test_deleted_lines_are_anchored_where_they_were() -> None:
    for quote in ("    lock.release()", "-    lock.release()", "- lock.release()", "3 | -    lock.release()"):
        for known in (True, False):
            finding = place(quote, NEW, old=OLD, known=known)
            assert (where(finding), finding.evidence) == (("a.py", 2, 2), "    lock.release()")
            assert not finding.outside_change
    # Of a file that is gone they have their old numbers.
    finding = anchorer_of({"a.py": (b"one = 1\nverify(token)\n", None)}).place(claim("verify(token)"), ORIGIN)
    assert (where(finding), finding.outside_change) == (("a.py", 2, 2), False)


@each(
    "quote, new, old, line, lines",
    [
        # With the lines around them, and at the end of the file on its last line.
        ("check(x)\nlock.release()\nreturn x", NEW, OLD, None, (2, 2)),
        (" def f(x):\n-    check(x)\n-    lock.release()", NEW, OLD, None, (1, 2)),
        ("lock.release()", TAKEN, f"{TAKEN}    lock.release()\n", None, (2, 2)),
        # They win over the same line far from the change, unless that is named.
        ("lock.release()", NEW + FAR, OLD + FAR, 2, (2, 2)),
        ("lock.release()", NEW + FAR, OLD + FAR, 37, (37, 37)),
        # Deleted and added ones may be quoted as the diff shows them.
        ("-b = go(1)\n+b = go(2)", "a = 1\nb = go(2)\nc = 3\n", "a = 1\nb = go(1)\nc = 3\n", None, (2, 2)),
        ("b = go(1)\nb = go(2)", "a = 1\nb = go(2)\nc = 3\n", "a = 1\nb = go(1)\nc = 3\n", None, (2, 2)),
    ],
)
def test_deleted_lines_among_others(quote: str, new: str, old: str, line: int | None, lines: tuple[int, int]) -> None:
    assert where(place(quote, new, old=old, line=line)) == ("a.py", *lines)


CHANGE = {
    "src/app/main.py": (b"old()\n", b"start()\nserve(port)\n"),
    "src/lib/util.py": (b"old()\n", b"helper(port)\n"),
    "tests/util.py": (b"old()\n", b"helper(port, test)\n"),
}


def test_the_file_is_known_by_what_the_reviewer_calls_it() -> None:
    main = "src/app/main.py"
    around = [f" {main} ", f"`{main}`", f"./{main}", f"a/{main}", f"b/{main}", f"project/{main}"]
    numbered = [f"{main}:2", f"{main}:2-3", f"{main}:2:7", f"{main}#L2-L3", f"{main} (line 2)"]
    parts = ["src\\app\\main.py", "src//app/./main.py", "app/main.py", "main.py"]
    whole = [f"/tmp/review-1/tree/{main}", "C:\\build\\src\\app\\main.py", f"file:///builds/x/{main}"]
    for claimed in (main, *around, *numbered, *parts, *whole):
        finding = anchorer_of(CHANGE).place(claim("serve(port)", file=claimed), ORIGIN)
        assert where(finding) == (main, 2, 2), claimed
    # One that is not clear gives no anchor and keeps its name, unless it is clear within the unit.
    for claimed in ("util.py", "nothing.py", "ain.py", "app/util.py", "/", ".", "a/", "src/app"):
        finding = anchorer_of(CHANGE).place(claim("helper(port)", file=claimed), ORIGIN)
        assert not finding.anchored
        assert finding.file in {claimed, ""} or claimed == "a/"
    finding = anchorer_of(CHANGE).place(claim("helper(port", file="util.py"), ORIGIN, unit_files=["tests/util.py"])
    assert where(finding) == ("tests/util.py", 1, 1)


def test_a_file_outside_of_the_tree_is_never_read() -> None:
    outside = ["../secret.py", "/../secret.py", "src/../../secret.py", ".git/config", "a\0b"]
    for claimed in (*outside, "x" * 100_000, "/" * 5000, "../" * 500):
        asked: list[str] = []

        def read(path: str, asked: list[str] = asked) -> bytes | None:
            asked.append(path)
            return b"stolen = 1\n"

        finding = Anchorer([], read).place(claim("stolen = 1", file=claimed), ORIGIN)
        assert (finding.anchored, asked) == (False, [])
        assert len(finding.file) <= 4096


def test_a_file_outside_of_the_change_is_read_and_marked() -> None:
    anchorer = anchorer_of(CHANGE, {"src/other.py": b"one()\ncalled(port)\n", "main.py": b"root_main()\n"})
    for claimed in ("src/other.py", "/tmp/tree/src/other.py"):
        finding = anchorer.place(claim("called(port)", file=claimed), ORIGIN)
        assert (where(finding), finding.outside_change) == (("src/other.py", 2, 2), True)
    # a changed file with that ending and a file with that very name: the quote decides
    assert where(anchorer.place(claim("root_main()", file="main.py"), ORIGIN)) == ("main.py", 1, 1)
    assert where(anchorer.place(claim("serve(port)", file="main.py"), ORIGIN)) == ("src/app/main.py", 2, 2)


def test_a_file_that_is_unread_renamed_odd_or_not_named() -> None:
    # That cannot be read is known by its hunks.
    old = "".join(f"line_{number} = {number}\n" for number in range(100))
    new = old.replace("line_50 = 50\n", "line_50 = fifty\n").replace("line_90 = 90\n", "line_90 = ninety\n")
    for quote, line in (("line_50 = fifty", 51), ("line_51 = 51", 52)):
        assert where(place(quote, new, old=old, known=False)) == ("a.py", line, line)
    for quote in ("line_53 = 53\nline_60 = 60", "line_10 = 10"):
        assert where(place(quote, new, old=old, known=False)) is None
    # That was renamed is known by its old name too.
    renamed = replace(changed_file("new.py", b"a()\n", b"a()\nb(1)\n"), old_path="old.py", status=FileStatus.RENAMED)
    anchorer = Anchorer([renamed], {"new.py": b"a()\nb(1)\n"}.get)
    assert where(anchorer.place(claim("b(1)", file="old.py", line=2), ORIGIN)) == ("new.py", 2, 2)
    # With an odd name is known as the prompt shows it.
    path = "caf\udce9\n.py"
    anchorer = Anchorer([changed_file(path, None, b"value = 1\n")], {path: b"value = 1\n"}.get)
    for claimed in (path, "caf<0xE9><U+000A>.py"):
        assert where(anchorer.place(claim("value = 1", file=claimed), ORIGIN)) == (path, 1, 1)
    # That is not named is the only one with the quote.
    anchorer = anchorer_of(CHANGE)
    for unnamed in (None, "  "):
        assert where(anchorer.place(claim("serve(port)", file=unnamed), ORIGIN)) == ("src/app/main.py", 2, 2)
    assert where(anchorer.place(claim("helper(port", file=None), ORIGIN)) is None
    found = anchorer.place(claim("helper(port", file=None), ORIGIN, unit_files=["src/lib/util.py"])
    assert where(found) == ("src/lib/util.py", 1, 1)
    assert anchorer.place(claim("", file=None), ORIGIN).file == ""


TOKEN = "ghp_" + "a1B2" * 9
SECRET = f'import os\nTOKEN = "{TOKEN}"\nsend(TOKEN)\n'


def test_secrets() -> None:
    # Our mask is the one that redaction writes.
    assert redact(TOKEN) == MASK
    # A masked quote is found and stays masked.
    finding = place(redact(SECRET.split("\n")[1]), SECRET)
    assert (where(finding), finding.evidence) == (("a.py", 2, 2), f'TOKEN = "{MASK}"')
    # Evidence passes the mask.
    anchorer = Anchorer([changed_file("a.py", None, SECRET.encode())], {"a.py": SECRET.encode()}.get, mask=redact)
    for quote in (f'TOKEN = "{TOKEN}"', f'TOKEN = "{MASK}"\nsend(TOKEN)', f"none {TOKEN}"):
        finding = anchorer.place(claim(quote), ORIGIN)
        assert TOKEN not in finding.evidence
        assert MASK in finding.evidence
    # A mask may stand for many lines or for a whole line, and for no other code.
    secret = "\n".join("Zm9v" * 12 for _ in range(12))
    code = f'first()\nKEY = """{secret}"""\nuse(KEY)\nlast()\n'
    assert where(place(f'KEY = """{MASK}"""\nuse(KEY)', code)) == ("a.py", 2, 14)
    assert where(place(f"first()\n{MASK}\nuse(KEY)", code)) == ("a.py", 1, 14)
    assert not place(f"send({MASK}, other)", SECRET).anchored
    assert not place(MASK, SECRET).anchored


def test_the_finding() -> None:
    # Has what the claim says and who said it.
    claimed = replace(claim("handle = open(path)", line=4), category=" security ", suggestion="fix", rule="X1")
    origin = Origin(reviewer="claude_cli", expert="security", label="claude_cli/security#2")
    anchorer = Anchorer([changed_file("a.py", None, CODE.encode())], {"a.py": CODE.encode()}.get)
    finding = anchorer.place(claimed, origin)
    assert (finding.severity, finding.title, finding.body) == (Severity.HIGH, "wrong", "why")
    assert (finding.category, finding.suggestion, finding.rule) == ("security", "fix", "X1")
    assert (finding.reviewer, finding.expert, finding.seen_by) == ("claude_cli", "security", (origin.label,))
    # Does not believe who the claim says it is.
    place_it = anchorer_of({}).place
    finding = place_it(replace(claim("x"), reviewer="ruff"), Origin(reviewer="codex"))
    assert (finding.reviewer, finding.seen_by) == ("codex", ("codex",))
    # Has a confidence between none and one.
    for stated, kept in ((None, None), (0.5, 0.5), (7.0, 1.0), (-1.0, 0.0), (float("nan"), None), (float("inf"), None)):
        assert place_it(replace(claim("x"), confidence=stated), ORIGIN).confidence == kept
    # Without a category has its experts.
    assert place_it(claim("x"), Origin(reviewer="r", expert="tests")).category == "tests"
    assert place_it(claim("x"), ORIGIN).category == "general"
    # Is outside of the change when no hunk shows its line.
    old = "".join(f"line_{number} = {number}\n" for number in range(100))
    new = old.replace("line_50 = 50\n", "line_50 = fifty\n")
    for quote, outside in (("line_50 = fifty", False), ("line_53 = 53", False), ("line_54 = 54", True)):
        finding = place(quote, new, old=old)
        assert (finding.anchored, finding.outside_change) == (True, outside)


HUNK = Hunk(5, 2, 5, 4, b" five\n+six\n+seven\n eight\n", added=2)
CHANGED = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(HUNK,))


def test_of_a_model_only_lines_that_the_diff_shows_are_believed() -> None:
    for tree in ({"a.py": b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"}, {"b.py": b""}):
        anchorer = Anchorer([CHANGED], tree.get, believes="shown")
        placed = [where(anchorer.place(claim("", line=line), ORIGIN)) for line in (0, 4, 5, 6, 8, 9, 10)]
        assert placed == [None, None, *(("a.py", line, line) for line in (5, 6, 8)), None, None]
    # Of others every line of the file is, but a quote that is not there is no missing quote.
    content = b"one\n\n\n\nfive\nsix\nseven\neight\nnine\n"
    anchorer = Anchorer([CHANGED], {"a.py": content}.get, mask=str.upper, believes="any")
    found = anchorer.place(claim("", line=9), ORIGIN)
    assert (found.evidence, found.anchored, found.outside_change) == ("NINE", True, True)
    assert where(anchorer.place(claim("", line=8, end=99), ORIGIN)) == ("a.py", 8, 9)
    assert where(anchorer.place(claim("invented = 1", line=6), ORIGIN)) is None


USERS = """\
import db

class Users:
    def by_id(self, user_id):
        query = f"SELECT * FROM users WHERE id = {user_id}"
        rows = db.run(query)
        if not rows:
            return None
        return rows[0]

    def by_name(self, name):
        if name:
            rows = db.run(f"SELECT * FROM users WHERE name = '{name}'")
        return rows[0]
"""
QUERY = 'query = f"SELECT * FROM users WHERE id = {user_id}"'


def fingerprint(**differences: object) -> str:
    (named,) = with_fingerprints([replace(finding(evidence="query = f'{x}'"), **differences)])
    return named.fingerprint


def placed(code: str, quote: str, *, file: str = "users.py", line: int | None = None) -> Finding:
    """The finding of a quote in a file, with its fingerprint in that file."""
    content = code.encode()
    anchorer = Anchorer([changed_file(file, None, content)], {file: content}.get)
    found = anchorer.place(claim(quote, file=file, line=line), ORIGIN)
    assert found.anchored
    (named,) = with_fingerprints([found], context={file: content}.get)
    return named


def names(code: str, quote: str, *lines: int) -> list[str]:
    return [placed(code, quote, line=line).fingerprint for line in lines]


def test_without_context() -> None:
    same = fingerprint()
    assert fingerprint(line_start=90, line_end=91, body="other words", file="lib/b.py") == same
    assert fingerprint(evidence="  query  =  f'{x}'\n") == same
    others = {fingerprint(rule="S608"), fingerprint(rule="S609"), fingerprint(evidence="other = 12")}
    assert len({same, fingerprint(category="security"), *others}) == 5
    # The category does not count where a rule does.
    assert fingerprint(rule="S608", category="security") == fingerprint(rule="S608", category="bug")
    # A path or quote that is not UTF-8 has a fingerprint too, and so has a finding in a file that cannot be read.
    assert len(fingerprint(file="a\udcff.py", evidence="\ud800\udcff", title="\ud800")) == 32
    assert with_fingerprints([finding()], context=lambda _: None) == with_fingerprints([finding()])
    # Findings without a place are known by file and quote or title.
    lost = [
        fingerprint(anchored=False, evidence="", title=title) for title in ("Lost update", "Another", "Updates lost")
    ]
    loose = [fingerprint(anchored=False), fingerprint(anchored=False, file="b.py")]
    assert len({same, *lost, *loose}) == 5
    assert lost[0] == lost[2]


def test_another_quote_or_a_block_around_it_keeps_the_fingerprint() -> None:
    quotes = [
        QUERY,
        f"{QUERY}\nrows = db.run(query)",
        f"def by_id(self, user_id):\n{QUERY}\nrows = db.run(query)",
        f"{QUERY}\nrows = db.run(query)\nif not rows:\n    return None",
        '"SELECT * FROM users WHERE id = {user_id}"',
    ]
    inside = f"        try:\n            {QUERY}\n        finally:\n            close()\n"
    wrapped = placed(USERS.replace(f"        {QUERY}\n", inside), QUERY)
    assert len({wrapped.fingerprint, *(placed(USERS, quote).fingerprint for quote in quotes)}) == 1


def test_the_same_line_elsewhere_has_another_fingerprint() -> None:
    assert len(set(names(USERS, "return rows[0]", 9, 14))) == 2
    # Twice in a definition, whichever is reported; one that says little is known by the next one.
    code = "def f():\n    send(token)\n    wait(1)\n    send(token)\n"
    assert names("\n\n" + code, "send(token)", 4, 6) == names(code, "send(token)", 2, 4)
    code = "begin()\nx = 1\nfirst(x)\nx = 1\nsecond(x)\n"
    assert names("more()\n" + code, "x = 1", 3, 5) == names(code, "x = 1", 2, 4)
    assert len({*names(code, "x = 1", 2, 4)}) == 2
    # Braces, signatures over several lines and parent keys enclose.
    c = "int f(\n    int a\n)\n{\n    work(a, b);\n}\n\nint g()\n{\n    work(a, b);\n}\n"
    yaml = "build:\n  image: node:latest\ntest:\n  image: node:latest\n"
    assert len({*names(c, "work(a, b);", 5, 10), *names(yaml, "image: node:latest", 2, 4)}) == 4
    assert names("lint:\n  image: x\n" + yaml, "image: node:latest", 4) == names(yaml, "image: node:latest", 2)
    # In another file, by order.
    one, other = placed(USERS, QUERY, file="a.py"), placed(USERS, QUERY, file="b.py")
    both = with_fingerprints([other, one], context={"a.py": USERS.encode(), "b.py": USERS.encode()}.get)
    assert [named.file for named in both] == ["a.py", "b.py"]
    assert both[0].fingerprint == one.fingerprint != both[1].fingerprint


def test_a_masked_secret_does_not_enter_the_fingerprint() -> None:
    codes = [f'class Api:\n    KEY = "{"ghp_" + sign * 36}"\n' for sign in "ab"]
    assert len({placed(code, 'KEY = "[redacted]"').fingerprint for code in codes}) == 1
