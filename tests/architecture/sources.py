"""The project's own Python sources, parsed once, for the tests that hold its rules."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).parents[2]
PACKAGE = PurePosixPath("src/codeloupe")


@dataclass(frozen=True, slots=True)
class Source:
    """One module: its path below the project, its text and its syntax tree."""

    path: PurePosixPath
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The room it belongs to: a package of codeloupe or a module beside them. Empty outside of codeloupe."""
        if not self.path.is_relative_to(PACKAGE):
            return ""
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    def at(self, line: int) -> str:
        """A place for a message."""
        return f"{self.path}:{line}"


def source_of(text: str, path: str = "src/codeloupe/review/sample.py") -> Source:
    """A source made up for a test of a rule."""
    return Source(PurePosixPath(path), text, ast.parse(text))


@cache
def sources(*directories: str) -> tuple[Source, ...]:
    """Every module below the directories of the project."""
    files = sorted(file for directory in directories for file in (PROJECT / directory).rglob("*.py"))
    found = tuple(_read(file) for file in files)
    assert found, f"there is no Python in {directories}"
    return found


@cache
def _read(file: Path) -> Source:
    text = file.read_text(encoding="utf-8")
    return Source(PurePosixPath(file.relative_to(PROJECT).as_posix()), text, ast.parse(text, str(file)))


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported name in full with its line: `from a import b` is `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def comments(source: Source) -> Iterator[tuple[int, str]]:
    """Every comment with its line; what looks like one inside a string is none."""
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def dotted(node: ast.expr) -> str:
    """A name as it is written, such as `os.path.join`; what is no plain name stands as `?`."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
        case _:
            return "?"
