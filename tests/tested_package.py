"""Which codeloupe is tested, as a pytest plugin: the built wheel under `make test`, the source tree while you work.

An installed wheel that is older than the source tree would make tests pass or fail for code that is not there, so it
ends the run before it begins.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SOURCE = PROJECT / "src" / "codeloupe"


def tested_package() -> Path:
    """The directory from which `import codeloupe` takes it."""
    spec = find_spec("codeloupe")
    if spec is None or spec.origin is None:
        raise pytest.UsageError("codeloupe is not installed; run `make develop`, or `make test` for everything")
    return Path(spec.origin).resolve().parent


def files_of(package: Path) -> dict[str, bytes]:
    """What a package is made of, by path below it, without what the interpreter leaves there."""
    return {
        str(path.relative_to(package)): path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def pytest_configure(config: pytest.Config) -> None:
    package = tested_package()
    if package == SOURCE:
        if os.environ.get("CODELOUPE_TESTED") == "wheel":
            raise pytest.UsageError("the wheel should be tested, but `import codeloupe` takes it from src/")
    elif files_of(package) != files_of(SOURCE):
        raise pytest.UsageError(
            "the installed codeloupe is not that of src/; run `make develop` to test as you edit, or `make test`"
        )


def pytest_report_header(config: pytest.Config) -> str:
    return f"codeloupe: from {'the source tree' if tested_package() == SOURCE else 'its built wheel'}"


def shipped_files() -> list[Path]:
    """Return every file that people read, run or copy: the program, its pages, and the files for CI and servers."""
    files = [file for file in PROJECT.iterdir() if file.is_file()]
    for folder in (".github", "bench", "ci", "deploy", "docs", "examples", "requirements", "src"):
        files += [file for file in (PROJECT / folder).rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert {PROJECT / "action.yml", PROJECT / "ci" / "gitlab.yml", PROJECT / "README.md"} <= set(files)
    return sorted(files)
