"""Every edge case, as git writes it under many options, against git's own lists and the blobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.git.diff import parse_diff
from codeloupe.git.raw import parse_raw_numstat, reconcile
from tests.diff_checks import Style, check_lines, check_list, listed, lists_of, patch_of
from tests.git_edge_cases import EDGE_CASES, TYPE_CHANGE_WITH_SHARED_LINES, EdgeCase
from tests.repository import GitRepository

_STYLES = (
    Style(),
    Style(context=0, patch=("--no-prefix",)),
    Style(context=1, patch=("--src-prefix=old/", "--dst-prefix=new/"), shared=("--no-renames",)),
    Style(patch=("--src-prefix=i/", "--dst-prefix=w/", "--function-context"), shared=("--find-copies-harder",)),
    Style(context=1_000_000, patch=("--no-full-index", "--abbrev=7"), shared=("--diff-algorithm=patience",)),
)


class _Built:
    """Repositories of edge cases, each built once for all tests of this module."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, tuple[GitRepository, tuple[str, str]]] = {}

    def get(self, case: EdgeCase) -> tuple[GitRepository, tuple[str, str]]:
        if case.name not in self._made:
            path = self._root / str(len(self._made))
            commits = case.build(path)
            self._made[case.name] = GitRepository(path), commits
        return self._made[case.name]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> _Built:
    return _Built(tmp_path_factory.mktemp("edge-cases"))


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case.name)
def test_every_line_of_every_edge_case_is_where_git_has_it(case: EdgeCase, built: _Built) -> None:
    repository, commits = built.get(case)
    for style in _STYLES:
        files = parse_diff(patch_of(repository, commits, style))
        entries = listed(lists_of(repository, commits, style))
        check_list(files, entries)
        check_lines(repository, files, entries)


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case.name)
def test_an_edge_case_reconciled_with_the_lists_has_every_mode_and_blob(case: EdgeCase, built: _Built) -> None:
    repository, commits = built.get(case)
    lists = lists_of(repository, commits)
    files = reconcile(parse_diff(patch_of(repository, commits)), parse_raw_numstat(lists))
    check_list(files, listed(lists))
    for file, entry in zip(files, listed(lists), strict=True):
        assert (file.old_mode or "000000", file.new_mode or "000000") == (entry.old_mode, entry.new_mode)
        assert (file.old_blob or "0" * 40, file.new_blob or "0" * 40) == (entry.old_blob, entry.new_blob)
        assert file.binary == (entry.counts is None)
        assert file.binary or (file.added, file.deleted) == entry.counts


def test_a_type_change_that_keeps_lines_is_counted_as_git_counts_it_and_keeps_its_hunks(built: _Built) -> None:
    repository, commits = built.get(TYPE_CHANGE_WITH_SHARED_LINES)
    lists = lists_of(repository, commits)
    (parsed,) = parse_diff(patch_of(repository, commits))
    (reconciled,) = reconcile((parsed,), parse_raw_numstat(lists))
    assert (parsed.added, parsed.deleted) == (1, 2)
    assert (reconciled.added, reconciled.deleted) == (0, 1)
    assert reconciled.hunks == parsed.hunks
    check_lines(repository, (reconciled,), listed(lists))


def test_the_names_of_the_edge_cases_are_unique_and_many() -> None:
    names = {case.name for case in EDGE_CASES}
    assert len(names) == len(EDGE_CASES) >= 45
