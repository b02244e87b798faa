"""The GitHub server for tests: diffs, and what a push does to the comments on them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.github_server import ChangedFile, GitHubServer, github_server
from tests.github_server_client import ask
from tests.github_server_patches import Patch, changed_file
from tests.github_server_world import PullRequest

HEAD, NEXT, THIRD = "a" * 40, "c" * 40, "d" * 40
REPO = "/repos/octo/demo"
COMMENTS = f"{REPO}/pulls/1/comments"
BEFORE = [f"line {number}" for number in range(1, 31)]
AFTER = [*BEFORE[:4], "new a", "new b", *BEFORE[4:20], "new c", *BEFORE[21:]]


def patch(after: Sequence[str], before: Sequence[str] = BEFORE) -> str:
    return "\n".join(list(difflib.unified_diff(before, after, lineterm=""))[2:])


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as running:
        yield running


@pytest.fixture
def pull(server: GitHubServer) -> PullRequest:
    return server.repository("octo/demo").pull_request({"a.py": patch(AFTER)}, head=HEAD)


class TestPatches:
    def test_every_line_has_its_numbers_and_position(self) -> None:
        lines = Patch(
            "@@ -3,3 +3,3 @@ def f():\n x\n-y\n+z\n w\n\\ No newline at end of file\n@@ -9 +9,2 @@\n i\n+j"
        ).lines
        assert [(line.kind, line.old_line, line.new_line, line.position, line.hunk) for line in lines] == [
            (" ", 3, 3, 1, 0),
            ("-", 4, None, 2, 0),
            ("+", None, 4, 3, 0),
            (" ", 5, 5, 4, 0),
            (" ", 9, 9, 7, 1),
            ("+", None, 10, 8, 1),
        ]

    @pytest.mark.parametrize("text", ["+x", "@@ -1 +1 @@\n*x", "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y"])
    def test_what_is_no_patch_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="no line of a patch"):
            changed_file("a.py", text)

    @pytest.mark.parametrize(
        ("text", "status"),
        [("@@ -0,0 +1,1 @@\n+x", "added"), ("@@ -1,1 +0,0 @@\n-x", "removed"), ("@@ -1 +1 @@\n-x\n+y", "modified")],
    )
    def test_the_status_is_in_the_patch(self, text: str, status: str) -> None:
        assert changed_file("a.py", text).status == status

    def test_bytes_that_are_no_text_are_replaced(self) -> None:
        file = changed_file("\udcff.py", "@@ -0,0 +1 @@\n+\udcfe")
        assert (file.path, file.patch) == ("\ufffd.py", Patch("@@ -0,0 +1 @@\n+\ufffd"))

    def test_very_many_like_lines_are_followed(self) -> None:
        # To compare each with each would not end within the time limit of a test.
        count = 30_000
        before, after = (Patch(f"@@ -0,0 +1,{count} @@" + "\n+x" * n) for n in (count, count + 1))
        moved = [before.moved(before.lines[index], "RIGHT", after) for index in (0, count - 1)]
        assert [line and line.new_line for line in moved] == [1, count]

    @given(
        before=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12),
        after=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12),
    )
    def test_a_line_is_followed_to_one_like_it_and_in_order(self, before: list[str], after: list[str]) -> None:
        old, new = (
            Patch(f"@@ -0,0 +1,{len(each)} @@\n" + "\n".join(f"+{text}" for text in each)) for each in (before, after)
        )
        moved = [old.moved(line, "RIGHT", new) for line in old.lines]
        found = [line.new_line for line in moved if line is not None and line.new_line is not None]
        assert all(line is None or line.text == text for line, text in zip(moved, before, strict=True))
        assert found == sorted(set(found))
        if before == after:
            assert found == list(range(1, len(before) + 1))


class TestFiles:
    def test_they_are_listed_with_their_patches(self, server: GitHubServer) -> None:
        renamed = ChangedFile("new.py", Patch("@@ -1 +1 @@\n-x\n+y"), status="renamed", previous_path="old.py")
        files = {"a.py": "@@ -0,0 +1,2 @@\n+x\n+y", "image.png": None, "new.py": renamed}
        server.repository("octo/demo").pull_request(files, head=HEAD)
        listed = ask(server, "GET", f"{REPO}/pulls/1/files").document
        assert [(each["filename"], each["status"], each["additions"], each["deletions"]) for each in listed] == [
            ("a.py", "added", 2, 0),
            ("image.png", "modified", 0, 0),
            ("new.py", "renamed", 1, 1),
        ]
        assert ["patch" in each for each in listed] == [True, False, True]
        assert listed[2]["previous_filename"] == "old.py"

    @pytest.mark.parametrize("accept", ["application/vnd.github.diff", "application/vnd.github.v3.diff"])
    def test_the_diff_comes_by_media_type(self, server: GitHubServer, accept: str) -> None:
        files = {"a.py": "@@ -0,0 +1,1 @@\n+x", "image.png": None, "gone.py": "@@ -1,1 +0,0 @@\n-x"}
        server.repository("octo/demo").pull_request(files, head=HEAD, base="b" * 40)
        reply = ask(server, "GET", f"{REPO}/pulls/1", headers={"Accept": accept})
        assert reply.headers["content-type"] == f"{accept}; charset=utf-8"
        assert reply.text == (
            "diff --git a/a.py b/a.py\nnew file mode 100644\n--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,1 @@\n+x\n"
            "diff --git a/image.png b/image.png\nBinary files a/image.png and b/image.png differ\n"
            "diff --git a/gone.py b/gone.py\ndeleted file mode 100644\n"
            "--- a/gone.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n"
        )
        compared = ask(server, "GET", f"{REPO}/compare/{'b' * 40}...{HEAD}", headers={"Accept": accept})
        assert compared.text == reply.text

    def test_a_diff_of_too_many_files_is_refused_and_the_list_goes_on(self, server: GitHubServer) -> None:
        files = {f"{number}.py": "@@ -0,0 +1,1 @@\n+x" for number in range(301)}
        server.repository("octo/demo").pull_request(files, head=HEAD)
        assert ask(server, "GET", f"{REPO}/pulls/1", headers={"Accept": "application/vnd.github.diff"}).status == 406
        assert len(ask(server, "GET", f"{REPO}/pulls/1/files?per_page=100&page=4").document) == 1


class TestAPush:
    def test_a_comment_stays_where_its_line_is(self, server: GitHubServer, pull: PullRequest) -> None:
        pull.comment_by("maria", "look", path="a.py", line=23)
        pull.push(NEXT, {"a.py": patch(["first", *AFTER])})
        (listed,) = ask(server, "GET", COMMENTS).document
        assert (listed["line"], listed["original_line"], listed["commit_id"]) == (24, 23, NEXT)
        assert listed["original_commit_id"] == HEAD

    def test_a_comment_whose_line_is_changed_is_outdated(self, server: GitHubServer, pull: PullRequest) -> None:
        pull.comment_by("maria", "look", path="a.py", line=5)
        pull.push(NEXT, {"a.py": patch([*AFTER[:4], "mended", *AFTER[5:]])})
        (listed,) = ask(server, "GET", COMMENTS).document
        assert (listed["line"], listed["position"], listed["original_line"]) == (None, None, 5)
        assert (listed["commit_id"], listed["diff_hunk"].splitlines()[-1]) == (HEAD, "+new a")
        assert pull.threads[0].is_outdated

    @pytest.mark.parametrize("files", [{}, {"a.py": None}, {"b.py": "@@ -0,0 +1,1 @@\n+x"}])
    def test_a_comment_whose_file_is_not_shown_any_more_is_outdated(
        self, server: GitHubServer, pull: PullRequest, files: dict[str, str | None]
    ) -> None:
        pull.comment_by("maria", "look", path="a.py", line=5)
        pull.push(NEXT, files)
        assert ask(server, "GET", COMMENTS).document[0]["line"] is None

    def test_a_comment_is_back_with_its_line(self, pull: PullRequest) -> None:
        pull.comment_by("maria", "look", path="a.py", line=5)
        pull.push(NEXT, {})
        pull.push(THIRD, {"a.py": patch(AFTER)})
        (thread,) = pull.threads
        assert (thread.is_outdated, thread.commit) == (False, THIRD)

    def test_a_range_is_outdated_with_any_of_its_ends(self, server: GitHubServer, pull: PullRequest) -> None:
        entry = {"path": "a.py", "line": 6, "start_line": 5, "side": "RIGHT", "start_side": "RIGHT", "body": "x"}
        ask(server, "POST", f"{REPO}/pulls/1/reviews", {"event": "COMMENT", "comments": [entry]})
        pull.push(NEXT, {"a.py": patch(["first", *AFTER])})
        (listed,) = ask(server, "GET", COMMENTS).document
        assert (listed["start_line"], listed["line"]) == (6, 7)
        pull.push(THIRD, {"a.py": patch([*AFTER[:4], "mended", *AFTER[5:]])})
        (listed,) = ask(server, "GET", COMMENTS).document
        assert (listed["start_line"], listed["line"], listed["original_start_line"]) == (None, None, 5)

    def test_a_comment_on_a_removed_line_stays_with_it(self, server: GitHubServer, pull: PullRequest) -> None:
        body = {"commit_id": HEAD, "path": "a.py", "line": 21, "side": "LEFT", "body": "x"}
        assert ask(server, "POST", COMMENTS, body).status == 201
        pull.push(NEXT, {"a.py": patch(["first", *AFTER])})
        assert not pull.threads[0].is_outdated
        pull.push(THIRD, {"a.py": patch([*BEFORE, "last"])})
        assert pull.threads[0].is_outdated

    def test_a_resolved_thread_stays_resolved(self, pull: PullRequest) -> None:
        pull.comment_by("maria", "look", path="a.py", line=5)
        pull.resolve_by("maria", pull.threads[0])
        pull.push(NEXT, {})
        assert pull.threads[0].is_resolved

    def test_the_head_is_another_one(self, server: GitHubServer, pull: PullRequest) -> None:
        pull.push(NEXT, {"a.py": patch(AFTER)})
        assert ask(server, "GET", f"{REPO}/pulls/1").document["head"]["sha"] == NEXT
        assert [each["sha"] for each in ask(server, "GET", f"{REPO}/pulls/1/commits").document] == [HEAD, NEXT]
        pull.push(THIRD, {"a.py": patch(AFTER)}, force=True)
        assert [each["sha"] for each in ask(server, "GET", f"{REPO}/pulls/1/commits").document] == [THIRD]


class TestState:
    @pytest.mark.parametrize("name", ["octo", "/demo", "octo/", "octo/demo/x"])
    def test_a_repository_has_an_owner_and_a_name(self, server: GitHubServer, name: str) -> None:
        with pytest.raises(ValueError, match="owner/name"):
            server.repository(name)

    @pytest.mark.parametrize("sha", ["abc", "A" * 40, "g" * 40, "a" * 41])
    def test_a_commit_is_named_in_full(self, server: GitHubServer, sha: str) -> None:
        with pytest.raises(ValueError, match="no full commit name"):
            server.repository("octo/demo").pull_request({}, head=sha)

    def test_names_are_found_in_any_case(self, server: GitHubServer, pull: PullRequest) -> None:
        assert ask(server, "GET", "/repos/OCTO/Demo/pulls/1").status == 200
        assert server.repository("Octo/Demo") is pull.repository

    def test_a_pull_request_may_come_from_a_fork_or_from_one_that_is_gone(self, server: GitHubServer) -> None:
        repo = server.repository("octo/demo")
        pull = repo.pull_request({}, head=HEAD, author="maria", head_repository="maria/demo", number=7)
        ends = [ask(server, "GET", f"{REPO}/pulls/7").document[end]["repo"] for end in ("head", "base")]
        assert [(each["full_name"], each["fork"]) for each in ends] == [("maria/demo", True), ("octo/demo", False)]
        for branch, count in ((f"maria:{pull.head_ref}", 1), (f"octo:{pull.head_ref}", 0), (pull.head_ref, 1)):
            assert len(ask(server, "GET", f"{REPO}/pulls?state=open&head={branch}").document) == count
        pull.head_repository = None
        gone = ask(server, "GET", f"{REPO}/pulls/7").document["head"]
        assert (gone["repo"], gone["label"]) == (None, "maria:change-7")

    def test_permissions_of_people_can_be_asked_for(self, server: GitHubServer) -> None:
        repo = server.repository("octo/demo")
        for login, permission in (("maria", "maintain"), ("tom", "triage"), ("ann", "admin"), ("joe", "none")):
            repo.collaborator(login, permission)  # type: ignore[arg-type]  # the literals of the table
        server.world.user("stranger")
        told = {
            login: ask(server, "GET", f"{REPO}/collaborators/{login}/permission").document["permission"]
            for login in ("maria", "tom", "ann", "joe", "stranger", "octo", server.login)
        }
        assert told == {
            "maria": "write",
            "tom": "read",
            "ann": "admin",
            "joe": "none",
            "stranger": "read",
            "octo": "admin",
            server.login: "write",
        }
        assert ask(server, "GET", f"{REPO}/collaborators/nobody/permission").status == 404
