import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import ArtifactError
from codeloupe.model.pipeline import ArtifactRule
from codeloupe.pipelines import artifacts
from codeloupe.pipelines.artifacts import (
    MOST_ARTIFACT_BYTES,
    MOST_CHECKED_BYTES,
    Collected,
    Snapshot,
    answer_name,
    check_artifact,
    collect,
    let_time_pass,
    matches,
    require,
    save_answer,
    snapshot,
)
from tests.rows import each
from tests.stage_workspaces import fill, make_socket, sparse

EVERYTHING = ArtifactRule(patterns=("*",), recursive=True)


def look(workspace: Path) -> Snapshot:
    return asyncio.run(snapshot(workspace, stage="write"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def collected(
    work: Path, act: Callable[[], object], rule: ArtifactRule | None = None, built_on: tuple[str, ...] = ()
) -> Collected:
    """What is collected when somebody acts in a workspace between two looks."""
    before = look(work)
    asyncio.run(let_time_pass(before))
    act()
    return collect(work, rule or ArtifactRule(), before=before, after=look(work), built_on=built_on)


class TestPatterns:
    @pytest.mark.requirement("S8")
    def test_what_was_made_or_changed_is_collected_by_pattern_in_order(self, work: Path) -> None:
        fill(work, {"old.md": "1", "changed.md": "1", "removed.md": "1"})

        def act() -> None:
            fill(work, {"b.md": "1", "a.json": "1", "c.txt": "1", "d.yaml": "1", "e.yml": "1", "f.py": "1"})
            fill(work, {"changed.md": "2", "folder/g.md": "1"})
            (work / "removed.md").unlink()

        found = collected(work, act)
        assert found.artifacts == ("a.json", "b.md", "c.txt", "changed.md", "d.yaml", "e.yml")
        assert set(found.changed) == {*found.artifacts, "f.py", "folder", "folder/g.md", "removed.md"}
        assert found.notes == ()

    @pytest.mark.requirement("S8")
    def test_an_empty_directory_has_none(self, work: Path) -> None:
        assert collected(work, lambda: None) == Collected(artifacts=(), changed=())


class TestContainment:
    @pytest.mark.program
    def test_what_leaves_the_workspace_or_is_no_file_is_left_out_with_a_note(self, work: Path, tmp_path: Path) -> None:
        outside = fill(tmp_path / "outside", {"secret.md": "s"})

        def act() -> None:
            fill(work, {"good.md": "1", "sub/deep.md": "1"})
            (work / "absolute.md").symlink_to(outside / "secret.md")
            (work / "relative.md").symlink_to("../outside/secret.md")
            (work / "folder").symlink_to(outside)
            (work / "hop.md").symlink_to("folder/secret.md")
            (work / "nowhere.md").symlink_to("not-there.md")
            (work / "circle.md").symlink_to("circle.md")
            (work / "inside.md").symlink_to("sub/deep.md")
            (work / "inner").symlink_to("sub")
            os.mkfifo(work / "pipe.md")
            os.mkfifo(work / "sub" / "pipe")
            (work / "to-pipe.md").symlink_to("pipe.md")
            make_socket(work / "socket")
            sparse(work / "huge.bin", 1024**3)
            (work / "to-huge.md").symlink_to("huge.bin")

        found = collected(work, act)
        assert found.artifacts == ("good.md", "inside.md")
        leaves = "was skipped: it is a link that points outside the workspace"
        size = f"a file of {1024**3:,} bytes, more than the limit of {MOST_ARTIFACT_BYTES:,}"
        assert found.notes == (
            f"absolute.md {leaves}",
            "circle.md was skipped: it is a broken link",
            f"folder {leaves}",
            f"hop.md {leaves}",
            f"huge.bin was skipped: it is {size}",
            "nowhere.md was skipped: it is a broken link",
            "pipe.md was skipped: it is a pipe",
            f"relative.md {leaves}",
            "socket was skipped: it is a socket",
            "sub/pipe was skipped: it is a pipe",
            f"to-huge.md was skipped: it is {size}",
            "to-pipe.md was skipped: it is a link to something other than a regular file",
        )

    def test_hidden_files_are_left_out_and_a_hidden_folder_is_named_once(self, work: Path) -> None:
        def act() -> None:
            fill(work, {".notes.md": "1", ".cache/a.md": "1", ".cache/b/c.md": "1", "sub/.x/d.md": "1", ".env": "1"})
            (work / "link.md").symlink_to(".notes.md")

        found = collected(work, act, ArtifactRule(recursive=True))
        assert found.artifacts == ()
        assert found.notes == (
            ".cache was skipped: it is hidden",
            ".notes.md was skipped: it is hidden",
            "link.md was skipped: it is a link to a hidden file",
            "sub/.x was skipped: it is hidden",
        )

    def test_the_workspace_itself_may_lie_in_a_hidden_folder_and_behind_a_link(self, tmp_path: Path) -> None:
        real = tmp_path / ".state" / "work"
        real.mkdir(parents=True)
        (tmp_path / "shortcut").symlink_to(real)

        def act() -> None:
            fill(real, {"a.md": "1"})
            (real / "b.md").symlink_to("a.md")

        assert collected(tmp_path / "shortcut", act).artifacts == ("a.md", "b.md")

    def test_what_git_does_to_its_own_folder_is_no_change(self, work: Path) -> None:
        fill(work, {".git/index": "1", "sub/.git/x.md": "1"})
        found = collected(work, lambda: fill(work, {".git/index": "2", "sub/.git/y.md": "1"}), EVERYTHING)
        assert found == Collected(artifacts=(), changed=())

    def test_names_of_any_bytes_are_found_and_shown_harmlessly(self, work: Path) -> None:
        name = os.fsdecode(b"\xff\n\x1b[31m.md")
        assert collected(work, lambda: fill(work, {name: "1"})).artifacts == (name,)
        (work / name).unlink()
        (note,) = collected(work, lambda: os.mkfifo(work / name)).notes
        assert note == "\\udcff\\n\\x1b[31m.md was skipped: it is a pipe"

    def test_more_than_can_be_looked_at_is_told(self, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(artifacts, "MOST_ENTRIES", 5)
        fill(work, {str(number): "" for number in range(6)})
        with pytest.raises(ArtifactError, match="contains more than 5 files"):
            look(work)

    def test_a_workspace_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(
            ArtifactError, match="cannot read the workspace .* of the stage write: no such file"
        ) as caught:
            look(tmp_path / "nowhere")
        assert isinstance(caught.value.__cause__, OSError)


class TestRequired:
    RULE = ArtifactRule(required=("report.md", "*.json"))

    def test_what_is_missing_is_told_with_what_there_was(self) -> None:
        left = Collected(artifacts=("notes.md",), changed=("notes.md", "x.py"), notes=("report.md was skipped",))
        with pytest.raises(ArtifactError) as caught:
            require(left, self.RULE, stage="write")
        assert caught.value.message == (
            "the stage write did not write report.md, *.json; it wrote notes.md; report.md was skipped"
        )
        assert caught.value.stage == "write"


class TestAnswer:
    @each(
        ("stage", "structured", "taken", "name"),
        [
            ("write", False, (), "write-output.md"),
            ("write", True, (), "write-output.json"),
            ("write", False, ("write-output.md", "write-output-2.md"), "write-output-3.md"),
            ("write", True, ("write-output.md",), "write-output.json"),
            ("../../x", False, (), "x-output.md"),
            (".hidden", False, (), "hidden-output.md"),
            ("a/b c", False, (), "a-b-c-output.md"),
            ("...", False, (), "stage-output.md"),
            ("größe", False, (), "größe-output.md"),
        ],
    )
    def test_it_gets_a_name_that_is_free(self, stage: str, structured: bool, taken: tuple[str, ...], name: str) -> None:
        assert answer_name(stage, structured=structured, taken=taken) == name

    @pytest.mark.requirement("S7")
    def test_any_text_can_be_saved(self, work: Path) -> None:
        save_answer(work, "a.md", "Grüße \udcff\n\n")
        assert (work / "a.md").read_bytes() == "Grüße \\udcff\n".encode()
        save_answer(work, "a.json", json.dumps({"k": ["ü", "\ud800"]}, ensure_ascii=False))
        assert json.loads((work / "a.json").read_text()) == {"k": ["ü", "\ud800"]}

    def test_nothing_is_written_through_a_link_or_into_another_name_of_a_file(self, work: Path, tmp_path: Path) -> None:
        outside = fill(tmp_path / "outside", {"a": "gold", "b": "gold"})
        (work / "link.md").symlink_to(outside / "a")
        os.link(outside / "b", work / "hard.md")
        for name in ("link.md", "hard.md"):
            save_answer(work, name, "dust")
            assert (work / name).read_text() == "dust\n"
        assert [(outside / name).read_text() for name in "ab"] == ["gold", "gold"]


@each(
    ("path", "pattern", "top", "anywhere"),
    [
        ("a.md", "*.md", True, True),
        ("sub/a.md", "*.md", False, True),
        ("a.MD", "*.md", False, False),
        ("a.md", "a.md", True, True),
        ("sub/a.md", "a.md", False, True),
        ("sub/a.md", "sub/a.md", True, True),
        ("sub/a.md", "./sub/a.md", True, True),
        ("sub/a.md", "/sub/a.md", True, True),
        ("sub/a.md", "sub/*.md", True, True),
        ("sub/deep/a.md", "sub/*.md", False, False),
        ("sub/deep/a.md", "sub/**/*.md", True, True),
        ("sub/a.md", "sub/**/*.md", True, True),
        ("a.md", "**/*.md", True, True),
        ("x/y/z/a.md", "**/a.md", True, True),
        ("x/y/z/a.md", "x/**", True, True),
        ("other/a.md", "x/**", False, False),
        ("[draft].md", "[draft].md", True, True),
        ("d.md", "[draft].md", True, True),
        ("a\nb.md", "*.md", True, True),
        ("", "*", True, True),
    ],
)
def test_a_glob_means_names_or_whole_paths(path: str, pattern: str, top: bool, anywhere: bool) -> None:
    assert matches(path, pattern, recursive=False) is top
    assert matches(path, pattern, recursive=True) is anywhere


def test_many_stars_find_an_end() -> None:
    # Trying every way to share out the path among the stars would not end within the time limit of a test.
    assert not matches("a/" * 300 + "b", "**/" * 60 + "c", recursive=True)
    assert not matches("a" * 255, "*a" * 30 + "b", recursive=True)


SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "tags": {"type": "array", "uniqueItems": True}},
    "required": ["title"],
}


def check(work: Path, name: str, content: str | bytes, schema: dict[str, Any] | None = None) -> None:
    fill(work, {name: content})
    check_artifact(work / name, name, ArtifactRule(schemas={"*": schema or SCHEMA}), stage="write")


@each(
    ("name", "content"),
    [
        ("a.json", '{"title": "x", "tags": [1, "1", true]}'),
        ("a.json", b'\xef\xbb\xbf{"title": "x"}'),
        ("a.yaml", "title: x\ntags: [1, 2]\n"),
        ("a.yml", "title: '2024-01-01'\n"),
    ],
)
def test_what_fits_is_taken(tmp_path: Path, name: str, content: str | bytes) -> None:
    check(tmp_path, name, content)


@each(
    ("name", "content", "words"),
    [
        ("a.json", '{"title": 7}', "at $.title: 7 is not of type 'string'"),
        ("a.json", "{}", "at $: 'title' is a required property"),
        ("a.json", '{"title": "x", "tags": [{"a": 1}, {"a": 1.0}]}', "items occur in it more than once"),
        ("a.json", '{"title": ', "not JSON: Expecting value at character 10"),
        ("a.json", "", "the file is empty"),
        ("a.json", '{"title": NaN}', "NaN is not a JSON number"),
        ("a.json", b'{"title": "\xff"}', "not UTF-8 text (byte 0xff)"),
        ("a.json", "[" * 100_000, "nested more than"),
        ("a.json", "[" * 800 + "]" * 800, "nested more than"),
        ("a.json", '{"title": ' + "9" * 5000 + "}", "Exceeds the limit"),
        ("a.yaml", "title: [", "line 2: a value is missing"),
        ("a.yaml", "title: 7\n", "at $.title: 7 is not of type"),
        ("a.yaml", "title: !!python/object:os.system x\n", "the tag"),
        ("a.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" + "d: [*c, *c, *c, *c]\n", "required property"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    with pytest.raises(ArtifactError, match=f"{name} of the stage write does not match its schema: ") as caught:
        check(tmp_path, name, content)
    assert any(word in caught.value.message for word in words.split("|")), caught.value.message
    assert caught.value.stage == "write"


def test_only_artifacts_that_a_schema_names_are_checked(tmp_path: Path) -> None:
    fill(tmp_path, {"a.json": "{}", "b.json": '{"title": "x"}', "sub/b.json": "{}"})
    top, anywhere = (ArtifactRule(schemas={"b.json": SCHEMA}, recursive=recursive) for recursive in (False, True))
    for name in ("a.json", "b.json", "sub/b.json"):
        check_artifact(tmp_path / name, name, top, stage="write")
    with pytest.raises(ArtifactError, match="sub/b.json"):
        check_artifact(tmp_path / "sub/b.json", "sub/b.json", anywhere, stage="write")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    sparse(tmp_path / "a.json", 40 * 1024**3)
    with pytest.raises(ArtifactError, match=f"larger than {MOST_CHECKED_BYTES:,} bytes"):
        check_artifact(tmp_path / "a.json", "a.json", ArtifactRule(schemas={"*": SCHEMA}), stage="write")


@each(
    ("schema", "words"),
    [
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "is not in the schema"),
        ({"$ref": "file:///etc/hosts"}, "is not in the schema"),
        ({"$ref": "#/nowhere"}, "is not in the schema"),
        ({"type": "nothing"}, "the schema cannot be used: at"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "refers to itself without end"),
    ],
)
def test_a_schema_that_is_none_is_told_and_nothing_that_it_names_is_fetched(
    tmp_path: Path, schema: dict[str, Any], words: str
) -> None:
    with pytest.raises(ArtifactError, match=words):
        check(tmp_path, "a.json", "{}", schema)
