from __future__ import annotations

import difflib
from datetime import date

from codeloupe.model.baseline import Baseline
from codeloupe.store.baseline import parse_baseline
from codeloupe.store.baseline_editing import edited
from tests.rows import each
from tests.unit.store.baseline_samples import ONE, TEXT, TWO, entry

THREE = "33333333cccc22223333444455556666"


def changes(before: str, after: str) -> list[str]:
    """The lines that differ, as a diff shows them."""
    return [line for line in difflib.ndiff(before.split("\n"), after.split("\n")) if line[0] in "+-"]


def test_a_new_file_is_written_whole_and_sorted() -> None:
    text = edited(
        "",
        Baseline(),
        put=[
            entry(TWO, file="b.py"),
            entry(ONE, title='a "b": #c', owner="me", expires=date(2030, 1, 2), evidence="x = 1\t# y"),
        ],
    )
    assert text.startswith("# Findings that are known and do not count")
    assert text.partition("version")[2] == (
        ": 1\n"
        "entries:\n"
        f'  - fingerprint: "{ONE}"\n'
        '    file: "a.py"\n'
        '    title: "a \\"b\\": #c"\n'
        '    evidence: "x = 1\\t# y"\n'
        '    reason: "legacy"\n'
        '    owner: "me"\n'
        "    expires: 2030-01-02\n"
        f'  - fingerprint: "{TWO}"\n'
        '    file: "b.py"\n'
        '    reason: "legacy"\n'
    )


def test_an_entry_comes_in_where_it_belongs_and_nothing_else_changes() -> None:
    after = edited(TEXT, parse_baseline("x", TEXT), put=[entry(THREE, file="a.py")])
    assert changes(TEXT, after) == [
        f'+   - fingerprint: "{THREE}"',
        '+     file: "a.py"',
        '+     reason: "legacy"',
    ]
    assert [each.fingerprint for each in parse_baseline("x", after).entries] == [ONE, THREE, TWO]


def test_an_entry_goes_with_its_lines_and_comments_stay() -> None:
    baseline = parse_baseline("x", TEXT)
    first = edited(TEXT, baseline, remove=[baseline.entries[0].key])
    assert all(line.startswith("- ") for line in changes(TEXT, first))
    assert "# The old queries." in first
    assert [each.fingerprint for each in parse_baseline("x", first).entries] == [TWO]
    last = edited(TEXT, baseline, remove=[baseline.entries[1].key])
    assert len(changes(TEXT, last)) == 5
    assert [each.fingerprint for each in parse_baseline("x", last).entries] == [ONE]


def test_all_entries_can_go() -> None:
    baseline = parse_baseline("x", TEXT)
    after = edited(TEXT, baseline, remove=[each.key for each in baseline.entries])
    assert parse_baseline("x", after).entries == ()
    assert after.startswith("# Ours, by agreement.\n")


def test_an_entry_that_is_renewed_keeps_its_place() -> None:
    after = edited(TEXT, parse_baseline("x", TEXT), put=[entry(ONE, reason="still legacy")])
    one, two = parse_baseline("x", after).entries
    assert (one.reason, one.title, two.fingerprint) == ("still legacy", "", TWO)
    assert "# The old queries." in after


def test_an_order_that_somebody_chose_is_kept() -> None:
    text = edited("", Baseline(), put=[entry(ONE, file="z.py")])
    text += f'  - fingerprint: "{TWO}"\n    file: "a.py"\n    reason: "x"\n'
    after = edited(text, parse_baseline("x", text), put=[entry(THREE, file="b.py")])
    assert [each.file for each in parse_baseline("x", after).entries] == ["b.py", "z.py", "a.py"]


@each(
    "text",
    [
        "# keep\nversion: 1\nentries: []\n",
        "# keep\nversion: 1\nentries:\n",
        "# keep\nversion: 1\n",
        f"# keep\nversion: 1\nentries: [{{fingerprint: {TWO}, file: b.py, reason: x}}]\n",
        f"# keep\nversion: 1\nentries: [{{fingerprint: {TWO},\n  reason: x}}, {{fingerprint: {ONE}, reason: x}}]",
        f"# keep\nentries:\n-\n  fingerprint: {TWO}\n  reason: x\nversion: 1\n",
        f"# keep\nversion: 1\nentries:\n  - fingerprint: {TWO}\n    reason: x\u0085\n",
    ],
)
def test_a_text_in_an_unusual_shape_is_written_anew_with_its_first_comments(text: str) -> None:
    baseline = parse_baseline("x", text)
    after = edited(text, baseline, put=[entry(THREE, file="z.py")])
    assert after.startswith("# keep\n")
    found = {each.fingerprint: each.reason for each in parse_baseline("x", after).entries}
    assert found == {**{each.fingerprint: each.reason for each in baseline.entries}, THREE: "legacy"}


@each("indent", ["", "  ", "      "])
def test_the_indentation_and_the_keys_behind_the_list_are_kept(indent: str) -> None:
    text = f"entries:\n{indent}- fingerprint: {ONE}\n{indent}  file: a.py\n{indent}  reason: x\n# end\nversion: 1\n"
    after = edited(text, parse_baseline("x", text), put=[entry(TWO, file="b.py")])
    assert changes(text, after) == [
        f'+ {indent}- fingerprint: "{TWO}"',
        f'+ {indent}  file: "b.py"',
        f'+ {indent}  reason: "legacy"',
    ]
    assert after.endswith("# end\nversion: 1\n")
    only = edited(text, parse_baseline("x", text), remove=[("a.py", ONE)])
    assert only == "entries:\n# end\nversion: 1\n"


def test_the_ends_of_lines_are_kept_and_a_missing_last_one_is_put_in() -> None:
    text = TEXT.replace("\n", "\r\n")
    after = edited(text, parse_baseline("x", text), put=[entry(THREE, file="c.py")])
    assert after.startswith(text)
    assert after.count("\n") == after.count("\r\n")
    cut = TEXT.removesuffix("\n")
    assert edited(cut, parse_baseline("x", cut), put=[entry(THREE, file="c.py")]).startswith(TEXT)


@each("odd", ["a\nb", "\x00\x1b\x7f", "\u2028\u202e\ufeff", "\udc80\ud800", "\U000e0001", "'\"\\", "# x: y", "é😀"])
def test_any_text_comes_back_as_it_was_or_as_it_can_be_shown(odd: str) -> None:
    after = edited("", Baseline(), put=[entry(reason=f"x{odd}y")])
    (found,) = parse_baseline("x", after).entries
    assert found.reason == f"x{odd.encode('utf-8', 'backslashreplace').decode()}y"
    assert edited(after, parse_baseline("x", after)) == after
