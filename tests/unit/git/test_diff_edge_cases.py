"""Every edge case, as git writes it under many options, against git's own lists and the blobs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from codeloupe.git.changes import parse_list, reconcile
from codeloupe.git.diff import parse_diff
from codeloupe.git.repository import object_name
from tests.diff_checks import Style, check_lines, check_list, listed, many_lists_of, patches_of
from tests.git_edge_cases import EDGE_CASES, TYPE_CHANGE_WITH_SHARED_LINES, EdgeCase, commit_cases
from tests.repository import GitRepository

_STYLES = (
    Style(),
    Style(context=0, patch=("--no-prefix",)),
    Style(context=1, patch=("--src-prefix=old/", "--dst-prefix=new/"), shared=("--no-renames",)),
    Style(patch=("--src-prefix=i/", "--dst-prefix=w/", "--function-context"), shared=("--find-copies-harder",)),
    Style(context=1_000_000, patch=("--no-full-index", "--abbrev=7"), shared=("--diff-algorithm=patience",)),
)
_BLOBS = {
    object_name("blob", entry.content, "sha1"): entry.content
    for case in EDGE_CASES
    for tree in (case.base, case.head)
    for entry in tree.values()
}


@dataclass(frozen=True)
class _Written:
    """What git writes of a case in one style."""

    patch: bytes
    lists: bytes


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[_Written]]:
    """What git writes of each case, by its name, in every style."""
    repository = GitRepository(tmp_path_factory.mktemp("edge-cases") / "repository")
    commits = commit_cases(repository, EDGE_CASES)
    styles = [
        map(_Written, patches_of(repository, commits, style), many_lists_of(repository, commits, style))
        for style in _STYLES
    ]
    return {case.name: list(of_case) for case, of_case in zip(EDGE_CASES, zip(*styles, strict=True), strict=True)}


@pytest.mark.program
@pytest.mark.parametrize("case", EDGE_CASES)
def test_every_line_of_every_edge_case_is_where_git_has_it(case: EdgeCase, written: dict[str, list[_Written]]) -> None:
    for one in written[case.name]:
        files = parse_diff(one.patch)
        entries = listed(one.lists)
        check_list(files, entries)
        check_lines(_BLOBS, files, entries)
    _check_reconciled(written[case.name][0])


def _check_reconciled(one: _Written) -> None:
    """Put together with the lists, each file has its modes, its blobs and its counts."""
    files = reconcile(parse_diff(one.patch), parse_list(one.lists)[0])
    check_list(files, listed(one.lists))
    for file, entry in zip(files, listed(one.lists), strict=True):
        assert (file.old_mode or "000000", file.new_mode or "000000") == (entry.old_mode, entry.new_mode)
        assert (file.old_blob or "0" * 40, file.new_blob or "0" * 40) == (entry.old_blob, entry.new_blob)
        assert file.binary == (entry.counts is None)
        assert file.binary or (file.added, file.deleted) == entry.counts


@pytest.mark.program
def test_a_type_change_that_keeps_lines_is_counted_as_git_counts_it_and_keeps_its_hunks(
    written: dict[str, list[_Written]],
) -> None:
    one = written[TYPE_CHANGE_WITH_SHARED_LINES.name][0]
    (parsed,) = parse_diff(one.patch)
    (reconciled,) = reconcile((parsed,), parse_list(one.lists)[0])
    assert (parsed.added, parsed.deleted) == (1, 2)
    assert (reconciled.added, reconciled.deleted) == (0, 1)
    assert reconciled.hunks == parsed.hunks
    check_lines(_BLOBS, (reconciled,), listed(one.lists))


def test_the_names_of_the_edge_cases_are_unique_and_many() -> None:
    names = {case.name for case in EDGE_CASES}
    assert len(names) == len(EDGE_CASES) >= 45
