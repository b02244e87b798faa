"""Suppressions: comments in the code, entries of the baseline, and what is reported about both."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.findings.comments import Mark, lines_reader, marks_in
from codeloupe.findings.suppress import KnownEntries, Suppressions, _Files, added_suppressions
from codeloupe.model.baseline import Baseline, BaselineEntry
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Claim, CodeState, Finding, Severity, Source, Suppression, SuppressionKind
from codeloupe.model.review import Level, ReviewError
from codeloupe.store.baseline import reported_unused
from tests.findings_material import make_finding
from tests.review_factories import make_plan
from tests.rows import each
from tests.unit.planning.samples import changed

TODAY = date(2030, 6, 15)
ONE, TWO = "1" * 32, "2" * 32
NOTE = "# codeloupe: ignore legacy"
FILES = (FileChange("a.py", "a.py", FileStatus.MODIFIED), FileChange("b.py", "b.py", FileStatus.MODIFIED))


def stored(claim: Claim) -> tuple[str, ...]:
    return claim.statements


def finding(line: int = 1, *, end: int | None = None, category: str = "correctness", **more: Any) -> Finding:
    return make_finding(line_start=line, line_end=end or line, category=category, **more)


def applied(folder: Path, text: str, *findings: Finding) -> tuple[list[Suppression | None], list[tuple[str, str]]]:
    """Return what suppresses findings in `a.py`, and what is reported beside what the change adds."""
    suppressions = Suppressions(make_plan(folder, {"a.py": text}), today=TODAY, statements_of=stored)
    found = [suppressions.applied_to(one).suppression for one in findings]
    told = [(error.kind, error.message) for error in suppressions.errors() if error.kind != "suppressions_added"]
    return found, told


def is_open(folder: Path, text: str, *, line: int = 1, end: int | None = None, anchored: bool = True) -> bool:
    found, _ = applied(folder, text, finding(line, end=end, anchored=anchored))
    return found == [None]


@each(
    "line, names, reason",
    [
        ("x # codeloupe: ignore legacy code", None, "legacy code"),
        ("x # codeloupe: ignore[security] checked above", ("security",), "checked above"),
        ("x # codeloupe:ignore [ S608 , sql ]: a constant.", ("S608", "sql"), "a constant"),
        ("x # Codeloupe: Ignore[S608] — a constant", ("S608",), "a constant"),
        ("x # noqa: S608 codeloupe: ignore[S608] a constant", ("S608",), "a constant"),
        ("x # codeloupe: ignore", None, ""),
        ("x # codeloupe: ignore[S608] ---", ("S608",), ""),
        ("x # codeloupe: ignore[] because", (), "because"),
        ("x # codeloupe: ignore[S608 because", (), ""),
        (f"x # codeloupe: ignore[{'a,' * 300}] because", (), f"{'a,' * 100}] because"),
    ],
)
def test_a_mark_says_what_and_why(line: str, names: tuple[str, ...] | None, reason: str) -> None:
    assert marks_in("a.py", 7, line) == [Mark("a.py", 7, names, reason)]


def test_a_line_may_have_several_marks_or_other_words() -> None:
    two = marks_in("a.py", 1, "x # codeloupe: ignore[a] one; codeloupe: ignore[b] two")
    assert [(found.names, found.reason) for found in two] == [(("a",), "one"), (("b",), "two")]
    # The end of a comment is no part of the reason.
    assert [found.reason for found in marks_in("a.js", 1, "/* codeloupe: ignore ours */ x()")] == ["ours"]
    assert [found.reason for found in marks_in("a.html", 1, "<!-- codeloupe: ignore ours -->")] == ["ours"]
    others = [
        "x # codeloupe: ignored by us",
        "x # codeloupe: ignore-file all of it",
        "x # codeloupe ignore it",
        'x = "# codeloupe: ignore it"',
        "codeloupe: ignore it",
    ]
    assert [line for line in others if marks_in("a.py", 1, line)] == []


@pytest.mark.parametrize(
    ("name", "fields", "applies"),
    [
        pytest.param("security", {"category": "security"}, True, id="a category"),
        pytest.param("Security", {"category": "security"}, True, id="a category in capitals"),
        pytest.param("sql injection", {"category": "SQL_Injection"}, True, id="a category with other separators"),
        pytest.param("error-handling", {"category": "error handling"}, True, id="a category with a hyphen"),
        pytest.param("s608", {"rule": "S608"}, True, id="a rule"),
        pytest.param("payments", {"expert": "payments"}, True, id="an expert"),
        pytest.param("security", {"category": "correctness"}, False, id="another category"),
        pytest.param("security", {"category": "SQL injection"}, False, id="a category that means something alike"),
        pytest.param("secruity", {"category": "security"}, False, id="a misspelt category"),
        pytest.param("S60", {"rule": "S608"}, False, id="a part of a rule"),
        pytest.param("S608", {"rule": "S105"}, False, id="another rule"),
        pytest.param("tests", {"expert": "security"}, False, id="another expert"),
    ],
)
def test_a_name_in_brackets_is_a_category_a_rule_or_an_expert(name: str, fields: dict[str, str], applies: bool) -> None:
    one = make_finding(**fields)
    assert Mark("a.py", 1, (name,), "why").applies_to(one) is applies
    assert Mark("a.py", 1, ("nothing", name), "why").applies_to(one) is applies


def test_a_comment_without_brackets_applies_to_any_finding() -> None:
    assert Mark("a.py", 1, None, "why").applies_to(finding(category="anything at all"))


@each(
    "text",
    [
        "x = 1  # codeloupe: ignore[correctness] checked by hand",
        "# codeloupe: ignore checked by hand\nx = 1",
        "# codeloupe: ignore checked by hand\n# and more words\nx = 1",
    ],
)
def test_a_comment_on_the_line_or_right_above_it_suppresses(text: str, tmp_path: Path) -> None:
    why = Suppression(kind=SuppressionKind.INLINE, reason="checked by hand", severity=Severity.HIGH)
    assert applied(tmp_path, text, finding(text.count("\n") + 1)) == ([why], [])


def commented(severity: Severity, reason: str = "legacy") -> Suppression:
    return Suppression(kind=SuppressionKind.INLINE, reason=reason, severity=severity)


@pytest.mark.parametrize("accepted", list(Severity))
def test_a_comment_suppresses_nothing_above_what_it_accepted(accepted: Severity, tmp_path: Path) -> None:
    suppressions = Suppressions(make_plan(tmp_path, {"a.py": f"x = 1  {NOTE}"}), today=TODAY, statements_of=stored)
    found = suppressions.applied_to(finding(severity=Severity.HIGH, comment=commented(accepted)))
    assert (found.suppression is not None) == accepted.at_least(Severity.HIGH)
    # What it accepted is known in later rounds too, whether it applied or not.
    assert found.comment == commented(accepted)


def test_a_comment_with_another_reason_is_another_comment(tmp_path: Path) -> None:
    suppressions = Suppressions(make_plan(tmp_path, {"a.py": f"x = 1  {NOTE}"}), today=TODAY, statements_of=stored)
    found = suppressions.applied_to(finding(severity=Severity.HIGH, comment=commented(Severity.LOW, "old words")))
    assert found.suppression == commented(Severity.HIGH)


@pytest.mark.parametrize(("statement", "applies"), [("same", False), ("other", True)])
def test_a_comment_accepts_no_more_severe_finding_on_its_statement(
    statement: str, applies: bool, tmp_path: Path
) -> None:
    earlier = finding(severity=Severity.LOW, comment=commented(Severity.LOW), code=CodeState(names=("same",)))
    plan = make_plan(tmp_path, {"a.py": f"x = 1  {NOTE}"})
    suppressions = Suppressions(plan, today=TODAY, statements_of=stored, earlier=[earlier])
    found = suppressions.applied_to(finding(severity=Severity.HIGH, code=CodeState(names=(statement,))))
    assert (found.suppression is not None) == applies


def test_comments_for_two_categories_may_be_above_one_another(tmp_path: Path) -> None:
    text = "# codeloupe: ignore[S608] a constant\n# codeloupe: ignore[correctness] by hand\nx = 1"
    found, errors = applied(tmp_path, text, finding(3), finding(3, category="security", rule="S608"))
    assert [one and one.reason for one in found] == ["by hand", "a constant"]
    assert errors == []


@each(
    ("text", "line", "suppresses"),
    [
        (f"y = 2  {NOTE}\nx = 1", 2, False),
        (f"{NOTE}\n\nx = 1", 3, False),
        (f"{NOTE}\ny\nx = 1", 3, False),
        (f"{NOTE}\n" + "# more\n" * 10 + "x = 1", 12, False),
        (f"{NOTE}\n" + "# more\n" * 9 + "x = 1", 11, True),
        # A finding outside of the file has no lines.
        (f"x {NOTE}", 2, False),
    ],
)
def test_a_comment_elsewhere_does_not_suppress(text: str, line: int, suppresses: bool, tmp_path: Path) -> None:
    assert is_open(tmp_path, text, line=line) is not suppresses


def test_a_comment_does_not_suppress_what_has_no_place(tmp_path: Path) -> None:
    assert is_open(tmp_path, f"x {NOTE}", anchored=False)
    assert applied(tmp_path, f"x {NOTE}", finding(file="gone.py"))[0] == [None]


@each(
    ("marked", "line", "end", "suppresses"),
    [(5, 1, 10, True), (5, 1, 11, False), (11, 1, 11, True), (19, 18, 300, True)],
)
def test_of_a_long_finding_only_the_ends_count(
    marked: int, line: int, end: int, suppresses: bool, tmp_path: Path
) -> None:
    text = "\n".join(f"x{' # codeloupe: ignore legacy' if number == marked else ''}" for number in range(1, 20))
    assert is_open(tmp_path, text, line=line, end=end) is not suppresses


@each(
    "text, kind, message",
    [
        (
            "# {}[bug]",
            "without_reason",
            "the comment `codeloupe: ignore[bug]` at a.py:1 gives no reason, so it suppresses nothing",
        ),
        (
            "# {}[] legacy",
            "without_reason",
            "the comment `codeloupe: ignore[]` at a.py:1 names nothing between its brackets, so it suppresses nothing",
        ),
        (
            "# {}[secruity] legacy",
            "unused",
            "the comment `codeloupe: ignore[secruity]` at a.py:1 matches none of the findings there",
        ),
        (
            '"# {} legacy"',
            "outside_comment",
            "`codeloupe: ignore` at a.py:1 is not in a comment, so it suppresses nothing",
        ),
    ],
)
def test_a_comment_that_suppresses_nothing_is_reported(text: str, kind: str, message: str, tmp_path: Path) -> None:
    mark = text.format("codeloupe: ignore")
    found, errors = applied(tmp_path, f"x = 1  {mark}", finding(category="security"), finding())
    assert found == [None, None]
    assert [error[0] for error in errors] == [f"ignore_{kind}"]
    assert errors[0][1].startswith(message)


def test_an_untrusted_change_is_not_suppressed_by_its_comments(tmp_path: Path) -> None:
    suppressions = Suppressions(
        make_plan(tmp_path, {"a.py": f"x = 1  {NOTE}"}, trusted=False), today=TODAY, statements_of=stored
    )
    assert suppressions.applied_to(finding()).suppression is None
    [told] = [error for error in suppressions.errors() if error.kind == "ignores_not_followed"]
    assert told.message.startswith("1 comment that suppresses a finding was not followed")


def added(path: str, *lines: str) -> FileChange:
    return changed(path, b"".join(b"+" + line.encode() + b"\n" for line in lines))


def test_suppressions_that_the_change_adds_are_reported() -> None:
    files = (
        added("a.py", "x", "y # codeloupe: ignore legacy", "z # codeloupe: ignore"),
        added("codeloupe-baseline.yaml", "version: 1", "entries:", '  - fingerprint: "aa"', "    reason: fingerprint"),
    )
    message = "the change itself adds 1 comment to ignore findings (a.py:2) and 1 entry of codeloupe-baseline.yaml"
    assert added_suppressions(files) == (ReviewError("suppressions_added", message, level=Level.NOTE),)
    old = Hunk(1, 1, 1, 2, b" x # codeloupe: ignore legacy\n+y\n", added=1)
    file = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(old,))
    assert added_suppressions([file, added("b.py", "z")]) == ()
    (error,) = added_suppressions([added("b.py", *["z # codeloupe: ignore legacy"] * 12)])
    assert "12 comments" in error.message
    assert error.message.endswith("b.py:10 and 2 more)")


def entry(fingerprint: str = ONE, file: str = "a.py", **more: Any) -> BaselineEntry:
    return BaselineEntry(fingerprint=fingerprint, file=file, **{"reason": "legacy", "line": 5, **more})


def found(fingerprint: str = ONE, file: str = "a.py", **more: Any) -> Finding:
    return make_finding(file=file, fingerprint=fingerprint, **more)


def book(
    *entries: BaselineEntry, files: tuple[FileChange, ...] = FILES, unknown: frozenset[str] = frozenset()
) -> KnownEntries:
    return KnownEntries(Baseline(entries), _Files(files), today=TODAY, statements_of=stored, unknown=unknown)


def errors_of(known: KnownEntries, **texts: str) -> list[ReviewError]:
    return list(known.errors(lambda path: texts[path.removesuffix(".py")].split("\n")))


def test_an_entry_applies_to_its_fingerprint_in_its_file() -> None:
    known = book(entry())
    assert known.entry_for(found()) == entry()
    assert known.entry_for(found(TWO)) is None
    assert known.entry_for(found("")) is None
    # A copy beside the known one counts, and is not worth a word.
    assert known.entry_for(found(file="b.py")) is None
    assert errors_of(known, a="", b="") == []


def test_an_entry_without_a_file_applies_to_any() -> None:
    assert book(entry(file="")).entry_for(found(file="z.py")) is not None


def test_an_entry_names_a_path_that_is_not_utf_8_by_its_escapes() -> None:
    assert book(entry(file="caf\\xe9.py")).entry_for(found(file="caf\udce9.py")) is not None


def test_the_same_code_in_two_files_has_two_entries() -> None:
    both = book(entry(), entry(file="b.py"))
    assert [both.entry_for(found(file=name)) for name in ("b.py", "a.py")] == [entry(file="b.py"), entry()]


WORDS = "The opened file handle is never closed"
ELSEWHERE = CodeState(names=("other",))
REWORDED = "Opened file handle is not closed on errors"


@pytest.mark.parametrize(
    ("kept", "reported", "applies"),
    [
        pytest.param({"title": WORDS}, {"title": WORDS}, True, id="the same words on the statement"),
        pytest.param({"title": WORDS}, {"title": REWORDED}, True, id="similar words on the statement"),
        pytest.param({"title": WORDS}, {"title": "Race on the counter"}, False, id="other words on the statement"),
        pytest.param(
            {"title": WORDS},
            {"title": WORDS, "code": ELSEWHERE},
            False,
            id="the same words elsewhere",
        ),
        pytest.param(
            {"fingerprint": TWO, "title": WORDS},
            {"title": WORDS, "code": ELSEWHERE},
            False,
            id="the same fingerprint on a changed statement",
        ),
        pytest.param({"rule": "S1"}, {"source": Source.ANALYSER, "rule": "S1"}, True, id="the same analyser rule"),
        pytest.param({"rule": "S1"}, {"source": Source.ANALYSER, "rule": "S2"}, False, id="another analyser rule"),
        pytest.param({"rule": "S1"}, {"rule": "S1"}, False, id="a rule that an agent names"),
        pytest.param(
            {"title": WORDS}, {"title": WORDS, "source": Source.ANALYSER, "rule": "S1"}, False, id="an analyser"
        ),
    ],
)
def test_an_entry_applies_to_its_defect_on_its_statement(
    kept: dict[str, Any], reported: dict[str, Any], applies: bool
) -> None:
    known = book(entry(statement="first second", **kept))
    reported = {"code": CodeState(names=("second", "third")), **reported}
    assert (known.entry_for(found(TWO, **reported)) is not None) is applies


@pytest.mark.parametrize("severity", list(Severity))
def test_an_entry_applies_while_no_claim_is_more_severe(severity: Severity) -> None:
    known = book(entry(severity=Severity.MEDIUM))
    is_suppressed = known.entry_for(found(severity=severity)) is not None
    assert is_suppressed == (not severity.is_worse_than(Severity.MEDIUM))


def test_a_copy_of_the_code_in_another_file_counts_and_is_reported() -> None:
    known = book(entry())
    assert known.entry_for(found(file="b.py")) is None
    told = errors_of(known, a="", b="")
    assert [error.kind for error in told] == ["baseline_unused", "baseline_elsewhere"]
    assert told[1].message.startswith(
        "the entry at codeloupe-baseline.yaml:5 is for a.py; the same finding in b.py counts"
    )


@pytest.mark.parametrize(("status", "applies"), [(FileStatus.RENAMED, True), (FileStatus.COPIED, False)])
def test_an_entry_follows_a_moved_file_but_not_a_copy(status: FileStatus, applies: bool) -> None:
    moved = (FileChange("a.py", "new.py", status),)
    assert (book(entry(), files=moved).entry_for(found(file="new.py")) is not None) is applies


def test_an_entry_applies_up_to_its_last_day() -> None:
    assert book(entry(expires=TODAY)).entry_for(found()) is not None
    known = book(entry(expires=date(2030, 6, 14)))
    assert known.entry_for(found()) is None
    message = (
        "1 entry of codeloupe-baseline.yaml has expired and suppresses nothing: 111111111111 (line 5) on 2030-06-14"
        " for a.py"
    )
    assert errors_of(known, a="x", b="") == [ReviewError("baseline_expired", message, level=Level.NOTE)]
    known = book(*(entry(f"{number:032x}", expires=date(2000, 1, 1)) for number in range(12)))
    (told,) = errors_of(known, a="x", b="")
    assert told.message.endswith("for a.py and 2 more")


def test_an_entry_whose_code_is_gone_from_a_reviewed_file_is_unused() -> None:
    known = book(entry(evidence="run(query  + name)"), entry(TWO, "a.py", evidence="exec(name)", line=9))
    told = errors_of(known, a="run( query + name )\n", b="")
    message = (
        "1 entry of codeloupe-baseline.yaml matches nothing in a.py any more: 222222222222 (line 9);"
        " `codeloupe baseline prune` removes unused entries"
    )
    assert told == [ReviewError("baseline_unused", message, level=Level.NOTE)]
    assert reported_unused(told) == {"222222222222"}
    # So is one without code, and one for a file that the change deletes.
    assert [error.kind for error in errors_of(book(entry(), entry(TWO)), a="x", b="")] == ["baseline_unused"]
    gone = (FileChange("a.py", None, FileStatus.DELETED),)
    assert [error.kind for error in errors_of(book(entry(evidence="run(x)"), files=gone))] == ["baseline_unused"]


def test_an_entry_for_code_that_was_not_read_is_not_called_unused() -> None:
    assert errors_of(book(entry(file="other.py"), entry(TWO, ""))) == []
    assert errors_of(book(entry(), unknown=frozenset({"a.py"}))) == []
    assert list(book(entry(evidence="run(x)")).errors(lambda _path: None)) == []


def test_the_lines_of_a_reviewed_file_are_those_of_its_content_or_else_of_its_diff(tmp_path: Path) -> None:
    lines_of = lines_reader(make_plan(tmp_path, {"a.py": "x\r\ny\x0c\n"}))
    assert [lines_of(path) for path in ("a.py", "other.py", "../a.py")] == [["x\r", "y\x0c", ""], None, None]
    hunk = Hunk(3, 2, 3, 2, b" x\n-old\n+y # codeloupe: ignore legacy\n", added=1, deleted=1)
    far = Hunk(9, 0, 2_000_000_000, 1, b"+z\n", added=1)
    file = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(hunk, far))
    plan = replace(make_plan(tmp_path, {}), files=(file,), without_content=frozenset({"a.py"}))
    assert lines_reader(plan)("a.py") == ["", "", "x", "y # codeloupe: ignore legacy"]
    assert Suppressions(plan, today=TODAY, statements_of=stored).applied_to(finding(4)).suppression is not None


def test_a_suppression_says_who_accepted_the_finding_and_why(tmp_path: Path) -> None:
    baseline = Baseline((entry(owner="me", expires=TODAY),))
    suppressions = Suppressions(
        make_plan(tmp_path, {"a.py": "x\n"}), baseline=baseline, today=TODAY, statements_of=stored
    )
    why = Suppression(kind=SuppressionKind.BASELINE, reason="legacy", owner="me", expires=TODAY, entry=ONE)
    assert suppressions.applied_to(found()).suppression == why
