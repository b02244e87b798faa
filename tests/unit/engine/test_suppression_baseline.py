from __future__ import annotations

from datetime import date

from msgspec.structs import replace

from codeloupe.engine.suppress import KnownFindings
from codeloupe.model.baseline import Baseline, BaselineEntry, told_unused
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Finding
from codeloupe.model.review import ReviewError
from tests.unit.engine.samples import finding

TODAY = date(2030, 6, 15)
ONE = "1" * 32
TWO = "2" * 32
FILES = (FileChange("a.py", "a.py", FileStatus.MODIFIED), FileChange("b.py", "b.py", FileStatus.MODIFIED))


def entry(fingerprint: str = ONE, file: str = "a.py", **more: object) -> BaselineEntry:
    values: dict[str, object] = {"reason": "legacy", "line": 5, **more}
    return BaselineEntry(fingerprint=fingerprint, file=file, **values)  # type: ignore[arg-type]  # by name, for a test


def found(fingerprint: str = ONE, file: str = "a.py") -> Finding:
    return replace(finding(file=file), fingerprint=fingerprint)


def book(
    *entries: BaselineEntry, files: tuple[FileChange, ...] = FILES, unknown: frozenset[str] = frozenset()
) -> KnownFindings:
    return KnownFindings(Baseline(entries), today=TODAY, files=files, unknown=unknown)


def errors(known: KnownFindings, **texts: str) -> list[ReviewError]:
    return list(known.errors(lambda path: texts[path.removesuffix(".py")].split("\n")))


def test_an_entry_holds_for_its_fingerprint_in_its_file() -> None:
    known = book(entry())
    assert known.entry_of(found()) == entry()
    assert known.entry_of(found(TWO)) is None
    assert known.entry_of(found("")) is None
    assert errors(known, a="", b="") == []


def test_an_entry_without_a_file_holds_in_any() -> None:
    assert book(entry(file="")).entry_of(found(file="z.py")) is not None


def test_a_copy_of_the_code_in_another_file_counts_and_is_told() -> None:
    known = book(entry())
    assert known.entry_of(found(file="b.py")) is None
    told = errors(known, a="", b="")
    assert [error.kind for error in told] == ["baseline_unused", "baseline_elsewhere"]
    assert told[1].message.startswith("codeloupe-baseline.yaml:5: this entry is for a.py; the same was found in b.py")


def test_a_copy_beside_the_known_one_is_not_told() -> None:
    known = book(entry())
    assert known.entry_of(found()) is not None
    assert known.entry_of(found(file="b.py")) is None
    assert errors(known, a="", b="") == []


def test_two_files_may_have_an_entry_each_for_the_same_code() -> None:
    known = book(entry(), entry(file="b.py"))
    assert [known.entry_of(found(file=name)) for name in ("b.py", "a.py")] == [entry(file="b.py"), entry()]


def test_an_entry_follows_a_file_that_the_change_moves_but_not_a_copy() -> None:
    moved = (FileChange("a.py", "new.py", FileStatus.RENAMED),)
    assert book(entry(), files=moved).entry_of(found(file="new.py")) is not None
    copied = (FileChange("a.py", "new.py", FileStatus.COPIED),)
    assert book(entry(), files=copied).entry_of(found(file="new.py")) is None


def test_a_path_that_is_not_utf8_is_known_by_what_is_written_of_it() -> None:
    assert book(entry(file="caf\\xe9.py")).entry_of(found(file="caf\udce9.py")) is not None


def test_an_entry_holds_up_to_its_last_day() -> None:
    assert book(entry(expires=TODAY)).entry_of(found()) is not None
    known = book(entry(expires=date(2030, 6, 14)))
    assert known.entry_of(found()) is None
    (told,) = errors(known, a="x", b="")
    assert told == ReviewError(
        "baseline_expired",
        "codeloupe-baseline.yaml: 1 entry has expired and suppresses nothing:"
        " 111111111111 (line 5) on 2030-06-14 for a.py",
    )


def test_many_expired_entries_are_one_message() -> None:
    known = book(*(entry(f"{number:032x}", expires=date(2000, 1, 1)) for number in range(12)))
    (told,) = errors(known, a="x", b="")
    assert "12 entries have expired and suppress nothing" in told.message
    assert told.message.endswith("for a.py and 2 more")


def test_an_entry_whose_code_is_gone_from_a_reviewed_file_is_unused() -> None:
    known = book(entry(evidence="run(query  + name)"), entry(TWO, "a.py", evidence="exec(name)", line=9))
    told = errors(known, a="run( query + name )\n", b="")
    assert told == [
        ReviewError(
            "baseline_unused",
            "codeloupe-baseline.yaml: 1 entry fits nothing in a.py any more: 222222222222 (line 9);"
            " `codeloupe baseline prune` removes what is unused",
        )
    ]
    assert told_unused(told) == {"222222222222"}


def test_an_entry_that_fitted_is_not_unused() -> None:
    known = book(entry())
    known.entry_of(found())
    assert errors(known, a="", b="") == []


def test_an_entry_without_code_for_a_reviewed_file_is_unused() -> None:
    assert [error.kind for error in errors(book(entry(), entry(TWO)), a="x", b="")] == ["baseline_unused"]


def test_an_entry_for_a_file_that_the_change_deletes_is_unused() -> None:
    gone = (FileChange("a.py", None, FileStatus.DELETED),)
    assert [error.kind for error in errors(book(entry(evidence="run(x)"), files=gone))] == ["baseline_unused"]


def test_what_the_review_did_not_look_at_is_not_called_unused() -> None:
    assert errors(book(entry(file="other.py"), entry(TWO, ""))) == []
    assert errors(book(entry(), unknown=frozenset({"a.py"}))) == []
    known = book(entry(evidence="run(x)"))
    assert list(known.errors(lambda _path: None)) == []
