"""The project's own Python sources, for the tests that hold its rules.

Their syntax trees together are a million objects, which every later test in the same process would pay for. So none is
kept: a rule first looks into the text for what could break it, and few are ever parsed.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).parents[2]
PACKAGE = PurePosixPath("src/codeloupe")


@dataclass(frozen=True, slots=True)
class Source:
    """One module: its path below the project and its text."""

    path: PurePosixPath
    text: str

    @property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return _parsed(self.text, str(self.path))

    @property
    def room(self) -> str:
        """The room it belongs to: a package of codeloupe or a module beside them. Empty outside of codeloupe."""
        if not self.path.is_relative_to(PACKAGE):
            return ""
        return self.path.relative_to(PACKAGE).parts[0].removesuffix(".py")

    def at(self, line: int) -> str:
        """A place for a message."""
        return f"{self.path}:{line}"


def source_of(text: str, path: str = "src/codeloupe/engine/sample.py") -> Source:
    """A source made up for a test of a rule."""
    return Source(PurePosixPath(path), text)


@lru_cache(maxsize=1)
def _parsed(text: str, path: str) -> ast.Module:
    return ast.parse(text, path)


@cache
def sources(*directories: str) -> tuple[Source, ...]:
    """Every module below the directories of the project."""
    files = sorted(file for directory in directories for file in (PROJECT / directory).rglob("*.py"))
    found = tuple(_read(file) for file in files)
    assert found, f"there is no Python in {directories}"
    return found


@cache
def _read(file: Path) -> Source:
    return Source(PurePosixPath(file.relative_to(PROJECT).as_posix()), file.read_text(encoding="utf-8"))


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
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        # No function is defined inside an expression, so these need not be looked through.
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                left.extend(inner)


def dotted(node: ast.expr) -> str:
    """A name as it is written, such as `os.path.join`; what is no plain name stands as `?`."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
        case _:
            return "?"
