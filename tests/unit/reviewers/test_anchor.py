import pytest
from msgspec.structs import replace

from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Severity, Source
from codeloupe.reviewers.anchor import Anchorer, Origin
from codeloupe.reviewers.quotes import MASK
from codeloupe.system.redaction import redact
from tests.rows import each
from tests.unit.reviewers.anchor_material import ORIGIN, anchorer_of, changed_file, place, raw_claim, where

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
    claim = place(quote, code, line=line)
    return (claim.line_start, claim.line_end) if claim.anchored else None


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
        ("with open(\n    path,\n    'w'\n)", (15, 15)),
        ("with open(\n    path,\n    'r'\n)", None),
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
        # Enclosed by the marks of code, but not among words.
        ("```handle = open(path)```", (4, 4)),
        ("In `load` the call `handle = open(path)` is never closed", None),
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
        "handle = open(path)\\ndata = handle.read()",
        '"handle = open(path)\\n\\tdata = handle.read()"',
        "a.py:4: handle = open(path)\ndata = handle.read()",
        "-    handle = open(other)\n+    handle = open(path)\n+    data = handle.read()",
        "```python title=a.py\nhandle = open(path)\ndata = handle.read()\n```",
        "- handle = open(path)\n- data = handle.read()",
        "4:5: handle = open(path)\n5:5: data = handle.read()",
        "4. handle = open(path)\n5. data = handle.read()",
    ],
)
def test_the_quote_is_found_without_fences_escapes_and_margins(quote: str) -> None:
    assert lines_of(quote) == (4, 5)


def test_the_quote_is_found_in_its_most_literal_reading() -> None:
    # Without the escapes of JSON, but not without those of HTML.
    code = 'x = 1\nprint("a\\tb", p->q && r)\ny = 2\n'
    assert lines_of('print(\\"a\\\\tb\\", p->q && r)', code) == (2, 2)
    assert lines_of("print(&quot;a\\tb&quot;, p-&gt;q &amp;&amp; r)", code) is None
    assert lines_of('print("a\\tb", p->q && r)', code) == (2, 2)
    # Enclosing quote marks are never part of it.
    assert lines_of("`first()`", "first()\n`first()`\n") == (1, 1)
    assert lines_of("'- a = 1'", "a = 1\n- a = 1\n'- a = 1'\n") == (2, 2)
    # Diff signs and line numbers may be.
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
        # A short quote is found too, but without a letter only on the stated line.
        ("y()", "if x:\n    y()\nelse:\n    z()\n", None, (2, 2)),
        ("x:", "if x:\n    y()\nelse:\n    z()\n", 1, (1, 1)),
        ("if x", "if x:\n    y()\nelse:\n    z()\n", 1, (1, 1)),
        ("if x", "if x:\n    y()\nelse:\n    z()\n", 3, (1, 1)),
        ("}", "{\n}\n", 2, (2, 2)),
        ("}", "{\n}\n", 1, None),
        ("}", "{\n}\n", None, None),
        # Whole lines come before parts of lines.
        ("first()", "value = first()\nfirst()\n", None, (2, 2)),
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
        claim = place(quote, CODE, line=4)
        assert (claim.anchored, claim.file, claim.line_start, claim.evidence) == (False, "a.py", None, quote)
    assert [lines_of("invented = 1", line=line) for line in (None, -1, 0, 6, 99999, 10**30)] == [None] * 6
    # Is cut when it is endless.
    claim = place("no such line " * 100_000, CODE)
    assert (claim.anchored, len(claim.evidence)) == (False, 4000)


@pytest.mark.defect("V7")
def test_lines_that_stand_apart_are_found_in_their_order() -> None:
    quote = "handle = open(path)\nreturn parse(data)"
    for line in (None, 4, 9):
        assert lines_of(quote, line=line) == (4, 9)
    assert lines_of("return parse(data)\nhandle = open(path)") is None
    assert lines_of("handle = open(path)\nother = handle.read()", line=4) is None
    # The nearest of several lines belong together.
    assert lines_of("a()\nb()", "a()\nx()\na()\ny()\nb()\nb()\n") == (3, 5)


def test_a_gap_has_at_most_200_lines() -> None:
    for lines_between, lines in ((199, (1, 201)), (200, None)):
        code = "first()\n" + "x()\n" * lines_between + "last()\n"
        assert lines_of("first()\n...\nlast()", code) == lines
        assert lines_of("first()\nlast()", code) == lines


@pytest.mark.defect("V7")
def test_a_quote_that_is_cut_within_a_word_is_found_on_the_stated_line() -> None:
    whole = ("handle = open(path)", "return parse(data)", "data = handle.read()", 'with open(path, "w") as handle:')
    lost = []
    for line in whole:
        number = next(row for row, text in enumerate(CODE.split("\n"), start=1) if line in text)
        parts = [line[:end] for end in range(7, len(line))] + [line[start:] for start in range(1, len(line) - 7)]
        lost += [part for part in parts if lines_of(part, line=number) != (number, number)]
    assert lost == []


@each(
    "quote, lines",
    [("andle = op", (4, 4)), ("data = handle.read()\nif not da", (5, 7)), ("eturn", None), ("def load(po", None)],
)
def test_a_quote_that_is_cut_within_a_word_is_found_if_there_is_one_place(
    quote: str, lines: tuple[int, int] | None
) -> None:
    assert lines_of(quote) == lines


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
    claim = place("return None", REPEATED, old=old, line=5)
    assert (where(claim), claim.outside_change) == (("a.py", 82, 82), False)
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
        for quote in ("return None", "    return None", "None", "+return None", f"{line} | return None"):
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
    # Is that of the quote, whatever end the reviewer states.
    for line, end in ((4, 9), (3, 9), (4, 2), (4, 10**9)):
        assert where(place("handle = open(path)", CODE, line=line, end=end)) == ("a.py", 4, 4)
    # Has the file's own text as evidence, within limits.
    assert place("data=handle.read()\nif not  data:", CODE).evidence == "    data = handle.read()\n\n    if not data:"
    assert place("open(path, 'w'", CODE.replace('"', "'")).evidence == "    with open(path, 'w') as handle:"
    assert place("b = 2", b"a = 1\r\nb = 2 \r\n").evidence == "b = 2 "
    code = "".join(f"line_{number} = {'1' * 80}\n" for number in range(1, 190))
    claim = place(code, code)
    assert (where(claim), len(claim.evidence) <= 4000) == (("a.py", 1, 189), True)


OLD = "def f(x):\n    check(x)\n    lock.release()\n    return x\n\n\ndef g():\n    pass\n"
NEW = "def f(x):\n    return x\n\n\ndef g():\n    pass\n"
FAR = "".join(f"x{number} = 1\n" for number in range(30)) + "lock.release()\n"
TAKEN = "def f():\n    lock.take()\n"


def test_deleted_lines_are_anchored_where_they_were() -> None:
    for quote in ("    lock.release()", "-    lock.release()", "- lock.release()", "3 | -    lock.release()"):
        for known in (True, False):
            claim = place(quote, NEW, old=OLD, known=known)
            assert (where(claim), claim.evidence) == (("a.py", 2, 2), "    lock.release()")
            assert not claim.outside_change
    # Of a file that is gone they have their old numbers.
    claim = anchorer_of({"a.py": (b"one = 1\nverify(token)\n", None)}).place(raw_claim("verify(token)"), ORIGIN)
    assert (where(claim), claim.outside_change) == (("a.py", 2, 2), False)


@each(
    "quote, new, old, line, lines",
    [
        # With the lines around them, and at the end of the file on its last line.
        ("check(x)\nlock.release()\nreturn x", NEW, OLD, None, (2, 2)),
        (" def f(x):\n-    check(x)\n-    lock.release()", NEW, OLD, None, (1, 2)),
        ("lock.release()", TAKEN, f"{TAKEN}    lock.release()\n", None, (2, 2)),
        # They win over the same line far from the change, unless that is named, but not over a line that is shown.
        ("lock.release()", f"{NEW}lock.release()\n", OLD, None, (7, 7)),
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
        claim = anchorer_of(CHANGE).place(raw_claim("serve(port)", file=claimed), ORIGIN)
        assert where(claim) == (main, 2, 2), claimed
    # One that is not clear gives no anchor and keeps its name, unless it is clear within the unit.
    for claimed in ("util.py", "nothing.py", "ain.py", "app/util.py", "/", ".", "a/", "src/app"):
        claim = anchorer_of(CHANGE).place(raw_claim("helper(port)", file=claimed), ORIGIN)
        assert not claim.anchored
        assert claim.file in {claimed, ""} or claimed == "a/"
    claim = anchorer_of(CHANGE).place(raw_claim("helper(port", file="util.py"), ORIGIN, unit_files=["tests/util.py"])
    assert where(claim) == ("tests/util.py", 1, 1)


def test_a_file_outside_of_the_tree_is_never_read() -> None:
    outside = ["../secret.py", "/../secret.py", "src/../../secret.py", ".git/config", "a\0b"]
    for claimed in (*outside, "x" * 100_000, "/" * 5000, "../" * 500):
        asked: list[str] = []

        def read(path: str, asked: list[str] = asked) -> bytes | None:
            asked.append(path)
            return b"stolen = 1\n"

        claim = Anchorer([], read).place(raw_claim("stolen = 1", file=claimed), ORIGIN)
        assert (claim.anchored, asked) == (False, [])
        assert len(claim.file) <= 4096


def test_a_file_outside_of_the_change_is_read_and_marked() -> None:
    anchorer = anchorer_of(CHANGE, {"src/other.py": b"one()\ncalled(port)\n", "main.py": b"root_main()\n"})
    for claimed in ("src/other.py", "/tmp/tree/src/other.py"):
        claim = anchorer.place(raw_claim("called(port)", file=claimed), ORIGIN)
        assert (where(claim), claim.outside_change) == (("src/other.py", 2, 2), True)
    # a changed file with that ending and a file with that very name: the quote decides
    assert where(anchorer.place(raw_claim("root_main()", file="main.py"), ORIGIN)) == ("main.py", 1, 1)
    assert where(anchorer.place(raw_claim("serve(port)", file="main.py"), ORIGIN)) == ("src/app/main.py", 2, 2)


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
    assert where(anchorer.place(raw_claim("b(1)", file="old.py", line=2), ORIGIN)) == ("new.py", 2, 2)
    # With an odd name is known as the prompt shows it.
    path = "caf\udce9\n.py"
    anchorer = Anchorer([changed_file(path, None, b"value = 1\n")], {path: b"value = 1\n"}.get)
    for claimed in (path, "caf<0xE9><U+000A>.py"):
        assert where(anchorer.place(raw_claim("value = 1", file=claimed), ORIGIN)) == (path, 1, 1)
    # That is not named is the only one with the quote.
    anchorer = anchorer_of(CHANGE)
    for unnamed in ("", "  "):
        assert where(anchorer.place(raw_claim("serve(port)", file=unnamed), ORIGIN)) == ("src/app/main.py", 2, 2)
    assert where(anchorer.place(raw_claim("helper(port", file=""), ORIGIN)) is None
    found = anchorer.place(raw_claim("helper(port", file=""), ORIGIN, unit_files=["src/lib/util.py"])
    assert where(found) == ("src/lib/util.py", 1, 1)
    assert anchorer.place(raw_claim("", file=""), ORIGIN).file == ""


TOKEN = "ghp_" + "a1B2" * 9
SECRET = f'import os\nTOKEN = "{TOKEN}"\nsend(TOKEN)\n'


def test_our_mask_is_the_one_that_redaction_writes() -> None:
    assert redact(TOKEN) == MASK


@pytest.mark.defect("A7")
def test_every_text_of_a_claim_is_redacted() -> None:
    content = SECRET.encode()
    files = [changed_file("a.py", None, content)]
    texts = {"title": TOKEN, "body": f"It sends {TOKEN}.", "category": TOKEN, "rule": TOKEN, "suggestion": TOKEN}
    texts |= {"finding_id": TOKEN}
    origin = Origin(reporter=f"gate/{TOKEN}", expert=TOKEN, label=f"pass {TOKEN}", source=Source.EXTERNAL)
    for quote in (f'TOKEN = "{TOKEN}"', "TOKEN = ", f"none {TOKEN}", ""):
        for believes in ("none", "any"):
            anchorer = Anchorer(files, {"a.py": content}.get, believes=believes)
            raw = replace(raw_claim(quote, line=2), replacement=f'TOKEN = "x{TOKEN}"', **texts)
            claim = anchorer.place(raw, origin)
            assert TOKEN not in repr(claim)
            assert (claim.reporter, claim.names_finding) == (f"gate/{MASK}", MASK)
            assert (claim.title, claim.suggestion, claim.replacement) == (MASK, MASK, None)
            assert MASK in claim.evidence or not claim.evidence
    lost = anchorer_of({}).place(raw_claim("x", file=f"{TOKEN}.py"), ORIGIN)
    assert lost.file == f"{MASK}.py"


def test_a_secret_is_masked_before_a_text_is_cut() -> None:
    for size in range(3_960, 4_000):
        claim = place("x" * size + f" {TOKEN} and more", CODE)
        assert "ghp_" not in claim.evidence
    for size in range(4_060, 4_100):
        lost = anchorer_of({}).place(raw_claim("x", file="x" * size + f"/{TOKEN}/and/more"), ORIGIN)
        assert "ghp_" not in lost.file


def test_a_mask_that_shortens_a_text_does_not_reveal_a_cut_secret() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEa1B2c3D4e5F6g7H8i9J0\n" * 160 + "-----END RSA PRIVATE KEY-----\n"
    for size in range(150):
        raw = replace(raw_claim("x"), category=f"{key}{'x' * size} {TOKEN}{'y' * 5_000}")
        claim = anchorer_of({}).place(raw, ORIGIN)
        assert "ghp_" not in claim.category
        assert claim.category.startswith(MASK)


def test_code_that_was_masked_for_the_reviewer_stays_masked() -> None:
    claim = place(redact(SECRET.split("\n")[1]), SECRET)
    assert (where(claim), claim.evidence) == (("a.py", 2, 2), f'TOKEN = "{MASK}"')
    # Also if redaction does not know the secret by its form.
    claim = place(f'PIN = "{MASK}"\nsend(PIN)', 'first()\nPIN = "1234"\nsend(PIN)\n')
    assert (where(claim), claim.evidence) == (("a.py", 2, 3), f'PIN = "{MASK}"\nsend(PIN)')


def test_a_mask_stands_for_a_part_of_a_line_or_many_lines_and_no_other_code() -> None:
    secret = "\n".join("Zm9v" * 12 for _ in range(12))
    code = f'first()\nKEY = """{secret}"""\nuse(KEY)\nlast()\n'
    assert where(place(f'KEY = """{MASK}"""\nuse(KEY)', code)) == ("a.py", 2, 14)
    assert where(place(f"first()\n{MASK}\nuse(KEY)", code)) == ("a.py", 1, 14)
    assert not place(f"send({MASK}, other)", SECRET).anchored
    assert not place(MASK, SECRET).anchored


@pytest.mark.defect("N7")
@each(
    "code, quote",
    [
        ('run("ls", cwd)', "run('ls', cwd)"),
        ("run('ls', cwd)", 'run("ls", cwd)'),
        ("run(`ls`, cwd)", 'run("ls", cwd)'),
        ('run("ls", cwd)', "run(`ls`, cwd)"),
        ('run("ls", cwd)', "run(\u201cls\u201d, cwd)"),
        ('run("ls", cwd)', "run(\u2018ls\u2019, cwd)"),
        ("run('ls', cwd)", "run(\u201els\u201c, cwd)"),
        ('x = """one"""', "x = '''one'''"),
        ('f"{name}" + other(name)', "f'{name}' + other("),
        ('run_command(\n    "ls",\n    cwd,\n)', "run_command('ls', cwd,)"),
    ],
)
def test_a_quote_with_other_quote_marks_is_anchored(code: str, quote: str) -> None:
    claim = place(quote, f"first()\n{code}\nlast()\n")
    assert where(claim) == ("a.py", 2, 2 + code.count("\n"))
    assert claim.evidence == code


def test_the_stated_line_decides_between_lines_with_other_quote_marks() -> None:
    code = "run('a')\nrun(\"b\")\nrun('b')\n"
    assert lines_of("run('b')", code, line=2) == (2, 2)
    assert lines_of("run('b')", code, line=3) == (3, 3)


def test_a_claim_has_the_words_of_its_item_and_its_origin() -> None:
    item = replace(raw_claim("handle = open(path)", line=4), category=" security ", suggestion="fix", rule="X1")
    origin = Origin(reporter="claude_cli", expert="security", label="claude_cli/security#2")
    anchorer = Anchorer([changed_file("a.py", None, CODE.encode())], {"a.py": CODE.encode()}.get)
    claim = anchorer.place(replace(item, finding_id="F3"), origin)
    assert (claim.severity, claim.title, claim.body) == (Severity.HIGH, "wrong", "why")
    assert (claim.category, claim.suggestion, claim.rule) == ("security", "fix", "X1")
    assert (claim.reporter, claim.expert, claim.seen_by) == ("claude_cli", "security", (origin.label,))
    assert (claim.source, claim.names_finding) == (Source.AGENT, "F3")


def test_an_item_does_not_decide_who_reports_it() -> None:
    item = replace(raw_claim("x"), reporter="ruff")
    claim = anchorer_of({}).place(item, Origin(reporter="gate", source=Source.EXTERNAL))
    assert (claim.reporter, claim.source, claim.seen_by) == ("gate", Source.EXTERNAL, ("gate",))


def test_a_claim_without_a_category_has_that_of_its_expert() -> None:
    place_it = anchorer_of({}).place
    assert place_it(raw_claim("x"), Origin(reporter="r", expert="tests")).category == "tests"
    assert place_it(raw_claim("x"), ORIGIN).category == "general"


def test_words_of_a_claim_are_capped() -> None:
    item = replace(raw_claim("x"), title="word " * 100, body="b" * 30_000, suggestion="s" * 30_000)
    claim = anchorer_of({}).place(item, ORIGIN)
    assert (len(claim.title) <= 302, claim.title.endswith("word …")) == (True, True)
    assert (len(claim.body), len(claim.suggestion or "")) == (20_000, 20_000)


@each("title", ["[P1] wrong", "P1: wrong", "(P0) [P1] wrong", "wrong"])
def test_a_title_does_not_repeat_the_priority(title: str) -> None:
    claim = anchorer_of({}).place(replace(raw_claim("x"), title=title), ORIGIN)
    assert claim.title == "wrong"


def test_a_claim_is_outside_the_change_if_no_hunk_shows_its_line() -> None:
    old = "".join(f"line_{number} = {number}\n" for number in range(100))
    new = old.replace("line_50 = 50\n", "line_50 = fifty\n")
    for quote, outside in (("line_50 = fifty", False), ("line_53 = 53", False), ("line_54 = 54", True)):
        claim = place(quote, new, old=old)
        assert (claim.anchored, claim.outside_change) == (True, outside)


HUNK = Hunk(5, 2, 5, 4, b" five\n+six\n+seven\n eight\n", added=2)
CHANGED = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(HUNK,))
NUMBERS = b"one\n\n\n\nfive\nsix\nseven\neight\nnine\n"


def test_an_agent_that_quotes_nothing_is_not_believed() -> None:
    anchorer = Anchorer([CHANGED], {"a.py": NUMBERS}.get)
    for line in (0, 5, 6, 9):
        claim = anchorer.place(raw_claim("", line=line), ORIGIN)
        assert (claim.anchored, claim.line_start, claim.file) == (False, None, "a.py")


def test_an_external_reviewer_is_believed_if_it_quotes_nothing_and_the_line_exists() -> None:
    anchorer = Anchorer([CHANGED], {"a.py": NUMBERS}.get, believes="any")
    claim = anchorer.place(raw_claim("", line=9), ORIGIN)
    assert (claim.evidence, claim.anchored, claim.outside_change) == ("nine", True, True)
    assert where(anchorer.place(raw_claim("", line=8, end=99), ORIGIN)) == ("a.py", 8, 9)
    assert where(anchorer.place(raw_claim("", line=8, end=2), ORIGIN)) == ("a.py", 8, 8)
    for line in (None, -1, 0, 10, 10**30):
        assert where(anchorer.place(raw_claim("", line=line, end=10**30), ORIGIN)) is None
    # A quote that is not there is not a missing quote.
    assert where(anchorer.place(raw_claim("invented = 1", line=6), ORIGIN)) is None
    # If only the diff is known, a line that it shows exists.
    anchorer = Anchorer([CHANGED], lambda _: None, believes="any")
    places = [where(anchorer.place(raw_claim("", line=line), ORIGIN)) for line in (4, 6, 9)]
    assert places == [None, ("a.py", 6, 6), None]


PRICES = "def total(prices):\n    if prices:\n        return sum(prices) / len(items)\n    return eval(prices)\n"
RETURNED = "        return sum(prices) / len(items)"
LONGER = "    if not prices:\n        raise ValueError(prices)\n    return literal_eval(prices)"


@each(
    "quote, offered, accepted",
    [
        (RETURNED, "        return sum(prices) / len(prices)", "        return sum(prices) / len(prices)"),
        ("    return eval(prices)", LONGER, LONGER),
        ("    return eval(prices)", f"{LONGER}\r\n".replace("\n", "\r\n"), LONGER),
        (
            "return eval(prices)",
            "if not prices:\n    return 0\nreturn int(prices)",
            "    if not prices:\n        return 0\n    return int(prices)",
        ),
        (RETURNED, "x = 1\n        return x", "        x = 1\n        return x"),
        (RETURNED, "```python\n        return 1\n```", "        return 1"),
        (RETURNED, "+        return 2\n", "        return 2"),
        (f"+{RETURNED}", "+        return 2\n", "        return 2"),
        (f"    if prices:\n{RETURNED}", "    if items:\n        return 3", "    if items:\n        return 3"),
        # It is accepted by its structure alone.
        (RETURNED, "Use len(prices) instead.", "        Use len(prices) instead."),
        (RETURNED, None, None),
        (RETURNED, "", None),
        (RETURNED, " \n", None),
        (RETURNED, RETURNED, None),
        (RETURNED, f"{RETURNED}\n", None),
        (RETURNED, RETURNED.strip(), None),
        (RETURNED, "Write this:\n```\n        return 4\n```", None),
        (RETURNED, f'        return "{MASK}"', None),
        (RETURNED, f'        return "{TOKEN}"', None),
        (RETURNED, "        return \u202e5", None),
        (RETURNED, "        return 1\n" * 2_000, None),
        # The quote is a part of a line, is nowhere, or leaves lines out.
        ("sum(prices) / len(items)", "sum(prices) / len(prices)", None),
        ("        return nowhere", "        return 6", None),
        ("def total(prices):\n...\n    return eval(prices)", "def total(prices):\n    return 0", None),
        ("def total(prices):\n    return eval(prices)", "def total(prices):\n    return 0", None),
        (f"...\n{RETURNED}\n...", "...\n        return 0\n...", None),
    ],
)
def test_a_replacement_is_for_exactly_the_quoted_lines(quote: str, offered: str | None, accepted: str | None) -> None:
    anchorer = anchorer_of({"a.py": (None, PRICES.encode())})
    claim = anchorer.place(replace(raw_claim(quote), replacement=offered), ORIGIN)
    assert claim.replacement == accepted


def test_a_verification_may_replace_the_lines_that_a_claim_shows() -> None:
    anchorer = anchorer_of({"a.py": (None, PRICES.encode())})
    # The evidence is the whole line, and that is what the verification is shown.
    claim = anchorer.place(raw_claim("sum(prices) / len(items)"), ORIGIN)
    assert anchorer.replacement_for(claim, "        return 0") == "        return 0"
    assert anchorer.replacement_for(claim, None) is None
    # The lines are not those of the file any more, or the claim has no place.
    assert anchorer.replacement_for(replace(claim, line_start=2, line_end=2), "        return 0") is None
    assert anchorer.replacement_for(replace(claim, line_end=4), "        return 0") is None
    assert anchorer.replacement_for(anchorer.place(raw_claim("nowhere()"), ORIGIN), "return 0") is None


def test_deleted_and_masked_lines_cannot_be_replaced() -> None:
    anchorer = anchorer_of({"a.py": (OLD.encode(), NEW.encode()), "b.py": (None, SECRET.encode())})
    deleted = anchorer.place(raw_claim("    lock.release()"), ORIGIN)
    masked = anchorer.place(raw_claim(f'TOKEN = "{MASK}"', file="b.py"), ORIGIN)
    assert (deleted.anchored, masked.anchored) == (True, True)
    assert anchorer.replacement_for(deleted, "    pass") is None
    assert anchorer.replacement_for(masked, "TOKEN = read()") is None


@pytest.mark.no_cover
@each("text", ["a", "a\n", "    return None\n", "'\"`", "<U+200B", "e\u0301", "((", "..."])
@each(
    "quote",
    ["a" * 20_000, "a\n" * 10_000, "a..." * 19 + "b", "1 2 ", "::", "[redacted]", "\\n", "`", "+\n-\n", "x y\n"],
)
def test_no_quote_takes_long_to_look_for(text: str, quote: str) -> None:
    # To search the text again for each sign of it would not end within the time limit of a test.
    claim = place(quote * (20_000 // len(quote)), text * (50_000 // len(text)), line=100)
    assert claim.title == "wrong"
