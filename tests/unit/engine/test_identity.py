"""The fingerprint of a finding: what keeps it and what changes it, beside what generated programs show."""

from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer
from codeloupe.engine.identity import with_fingerprints
from codeloupe.model.finding import Finding
from tests.unit.engine.anchor_material import ORIGIN, changed_file, claim
from tests.unit.engine.samples import finding

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
    wrapped = placed(CODE.replace(f"        {QUERY}\n", inside), QUERY)
    assert len({wrapped.fingerprint, *(placed(CODE, quote).fingerprint for quote in quotes)}) == 1


def test_the_same_line_elsewhere_has_another_fingerprint() -> None:
    assert len(set(names(CODE, "return rows[0]", 9, 14))) == 2
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
    one, other = placed(CODE, QUERY, file="a.py"), placed(CODE, QUERY, file="b.py")
    both = with_fingerprints([other, one], context={"a.py": CODE.encode(), "b.py": CODE.encode()}.get)
    assert [named.file for named in both] == ["a.py", "b.py"]
    assert both[0].fingerprint == one.fingerprint != both[1].fingerprint


def test_a_masked_secret_does_not_enter_the_fingerprint() -> None:
    codes = [f'class Api:\n    KEY = "{"ghp_" + sign * 36}"\n' for sign in "ab"]
    assert len({placed(code, 'KEY = "[redacted]"').fingerprint for code in codes}) == 1
