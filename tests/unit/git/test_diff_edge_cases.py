"""Every edge case, as git writes it under many options, against git's own lists and the blobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.git.diff import parse_diff
from codeloupe.git.raw import parse_raw_numstat, reconcile
from tests.diff_checks import Style, check_lines, check_list, listed_by_git, lists_of, patch_of
from tests.git_edge_cases import EDGE_CASES, TYPE_CHANGE_WITH_SHARED_LINES, EdgeCase
from tests.repository import GitRepository

_STYLES = (
    Style(),
    Style(context=0, patch=("--no-prefix",)),
    Style(context=1, patch=("--src-prefix=old/", "--dst-prefix=new/"), shared=("--no-renames",)),
    Style(patch=("--src-prefix=i/", "--dst-prefix=w/", "--function-context"), shared=("--find-copies-harder",)),
    Style(context=1_000_000, patch=("--no-full-index", "--abbrev=7"), shared=("--diff-algorithm=patience",)),
)


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case.name)
def test_every_line_of_every_edge_case_is_where_git_has_it(case: EdgeCase, tmp_path: Path) -> None:
    commits = case.build(tmp_path / "repository")
    repository = GitRepository(tmp_path / "repository")
    for style in _STYLES:
        files = parse_diff(patch_of(repository, commits, style))
        listed = listed_by_git(repository, commits, style)
        check_list(files, listed)
        check_lines(repository, files, listed)


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case.name)
def test_an_edge_case_reconciled_with_the_lists_has_every_mode_and_blob(case: EdgeCase, tmp_path: Path) -> None:
    commits = case.build(tmp_path / "repository")
    repository = GitRepository(tmp_path / "repository")
    files = reconcile(parse_diff(patch_of(repository, commits)), parse_raw_numstat(lists_of(repository, commits)))
    listed = listed_by_git(repository, commits)
    check_list(files, listed)
    check_lines(repository, files, listed)
    for file, entry in zip(files, listed, strict=True):
        assert (file.old_mode or "000000", file.new_mode or "000000") == (entry.old_mode, entry.new_mode)
        assert (file.old_blob or "0" * 40, file.new_blob or "0" * 40) == (entry.old_blob, entry.new_blob)
        assert file.binary == (entry.counts is None)
        assert file.binary or (file.added, file.deleted) == entry.counts


def test_a_type_change_that_keeps_lines_is_shown_as_the_patch_has_it(tmp_path: Path) -> None:
    commits = TYPE_CHANGE_WITH_SHARED_LINES.build(tmp_path / "repository")
    repository = GitRepository(tmp_path / "repository")
    lists = lists_of(repository, commits)
    assert b"0\t1\tx\0" in lists
    (file,) = reconcile(parse_diff(patch_of(repository, commits)), parse_raw_numstat(lists))
    assert (file.added, file.deleted) == (1, 2)
    check_lines(repository, (file,), listed_by_git(repository, commits))


def test_the_names_of_the_edge_cases_are_unique_and_many() -> None:
    names = {case.name for case in EDGE_CASES}
    assert len(names) == len(EDGE_CASES) >= 45
