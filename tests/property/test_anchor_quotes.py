"""Generated files and claims: a real line is found in any common quotation, and nothing makes anchoring fail."""

import string
from collections.abc import Callable
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from codeloupe.model.change import FileChange
from codeloupe.model.finding import Severity
from codeloupe.reviewers.anchor import Anchorer
from codeloupe.reviewers.answers import RawClaim
from codeloupe.source.code import fold
from tests.unit.reviewers.anchor_material import ORIGIN, changed_file, place

_NAMES = st.text(string.ascii_lowercase, min_size=3, max_size=6)
_STATEMENTS = st.builds(
    lambda indent, name, call, number: f"{' ' * indent}{name} = {call}({number}, 'x')",
    st.integers(0, 8),
    _NAMES,
    _NAMES,
    st.integers(0, 30),
)
_LINES = st.lists(
    _STATEMENTS | st.sampled_from(["", "    return None", "}", "# note", "\u00e9t\u00e9 = 1"]), max_size=30
)
_WILD = (
    *("\0", "...", "[redacted]", "```", "\\n", "+x\n-y", "12: x", ":12", "\ud800", "\r", "&amp;", "<U+200B×9>"),
    "a/../../b",
)
_WILD_TEXT = st.text(max_size=60) | st.sampled_from(_WILD)
_WILD_LINE = st.none() | st.integers(-5, 40) | st.sampled_from([99999, -1, 10**30, -(10**30)])
_CONTENT = st.none() | st.binary(max_size=200) | _LINES.map(lambda lines: "\n".join(lines).encode())
_MANNERS: tuple[Callable[[str, int], str], ...] = (
    lambda line, _: line,
    lambda line, _: f"  \t{line.strip()}  ",
    lambda line, _: line.replace(" ", "  ").replace("    ", "\t"),
    lambda line, _: line.replace(" ", "\u00a0"),
    lambda line, _: f"+{line}",
    lambda line, number: f"{number}: {line}",
    lambda line, number: f"{number:>5} | {line}",
    lambda line, number: f"{number} | +{line}",
    lambda line, number: f"a.py:{number} - {line.strip()}",
    lambda line, _: f"```python\n{line}\n```",
    lambda line, _: f"`{line.strip()}`",
    lambda line, number: f":{number}\n+{line}",
    lambda line, _: line.replace("'", "\u2019"),
    lambda line, _: line.replace("'", '"'),
    lambda line, _: line.replace("'", "`"),
    lambda line, _: f"{line}\r\n",
)


@given(lines=_LINES, data=st.data())
def test_a_line_is_found_however_it_is_quoted(lines: list[str], data: st.DataObject) -> None:
    statements = [number for number, line in enumerate(lines, start=1) if "(" in line]
    if not statements:
        return
    number = data.draw(st.sampled_from(statements))
    manner = data.draw(st.sampled_from(_MANNERS))
    content = "\n".join(lines).encode()
    old = "\n".join(data.draw(_LINES)).encode()
    change = changed_file("a.py", old, content)
    claim = place(manner(lines[number - 1], number), content, old=old, line=number)
    same = [at for at, line in enumerate(lines, start=1) if fold(line) == fold(lines[number - 1])]
    best = min(same, key=lambda at: (rank(change, at), abs(at - number), at))
    assert claim.anchored
    assert claim.line_start == claim.line_end == best
    assert claim.evidence == lines[best - 1]


def rank(change: FileChange, line: int) -> int:
    """Changed lines come first, then those that the diff shows, then the others."""
    if line in change.added_line_numbers():
        return 0
    return 1 if any(hunk.new_start <= line < hunk.new_start + hunk.new_lines for hunk in change.hunks) else 2


@given(lines=_LINES.filter(bool), data=st.data())
def test_several_lines_are_found_with_blank_lines_added_and_left_out(lines: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    quoted = lines[first - 1 : last]
    if not any("(" in line for line in quoted):
        return
    gaps = data.draw(st.lists(st.sampled_from(["\n", "\n\n", "\n  \n"]), min_size=len(quoted), max_size=len(quoted)))
    quote = "".join(line + gap for line, gap in zip((line for line in quoted if line), gaps, strict=False))
    claim = place(quote, "\n".join(lines), line=first)
    assert claim.anchored
    found = lines[claim.first_line - 1 : claim.last_line]
    assert [fold(line) for line in found if fold(line)] == [fold(line) for line in quoted if fold(line)]
    assert claim.evidence == "\n".join(found)


@given(old=_LINES, new=_LINES, data=st.data())
def test_a_deleted_line_is_anchored_inside_the_file(old: list[str], new: list[str], data: st.DataObject) -> None:
    before, after = "\n".join(old).encode(), "\n".join(new).encode()
    change = changed_file("a.py", before, after)
    gone = [line.text for hunk in change.hunks for line in hunk.lines() if line.kind == "deleted" and b"(" in line.text]
    if not gone:
        return
    quote = data.draw(st.sampled_from(gone)).decode()
    claim = place(f"-{quote}", after, old=before, known=data.draw(st.booleans()))
    assert claim.anchored
    assert 1 <= claim.first_line <= max(1, len(new))
    assert claim.evidence == quote
    assert not claim.outside_change


_ITEMS = st.builds(
    RawClaim,
    severity=st.sampled_from(Severity),
    title=_WILD_TEXT,
    body=_WILD_TEXT,
    file=st.just("a.py") | _WILD_TEXT,
    line_start=_WILD_LINE,
    line_end=_WILD_LINE,
    quote=_WILD_TEXT | st.lists(_WILD_TEXT, max_size=5).map("\n".join),
    category=_WILD_TEXT,
    rule=st.none() | _WILD_TEXT,
    suggestion=st.none() | _WILD_TEXT,
    replacement=st.none() | _WILD_TEXT,
    finding_id=_WILD_TEXT,
)


@settings(max_examples=100)
@given(old=_CONTENT, new=_CONTENT, readable=st.booleans(), believes=st.sampled_from(("none", "any")), raw=_ITEMS)
def test_no_item_makes_it_fail_and_none_is_lost(
    old: bytes | None, new: bytes | None, readable: bool, believes: Literal["none", "any"], raw: RawClaim
) -> None:
    tree = {"a.py": new} if new is not None and readable else {}
    anchorer = Anchorer([changed_file("a.py", old, new)], tree.get, believes=believes)
    claim = anchorer.place(raw, ORIGIN)
    assert claim.severity is raw.severity
    if claim.anchored:
        assert 1 <= claim.first_line <= claim.last_line <= 10_000_000
        assert claim.file == "a.py"
        assert fold(raw.quote.replace("\n", " ")) or believes == "any"
    else:
        assert (claim.line_start, claim.line_end, claim.replacement) == (None, None, None)
    assert anchorer.place(raw, ORIGIN) == claim
