"""Where a quote is, whatever a model does to it."""

from __future__ import annotations

from typing import ClassVar

import pytest
from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.quotes import MASK
from codeloupe.model.change import FileStatus
from codeloupe.model.severity import Severity
from codeloupe.system.redaction import redact
from tests.unit.engine.anchor_material import ORIGIN, anchorer_of, changed_file, claim, place, where
from tests.unit.engine.samples import crossed, each_row

EMPTY = anchorer_of({})
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


class TestTheQuoteIsFound:
    def test_in_spite_of_white_space_and_broken_lines(self) -> None:
        def check(quote: str, lines: tuple[int, int] | None) -> None:
            assert lines_of(quote) == lines

        each_row(
            [
                ("    handle = open(path)", (4, 4)),
                ("handle = open(path)", (4, 4)),
                ("handle=open( path )", (4, 4)),
                ("\thandle = open(path)  \n", (4, 4)),
                ("handle = open(path)\ndata = handle.read()", (4, 5)),
                ("    data = handle.read()\n    if not data:", (5, 7)),
                ("data = handle.read()\n\n\n\nif not data:\n", (5, 7)),
                ("handle = open(path)\r\ndata = handle.read()\r\n", (4, 5)),
                ("handle\u00a0=\u00a0open(path)", (4, 4)),
                ("\ufeffhandle = open(path)\u200b", (4, 4)),
                ("with open(path, \u201cw\u201d) as handle:", (15, 15)),
                ("open(path, retries", None),
                ("with open(path,", (15, 15)),
                ("(path, retries=3):\n    handle = open", (3, 4)),
                ("handle = open(path) data = handle.read()", (4, 5)),
                ("with open(\n    path,\n    'w'\n)", None),
                ('with open(\n    path,\n    "w"\n) as handle:', (15, 15)),
            ],
            check,
        )

    def test_without_fences_escapes_and_margins(self) -> None:
        def check(quote: str) -> None:
            assert lines_of(quote) == (4, 5)

        each_row(
            [
                "```python\nhandle = open(path)\ndata = handle.read()\n```",
                "~~~\nhandle = open(path)\ndata = handle.read()\n~~~",
                "`handle = open(path)\ndata = handle.read()`",
                "+    handle = open(path)\n+    data = handle.read()",
                "     handle = open(path)\n+    data = handle.read()",
                "@@ -1,3 +1,4 @@ x\n handle = open(path)\n+data = handle.read()",
                "=== a.py\n+    handle = open(path)\n+    data = handle.read()",
                "4: handle = open(path)\n5: data = handle.read()",
                "4 |     handle = open(path)\n5 |     data = handle.read()",
                "  4\thandle = open(path)\n  5\tdata = handle.read()",
                "4→    handle = open(path)\n5→    data = handle.read()",
                "L4: handle = open(path)\nL5: data = handle.read()",
                "4 handle = open(path)\n5 data = handle.read()",
                "4 | +    handle = open(path)\n5 | +    data = handle.read()",
                "+4: handle = open(path)\n+5: data = handle.read()",
                ":4\n+    handle = open(path)\n+    data = handle.read()",
                "    handle = open(path)\n:5\n    data = handle.read()",
                "handle = open(path)\\ndata = handle.read()",
                '"handle = open(path)\\n\\tdata = handle.read()"',
                "a.py:4 - handle = open(path)\ndata = handle.read()",
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
            check,
        )

    def test_with_an_ellipsis_for_what_was_left_out(self) -> None:
        def check(quote: str, lines: tuple[int, int] | None) -> None:
            assert lines_of(quote) == lines

        each_row(
            [
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
            ],
            check,
        )

    def test_among_words_when_it_is_marked_as_code(self) -> None:
        assert lines_of("In `load` the call `handle = open(path)` is never closed") == (4, 4)
        assert lines_of("```handle = open(path)```") == (4, 4)
        assert lines_of("In `load` the call `handle = open(other)` is never closed") is None

    def test_of_json_and_of_html_escapes(self) -> None:
        code = 'x = 1\nprint("a\\tb", p->q && r)\ny = 2\n'
        assert lines_of('print(\\"a\\\\tb\\", p->q && r)', code) == (2, 2)
        assert lines_of("print(&quot;a\\tb&quot;, p-&gt;q &amp;&amp; r)", code) == (2, 2)
        assert lines_of('print("a\\tb", p->q && r)', code) == (2, 2)

    def test_in_its_most_literal_reading(self) -> None:
        assert lines_of("`first()`", "first()\n`first()`\n") == (2, 2)
        assert lines_of("'- a = 1'", "a = 1\n- a = 1\n'- a = 1'\n") == (3, 3)
        code = "steps:\n  - name: build\n  name: build\n  1: first\n  first\n"
        assert lines_of("- name: build", code) == (2, 2)
        assert lines_of("1: first", code) == (4, 4)

    def test_in_a_file_that_is_not_utf_8_or_has_other_line_ends(self) -> None:
        assert lines_of("name = 'caf\ufffd'", b"x\nname = 'caf\xe9'\ny\n") == (2, 2)
        assert lines_of("name = 'caf<0xE9>'", b"x\nname = 'caf\xe9'\ny\n") == (2, 2)
        assert lines_of("beta = 2\ngamma = 3", b"alpha = 1\r\nbeta = 2\r\n\r\ngamma = 3\r\n") == (2, 4)
        assert lines_of("gamma = 3", b"alpha = 1\nbeta = 2\ngamma = 3") == (3, 3)

    def test_with_characters_that_the_prompt_makes_visible(self) -> None:
        assert lines_of("if admin<U+202E>:", "x\nif admin\u202e:\n    pass\n") == (2, 2)
        assert lines_of("if admin<U+0001×3>:", "x\nif admin\x01\x01\x01:\n    pass\n") == (2, 2)
        long = "value = " + "1 + " * 1000 + "2"
        assert lines_of(long[:2000] + " [cut: 2,009 more bytes]", f"x\n{long}\ny\n") == (2, 2)

    def test_in_composed_and_in_decomposed_letters(self) -> None:
        assert lines_of("print('caf\u00e9')", "x\nprint('cafe\u0301')\n") == (2, 2)


class TestAQuoteThatIsNotThere:
    def test_has_no_anchor_and_keeps_its_words(self) -> None:
        def check(quote: str) -> None:
            finding = place(quote, CODE, line=4)
            assert not finding.anchored
            assert (finding.file, finding.line_start, finding.line_end) == ("a.py", None, None)
            assert finding.evidence == quote

        each_row(
            [
                "",
                " \n\t",
                "}",
                "x",
                "handle = open(other_path)",
                "handle = open(path)\nother = handle.read()",
                "-",
                "```\n```",
                "a.py:4",
                "a.py:4 - ",
                "\0",
                "\ud800",
            ],
            check,
        )

    def test_has_no_line_whatever_was_stated(self) -> None:
        for line in (None, -1, 0, 6, 99999, 10**30):
            finding = place("invented = 1", CODE, line=line)
            assert (finding.line_start, finding.line_end) == (None, None), line

    def test_is_found_when_short_only_on_the_stated_line(self) -> None:
        code = "if x:\n    y()\nelse:\n    z()\n"
        assert lines_of("y()", code) == (2, 2)
        assert lines_of("x:", code, line=1) is None
        assert lines_of("if x", code, line=1) == (1, 1)
        assert lines_of("if x", code, line=3) is None
        assert lines_of("}", "{\n}\n", line=2) == (2, 2)
        assert lines_of("}", "{\n}\n", line=1) is None

    def test_does_not_begin_or_end_within_a_word_when_it_is_short(self) -> None:
        assert lines_of("count = 1", "account = 1\naccount = 10\n") is None
        assert lines_of("count = 1", "let count = 1;\naccount = 10\n") == (1, 1)

    def test_is_cut_when_it_is_endless(self) -> None:
        finding = place("no such line " * 100_000, CODE)
        assert not finding.anchored
        assert len(finding.evidence) <= 4000


class TestFragments:
    @pytest.mark.defect("V7")
    def test_of_two_lines_that_stand_apart_are_placed_at_the_named_one_or_the_first(self) -> None:
        quote = "handle = open(path)\nreturn parse(data)"
        assert lines_of(quote) == (4, 4)
        assert lines_of(quote, line=4) == (4, 4)
        assert lines_of(quote, line=9) == (9, 9)
        assert lines_of("return parse(data)\nhandle = open(path)") == (9, 9)
        assert lines_of("return parse(data)\nhandle = open(pa", line=4) == (4, 4)
        assert lines_of("handle = open(path)\nother = handle.read()", line=4) is None

    @pytest.mark.defect("V7")
    def test_cut_within_a_word_are_placed_where_they_stand(self) -> None:
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


class TestRepeatedLines:
    CODE = "".join(f"step({number})\nreturn None\n" for number in range(50))

    def test_go_to_the_nearest(self) -> None:
        for line in (1, 2, 33, 34, 35, 99, 100):
            finding = place("return None", self.CODE, line=line)
            assert finding.anchored
            assert abs(finding.first_line - line) <= 1

    def test_go_to_the_first_without_a_stated_line(self) -> None:
        assert lines_of("return None", self.CODE) == (2, 2)
        assert lines_of("return None", self.CODE, line=99999) == (2, 2)

    def test_go_to_a_changed_line_before_a_nearer_one_that_is_not(self) -> None:
        old = self.CODE.replace("step(40)\nreturn None\n", "step(40)\nreturn 0\n")
        finding = place("return None", self.CODE, old=old, line=5)
        assert where(finding) == ("a.py", 82, 82)
        assert not finding.outside_change

    def test_go_to_a_line_that_the_diff_shows_before_one_that_it_does_not(self) -> None:
        old = self.CODE.replace("step(40)\n", "step(forty)\n")
        assert where(place("return None", self.CODE, old=old, line=5)) == ("a.py", 78, 78)

    @pytest.mark.defect("V4")
    def test_stay_where_number_and_quote_agree_whatever_was_changed_elsewhere(self) -> None:
        shown = self.CODE.replace("step(40)\nreturn None\n", "step(40)\nreturn 0\n")
        wrong = {}
        for line in range(2, 100, 2):
            for quote in ("return None", "    return None", "urn None", "+return None", f"{line} | return None"):
                found = where(place(quote, self.CODE, old=shown, line=line))
                if found != ("a.py", line, line):
                    wrong[line, quote] = found
        assert wrong == {}
        # A part of the named line, which is a whole line elsewhere.
        code = "first()\nvalue = first()\nlast = value\n"
        assert where(place("first()", code, line=2)) == ("a.py", 2, 2)

    def test_with_a_number_in_the_margin_go_there(self) -> None:
        assert lines_of("34 | return None", self.CODE) == (34, 34)
        assert lines_of("a.py:34 - return None", self.CODE) == (34, 34)

    def test_are_found_near_the_stated_line_among_very_many(self) -> None:
        code = "same = 1\n" * 5000
        assert lines_of("same = 1\nsame = 1", code, line=3000) == (3000, 3001)


class TestTheRange:
    def test_is_that_of_the_quote_when_the_numbers_are_positions_in_the_diff(self) -> None:
        new = "".join(f"line_{number} = {number}\n" for number in range(1, 200))
        old = new.replace("line_150 = 150\n", "")
        assert where(place("line_150 = 150", new, old=old, line=4, end=5)) == ("a.py", 150, 150)

    def test_goes_as_far_as_the_reviewer_says_when_its_beginning_is_right(self) -> None:
        assert where(place("handle = open(path)", CODE, line=4, end=9)) == ("a.py", 4, 9)
        assert where(place("handle = open(path)", CODE, line=3, end=9)) == ("a.py", 4, 4)
        assert where(place("handle = open(path)", CODE, line=4, end=2)) == ("a.py", 4, 4)
        assert where(place("handle = open(path)", CODE, line=4, end=10**9)) == ("a.py", 4, 4)

    def test_has_the_files_own_text_as_evidence(self) -> None:
        assert (
            place("data=handle.read()\nif not  data:", CODE).evidence == "    data = handle.read()\n\n    if not data:"
        )
        assert place("open(path, 'w'", CODE.replace('"', "'")).evidence == "    with open(path, 'w') as handle:"
        assert place("b = 2", b"a = 1\r\nb = 2 \r\n").evidence == "b = 2 "

    def test_has_evidence_within_limits(self) -> None:
        code = "".join(f"line_{number} = {'1' * 80}\n" for number in range(1, 190))
        finding = place(code, code)
        assert (finding.line_start, finding.line_end) == (1, 189)
        assert finding.evidence.count("\n") < 40
        assert len(finding.evidence) <= 4000


class TestDeletedLines:
    OLD = "def f(x):\n    check(x)\n    lock.release()\n    return x\n\n\ndef g():\n    pass\n"
    NEW = "def f(x):\n    return x\n\n\ndef g():\n    pass\n"

    def test_are_anchored_where_they_were(self) -> None:
        def check(known: bool, quote: str) -> None:
            finding = place(quote, self.NEW, old=self.OLD, known=known)
            assert where(finding) == ("a.py", 2, 2)
            assert finding.evidence == "    lock.release()"
            assert not finding.outside_change

        each_row(
            crossed(
                [True, False],
                ["    lock.release()", "-    lock.release()", "- lock.release()", "3 | -    lock.release()"],
            ),
            check,
        )

    def test_are_found_with_the_lines_around_them(self) -> None:
        assert where(place("check(x)\nlock.release()\nreturn x", self.NEW, old=self.OLD)) == ("a.py", 2, 2)
        assert where(place(" def f(x):\n-    check(x)\n-    lock.release()", self.NEW, old=self.OLD)) == ("a.py", 1, 2)

    def test_at_the_end_of_the_file_go_to_the_last_line(self) -> None:
        finding = place(
            "lock.release()", "def f():\n    lock.take()\n", old="def f():\n    lock.take()\n    lock.release()\n"
        )
        assert where(finding) == ("a.py", 2, 2)

    def test_win_over_the_same_line_far_from_the_change(self) -> None:
        far = "".join(f"x{number} = 1\n" for number in range(30)) + "lock.release()\n"
        finding = place("lock.release()", self.NEW + far, old=self.OLD + far, line=2)
        assert where(finding) == ("a.py", 2, 2)
        assert where(place("lock.release()", self.NEW + far, old=self.OLD + far, line=37)) == ("a.py", 37, 37)

    def test_of_a_file_that_is_gone_have_their_old_numbers(self) -> None:
        anchorer = anchorer_of({"a.py": (b"one = 1\nverify(token)\n", None)})
        finding = anchorer.place(claim("verify(token)"), ORIGIN)
        assert where(finding) == ("a.py", 2, 2)
        assert not finding.outside_change

    def test_and_added_ones_may_be_quoted_as_the_diff_shows_them(self) -> None:
        old, new = "a = 1\nb = compute(1)\nc = 3\n", "a = 1\nb = compute(2)\nc = 3\n"
        quote = "-b = compute(1)\n+b = compute(2)"
        assert where(place(quote, new, old=old)) == ("a.py", 2, 2)
        assert where(place("b = compute(1)\nb = compute(2)", new, old=old)) == ("a.py", 2, 2)


class TestTheFile:
    CHANGE: ClassVar = {
        "src/app/main.py": (b"old()\n", b"start()\nserve(port)\n"),
        "src/lib/util.py": (b"old()\n", b"helper(port)\n"),
        "tests/util.py": (b"old()\n", b"helper(port, test)\n"),
    }

    def test_is_known_by_what_the_reviewer_calls_it(self) -> None:
        def check(claimed: str) -> None:
            finding = anchorer_of(self.CHANGE).place(claim("serve(port)", file=claimed), ORIGIN)
            assert where(finding) == ("src/app/main.py", 2, 2)

        each_row(
            [
                "src/app/main.py",
                " src/app/main.py ",
                "`src/app/main.py`",
                "./src/app/main.py",
                "a/src/app/main.py",
                "b/src/app/main.py",
                "src\\app\\main.py",
                "src//app/./main.py",
                "src/app/main.py:2",
                "src/app/main.py:2-3",
                "src/app/main.py:2:7",
                "src/app/main.py#L2-L3",
                "src/app/main.py (line 2)",
                "app/main.py",
                "main.py",
                "/tmp/review-1/tree/src/app/main.py",
                "C:\\build\\src\\app\\main.py",
                "file:///builds/x/src/app/main.py",
                "project/src/app/main.py",
            ],
            check,
        )

    def test_that_is_not_clear_gives_no_anchor_and_keeps_its_name(self) -> None:
        def check(claimed: str) -> None:
            finding = anchorer_of(self.CHANGE).place(claim("helper(port)", file=claimed), ORIGIN)
            assert not finding.anchored
            assert finding.file in {claimed, ""} or claimed == "a/"

        each_row(["util.py", "nothing.py", "ain.py", "app/util.py", "/", ".", "a/", "src/app"], check)

    def test_that_is_clear_within_the_unit_is_that_one(self) -> None:
        finding = anchorer_of(self.CHANGE).place(
            claim("helper(port", file="util.py"), ORIGIN, unit_files=["tests/util.py"]
        )
        assert where(finding) == ("tests/util.py", 1, 1)

    def test_outside_of_the_tree_is_never_read(self) -> None:
        def check(claimed: str) -> None:
            asked: list[str] = []

            def read(path: str) -> bytes | None:
                asked.append(path)
                return b"stolen = 1\n"

            finding = Anchorer([], read).place(claim("stolen = 1", file=claimed), ORIGIN)
            assert not finding.anchored
            assert len(finding.file) <= 4096
            assert asked == []

        each_row(
            [
                "../secret.py",
                "/../secret.py",
                "src/../../secret.py",
                ".git/config",
                "a\0b",
                "x" * 100_000,
                "/" * 5000,
                "../" * 500,
            ],
            check,
        )

    def test_outside_of_the_change_is_read_and_marked(self) -> None:
        anchorer = anchorer_of(self.CHANGE, src__other_py=b"one()\ncalled(port)\n", main_py=b"root_main()\n")
        finding = anchorer.place(claim("called(port)", file="src/other.py"), ORIGIN)
        assert where(finding) == ("src/other.py", 2, 2)
        assert finding.outside_change
        absolute = anchorer.place(claim("called(port)", file="/tmp/tree/src/other.py"), ORIGIN)
        assert where(absolute) == ("src/other.py", 2, 2)
        # a changed file with that ending and a file with that very name: the quote decides
        assert where(anchorer.place(claim("root_main()", file="main.py"), ORIGIN)) == ("main.py", 1, 1)
        assert where(anchorer.place(claim("serve(port)", file="main.py"), ORIGIN)) == ("src/app/main.py", 2, 2)

    def test_that_cannot_be_read_is_known_by_its_hunks(self) -> None:
        old = "".join(f"line_{number} = {number}\n" for number in range(100))
        new = old.replace("line_50 = 50\n", "line_50 = fifty\n").replace("line_90 = 90\n", "line_90 = ninety\n")
        assert where(place("line_50 = fifty", new, old=old, known=False)) == ("a.py", 51, 51)
        assert where(place("line_51 = 51", new, old=old, known=False)) == ("a.py", 52, 52)
        assert where(place("line_53 = 53\nline_60 = 60", new, old=old, known=False)) is None
        assert where(place("line_10 = 10", new, old=old, known=False)) is None

    def test_that_was_renamed_is_known_by_its_old_name_too(self) -> None:
        renamed = replace(
            changed_file("new.py", b"a()\n", b"a()\nb(1)\n"), old_path="old.py", status=FileStatus.RENAMED
        )
        anchorer = Anchorer([renamed], {"new.py": b"a()\nb(1)\n"}.get)
        assert where(anchorer.place(claim("b(1)", file="old.py", line=2), ORIGIN)) == ("new.py", 2, 2)

    def test_with_an_odd_name_is_known_as_the_prompt_shows_it(self) -> None:
        path = "caf\udce9\n.py"
        anchorer = Anchorer([changed_file(path, None, b"value = 1\n")], {path: b"value = 1\n"}.get)
        for claimed in (path, "caf<0xE9><U+000A>.py"):
            assert where(anchorer.place(claim("value = 1", file=claimed), ORIGIN)) == (path, 1, 1)

    def test_that_is_not_named_is_the_only_one_with_the_quote(self) -> None:
        anchorer = anchorer_of(self.CHANGE)
        assert where(anchorer.place(claim("serve(port)", file=None), ORIGIN)) == ("src/app/main.py", 2, 2)
        assert where(anchorer.place(claim("serve(port)", file="  "), ORIGIN)) == ("src/app/main.py", 2, 2)
        assert where(anchorer.place(claim("helper(port", file=None), ORIGIN)) is None
        units = ["src/lib/util.py"]
        found = anchorer.place(claim("helper(port", file=None), ORIGIN, unit_files=units)
        assert where(found) == ("src/lib/util.py", 1, 1)
        assert anchorer.place(claim("", file=None), ORIGIN).file == ""

    def test_that_fails_to_be_read_is_absent(self) -> None:
        def read(path: str) -> bytes | None:
            raise OSError(36, "File name too long", path)

        assert not Anchorer([], read).place(claim("serve(port)", file="x.py"), ORIGIN).anchored


class TestSecrets:
    TOKEN = "ghp_" + "a1B2" * 9
    CODE = f'import os\nTOKEN = "{TOKEN}"\nsend(TOKEN)\n'

    def test_our_mask_is_the_one_that_redaction_writes(self) -> None:
        assert redact(self.TOKEN) == MASK

    def test_a_masked_quote_is_found_and_stays_masked(self) -> None:
        finding = place(redact(self.CODE.split("\n")[1]), self.CODE)
        assert where(finding) == ("a.py", 2, 2)
        assert finding.evidence == f'TOKEN = "{MASK}"'

    def test_evidence_passes_the_mask(self) -> None:
        anchorer = Anchorer(
            [changed_file("a.py", None, self.CODE.encode())], {"a.py": self.CODE.encode()}.get, mask=redact
        )
        for quote in (f'TOKEN = "{self.TOKEN}"', f'TOKEN = "{MASK}"\nsend(TOKEN)', f"none {self.TOKEN}"):
            finding = anchorer.place(claim(quote), ORIGIN)
            assert self.TOKEN not in finding.evidence
            assert MASK in finding.evidence

    def test_a_mask_may_stand_for_many_lines_or_for_a_whole_line(self) -> None:
        secret = "\n".join("Zm9v" * 12 for _ in range(12))
        code = f'first()\nKEY = """{secret}"""\nuse(KEY)\nlast()\n'
        assert where(place(f'KEY = """{MASK}"""\nuse(KEY)', code)) == ("a.py", 2, 14)
        assert where(place(f"first()\n{MASK}\nuse(KEY)", code)) == ("a.py", 1, 14)

    def test_a_mask_stands_for_no_other_code(self) -> None:
        assert place(f"send({MASK}, other)", self.CODE).anchored is False
        assert place(MASK, self.CODE).anchored is False


class TestTheFinding:
    def test_has_what_the_claim_says_and_who_said_it(self) -> None:
        claimed = replace(claim("handle = open(path)", line=4), category=" security ", suggestion="fix", rule="X1")
        origin = Origin(reviewer="claude_cli", expert="security", label="claude_cli/security#2")
        change = changed_file("a.py", None, CODE.encode())
        finding = Anchorer([change], {"a.py": CODE.encode()}.get).place(claimed, origin)
        assert (finding.severity, finding.title, finding.body) == (Severity.HIGH, "wrong", "why")
        assert (finding.category, finding.suggestion, finding.rule) == ("security", "fix", "X1")
        assert (finding.reviewer, finding.expert, finding.seen_by) == (
            "claude_cli",
            "security",
            ("claude_cli/security#2",),
        )
        assert finding.agreement == 1

    def test_does_not_believe_who_the_claim_says_it_is(self) -> None:
        finding = EMPTY.place(replace(claim("x"), reviewer="ruff"), Origin(reviewer="codex"))
        assert (finding.reviewer, finding.seen_by) == ("codex", ("codex",))

    def test_has_a_confidence_between_none_and_one(self) -> None:
        def check(stated: float | None, kept: float | None) -> None:
            assert EMPTY.place(replace(claim("x"), confidence=stated), ORIGIN).confidence == kept

        each_row([(None, None), (0.5, 0.5), (7.0, 1.0), (-1.0, 0.0), (float("nan"), None), (float("inf"), None)], check)

    def test_without_a_category_has_its_experts(self) -> None:
        place_it = EMPTY.place
        assert place_it(claim("x"), Origin(reviewer="r", expert="tests")).category == "tests"
        assert place_it(claim("x"), ORIGIN).category == "general"

    def test_is_outside_of_the_change_when_no_hunk_shows_its_line(self) -> None:
        old = "".join(f"line_{number} = {number}\n" for number in range(100))
        new = old.replace("line_50 = 50\n", "line_50 = fifty\n")
        assert not place("line_50 = fifty", new, old=old).outside_change
        assert not place("line_53 = 53", new, old=old).outside_change
        assert place("line_54 = 54", new, old=old).outside_change
        assert place("line_54 = 54", new, old=old).anchored
