from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from codeloupe.errors import ArtifactError
from codeloupe.model.pipeline_definition import ArtifactRule
from codeloupe.pipeline import artifact_scan
from codeloupe.pipeline.artifact_scan import Look, differing, let_time_pass, look_at
from codeloupe.pipeline.artifacts import MOST_ARTIFACT_BYTES, Collected, answer_name, collect, require, save_answer
from tests.stage_workspaces import fill, make_deep, make_socket, sparse

EVERYTHING = ArtifactRule(patterns=("*",), recursive=True)


def look(workspace: Path) -> Look:
    return asyncio.run(look_at(workspace, stage="write"))


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

    def test_folders_count_when_they_are_asked_for(self, work: Path) -> None:
        rule = ArtifactRule(patterns=("*.md", "data/*.csv"), recursive=True)
        found = collected(work, lambda: fill(work, {"a/b/c.md": "1", "data/x.csv": "1", "y.csv": "1"}), rule)
        assert found.artifacts == ("a/b/c.md", "data/x.csv")

    def test_a_change_that_keeps_the_size_is_seen(self, work: Path) -> None:
        fill(work, {"a.md": "one"})
        assert collected(work, lambda: fill(work, {"a.md": "two"})).artifacts == ("a.md",)

    def test_who_mends_one_file_of_several_has_made_all_of_them(self, work: Path) -> None:
        fill(work, {"a.md": "1", "b.md": "1", "other.md": "1", "must.md": "1"})
        rule = ArtifactRule(required=("must.md",))
        found = collected(work, lambda: fill(work, {"a.md": "2"}), rule, built_on=("a.md", "b.md", "gone.md"))
        assert found.artifacts == ("a.md", "b.md", "must.md")


class TestContainment:
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
        leaves = "was left out: it is a link that leaves the workspace"
        size = f"a file of {1024**3:,} bytes, where {MOST_ARTIFACT_BYTES:,} is the most"
        assert found.notes == (
            f"absolute.md {leaves}",
            "circle.md was left out: it is a link that leads nowhere",
            f"folder {leaves}",
            f"hop.md {leaves}",
            f"huge.bin was left out: it is {size}",
            "nowhere.md was left out: it is a link that leads nowhere",
            "pipe.md was left out: it is a pipe",
            f"relative.md {leaves}",
            "socket was left out: it is a socket",
            "sub/pipe was left out: it is a pipe",
            f"to-huge.md was left out: it is {size}",
            "to-pipe.md was left out: it is a link to what is not a regular file",
        )

    def test_hidden_files_are_left_out_and_a_hidden_folder_is_named_once(self, work: Path) -> None:
        def act() -> None:
            fill(work, {".notes.md": "1", ".cache/a.md": "1", ".cache/b/c.md": "1", "sub/.x/d.md": "1", ".env": "1"})
            (work / "link.md").symlink_to(".notes.md")

        found = collected(work, act, ArtifactRule(recursive=True))
        assert found.artifacts == ()
        assert found.notes == (
            ".cache was left out: it is hidden",
            ".notes.md was left out: it is hidden",
            "link.md was left out: it is a link to a hidden file",
            "sub/.x was left out: it is hidden",
        )

    def test_the_workspace_itself_may_lie_in_a_hidden_folder_and_behind_a_link(self, tmp_path: Path) -> None:
        real = tmp_path / ".state" / "work"
        real.mkdir(parents=True)
        (tmp_path / "shortcut").symlink_to(real)

        def act() -> None:
            fill(real, {"a.md": "1"})
            (real / "b.md").symlink_to("a.md")

        assert collected(tmp_path / "shortcut", act).artifacts == ("a.md", "b.md")

    def test_what_lay_there_before_needs_no_note(self, work: Path) -> None:
        (work / "out.md").symlink_to("/etc/hosts")
        sparse(work / "huge.md", 1024**3)
        os.mkfifo(work / "pipe")
        assert collected(work, lambda: fill(work, {"a.md": "1"}), EVERYTHING) == Collected(
            artifacts=("a.md",), changed=("a.md",)
        )

    def test_what_git_does_to_its_own_folder_is_no_change(self, work: Path) -> None:
        fill(work, {".git/index": "1", "sub/.git/x.md": "1"})
        found = collected(work, lambda: fill(work, {".git/index": "2", "sub/.git/y.md": "1"}), EVERYTHING)
        assert found == Collected(artifacts=(), changed=())

    def test_names_of_any_bytes_are_found_and_shown_harmlessly(self, work: Path) -> None:
        name = os.fsdecode(b"\xff\n\x1b[31m.md")
        assert collected(work, lambda: fill(work, {name: "1"})).artifacts == (name,)
        (work / name).unlink()
        (note,) = collected(work, lambda: os.mkfifo(work / name)).notes
        assert note == "\\udcff\\n\\x1b[31m.md was left out: it is a pipe"

    def test_very_deep_folders_are_told_not_entered(self, work: Path) -> None:
        found = collected(work, lambda: make_deep(work, 230), EVERYTHING)
        (note,) = found.notes
        assert note.endswith("was left out: it is a folder that cannot be read")

    def test_many_notes_are_counted(self, work: Path) -> None:
        def act() -> None:
            for number in range(70):
                os.mkfifo(work / f"{number:03}")

        found = collected(work, act)
        assert len(found.notes) == 51
        assert found.notes[-1] == "20 more were left out for such reasons"

    def test_more_than_can_be_looked_at_is_told(self, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(artifact_scan, "MOST_ENTRIES", 5)
        fill(work, {str(number): "" for number in range(6)})
        with pytest.raises(ArtifactError, match="holds more than 5 files"):
            look(work)

    def test_a_workspace_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match="cannot be read: no such file") as caught:
            look(tmp_path / "nowhere")
        assert isinstance(caught.value.__cause__, OSError)


class TestRequired:
    RULE = ArtifactRule(required=("report.md", "*.json"))

    def test_each_must_be_there(self) -> None:
        require(Collected(artifacts=("a.json", "report.md"), changed=()), self.RULE, stage="write")

    def test_what_is_missing_is_told_with_what_there_was(self) -> None:
        left = Collected(artifacts=("notes.md",), changed=("notes.md", "x.py"), notes=("report.md was left out",))
        with pytest.raises(ArtifactError) as caught:
            require(left, self.RULE, stage="write")
        assert caught.value.message == (
            "the stage write left no report.md, *.json; it left notes.md; report.md was left out"
        )
        assert caught.value.stage == "write"

    @pytest.mark.parametrize(("changed", "words"), [((), "it left no file"), (("a.py", "b.py"), "it left a.py, b.py")])
    def test_what_is_no_artifact_is_named_where_there_is_nothing_else(
        self, changed: tuple[str, ...], words: str
    ) -> None:
        with pytest.raises(ArtifactError, match=words):
            require(Collected(artifacts=(), changed=changed), self.RULE, stage="write")

    def test_long_lists_are_cut(self) -> None:
        names = tuple(f"{number:02}.md" for number in range(30))
        with pytest.raises(ArtifactError, match="19.md and 10 more"):
            require(Collected(artifacts=names, changed=()), self.RULE, stage="write")


class TestAnswer:
    @pytest.mark.parametrize(
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

    def test_a_file_of_our_own_gives_way(self) -> None:
        taken = ("write-output.md", "write-output-2.md")
        assert answer_name("write", structured=False, taken=taken, own=("write-output.md",)) == "write-output.md"

    @pytest.mark.requirement("S7")
    def test_any_text_can_be_saved(self, work: Path) -> None:
        save_answer(work, "a.md", "Grüße \udcff\n\n", structured=False)
        assert (work / "a.md").read_bytes() == "Grüße \\udcff\n".encode()
        save_answer(work, "a.json", {"k": ["ü", "\ud800"]}, structured=True)
        assert json.loads((work / "a.json").read_text()) == {"k": ["ü", "\ud800"]}

    def test_nothing_is_written_through_a_link_or_into_another_name_of_a_file(self, work: Path, tmp_path: Path) -> None:
        outside = fill(tmp_path / "outside", {"a": "gold", "b": "gold"})
        (work / "link.md").symlink_to(outside / "a")
        os.link(outside / "b", work / "hard.md")
        for name in ("link.md", "hard.md"):
            save_answer(work, name, "dust", structured=False)
            assert (work / name).read_text() == "dust\n"
        assert [(outside / name).read_text() for name in "ab"] == ["gold", "gold"]


def test_two_looks_tell_what_differs(work: Path) -> None:
    fill(work, {"a": "1", "b": "1", "empty/x": "1"})
    before = look(work)
    (work / "a").unlink()
    (work / "c").mkdir()
    assert differing(before, look(work)) == ("a", "c")
