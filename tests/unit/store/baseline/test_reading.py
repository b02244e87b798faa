from __future__ import annotations

from datetime import date

import pytest

from codeloupe.errors import ConfigError
from codeloupe.model.baseline import BaselineEntry
from codeloupe.store import baseline as reading
from codeloupe.store.baseline import FIELDS, parse_baseline
from tests.rows import rows
from tests.unit.store.baseline.baseline_samples import ONE, TEXT, TWO

HINT = FIELDS["fingerprint"].hint
ENTRY = f"version: 1\nentries:\n- fingerprint: {ONE}\n  reason: legacy\n"


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_baseline("known.yaml", text)
    return caught.value


def test_entries_are_read_with_their_lines() -> None:
    baseline = parse_baseline("known.yaml", TEXT)
    assert baseline.name == "known.yaml"
    assert baseline.entries == (
        BaselineEntry(fingerprint=ONE, file="a.py", title="built from text", reason="legacy", line=5),
        BaselineEntry(
            fingerprint=TWO, file="b.py", reason="ours: fine", owner="payments", expires=date(2030, 12, 31), line=10
        ),
    )


@rows(
    "text",
    ["", "\n", "# only a comment\n", "\ufeffversion: 1\nentries: []\n", "version: 1\n", "version: 1\nentries:\n"],
)
def test_a_text_without_entries_is_an_empty_baseline(text: str) -> None:
    assert parse_baseline("known.yaml", text).entries == ()


def test_a_value_that_looks_like_a_number_or_a_word_of_yaml_is_text() -> None:
    digits = "0" * 31 + "1"
    (entry,) = parse_baseline(
        "x", f"version: 1\nentries:\n- {{fingerprint: {digits}, reason: yes, owner: 007}}\n"
    ).entries
    assert (entry.fingerprint, entry.reason, entry.owner) == (digits, "yes", "007")


def test_values_that_are_left_empty_are_not_there() -> None:
    (entry,) = parse_baseline("x", f"{ENTRY}  owner: null\n  expires: ~\n  file:\n  title: ''\n").entries
    assert (entry.owner, entry.expires, entry.file, entry.title) == ("", None, "", "")


def test_one_fingerprint_may_stand_for_two_files() -> None:
    entries = "".join(f"- {{fingerprint: {ONE}, file: {name}, reason: x}}\n" for name in ("a.py", "b.py"))
    text = f"version: 1\nentries:\n{entries}"
    assert len(parse_baseline("x", text).entries) == 2


@rows(
    ("text", "message", "hint"),
    [
        (
            ENTRY.replace("legacy", ""),
            "known.yaml:4: reason: expected why this finding does not count, found nothing",
            "few",
        ),
        (ENTRY.replace("legacy", "'...'"), "known.yaml:4: reason: expected why this finding", "few words"),
        (ENTRY.replace("  reason: legacy\n", ""), "known.yaml:3: this entry has no reason", "add `reason: `"),
        (
            ENTRY.replace(ONE, "xyz"),
            "known.yaml:3: fingerprint: expected the fingerprint of a finding, found 'xyz'",
            "add",
        ),
        (f"{ENTRY}  expires: tomorrow\n", "known.yaml:5: expires: expected a date such as 2030-12-31", "YYYY-MM-DD"),
        (f"{ENTRY}  expires: 2030-02-31\n", "known.yaml:5: expires: expected a date", "YYYY-MM-DD"),
        (f"{ENTRY}  expires: 2030-2-1\n", "known.yaml:5: expires: expected a date", "YYYY-MM-DD"),
        (f"{ENTRY}  expires: \uff12030-01-01\n", "known.yaml:5: expires: expected a date", "YYYY-MM-DD"),
        (f"{ENTRY}  expire: 2030-01-01\n", "known.yaml:5: expire: unknown key", "did you mean `expires`?"),
        (f"{ENTRY}  zzz: [{{a: b}}]\n", "known.yaml:5: zzz: unknown key", "the keys are fingerprint, file"),
        (f"{ENTRY}  reason: again\n", "known.yaml:5: reason: already given on line 4", "keep one"),
        (f"{ENTRY}entry: []\n", "known.yaml:5: entry: unknown key", "did you mean `entries`?"),
        (f"{ENTRY}version: 1\n", "known.yaml:5: version: already given on line 1", "keep one"),
        (ENTRY.replace("1", "2", 1), "known.yaml:1: version: this codeloupe reads version 1, found '2'", "update"),
        ("entries: []\n", "known.yaml:1: `version: 1` is missing", "first line"),
        (
            f"{ENTRY}- fingerprint: {ONE}\n  reason: x\n",
            "known.yaml:5: the same fingerprint and file are on line 3",
            "keep",
        ),
        ("version: 1\nentries: none\n", "known.yaml:2: entries: expected a list", "- fingerprint"),
        ("version: 1\nentries: [abc]\n", "known.yaml:2: expected an entry with fingerprint", "key: value"),
        ("- a\n", "known.yaml:1: expected lines of `key: value`, found a list", "key: value"),
        ("just words\n", "known.yaml:1: expected lines of `key: value`, found", "key: value"),
        (f"{ENTRY}  owner: [a]\n", "known.yaml:5: expected a plain text here", "quotes"),
        (f"{ENTRY}  owner: *a\n", "known.yaml:5: the alias '*a' has no anchor before it", "quotes"),
        (
            f"{ENTRY}  owner: !!python/name:os.system x\n",
            "known.yaml:5: the tag '!!python/name:os.system' is not",
            "plain value",
        ),
        (f"{ENTRY}---\nversion: 1\n", "known.yaml:5: a second document begins here", "one document"),
        (f"{ENTRY}  owner: {'x' * 5000}\n", "known.yaml:5: a value longer than 4,096 characters", "shorten"),
        (f"{ENTRY}\towner: x\n", "known.yaml:5", "spaces"),
        (f"{ENTRY}  owner: a\x1bb\n", "known.yaml:5:11: the character '\\x1b' is not allowed", "UTF-8"),
        (f"{ENTRY}  owner: 'open\n", "known.yaml:5:10: this quote is not closed", "closing quote"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_do(text: str, message: str, hint: str) -> None:
    error = refused(text)
    assert error.message.startswith(message)
    assert hint in error.hint
    assert error.exit_code == 2


def test_all_mistakes_are_told_at_once() -> None:
    error = refused("version: 1\nentries:\n- fingerprint: 12\n- reason: x\n  ownr: y\n")
    assert error.message.split("\n") == [
        "the baseline has 4 mistakes:",
        f"  known.yaml:3: fingerprint: expected {FIELDS['fingerprint'].expected}, found '12' ({HINT})",
        "  known.yaml:3: this entry has no reason (add `reason: `)",
        "  known.yaml:4: this entry has no fingerprint (add `fingerprint: `)",
        "  known.yaml:5: ownr: unknown key (did you mean `owner`?)",
    ]


def test_a_hostile_name_cannot_act_on_a_terminal() -> None:
    with pytest.raises(ConfigError, match=r"a\\x1b\[31m:1"):
        parse_baseline("a\x1b[31m", "- x\n")


@rows(
    "text",
    [
        "version: 1\nzzz: " + "[" * 500_000,
        "version: 1\nzzz: " + "{a: " * 100_000,
        "version: 1\nentries: " + "[" * 500_000,
        "? " * 200_000,
    ],
)
def test_a_hostile_text_is_refused(text: str) -> None:
    assert "known.yaml" in refused(text).message


def test_entries_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_ENTRIES", 100)
    many = "".join(f"- {{fingerprint: {number:032x}, reason: x}}\n" for number in range(101))
    assert refused(f"version: 1\nentries:\n{many}").message == "known.yaml:103: more than 100 entries"
