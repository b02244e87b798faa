import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.engine.suppress import KnownFindings, Mark, added_suppressions, marks_in, reviewed_lines, suppress
from codeloupe.model.baseline import Baseline, BaselineEntry
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Finding, FindingStatus, Suppression, SuppressionKind
from codeloupe.model.ports import ReviewerOutcome
from codeloupe.model.review import FailedUnit, ReviewError
from codeloupe.store.baseline import reported_unused
from tests.review_factories import make_task
from tests.rows import each
from tests.unit.engine.samples import changed, finding

TODAY = date(2030, 6, 15)
ONE, TWO = "1" * 32, "2" * 32
NOTE = "# codeloupe: ignore legacy"
FILES = (FileChange("a.py", "a.py", FileStatus.MODIFIED), FileChange("b.py", "b.py", FileStatus.MODIFIED))


def of(category: str, *, rule: str | None = None, expert: str | None = None) -> Finding:
    return replace(finding(category=category), rule=rule, expert=expert)


def applied(text: str, *findings: Finding) -> tuple[tuple[Finding, ...], list[tuple[str, str]]]:
    """What becomes of findings in `a.py`, and what is reported of it beside what the change adds."""
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(Path(folder), {"a.py": text})
        outcome = suppress(ReviewerOutcome(findings), task, baseline=Baseline(), today=TODAY)
    told = [(error.kind, error.message) for error in outcome.errors if error.kind != "suppressions_added"]
    return outcome.findings, told


def is_open(text: str, *, line: int = 1, end: int | None = None, anchored: bool = True) -> bool:
    found = replace(finding(line=line, anchored=anchored), line_end=end or line)
    return applied(text, found)[0][0].is_open


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


def test_a_name_fits_category_family_rule_and_expert_and_nothing_else() -> None:
    fitting = [
        ("security", of("security")),
        ("Security", of("SQL injection")),
        ("injection", of("sql-injection")),
        ("sql injection", of("SQL_Injection")),
        ("s608", of("security", rule="S608")),
        ("security", of("security", rule="S608")),
        ("payments", of("bug", expert="payments")),
        ("correctness", of("logic error")),
        ("bug", of("off by one")),
        ("behaviour", of("correctness")),
        ("upkeep", of("style")),
        ("performance", of("inefficient loop, slow")),
        ("error-handling", of("error handling")),
    ]
    others = [
        ("security", of("correctness")),
        ("secruity", of("security")),
        ("secruity", of("correctness")),
        ("S60", of("security", rule="S608")),
        ("S608", of("security", rule="S105")),
        ("correctness", of("security")),
        ("unused-import", of("style")),
        ("tests", of("security", expert="security")),
    ]

    def fits(one: Finding, *names: str) -> bool:
        return Mark("a.py", 1, names or None, "why").fits(one)

    assert [name for name, suited in fitting if not fits(suited, name) or not fits(suited, "nothing", name)] == []
    assert [name for name, other in others if fits(other, name)] == []
    assert fits(of("anything at all"))


def test_a_comment_on_the_line_or_right_above_it_suppresses() -> None:
    texts = [
        "x = 1  # codeloupe: ignore[correctness] checked by hand",
        "# codeloupe: ignore checked by hand\nx = 1",
        "# codeloupe: ignore checked by hand\n# and more words\nx = 1",
    ]
    why = Suppression(kind=SuppressionKind.INLINE, reason="checked by hand")
    for text in texts:
        line = text.count("\n") + 1
        assert applied(text, finding(line=line)) == ((replace(finding(line=line), suppression=why),), [])
    # Comments for two categories may be above one another.
    text = "# codeloupe: ignore[S608] a constant\n# codeloupe: ignore[correctness] by hand\nx = 1"
    findings, errors = applied(text, finding(line=3), replace(finding(line=3, category="security"), rule="S608"))
    assert [one.suppression and one.suppression.reason for one in findings] == ["by hand", "a constant"]
    assert errors == []


def test_a_comment_elsewhere_suppresses_nothing() -> None:
    assert is_open(f"y = 2  {NOTE}\nx = 1", line=2)
    assert is_open(f"{NOTE}\n\nx = 1", line=3)
    assert is_open(f"{NOTE}\ny\nx = 1", line=3)
    assert is_open(f"{NOTE}\n" + "# more\n" * 10 + "x = 1", line=12)
    assert not is_open(f"{NOTE}\n" + "# more\n" * 9 + "x = 1", line=11)
    # A finding outside of the file, or without a place, has no lines.
    assert is_open(f"x {NOTE}", line=2)
    assert is_open(f"x {NOTE}", anchored=False)
    assert applied(f"x {NOTE}", finding(file="gone.py"))[0][0].suppression is None


def test_of_a_long_finding_only_the_ends_count() -> None:
    def lines(marked: int) -> str:
        return "\n".join(f"x{' # codeloupe: ignore legacy' if number == marked else ''}" for number in range(1, 20))

    assert not is_open(lines(5), line=1, end=10)
    assert is_open(lines(5), line=1, end=11)
    assert not is_open(lines(11), line=1, end=11)
    assert not is_open(lines(19), line=18, end=300)


@each(
    "text, kind, message",
    [
        ("# {}[bug]", "without_reason", "[bug]` gives no reason, so it suppresses nothing"),
        ("# {}[] legacy", "without_reason", "[]` names nothing between its brackets, so it suppresses nothing"),
        ("# {}[secruity] legacy", "unused", "[secruity]` fits none of the findings there (security, correctness)"),
        ('"# {} legacy"', "outside_comment", "` is in no comment and suppresses nothing"),
    ],
)
def test_what_suppresses_nothing_is_reported(text: str, kind: str, message: str) -> None:
    mark = text.format("codeloupe: ignore")
    kept, errors = applied(f"x = 1  {mark}", finding(category="security"), finding())
    assert all(one.is_open for one in kept)
    assert errors == [(f"ignore_{kind}", f"a.py:1: `codeloupe: ignore{message}")]


def test_what_is_set_aside_stays_so_and_what_was_suppressed_before_may_count_again() -> None:
    for status in (FindingStatus.REFUTED, FindingStatus.DISMISSED, FindingStatus.FIXED):
        assert applied(f"x = 1  {NOTE}", finding(status=status))[0][0].suppression is None
    before = replace(finding(), suppression=Suppression(kind=SuppressionKind.BASELINE, reason="legacy"))
    assert applied("x\ny\n", before, finding(line=2)) == ((finding(), finding(line=2)), [])


def added(path: str, *lines: str) -> FileChange:
    return changed(path, b"".join(b"+" + line.encode() + b"\n" for line in lines))


def test_what_the_change_itself_adds_is_told() -> None:
    files = (
        added("a.py", "x", "y # codeloupe: ignore legacy", "z # codeloupe: ignore"),
        added("codeloupe-baseline.yaml", "version: 1", "entries:", '  - fingerprint: "aa"', "    reason: fingerprint"),
    )
    message = "the change itself adds 1 comment to ignore findings (a.py:2) and 1 entry of codeloupe-baseline.yaml"
    assert added_suppressions(files) == (ReviewError("suppressions_added", message),)
    old = Hunk(1, 1, 1, 2, b" x # codeloupe: ignore legacy\n+y\n", added=1)
    file = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(old,))
    assert added_suppressions([file, added("b.py", "z")]) == ()
    (error,) = added_suppressions([added("b.py", *["z # codeloupe: ignore legacy"] * 12)])
    assert "12 comments" in error.message
    assert error.message.endswith("b.py:10 and 2 more)")


def entry(fingerprint: str = ONE, file: str = "a.py", **more: Any) -> BaselineEntry:
    return BaselineEntry(fingerprint=fingerprint, file=file, **{"reason": "legacy", "line": 5, **more})


def found(fingerprint: str = ONE, file: str = "a.py") -> Finding:
    return replace(finding(file=file), fingerprint=fingerprint)


def book(
    *entries: BaselineEntry, files: tuple[FileChange, ...] = FILES, unknown: frozenset[str] = frozenset()
) -> KnownFindings:
    return KnownFindings(Baseline(entries), today=TODAY, files=files, unknown=unknown)


def errors_of(known: KnownFindings, **texts: str) -> list[ReviewError]:
    return list(known.errors(lambda path: texts[path.removesuffix(".py")].split("\n")))


def test_an_entry_holds_for_its_fingerprint_in_its_file() -> None:
    known = book(entry())
    assert known.entry_of(found()) == entry()
    assert known.entry_of(found(TWO)) is None
    assert known.entry_of(found("")) is None
    # A copy beside the known one counts, and is not worth a word.
    assert known.entry_of(found(file="b.py")) is None
    assert errors_of(known, a="", b="") == []
    assert book(entry(file="")).entry_of(found(file="z.py")) is not None
    assert book(entry(file="caf\\xe9.py")).entry_of(found(file="caf\udce9.py")) is not None
    both = book(entry(), entry(file="b.py"))
    assert [both.entry_of(found(file=name)) for name in ("b.py", "a.py")] == [entry(file="b.py"), entry()]


def test_a_copy_of_the_code_in_another_file_counts_and_is_told() -> None:
    known = book(entry())
    assert known.entry_of(found(file="b.py")) is None
    told = errors_of(known, a="", b="")
    assert [error.kind for error in told] == ["baseline_unused", "baseline_elsewhere"]
    assert told[1].message.startswith("codeloupe-baseline.yaml:5: this entry is for a.py; the same was found in b.py")


def test_an_entry_follows_a_file_that_the_change_moves_but_not_a_copy() -> None:
    for status, holds in ((FileStatus.RENAMED, True), (FileStatus.COPIED, False)):
        moved = (FileChange("a.py", "new.py", status),)
        assert (book(entry(), files=moved).entry_of(found(file="new.py")) is not None) is holds


def test_an_entry_holds_up_to_its_last_day() -> None:
    assert book(entry(expires=TODAY)).entry_of(found()) is not None
    known = book(entry(expires=date(2030, 6, 14)))
    assert known.entry_of(found()) is None
    message = "1 entry has expired and suppresses nothing: 111111111111 (line 5) on 2030-06-14 for a.py"
    assert errors_of(known, a="x", b="") == [ReviewError("baseline_expired", f"codeloupe-baseline.yaml: {message}")]
    known = book(*(entry(f"{number:032x}", expires=date(2000, 1, 1)) for number in range(12)))
    (told,) = errors_of(known, a="x", b="")
    assert told.message.endswith("for a.py and 2 more")


def test_an_entry_whose_code_is_gone_from_a_reviewed_file_is_unused() -> None:
    known = book(entry(evidence="run(query  + name)"), entry(TWO, "a.py", evidence="exec(name)", line=9))
    told = errors_of(known, a="run( query + name )\n", b="")
    message = (
        "codeloupe-baseline.yaml: 1 entry fits nothing in a.py any more: 222222222222 (line 9);"
        " `codeloupe baseline prune` removes what is unused"
    )
    assert told == [ReviewError("baseline_unused", message)]
    assert reported_unused(told) == {"222222222222"}
    # So is one without code, and one for a file that the change deletes.
    assert [error.kind for error in errors_of(book(entry(), entry(TWO)), a="x", b="")] == ["baseline_unused"]
    gone = (FileChange("a.py", None, FileStatus.DELETED),)
    assert [error.kind for error in errors_of(book(entry(evidence="run(x)"), files=gone))] == ["baseline_unused"]


def test_what_the_review_did_not_read_is_not_called_unused() -> None:
    assert errors_of(book(entry(file="other.py"), entry(TWO, ""))) == []
    assert errors_of(book(entry(), unknown=frozenset({"a.py"}))) == []
    assert list(book(entry(evidence="run(x)")).errors(lambda _path: None)) == []


def test_the_lines_of_a_reviewed_file_are_those_of_its_content_or_else_of_its_diff(tmp_path: Path) -> None:
    lines_of = reviewed_lines(make_task(tmp_path, {"a.py": "x\r\ny\x0c\n"}))
    assert [lines_of(path) for path in ("a.py", "other.py", "../a.py")] == [["x\r", "y\x0c", ""], None, None]
    hunk = Hunk(3, 2, 3, 2, b" x\n-old\n+y # codeloupe: ignore legacy\n", added=1, deleted=1)
    far = Hunk(9, 0, 2_000_000_000, 1, b"+z\n", added=1)
    file = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(hunk, far))
    task = replace(make_task(tmp_path, {}), files=(file,), without_content=frozenset({"a.py"}))
    assert reviewed_lines(task)("a.py") == ["", "", "x", "y # codeloupe: ignore legacy"]
    outcome = suppress(ReviewerOutcome((finding(line=4),)), task, baseline=Baseline(), today=TODAY)
    assert not outcome.findings[0].is_open


def test_an_entry_says_why_and_what_could_not_be_reviewed_says_nothing_about_the_baseline(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x\n"})
    failed = ReviewerOutcome(units_failed=(FailedUnit("a.py", ("a.py",), "timeout"),))
    unseen = ReviewerOutcome(unreviewed=frozenset({"a.py"}))
    for outcome, kinds in ((failed, []), (unseen, []), (ReviewerOutcome(), ["baseline_unused"])):
        errors = suppress(outcome, task, baseline=Baseline((entry(),)), today=TODAY).errors
        assert [error.kind for error in errors] == kinds
    dated = Baseline((entry(owner="me", expires=TODAY),))
    [known] = suppress(ReviewerOutcome((found(),)), task, baseline=dated, today=TODAY).findings
    why = Suppression(kind=SuppressionKind.BASELINE, reason="legacy", owner="me", expires=TODAY, entry=ONE)
    assert known == replace(found(), suppression=why)
