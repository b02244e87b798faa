"""Generated changes: what the parser says of git's diff is what the blobs hold, line by line."""

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff import parse_diff
from tests.diff_checks import Style, check_change, lists_of, patch_of, patches_of
from tests.git_edge_cases import EDGE_CASES, Entry, Tree, commit_cases, commit_trees
from tests.repository import GitRepository

_NASTY_LINES = (
    *(b"", b" ", b"same", b"other", b"\r", b"text\r", b"a\rb", b"\f", b"\v\x1c\x1d\x85", b"\xff\xfe", b"\0"),
    *(b"-", b"+"),
    *("\u2028\u2029\u0085".encode(), b"-- ", b"-- a/x", b"++ b/x", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"2.39.5"),
    *(b"diff --git a/x b/x", b"\\ No newline at end of file"),
)
_PATH_PIECES = (
    *(b"x", b" ", b"\t", b"\n", b'"', b"\\", b"-", b"b/", b" b/", b" => ", b"\xff", "\u00e9".encode(), b"\r", b"~"),
)
_STYLES = (
    Style(),
    Style(context=0),
    Style(context=1, patch=("--no-prefix",)),
    Style(context=100, shared=("--no-renames",)),
    Style(patch=("--src-prefix=i/", "--dst-prefix=w/"), shared=("--find-copies-harder",)),
)

_lines = st.lists(
    st.sampled_from(_NASTY_LINES) | st.binary(max_size=4).map(lambda line: line.replace(b"\n", b"")), max_size=30
)
_contents = st.builds(lambda lines, end: b"\n".join(lines) + end, _lines, st.sampled_from((b"", b"\n")))
_files = st.builds(Entry, st.sampled_from(("100644", "100644", "100755")), _contents)
_links = st.builds(Entry, st.just("120000"), st.sampled_from((b"target", b"same", b"two\nlines")))
_submodules = st.builds(Entry, st.just("160000"), st.sampled_from((b"1" * 40, b"2" * 40)))
_entries = st.none() | _files | _files | _files | _links | _submodules
_names = st.lists(st.sampled_from(_PATH_PIECES), min_size=1, max_size=5).map(b"".join)
# The leading directory keeps one path from being a directory of another, and `~` keeps names from being empty.
_paths = st.builds(lambda place, name: b"%d/~" % place + name.replace(b"/", b"~/~") + b"~", st.integers(0, 3), _names)
_changes = st.dictionaries(_paths, st.tuples(_entries, _entries), max_size=5)


@pytest.fixture(scope="module")
def shared_repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    return GitRepository(tmp_path_factory.mktemp("generated") / "repository")


@pytest.fixture(scope="module")
def real_patches(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, ...]:
    """Patches with hunks, of the edge cases that are not huge."""
    repository = GitRepository(tmp_path_factory.mktemp("patches") / "repository")
    small = [case for case in EDGE_CASES if sum(len(entry.content) for entry in case.head.values()) < 2000]
    patches = patches_of(repository, commit_cases(repository, small[::3]))
    return tuple(patch for patch in patches if b"\n@@ " in patch)


def _tree(changes: dict[bytes, tuple[Entry | None, Entry | None]], side: int) -> Tree:
    return {path: entry for path, entries in changes.items() if (entry := entries[side]) is not None}


@given(changes=_changes, style=st.sampled_from(_STYLES))
@settings(max_examples=30)
def test_every_line_of_a_generated_change_is_where_git_has_it(
    shared_repository: GitRepository, changes: dict[bytes, tuple[Entry | None, Entry | None]], style: Style
) -> None:
    commits = commit_trees(shared_repository, _tree(changes, 0), _tree(changes, 1))
    patch, lists = (ask(shared_repository, commits, style) for ask in (patch_of, lists_of))
    check_change(patch, lists, shared_repository)


_CODE_LINES = (b"def one():", b"def two():", b"# note", b"", b"    a = 1", b"    a = 2", b"    b = 1", b"    b = 2")
_code = st.lists(st.sampled_from(_CODE_LINES), min_size=1, max_size=4)
# Blocks that are the same on both sides, blocks that are not, and the options by which git cuts hunks.
_blocks = st.lists(st.tuples(_code, st.none() | st.none() | st.lists(st.sampled_from(_CODE_LINES), max_size=4)))
_algorithms = st.sampled_from(("histogram", "patience", "minimal", "myers"))
# git shows the lines after `def two` at the end of the first hunk and at the start of the second.
_OVERLAPPING = [
    ([b"def one():"], None),
    ([b"    b = 1"], [b"    b = 2"]),
    ([b"def two():", b"    a = 1", b"    a = 1", b"    a = 1", b"def one():"], None),
    ([b"    a = 2"] * 8, None),
    ([b"    b = 1"], [b"    b = 2"]),
]


@pytest.mark.defect("N8")
@given(blocks=_blocks, context=st.integers(0, 10), between=st.integers(0, 10), algorithm=_algorithms)
@settings(max_examples=30)
@example(blocks=_OVERLAPPING, context=3, between=0, algorithm="histogram")
def test_a_line_shown_twice_with_its_function_has_one_place(
    shared_repository: GitRepository,
    blocks: list[tuple[list[bytes], list[bytes] | None]],
    context: int,
    between: int,
    algorithm: str,
) -> None:
    (shared_repository.path / ".git" / "info").mkdir(exist_ok=True)
    (shared_repository.path / ".git" / "info" / "attributes").write_text("*.py diff=python\n", encoding="utf-8")
    old: list[bytes] = []
    new: list[bytes] = []
    for before, after in blocks:
        old += before
        new += before if after is None else after
    entries = [Entry("100644", b"".join(line + b"\n" for line in lines)) for lines in (old, new)]
    commits = commit_trees(shared_repository, {b"old.py": entries[0]}, {b"new.py": entries[1]})
    cut = ("--function-context", f"--inter-hunk-context={between}")
    style = Style(patch=cut, shared=(f"--diff-algorithm={algorithm}",), context=context)
    patch, lists = (ask(shared_repository, commits, style) for ask in (patch_of, lists_of))
    for file in check_change(patch, lists, shared_repository):
        numbers = [line.new_number for hunk in file.hunks for line in hunk.lines() if line.new_number]
        assert numbers == sorted(set(numbers))


def _parse_or_refuse(data: bytes) -> None:
    """What is accepted can be cut into lines, and the lines are as many as the header says."""
    with contextlib.suppress(DiffSyntaxError):
        for hunk in (hunk for file in parse_diff(data) for hunk in file.hunks):
            kinds = [line.kind for line in hunk.lines()]
            added, deleted = kinds.count("added"), kinds.count("deleted")
            assert (hunk.added, hunk.deleted) == (added, deleted)
            assert (hunk.old_lines, hunk.new_lines) == (len(kinds) - added, len(kinds) - deleted)


_FRAGMENTS = (
    *(b"diff --git a/x b/x\n", b"index 1234567..89abcde 100644\n", b"new file mode 100644\n", b"rename from x\n"),
    *(b"similarity index 100%\n", b"--- a/x\n", b"+++ b/x\n", b"--- /dev/null\n", b"@@ -1 +1 @@\n", b"@@ -0,0 +1 @@\n"),
    *(b"@@ -1,2 +1,2 @@ f\n", b" context\n", b"+added\n", b"-deleted\n", b"\\ No newline at end of file\n"),
    *(b"\n", b"-- \n"),
    *(b"GIT binary patch\n", b"literal 3\nabc\n\n", b"Binary files a/x and b/x differ\n", b"Submodule x 1111..2222:\n"),
)


@given(data=st.binary(max_size=200) | st.lists(st.sampled_from(_FRAGMENTS), max_size=25).map(b"".join))
@settings(max_examples=200)
@example(data=b"diff --git ")
@example(data=b"--- \n+++ ")
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    _parse_or_refuse(data)


@given(data=st.data())
@settings(max_examples=200)
def test_a_damaged_diff_is_parsed_or_refused(real_patches: tuple[bytes, ...], data: st.DataObject) -> None:
    patch = data.draw(st.sampled_from(real_patches))
    first, second = sorted(data.draw(st.tuples(*[st.integers(0, len(patch))] * 2)))
    damage = data.draw(
        st.binary(max_size=3) | st.just(patch[first:second] * 2) | st.sampled_from((b"\n", b"\r\n", b"@@ "))
    )
    _parse_or_refuse(patch[:first] + damage + patch[second:])
