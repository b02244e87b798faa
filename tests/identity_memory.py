"""A memory of the commits that repositories go by, for tests of their names."""


class Memory:
    """Remembers commits by place, and how often it was told one; `known` are those of other places."""

    def __init__(self, *known: str) -> None:
        self.commits: dict[bytes, str] = {}
        self.known = known
        self.told = 0

    def commit_of(self, place: bytes) -> str | None:
        return self.commits.get(place)

    def remember_commit(self, place: bytes, commit: str) -> None:
        self.told += 1
        self.commits[place] = commit

    def known_commits(self) -> tuple[str, ...]:
        return self.known
