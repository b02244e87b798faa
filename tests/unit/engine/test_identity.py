"""The fingerprint of a finding: what keeps it and what changes it."""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer
from codeloupe.engine.identity import with_fingerprints
from codeloupe.model.finding import Finding
from tests.unit.engine.anchor_material import ORIGIN, changed_file, claim
from tests.unit.engine.samples import each_row, finding

CODE = """\
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


def fingerprint(**differences: object) -> str:
    (named,) = with_fingerprints([replace(finding(evidence="query = f'{x}'"), **differences)])
    return named.fingerprint


def placed(code: str, quote: str, *, file: str = "users.py", line: int | None = None, title: str = "wrong") -> Finding:
    """The finding of a quote in a file, with its fingerprint in that file."""
    content = code.encode()
    anchorer = Anchorer([changed_file(file, None, content)], {file: content}.get)
    found = anchorer.place(claim(quote, file=file, line=line, title=title), ORIGIN)
    assert found.anchored
    (named,) = with_fingerprints([found], context={file: content}.get)
    return named


def test_without_context() -> None:
    # Shifted lines new words and new spacing keep the fingerprint.
    same = fingerprint()
    assert fingerprint(line_start=90, line_end=91) == same
    assert fingerprint(body="other words") == same
    assert fingerprint(evidence="  query  =  f'{x}'\n") == same
    # A renamed file keeps the fingerprint.
    assert fingerprint(file="lib/b.py") == fingerprint()
    # Another family rule or line is another finding.
    names = {
        fingerprint(),
        fingerprint(category="security"),
        fingerprint(rule="S608"),
        fingerprint(rule="S609"),
        fingerprint(evidence="other = 12"),
    }
    assert len(names) == 5

    # Another word for the same family keeps the fingerprint.
    def check(category: str) -> None:
        assert fingerprint(category=category) == fingerprint(category="correctness")

    each_row(["bug", "logic error", "reliability", "Concurrency", "deadlock", "", "error_handling"], check)
    # The category does not count where a rule does.
    assert fingerprint(rule="S608", category="security") == fingerprint(rule="S608", category="bug")
    # The same defect twice in a file keeps two fingerprints.
    first, second = with_fingerprints([finding(line=9), finding(line=3)])
    assert first.fingerprint != second.fingerprint
    assert (first.line_start, second.line_start) == (3, 9)


def test_without_context_or_place() -> None:
    # A path or quote that is not utf 8 has a fingerprint too.
    assert len(fingerprint(file="a\udcff.py")) == 32
    assert len(fingerprint(evidence="\ud800\udcff", title="\ud800")) == 32
    assert len(fingerprint(evidence="")) == 32
    # Findings without a place are known by file and quote or title.
    lost = {
        fingerprint(anchored=False),
        fingerprint(anchored=False, file="b.py"),
        fingerprint(anchored=False, evidence="", title="Lost update"),
        fingerprint(anchored=False, evidence="", title="Another matter"),
        fingerprint(),
    }
    assert len(lost) == 5
    assert fingerprint(anchored=False, evidence="", title="Updates are lost") == fingerprint(
        anchored=False, evidence="", title="Lost update"
    )


class TestInItsFile:
    QUERY = 'query = f"SELECT * FROM users WHERE id = {user_id}"'

    def test_in_its_file(self) -> None:
        # Lines put in above keep the fingerprint.
        same = placed(CODE, self.QUERY).fingerprint
        above = CODE.replace("import db\n", "import db\nimport os\n\nLIMIT = 3\n\ndef first():\n    return 1\n\n")
        right_above = CODE.replace("        query =", '        log("by_id")\n        check(user_id)\n        query =')
        for code in (above, right_above, CODE + "\n\ndef more():\n    pass\n"):
            assert placed(code, self.QUERY).fingerprint == same

        # Reformatting keeps the fingerprint.
        def check(indent: str) -> None:
            same = placed(CODE, self.QUERY).fingerprint
            code = CODE.replace("    ", indent).replace("query = ", "query  =  ").replace("\n\n", "\n\n\n\n")
            assert placed(code, self.QUERY).fingerprint == same
            assert placed(CODE.replace("\n", "\r\n"), self.QUERY).fingerprint == same

        each_row(["  ", "\t", "        "], check)
        # A longer or shorter quote keeps the fingerprint.
        same = placed(CODE, self.QUERY).fingerprint
        longer = [
            f"{self.QUERY}\nrows = db.run(query)",
            f"def by_id(self, user_id):\n{self.QUERY}\nrows = db.run(query)",
            f"{self.QUERY}\nrows = db.run(query)\nif not rows:\n    return None",
            '"SELECT * FROM users WHERE id = {user_id}"',
        ]
        assert {placed(CODE, quote).fingerprint for quote in longer} == {same}
        # A renamed file keeps it in its code too.
        assert placed(CODE, self.QUERY, file="lib/accounts.py").fingerprint == placed(CODE, self.QUERY).fingerprint
        # Wrapping the code keeps the fingerprint.
        inside = CODE.replace(
            f"        {self.QUERY}\n",
            f"        try:\n            {self.QUERY}\n        finally:\n            close()\n",
        )
        assert placed(inside, self.QUERY).fingerprint == placed(CODE, self.QUERY).fingerprint
        # The same line in another definition is another finding.
        first, second = (placed(CODE, "return rows[0]", line=line) for line in (9, 14))
        assert (first.line_start, second.line_start) == (9, 14)
        assert first.fingerprint != second.fingerprint

    def test_in_its_file_what_is_told_apart(self) -> None:
        # The same line twice in a definition keeps two whichever is reported.
        code = "def f():\n    send(token)\n    wait(1)\n    send(token)\n"
        first, second = (placed(code, "send(token)", line=line) for line in (2, 4))
        assert first.fingerprint != second.fingerprint
        assert placed("\n\n" + code, "send(token)", line=6).fingerprint == second.fingerprint
        # The same code in another file is told apart by order.
        one, other = placed(CODE, self.QUERY, file="a.py"), placed(CODE, self.QUERY, file="b.py")
        names = with_fingerprints([other, one], context={"a.py": CODE.encode(), "b.py": CODE.encode()}.get)
        assert [named.file for named in names] == ["a.py", "b.py"]
        assert len({named.fingerprint for named in names}) == 2
        assert names[0].fingerprint == one.fingerprint
        # Two defects on one line keep two and the order of arrival does not matter.
        one = placed(CODE, self.QUERY, title="SQL injection through user_id")
        other = placed(CODE, self.QUERY, title="SELECT * fetches all columns")
        names = with_fingerprints([one, other], context={"users.py": CODE.encode()}.get)
        assert len({named.fingerprint for named in names}) == 2
        assert names == with_fingerprints([other, one], context={"users.py": CODE.encode()}.get)
        # A line that says little is known by the next one.
        code = "begin()\nx = 1\nfirst(x)\nx = 1\nsecond(x)\n"
        first, second = (placed(code, "x = 1", line=line) for line in (2, 4))
        assert first.fingerprint != second.fingerprint
        assert placed("more()\n" + code, "x = 1", line=5).fingerprint == second.fingerprint
        # A file that cannot be read is no obstacle.
        (named,) = with_fingerprints([finding()], context=lambda _: None)
        assert named.fingerprint == with_fingerprints([finding()])[0].fingerprint
        # Braces signatures over several lines and parent keys enclose.
        c = "int f(\n    int a\n)\n{\n    work(a, b);\n}\n\nint g()\n{\n    work(a, b);\n}\n"
        assert placed(c, "work(a, b);", line=5).fingerprint != placed(c, "work(a, b);", line=10).fingerprint
        yaml = "build:\n  image: node:latest\ntest:\n  image: node:latest\n"
        one, other = (placed(yaml, "image: node:latest", line=line) for line in (2, 4))
        assert one.fingerprint != other.fingerprint
        assert placed("lint:\n  image: x\n" + yaml, "image: node:latest", line=4).fingerprint == one.fingerprint

    def test_a_masked_secret_does_not_enter_the_fingerprint(self) -> None:
        codes = [f'class Api:\n    KEY = "{"ghp_" + sign * 36}"\n' for sign in "ab"]
        first, second = (placed(code, 'KEY = "[redacted]"').fingerprint for code in codes)
        assert first == second


def test_every_finding_gets_a_name_of_its_own() -> None:
    names = with_fingerprints([finding(line=line, file=file) for line in (1, 1, 2) for file in ("a", "b")])
    assert len({named.fingerprint for named in names}) == 6
