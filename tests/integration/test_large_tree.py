"""A small change in a very large repository: an agent gets the files around it, and is told that they are a part."""

from pathlib import Path

import pytest

from tests.repository import GitRepository
from tests.warm_program import codeloupe

FOLDERS, FILES = 40, 60


@pytest.fixture
def large(repository: GitRepository) -> GitRepository:
    """A branch with one changed file of 2,400; the files are in git alone, which makes them cheap."""
    repository.commit_files({"d07/f3.py": "def f(x):\n    return x\n"})
    blob = repository.git("hash-object", "-w", "d07/f3.py").decode().strip()
    names = [f"d{folder:02}/f{number}.py" for folder in range(FOLDERS) for number in range(FILES)]
    names += ["README.md", "d33/price_table.py"]
    records = "".join(f"100644 {blob}\t{name}\0" for name in names)
    repository.git("update-index", "-z", "--index-info", stdin=records.encode())
    repository.git("commit", "--quiet", "--message=many")
    repository.checkout("work", new=True)
    repository.write("d07/f3.py", "import price_table\n\n\ndef f(x):\n    return price_table.of(x) / x\n")
    repository.git("add", "d07/f3.py")
    repository.git("commit", "--quiet", "--message=one")
    return repository


@pytest.mark.defect("V17")
def test_of_a_very_large_tree_the_files_around_the_change_are_exported(large: GitRepository, tmp_path: Path) -> None:
    """By a program in the place of claude that writes down what it finds, and asks nobody."""
    listing = tmp_path / "listing"
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\nfind . -type f > {listing}\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    words = ("review", "--reviewer", "claude_cli", "main...HEAD", "--untrusted")
    ended = codeloupe(
        *words, cwd=large.path, environment={"CODELOUPE_CLAUDE_PATH": str(program), "ANTHROPIC_API_KEY": "made-up"}
    )
    found = {line.removeprefix("./") for line in listing.read_text(encoding="utf-8").split()}
    assert 900 < len(found) < 1_100
    assert {f"d07/f{number}.py" for number in range(FILES)} <= found
    assert {"README.md", "d33/price_table.py"} <= found
    assert "only the files around the change" in ended.stderr
