"""The baseline: its file read, checked and edited, taken from the right revision, and made from a review."""

import asyncio
import difflib
import io
import json
import os
import stat
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import ConfigError, OutputError, UsageError
from codeloupe.model.baseline import BASELINE_NAME, Baseline, BaselineEntry, EntryState
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Severity, Source, Suppression, SuppressionKind
from codeloupe.model.review import ReviewError
from codeloupe.reports.json_v1 import render_json
from codeloupe.store import baseline as file
from codeloupe.store.baseline import (
    FIELDS,
    Acceptance,
    ReviewedFindings,
    chosen,
    edited,
    entry_for,
    findings_of,
    parse_baseline,
    read_baseline,
    read_report,
    read_working_file,
    standings,
    write_working_file,
)
from tests.findings_material import make_claim, make_finding
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.reports.examples import review

TODAY = date(2030, 6, 15)
ONE = "11111111aaaa22223333444455556666"
TWO = "22222222bbbb22223333444455556666"
TEXT = f"""\
# Ours, by agreement.
version: 1
entries:
  # The old queries.
  - fingerprint: "{ONE}"
    file: "a.py"
    title: "built from text"
    reason: "legacy"  # see the wiki

  - fingerprint: {TWO}
    file: b.py
    reason: 'ours: fine'
    owner: payments
    expires: 2030-12-31
"""


def entry(fingerprint: str = ONE, **more: Any) -> BaselineEntry:
    return BaselineEntry(**{"fingerprint": fingerprint, "reason": "legacy", "file": "a.py", **more})


def finding(fingerprint: str = ONE, **more: Any) -> Finding:
    values: dict[str, Any] = {
        "category": "security",
        "title": "built from text",
        "body": "why",
        "evidence": "    run(query + name)",
        "reporter": "ruff",
        "source": Source.ANALYSER,
        **more,
    }
    return make_finding(fingerprint=fingerprint, **values)


HINT = FIELDS["fingerprint"][2]
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


@each(
    "text",
    ["", "\n", "# only a comment\n", "\ufeffversion: 1\nentries: []\n", "version: 1\n", "version: 1\nentries:\n"],
)
def test_a_text_without_entries_is_an_empty_baseline(text: str) -> None:
    assert parse_baseline("known.yaml", text).entries == ()


@each(
    ("text", "message", "hint"),
    [
        (ENTRY.replace("legacy", ""), "4: reason: expected why this finding does not count, found nothing", "short"),
        (ENTRY.replace("legacy", "'...'"), "4: reason: expected why this finding", "a short reason"),
        (ENTRY.replace("  reason: legacy\n", ""), "3: this entry has no reason", "add `reason: `"),
        (ENTRY.replace(ONE, "xyz"), "3: fingerprint: expected the fingerprint of a finding, found 'xyz'", "add"),
        (f"{ENTRY}  expires: tomorrow\n", "5: expires: expected a date such as 2030-12-31", "YYYY-MM-DD"),
        (f"{ENTRY}  expires: \uff12030-01-01\n", "5: expires: expected a date", "YYYY-MM-DD"),
        (f"{ENTRY}  expire: 2030-01-01\n", "5: expire: unknown key", "did you mean `expires`?"),
        (f"{ENTRY}  zzz: [{{a: b}}]\n", "5: zzz: unknown key", "the keys are fingerprint, file"),
        (f"{ENTRY}  reason: again\n", "5: reason: already given on line 4", "keep one"),
        (f"{ENTRY}entry: []\n", "5: entry: unknown key", "did you mean `entries`?"),
        (ENTRY.replace("1", "2", 1), "1: version: this codeloupe reads version 1, found '2'", "update"),
        ("entries: []\n", "1: `version: 1` is missing", "first line"),
        (f"{ENTRY}- fingerprint: {ONE}\n  reason: x\n", "5: the same fingerprint and file are on line 3", "keep"),
        ("version: 1\nentries: none\n", "2: entries: expected a list", "- fingerprint"),
        ("version: 1\nentries: [abc]\n", "2: expected an entry with fingerprint", "key: value"),
        ("- a\n", "1: expected lines of `key: value`, found a list", "key: value"),
        (f"{ENTRY}  owner: [a]\n", "5: expected a string", "quotes"),
        (f"{ENTRY}  owner: !!python/name:os.system x\n", "5: the tag '!!python/name:os.system' is not", "plain value"),
        (f"{ENTRY}  owner: {'x' * 5000}\n", "5: a value longer than 4,096 characters", "shorten"),
        (f"{ENTRY}  owner: a\x1bb\n", "5:11: the character '\\x1b' is not allowed", "UTF-8"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_do(text: str, message: str, hint: str) -> None:
    error = refused(text)
    assert error.message.startswith(f"known.yaml:{message}")
    assert hint in error.hint
    assert error.exit_code == 2


def test_all_mistakes_are_told_at_once() -> None:
    error = refused("version: 1\nentries:\n- fingerprint: 12\n- reason: x\n  ownr: y\n")
    assert error.message.split("\n") == [
        "the baseline has 4 mistakes:",
        f"  known.yaml:3: fingerprint: expected {FIELDS['fingerprint'][1]}, found '12' ({HINT})",
        "  known.yaml:3: this entry has no reason (add `reason: `)",
        "  known.yaml:4: this entry has no fingerprint (add `fingerprint: `)",
        "  known.yaml:5: ownr: unknown key (did you mean `owner`?)",
    ]


def test_a_value_is_text_whatever_it_looks_like_and_an_empty_one_is_not_there() -> None:
    digits = "0" * 31 + "1"
    text = f"version: 1\nentries:\n- {{fingerprint: {digits}, reason: yes, owner: 007}}\n"
    text += f"- {{fingerprint: {digits}, file: b.py, reason: x, owner: null, expires: ~, title: ''}}\n"
    first, second = parse_baseline("x", text).entries
    assert (first.fingerprint, first.reason, first.owner) == (digits, "yes", "007")
    assert (second.file, second.owner, second.expires, second.title) == ("b.py", "", None, "")


def test_a_hostile_text_or_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("zzz: " + "[" * 500_000, "zzz: " + "{a: " * 100_000, "entries: " + "[" * 500_000, "? " * 200_000):
        assert "known.yaml" in refused(f"version: 1\n{text}").message
    with pytest.raises(ConfigError, match=r"a\\x1b\[31m:1"):
        parse_baseline("a\x1b[31m", "- x\n")
    monkeypatch.setattr(file, "MOST_ENTRIES", 100)
    many = "".join(f"- {{fingerprint: {number:032x}, reason: x}}\n" for number in range(101))
    assert refused(f"version: 1\nentries:\n{many}").message == "known.yaml:103: more than 100 entries"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    for make in (os.mkfifo, os.mkdir):
        (tmp_path / BASELINE_NAME).unlink(missing_ok=True)
        make(tmp_path / BASELINE_NAME)
        with pytest.raises(ConfigError, match="not a regular file"):
            read_working_file(tmp_path)
    with pytest.raises(OutputError, match="cannot be written"):
        write_working_file(tmp_path, TEXT)
    assert [each.name for each in tmp_path.iterdir()] == [BASELINE_NAME]


def test_what_was_written_is_read_and_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_working_file(tmp_path, "")
    (tmp_path / BASELINE_NAME).chmod(0o662)
    write_working_file(tmp_path, TEXT)
    assert stat.S_IMODE((tmp_path / BASELINE_NAME).stat().st_mode) == 0o662
    found = read_working_file(tmp_path)
    assert found.text == TEXT
    assert [entry.fingerprint for entry in found.baseline.entries] == [ONE, TWO]
    assert [each.name for each in tmp_path.iterdir()] == [BASELINE_NAME]
    monkeypatch.setattr(file, "MAX_FILE_BYTES", 10)
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        read_working_file(tmp_path)


def test_a_symbolic_link_is_not_followed_when_read_and_replaced_when_written(tmp_path: Path) -> None:
    assert read_working_file(tmp_path) == file.BaselineFile()
    target = tmp_path / "elsewhere"
    target.write_text("precious")
    (tmp_path / BASELINE_NAME).symlink_to(target)
    with pytest.raises(ConfigError, match="a symbolic link, which is not followed"):
        read_working_file(tmp_path)
    write_working_file(tmp_path, TEXT)
    assert target.read_text() == "precious"
    assert not (tmp_path / BASELINE_NAME).is_symlink()


def text(reason: str) -> str:
    return f"version: 1\nentries:\n- fingerprint: {'a' * 32}\n  reason: {reason}\n"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[GitRepository, str, str]:
    """A repository with another baseline in the base, the head, the index and the working tree. It is only read."""
    repository = GitRepository(tmp_path_factory.mktemp("history") / "repository")
    (repository.path / "below").mkdir()
    base = repository.commit_files({BASELINE_NAME: text("of the base")})
    head = repository.commit_files({BASELINE_NAME: text("of the head")})
    repository.write(BASELINE_NAME, text("of the index"))
    repository.git("add", BASELINE_NAME)
    repository.write(BASELINE_NAME, text("of the tree"))
    return repository, base, head


def read(repository: GitRepository, kind: ScopeKind, base: str | None, head: str | None, *, trusted: bool) -> Baseline:
    scope = Scope(kind, base, head, "a change")
    return asyncio.run(read_baseline(scope, repo=repository.path, trusted=trusted))


@pytest.mark.program
def test_of_a_trusted_change_it_is_the_reviewed_trees_and_what_the_working_tree_says_holds(
    history: tuple[GitRepository, str, str],
) -> None:
    repository, base, head = history
    for kind in ScopeKind:
        found = read(repository, kind, base, head, trusted=True)
        assert [entry.reason for entry in (*found.entries, *found.also)] == ["of the tree"], kind
    below = read_baseline(Scope(ScopeKind.BRANCH, base, None, ""), repo=repository.path / "below", trusted=True)
    assert len(asyncio.run(below).entries) == 1


def test_an_entry_of_the_reviewed_tree_alone_holds_and_is_not_lost(repository: GitRepository) -> None:
    then = repository.commit_files({BASELINE_NAME: text("then")})
    repository.git("rm", "--quiet", BASELINE_NAME)
    now = repository.commit()
    repository.write(BASELINE_NAME, text("new").replace("a" * 32, "b" * 32))
    for sha, kept in ((then, ["then"]), (now, [])):
        found = read(repository, ScopeKind.COMMIT, None, sha, trusted=True)
        assert [entry.reason for entry in found.entries] == kept
        assert [entry.reason for entry in found.also] == ["new"]


@pytest.mark.program
def test_of_an_untrusted_change_it_is_the_bases(history: tuple[GitRepository, str, str]) -> None:
    repository, base, head = history
    for kind in ScopeKind:
        (entry,) = read(repository, kind, base, head, trusted=False).entries
        assert entry.reason == "of the base", kind
    assert read(repository, ScopeKind.DIFF_FILE, None, None, trusted=False).entries == ()
    assert read(repository, ScopeKind.COMMIT, None, head, trusted=False).entries == ()


def test_without_a_file_or_with_a_symbolic_link_in_its_place_it_is_empty(repository: GitRepository) -> None:
    without = repository.commit_files({"real": text("x")})
    (repository.path / BASELINE_NAME).symlink_to("real")
    with_link = repository.commit()
    (repository.path / BASELINE_NAME).unlink()
    for kind in ScopeKind:
        for sha in (without, with_link):
            for trusted in (True, False):
                assert read(repository, kind, sha, sha, trusted=trusted).entries == (), (kind, sha, trusted)


def test_a_mistake_in_a_revision_is_told_with_the_revision(repository: GitRepository) -> None:
    sha = repository.commit_files({BASELINE_NAME: "version: 1\nentrys: []\n"})
    with pytest.raises(ConfigError, match=f"{sha[:12]}:{BASELINE_NAME}:2: entrys: unknown key"):
        read(repository, ScopeKind.RANGE, sha, sha, trusted=False)
    with pytest.raises(ConfigError, match=f":{BASELINE_NAME}:2: entrys: unknown key"):
        read(repository, ScopeKind.STAGED, sha, None, trusted=True)


THREE = "33333333cccc22223333444455556666"


def changes(before: str, after: str) -> list[str]:
    """The lines that differ, as a diff shows them."""
    return [line for line in difflib.ndiff(before.split("\n"), after.split("\n")) if line[0] in "+-"]


def test_a_new_file_is_written_whole_and_sorted() -> None:
    one = entry(ONE, title='a "b": #c', owner="me", expires=date(2030, 1, 2), evidence="x = 1\t# y")
    text = edited("", Baseline(), put=[entry(TWO, file="b.py"), one])
    assert text.startswith("# Findings that are known and do not count")
    assert text.partition("version: 1\nentries:\n")[2] == (
        f'  - fingerprint: "{ONE}"\n    file: "a.py"\n    title: "a \\"b\\": #c"\n    evidence: "x = 1\\t# y"\n'
        '    reason: "legacy"\n    owner: "me"\n    expires: 2030-01-02\n'
        f'  - fingerprint: "{TWO}"\n    file: "b.py"\n    reason: "legacy"\n'
    )


def test_an_entry_comes_in_where_it_belongs_or_keeps_its_place_and_nothing_else_changes() -> None:
    after = edited(TEXT, parse_baseline("x", TEXT), put=[entry(THREE, file="a.py")])
    assert changes(TEXT, after) == [f'+   - fingerprint: "{THREE}"', '+     file: "a.py"', '+     reason: "legacy"']
    assert [each.fingerprint for each in parse_baseline("x", after).entries] == [ONE, THREE, TWO]
    renewed = edited(TEXT, parse_baseline("x", TEXT), put=[entry(ONE, reason="still legacy")])
    one, two = parse_baseline("x", renewed).entries
    assert (one.reason, one.title, two.fingerprint) == ("still legacy", "", TWO)
    assert "# The old queries." in renewed


def test_an_entry_goes_with_its_lines_and_comments_stay() -> None:
    baseline = parse_baseline("x", TEXT)
    first = edited(TEXT, baseline, remove=[baseline.entries[0].key])
    assert all(line.startswith("- ") for line in changes(TEXT, first))
    assert "# The old queries." in first
    assert [each.fingerprint for each in parse_baseline("x", first).entries] == [TWO]
    last = edited(TEXT, baseline, remove=[baseline.entries[1].key])
    assert len(changes(TEXT, last)) == 5
    assert [each.fingerprint for each in parse_baseline("x", last).entries] == [ONE]


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


TERMS = Acceptance(reason="legacy", owner="me", expires=date(2031, 1, 1))
NEAR = "1111111199"
REVIEWED = ReviewedFindings(
    "the review", (finding(ONE), finding(TWO, file="b.py", line_start=9), finding(NEAR, line_start=4), finding(""))
)


@each(
    ("word", "message", "hint"),
    [
        ("22222", "'22222' is neither a fingerprint (6 or more of 0-9 and a-f)", "its findings are"),
        ("abcdef", "no finding 'abcdef' in the review", "its findings are 11111111aaaa2222 a.py:3 built from text;"),
        ("eval", "'eval' is neither a fingerprint", "its findings are"),
        ("", "'' is neither a fingerprint", "its findings are"),
        ("a.py:99", "no finding 'a.py:99' in the review", "its findings are"),
        ("a.py:x", "no finding 'a.py:x' in the review", "its findings are"),
        ("a.py:²", "no finding 'a.py:²' in the review", "its findings are"),
        (
            "111111",
            "'111111' matches several findings:\n  11111111aaaa2222 a.py:3 built from text\n  1111111199 a.py:4",
            "more",
        ),
    ],
)
def test_a_word_that_names_no_finding_or_several_is_told(word: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(REVIEWED, [word])
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


def test_an_entry_holds_what_tells_the_finding() -> None:
    assert entry_for(finding(title="built\n from  text"), TERMS) == BaselineEntry(
        fingerprint=ONE,
        file="a.py",
        title="built from text",
        body="why",
        evidence="run(query + name)",
        severity=Severity.HIGH,
        reason="legacy",
        owner="me",
        expires=date(2031, 1, 1),
    )


def test_an_entry_names_the_rule_of_an_analyser_only_and_the_highest_severity_claimed() -> None:
    made_up = finding(rule="R1", source=Source.AGENT, severity=Severity.MEDIUM)
    assert entry_for(made_up, TERMS).rule == ""
    of_ruff = make_claim(rule="S608", source=Source.ANALYSER, severity=Severity.LOW)
    both = make_finding(of_ruff, rule="R1", severity=Severity.HIGH, fingerprint=ONE, body="why")
    kept = entry_for(replace(both, severity=Severity.LOW), TERMS)
    assert (kept.rule, kept.severity, kept.body) == ("S608", Severity.HIGH, "why")


@each(
    ("evidence", "kept"),
    [
        ("", ""),
        ("}\n\n  total = price + tax\n", "total = price + tax"),
        ("}\n)", ""),
        ('password = "hunt********"', 'password = "hunt'),
        ("a[redacted]b", ""),
        ("x = [redacted] + other_value", "+ other_value"),
        ("first(part) ... the_rest", "first(part)"),
        ("y" * 500, "y" * 120),
        ("caf\ufffd = broken", ""),
    ],
)
def test_of_the_code_a_piece_is_kept_that_shows_no_secret(evidence: str, kept: str) -> None:
    assert entry_for(finding(evidence=evidence), TERMS).evidence == kept


def test_a_finding_is_named_by_fingerprint_or_place_and_its_entry_can_be_written_without_a_secret() -> None:
    found = chosen(REVIEWED, ["222222", TWO.upper(), "11111111a"])
    assert [each.fingerprint for each in found] == [TWO, ONE]
    assert [each.fingerprint for each in chosen(REVIEWED, ["b.py:9", "a.py:4"])] == [TWO, NEAR]
    with pytest.raises(UsageError) as caught:
        chosen(ReviewedFindings("it", ()), ["abcdef"])
    assert caught.value.hint == "that review has no finding that counts"
    token = "ghp_" + "a1B2" * 9
    kept = entry_for(finding(evidence=f"connect({token})", file="caf\udce9.py"), TERMS)
    assert token not in kept.evidence
    assert kept.file == "caf\\xe9.py"


ASIDE = Suppression(kind=SuppressionKind.BASELINE, reason="legacy")


def document(**changes: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(render_json(review(finding(fingerprint="aa11"), complete=False)))
    return {**loaded, **changes}


def written(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "report.json"
    path.write_text(content)
    return path


def test_a_report_gives_what_the_review_itself_gives(tmp_path: Path) -> None:
    made = review(
        finding(fingerprint="aa11", file="caf\udce9.py"),
        finding(fingerprint="bb22", suppression=ASIDE),
        finding(fingerprint="cc33", status=FindingStatus.REFUTED),
        errors=(ReviewError("baseline_unused", "old"),),
    )
    told = read_report(written(tmp_path, render_json(made)))
    direct = findings_of(made, name=told.name)
    assert [each.fingerprint for each in told.findings] == ["aa11", "bb22", "cc33"]
    assert [(each.file, each.is_open, each.evidence, each.title) for each in told.findings] == [
        (each.file, each.is_open, each.evidence, each.title) for each in direct.findings
    ]
    assert (told.errors, told.complete) == (direct.errors, True)
    assert told.findings[1].suppression is not None
    assert told.findings[1].suppression.kind is SuppressionKind.BASELINE


def test_a_report_with_an_unknown_status_is_refused_and_one_from_standard_input_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not read_report(written(tmp_path, json.dumps(document()))).complete
    later = document()
    later["findings"][0]["status"] = "postponed"
    with pytest.raises(UsageError, match="of version 1 .*'postponed'"):
        read_report(written(tmp_path, json.dumps(later)))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(document()).encode())))
    assert len(read_report(Path("-")).findings) == 1


@each(
    ("content", "message"),
    [
        ("not json", "is not a JSON report"),
        ("[" * 100_000, "is not a JSON report"),
        ("[]", "is not a JSON report of version 1"),
        ("{}", "is not a JSON report of version 1"),
        (json.dumps(document(schema_version=2)), "is not a JSON report of version 1"),
        (json.dumps(document(findings=[{}])), "is not a JSON report of version 1"),
        (json.dumps(document(errors=["x"])), "is not a JSON report of version 1"),
        (json.dumps(document(findings=[{**document()["findings"][0], "severity": "huge"}])), "of version 1"),
        (json.dumps(document(findings=[{**document()["findings"][0], "counts": "x"}])), "of version 1"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_report(written(tmp_path, content))
    assert "--format json" in caught.value.hint


INLINE = Suppression(kind=SuppressionKind.INLINE, reason="x")


def states(*entries: BaselineEntry, reviewed: ReviewedFindings | None = None) -> list[EntryState]:
    return [each.state for each in standings(Baseline(entries), reviewed, today=TODAY)]


def test_without_a_review_only_what_has_expired_is_known_and_a_review_tells_what_is_used_and_what_is_not() -> None:
    entries = entry(expires=date(2030, 6, 14)), entry(TWO, expires=TODAY), entry(THREE)
    assert states(*entries) == [EntryState.EXPIRED, EntryState.UNSEEN, EntryState.UNSEEN]
    unused = ReviewError(
        "baseline_unused", f"x: 1 entry fits nothing in a.py any more: {entry(TWO, line=7).in_short()}; y"
    )
    reviewed = ReviewedFindings("it", (finding(ONE, suppression=ASIDE), finding(THREE, suppression=INLINE)), (unused,))
    found = states(entry(ONE), entry(TWO), entry(THREE), reviewed=reviewed)
    assert found == [EntryState.USED, EntryState.UNUSED, EntryState.UNSEEN]


def test_an_entry_is_used_only_by_a_finding_and_unused_only_by_the_word_for_that() -> None:
    # One that was added after the review is used if its finding is still there.
    reviewed = ReviewedFindings("it", (finding(ONE), replace(finding(TWO), status=FindingStatus.FIXED)))
    assert states(entry(ONE), entry(TWO), reviewed=reviewed) == [EntryState.USED, EntryState.UNSEEN]
    for kind in ("baseline_expired", "not_reviewed"):
        told = ReviewError(kind, f"x: {entry(TWO, line=7).in_short()}")
        assert states(entry(TWO), reviewed=ReviewedFindings("it", (), (told,))) == [EntryState.UNSEEN]
