"""A catalogue of changes that diff readers stumble over. Each becomes two commits in a real repository.

The trees are described as data and written by `git fast-import`, so names and modes that the file system or the
user's rights would not allow are no obstacle. Nothing is checked out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.repository import GitRepository

FIRST_SUBMODULE, SECOND_SUBMODULE = b"1" * 40, b"2" * 40

_FIRST_SECONDS = 1_700_000_000
_PLAIN_NAME = re.compile(rb"[A-Za-z0-9._/-]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """What a path holds: file content, the target of a link, or the commit of a submodule."""

    mode: str
    content: bytes


Tree = Mapping[bytes, Entry]


@dataclass(frozen=True, slots=True)
class EdgeCase:
    """A change from one tree to another."""

    name: str
    base: Tree
    head: Tree

    def build(self, repo: Path) -> tuple[str, str]:
        """Make a repository at `repo` with the two commits; returns their names, base first."""
        return commit_trees(GitRepository(repo), self.base, self.head)


def commit_trees(repository: GitRepository, base: Tree, head: Tree) -> tuple[str, str]:
    """Make branch `main` two commits with these trees, whatever it was before; returns their names, base first."""
    stream = b"".join((*_commit(base, 0), *_commit(head, 60)))
    repository.git("fast-import", "--quiet", "--force", stdin=stream)
    first, second = repository.git("rev-parse", "main~1", "main").decode().split()
    return first, second


def commit_cases(repository: GitRepository, cases: Sequence[EdgeCase]) -> list[tuple[str, str]]:
    """Give each case a branch of its own, all in one go; returns the names of each one's two commits, base first."""
    branches = [f"case-{number}" for number in range(len(cases))]
    parts = (
        (*_commit(case.base, 0, branch), *_commit(case.head, 60, branch))
        for case, branch in zip(cases, branches, strict=True)
    )
    repository.git("fast-import", "--quiet", stdin=b"".join(piece for part in parts for piece in part))
    ends = (f"{branch}{end}" for branch in branches for end in ("~1", ""))
    names = repository.git("rev-parse", *ends).decode().split()
    return list(zip(names[::2], names[1::2], strict=True))


def _commit(tree: Tree, seconds: int, branch: str = "main") -> Iterator[bytes]:
    yield b"commit refs/heads/%b\n" % branch.encode()
    yield b"committer Ada Example <ada@example.invalid> %d +0000\ndata 6\nchange\n" % (_FIRST_SECONDS + seconds)
    yield b"deleteall\n"
    for path, entry in tree.items():
        if entry.mode == "160000":
            yield b"M 160000 %b %b\n" % (entry.content, _quoted(path))
        else:
            yield b"M %b inline %b\ndata %d\n" % (entry.mode.encode(), _quoted(path), len(entry.content))
            yield entry.content + b"\n"


def _quoted(path: bytes) -> bytes:
    if _PLAIN_NAME.fullmatch(path):
        return path
    return b'"' + b"".join(b"\\%03o" % byte for byte in path) + b'"'


_file, _program, _link, _submodule = (partial(Entry, mode) for mode in ("100644", "100755", "120000", "160000"))


def _edited(name: str, old: bytes, new: bytes, *, path: bytes = b"file.txt") -> EdgeCase:
    return EdgeCase(name, {path: _file(old)}, {path: _file(new)})


def _at_path(name: str, path: bytes) -> EdgeCase:
    """An edited, an added, a deleted and an executable file at names built from `path`."""
    base = {path: _file(_NUMBERED), path + b".gone": _file(b"gone\n"), path + b".mode": _file(b"mode\n")}
    head = {path: _file(_CHANGED), path + b".came": _file(b"came\n"), path + b".mode": _program(b"mode\n")}
    return EdgeCase(name, base, head)


def _with_attributes(name: str, attributes: bytes) -> EdgeCase:
    rules = {b".gitattributes": _file(attributes)}
    return EdgeCase(name, rules | {b"code.py": _file(_NUMBERED)}, rules | {b"code.py": _file(_CHANGED)})


def _many(count: int, content: bytes) -> dict[bytes, Entry]:
    return {b"directory%d/file%d.py" % (number % 7, number): _file(content % number) for number in range(count)}


_NUMBERED = b"".join(b"line %d\n" % number for number in range(1, 31))
_CHANGED = _NUMBERED.replace(b"line 3\n", b"line three\nand more\n").replace(b"line 20\n", b"").replace(b"29", b"xxix")
_DIFF_TEXT = (
    b"diff --git a/other.py b/other.py\nindex 1234567..89abcde 100644\n--- a/other.py\n+++ b/other.py\n"
    b"@@ -1,2 +1,2 @@ def f():\n context\n-old\n+new\n\\ No newline at end of file\n-- \n2.39.5\n"
)
_HEADER_LINES = b"".join(
    start + b"%d\n" % number
    for number, start in enumerate(
        (b"-- a/x", b"++ b/x", b"@@ -1 +1 @@", b"diff --git a/x b/x", b"\\ No newline at end of file", b"- ", b"-- ")
    )
)

_PATHS = (
    _at_path("path with spaces", b"a file with spaces.txt"),
    _at_path("path with a leading space", b" leading"),
    _at_path("path with a trailing space", b"trailing "),
    _at_path("path with b slash inside", b"x b/x b/x"),
    _at_path("path with a slash and b slash inside", b"a/b a/b b/a"),
    _at_path("path with an arrow", b"old => new"),
    _at_path("path in braces with an arrow", b"{a => b}/file"),
    _at_path("path with a newline", b"new\nline"),
    _at_path("path with a tab", b"tab\tinside"),
    _at_path("path with a carriage return", b"cr\rinside"),
    _at_path("path with a quote", b'quo"te'),
    _at_path("path that begins and ends with a quote", b'"quoted"'),
    _at_path("path with a backslash", b"back\\slash\\101"),
    _at_path("path with a leading dash", b"--output=x"),
    _at_path("path with a control character", b"esc\x1b[31mred\x07"),
    _at_path("path that is not UTF-8", b"latin-\xe9-\xff"),
    _at_path("path in composed unicode", "caf\u00e9".encode()),
    _at_path("path in decomposed unicode", "cafe\u0301".encode()),
    _at_path("path with a line separator and bidi control", "a\u2028b\u202ec".encode()),
    _at_path("path named like dev null", b"dev/null"),
    _at_path("path named like a prefix", b"a/b/i/w/c"),
    _at_path("very long path", b"/".join([b"directory-with-a-long-name"] * 40)),
)

_CONTENTS = (
    _edited("edited in three places", _NUMBERED, _CHANGED),
    _edited("empty to content", b"", b"one\ntwo\n"),
    _edited("content to empty", b"one\ntwo\n", b""),
    _edited("no newline at the end on both sides", b"one\ntwo", b"one\nthree"),
    _edited("newline at the end lost", b"one\ntwo\n", b"one\ntwo"),
    _edited("newline at the end gained", b"one\ntwo", b"one\ntwo\n"),
    _edited("no newline at the end in context", _NUMBERED + b"last", b"first\n" + _CHANGED + b"last"),
    _edited("line behind a last line without newline", b"one", b"one\ntwo"),
    _edited("only an empty line", b"", b"\n"),
    _edited("empty lines", b"a\n\n\nb\n\n\nc\n", b"a\n\n\nB\n\n\nc\n\n"),
    _edited("CRLF to LF", _NUMBERED.replace(b"\n", b"\r\n"), _NUMBERED),
    _edited("LF to CRLF", _NUMBERED, _NUMBERED.replace(b"\n", b"\r\n")),
    _edited("CRLF on both sides", _NUMBERED.replace(b"\n", b"\r\n"), _CHANGED.replace(b"\n", b"\r\n")),
    _edited("CR before CRLF", b"a\r\r\nb\r\r\n", b"a\r\r\nc\r\r\n"),
    _edited("lone CR", b"a\rb\rc\nd\n", b"a\rB\rc\nd\re\n"),
    _edited("last line is a lone CR", b"a\n\r", b"b\n\r"),
    _edited("form feed and vertical tab", b"a\fb\n\f\nc\vd\n", b"a\fB\n\f\nc\vD\n"),
    _edited(
        "separators that are no line ends", "a\u2028b\u2029c\u0085d\n".encode(), "a\u2028B\u2029c\u0085d\n".encode()
    ),
    _edited("file separators of ASCII", b"a\x1cb\x1dc\x1ed\n", b"a\x1cB\x1dc\x1ed\x1f\n"),
    _edited("bytes that are not UTF-8", b"\xff\xfe\n\x80\n", b"\xff\xfe\n\x81\n"),
    _edited("byte order mark", b"one\n", b"\xef\xbb\xbfone\n"),
    _edited("NUL in the first bytes", b"a\0b\nc\n", b"a\0b\nd\n"),
    _edited("NUL behind 8000 bytes", b"x" * 9000 + b"\n\0\none\n", b"x" * 9000 + b"\n\0\ntwo\n"),
    _edited("NUL in a part that did not change", b"\0\n" + _NUMBERED, b"\0\n" + _CHANGED),
    _edited("line of a megabyte", b"y" * 1_000_000 + b"\nend\n", b"z" * 1_000_000 + b"\nend\n"),
    _edited("content that is a diff", b"before\n", b"before\n" + _DIFF_TEXT),
    _edited("content that was a diff", _DIFF_TEXT + b"after\n", b"after\n"),
    _edited("diff inside of context", _DIFF_TEXT + b"one\n", _DIFF_TEXT + b"two\n"),
    _edited("lines that look like headers came", b"", _HEADER_LINES),
    _edited("lines that look like headers went", _HEADER_LINES + b"end\n", b"end\n"),
    _edited("lines that look like headers moved", b"x\n" + _HEADER_LINES + _NUMBERED, _NUMBERED + _HEADER_LINES),
    _edited("dashes and pluses alone", b"-\n+\n--\n++\n---\n+++\n", b"+\n-\n++\n--\n+++\n---\n"),
    _edited("many small hunks", _NUMBERED * 40, _NUMBERED.replace(b"line 15\n", b"changed\n") * 40),
)

_KINDS = (
    EdgeCase("empty file added", {}, {b"empty": _file(b"")}),
    EdgeCase("empty file deleted", {b"empty": _file(b"")}, {}),
    EdgeCase("everything is new", {}, {b"a.py": _file(_NUMBERED), b"b/c.py": _program(b"x\n")}),
    EdgeCase("everything is gone", {b"a.py": _file(_NUMBERED), b"b/c.py": _program(b"x\n")}, {}),
    EdgeCase("nothing changed", {b"a.py": _file(_NUMBERED)}, {b"a.py": _file(_NUMBERED)}),
    EdgeCase("renamed", {b"old.py": _file(_NUMBERED)}, {b"new name.py": _file(_NUMBERED)}),
    EdgeCase("renamed and edited", {b"old.py": _file(_NUMBERED)}, {b"sub/new.py": _file(_CHANGED)}),
    EdgeCase("renamed to a name with b slash", {b"a/x": _file(_NUMBERED)}, {b"b/x b/x": _file(_CHANGED)}),
    EdgeCase("renamed between directories a and b", {b"a/x": _file(_NUMBERED)}, {b"b/x": _file(_NUMBERED)}),
    EdgeCase("renamed to a quoted name", {b"plain": _file(_NUMBERED)}, {b"t\tab\xff": _file(_CHANGED)}),
    EdgeCase("renamed with a new mode", {b"old.sh": _file(_NUMBERED)}, {b"new.sh": _program(_CHANGED)}),
    EdgeCase("renamed binary", {b"old": _file(b"\0" + _NUMBERED)}, {b"new": _file(b"\0" + _CHANGED)}),
    EdgeCase(
        "copied",
        {b"source.py": _file(_NUMBERED)},
        {b"source.py": _file(_NUMBERED), b"copy.py": _file(_NUMBERED), b"copy2.py": _file(_CHANGED)},
    ),
    EdgeCase(
        "two files swapped",
        {b"one": _file(_NUMBERED), b"two": _file(_DIFF_TEXT)},
        {b"one": _file(_DIFF_TEXT), b"two": _file(_NUMBERED)},
    ),
    EdgeCase("only the mode", {b"run": _file(b"x\n")}, {b"run": _program(b"x\n")}),
    EdgeCase("mode and content", {b"run": _program(_NUMBERED)}, {b"run": _file(_CHANGED)}),
    EdgeCase("mode of an empty file", {b"run": _program(b"")}, {b"run": _file(b"")}),
    EdgeCase("link added and deleted", {b"old": _link(b"target")}, {b"new": _link(b"elsewhere/entirely")}),
    EdgeCase("link with another target", {b"link": _link(b"one")}, {b"link": _link(b"two\nlines")}),
    EdgeCase("link renamed", {b"old": _link(b"far/away")}, {b"new": _link(b"far/away")}),
    EdgeCase("file to link", {b"x": _file(_NUMBERED)}, {b"x": _link(b"target")}),
    EdgeCase("link to file", {b"x": _link(b"target")}, {b"x": _file(_NUMBERED)}),
    EdgeCase("empty file to link", {b"x": _file(b"")}, {b"x": _link(b"target")}),
    EdgeCase("link to empty file", {b"x": _link(b"target")}, {b"x": _program(b"")}),
    EdgeCase("binary file to link", {b"x": _file(b"\0\n")}, {b"x": _link(b"target")}),
    EdgeCase("submodule added", {}, {b"sub": _submodule(FIRST_SUBMODULE)}),
    EdgeCase("submodule moved", {b"sub": _submodule(FIRST_SUBMODULE)}, {b"sub": _submodule(SECOND_SUBMODULE)}),
    EdgeCase("submodule deleted", {b"s p": _submodule(FIRST_SUBMODULE), b"z": _file(b"z\n")}, {b"z": _file(b"z\n")}),
    EdgeCase("file to submodule", {b"x": _file(b"x\n")}, {b"x": _submodule(FIRST_SUBMODULE)}),
    EdgeCase("submodule to link", {b"x": _submodule(FIRST_SUBMODULE)}, {b"x": _link(b"y")}),
    EdgeCase("directory to file", {b"d/a": _file(b"a\n"), b"d/b": _file(b"b\n")}, {b"d": _file(b"d\n")}),
    EdgeCase("file to directory", {b"d": _file(b"d\n")}, {b"d/a": _file(b"a\n"), b"d/b": _link(b"b")}),
    EdgeCase("three hundred files", _many(300, b"%d\nold\n"), _many(300, b"%d\nnew\n")),
    _with_attributes("attribute that hides code", b"*.py -diff\n"),
    _with_attributes("attribute binary", b"*.py binary\n"),
    _with_attributes("attribute with a driver nobody knows", b"*.py diff=unheard\n"),
    _with_attributes("attribute with a driver for functions", b"*.py diff=python\n"),
    _with_attributes("attribute for line ends", b"* text=auto eol=crlf\n"),
)

TYPE_CHANGE_WITH_SHARED_LINES = EdgeCase(
    "file to link with the same content", {b"x": _file(b"one\nsame")}, {b"x": _link(b"same")}
)
"""numstat compares the two contents here and counts 0 and 1; the patch deletes and creates, which makes 1 and 2."""

EDGE_CASES: tuple[EdgeCase, ...] = (*_CONTENTS, *_KINDS, *_PATHS, TYPE_CHANGE_WITH_SHARED_LINES)
