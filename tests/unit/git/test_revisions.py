"""Which branch or tag an unknown revision was meant to be."""

import pytest

from codeloupe.git.revisions import meant_revision

REFS = (
    "refs/remotes/origin/HEAD",
    "refs/remotes/origin/main",
    "refs/remotes/origin/topic",
    "refs/tags/v1.0",
    "refs/heads/feature/login",
    "refs/heads/main",
)


@pytest.mark.parametrize(
    ("revision", "meant"),
    [
        ("mian", "main"),
        ("mian~2", "main~2"),
        ("mian@{upstream}", "main@{upstream}"),
        ("MAIN", "main"),
        ("HAED^", "HEAD^"),
        ("feature/lgoin", "feature/login"),
        ("v1.O", "v1.0"),
        ("topic", "origin/topic"),
        ("upstream/topic", "origin/topic"),
        ("tpoic", "origin/topic"),
        ("origin/tpoic", "origin/topic"),
        ("master", "main"),
        ("origin/master", "origin/main"),
        ("main~99", None),
        ("nonsense", None),
        ("", None),
        ("a b\nc", None),
    ],
)
def test_an_unknown_revision_is_the_same_branch_elsewhere_or_the_nearest(revision: str, meant: str | None) -> None:
    assert meant_revision(revision, REFS) == meant
