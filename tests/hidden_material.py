"""Ways to hide code from a reviewer: files that each hold a planted secret, and changes that need more than a file."""

import gzip
import io
import json
import marshal
import os
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from tests.repository import GitRepository

# Not a token of anybody: put together here, so that no scanner of this repository sees one.
TOKEN = "gh" + "p_" + "1Zq8Xw7Vu6Ts5Rr4Qp3On2Ml1Kj0Ih9Gf8Ed"
LINE = f'token = "{TOKEN}"\n'
SCRIPT = f"#!/bin/sh\n{LINE}"
_PADDING = "".join(f"# step {number}\n" for number in range(70))
_NOISE = bytes((number * 167 + 13) % 256 for number in range(4_000)) + os.urandom(4_000)


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    """A picture of one pixel, with more chunks before its data."""
    header = (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    data = (b"IDAT", zlib.compress(b"\0\0"))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*one) for one in (header, *chunks, data, (b"IEND", b"")))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _riff(content: bytes, size: int) -> bytes:
    return b"RIFF" + struct.pack("<I", size) + b"WAVE" + content


def zipped(name: str, content: str) -> bytes:
    """A ZIP file with one compressed file in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def tarred(name: str, content: str) -> bytes:
    """A tar file with one file in it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content.encode()))
    return buffer.getvalue()


def _compiled() -> bytes:
    return b"\xcb\r\r\n" + bytes(12) + marshal.dumps(compile(LINE * 3, "x.py", "exec")) + _NOISE


def _database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (a text, b blob)")
    connection.execute("insert into t values (?, ?)", (LINE, _NOISE))
    connection.commit()
    return connection.serialize()


def npm_lock(host: str, digest: str = "sha512-AAAA") -> str:
    """A lock file of npm with one package."""
    entry = {"version": "1.0.0", "resolved": f"https://{host}/left-pad/-/left-pad-1.0.0.tgz", "integrity": digest}
    document = {"name": "a", "lockfileVersion": 3, "packages": {"": {"name": "a"}, "node_modules/left-pad": entry}}
    return json.dumps(document, indent=2) + "\n"


# In the base already, and changed by what stands under the same name below.
BEFORE: Mapping[str, bytes] = {
    "package-lock.json": npm_lock("registry.npm" + "js.org").encode(),
    "go.sum": b"example.org/m v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
    "utf16-changed.ps1": "# one\r\n# two\r\n".encode("utf-16"),
    "mode.sh": b"#!/bin/sh\necho\n",
    "renamed-from.sh": _PADDING.encode(),
    "picture.png": png(),
    "crlf.py": b"a = 1\r\nb = 2\r\n",
    "minified.min.css": b"a{}" * 3_000,
}

FILES: Mapping[str, bytes] = {
    # names
    **dict.fromkeys(
        (
            *("node_modules/b.coffee", "third_party/x.lua", "Vendor/UPPER.PY", "x-generated.coffee", "page.snap"),
            *("app.js.map", "api_pb2.py", "app.min.js", "form.Designer.cs", "text.png", "text.woff2", "text.mp4"),
            *("text.zip", "text.so", "text.pyc", "text.bin", ".hidden"),
            # what .gitattributes below says of them is the stranger's own word
            *("a.nodiff", "a.asbinary", "a.generated", "a.vendored", "a.unexported", "a.filtered", "a.driver"),
        ),
        LINE.encode(),
    ),
    **dict.fromkeys(
        (
            *("vendor/run", "-rf.sh", "with space '\".sh", "gpj.\u202ehs", "zero\u200bwidth.sh", "line\nbreak.sh"),
            *("not-utf8-\udce9.sh", "deep/" * 60 + "a.sh"),
        ),
        SCRIPT.encode(),
    ),
    # NULs
    "shell.phtml": b"<?php\0 " + LINE.encode(),
    "late-nul": (SCRIPT + _PADDING).encode() + b"\0\n",
    "nul-first": b"\0" * 10_000 + b"\n" + SCRIPT.encode(),
    "nul-between": b"\0\0".join(bytes((byte,)) for byte in b"# x\n") + b"\n" + SCRIPT.encode(),
    # encodings
    "utf16le.ps1": LINE.encode("utf-16"),
    "utf16be.ps1": b"\xfe\xff" + LINE.encode("utf-16-be"),
    "utf16-plain.ps1": (LINE + _PADDING).encode("utf-16-le"),
    "utf32.ps1": LINE.encode("utf-32"),
    "utf8-mark.py": b"\xef\xbb\xbf" + LINE.encode(),
    "utf16-changed.ps1": f"# one\r\n# two\r\n{LINE}".encode("utf-16"),
    "latin1.py": f"# -*- coding: latin-1 -*-\n# caf\u00e9\n{LINE}".encode("latin-1"),
    "sjis.rb": f"# coding: shift_jis\n# \u65e5\u672c\u8a9e\n{LINE}".encode("shift_jis"),
    "undeclared.txt": b"caf\xe9\n" + LINE.encode(),
    "utf7.py": b"# coding: utf-7\n" + LINE.encode("utf-7"),
    "escaped.py": b"# coding: unicode_escape\n# \\u000a" + LINE.encode(),
    "false-mark.sh": b"\xff\xfe\n" + SCRIPT.encode(),
    "utf16-then-ascii.sh": _PADDING.encode("utf-16") + b"\n" + SCRIPT.encode(),
    "utf16-shifted.sh": _PADDING.encode("utf-16") + b"\n" + SCRIPT.encode("utf-16-le") + b"x",
    # lines
    "cr-only.py": LINE.replace("\n", "\r").encode() * 2,
    "form-feeds.py": f"a = 1\f\n\f{LINE}".encode(),
    "separators.js": f"// x\u2028{LINE}".encode(),
    "vertical.sh": f"# x\v\n{LINE}".encode(),
    "long-line.js": b"x" * 50_000 + LINE.encode(),
    "crlf.py": b"a = 1\r\nb = 2\r\n" + LINE.encode(),
    "too-many-lines.txt": b"x\n" * 20_001 + LINE.encode(),
    "too-many-bytes.txt": b"x" * 1_000_001 + LINE.encode(),
    # look-alikes and polyglots
    "picture.png": png() + SCRIPT.encode(),
    "png-mark.png": b"\x89PNG\r\n\x1a\n" + SCRIPT.encode() * 9,
    "png-comment.php": png((b"tEXt", b"Comment\0<?php " + LINE.encode())),
    "gif.js": b"GIF89a=1;\n" + LINE.encode() + b"//\0\n",
    "jpeg.js": b"\xff\xd8\xff\xfe" + struct.pack(">H", len(LINE) + 2) + LINE.encode() + b"\xff\xd9",
    "bitmap.bmp": b"BM" + struct.pack("<IIII", 90, 0, 54, 40) + LINE.encode() + b"\0\n",
    "sound.sh": _riff(b"data" + struct.pack("<I", len(LINE)) + LINE.encode(), 12 + len(LINE)),
    "chunk.sh": png((b"teXt", b"\n" + LINE.encode())),
    "sound.wav": _riff(LINE.encode() + b"\0\n", 4 + len(LINE)),
    "icon.ico": b"\0\0\1\0\1\0" + SCRIPT.encode() * 3,
    "film.mp4": b"\0\0\0\x18ftypisom" + SCRIPT.encode() * 3 + b"\0\n",
    "song.mp3": b"ID3\4\0\0\0\0\0\0" + SCRIPT.encode() * 3,
    "font.ttf": b"\0\1\0\0\0\1" + SCRIPT.encode() * 3,
    "elf-mark": b"\x7fELF\2\1\1\0\n" + SCRIPT.encode() * 9,
    "mz-mark.exe": b"MZ\0\n" + SCRIPT.encode() * 9,
    "zip-mark.zip": b"PK\3\4\0\n" + SCRIPT.encode() * 9,
    "zip-behind-script": SCRIPT.encode() + zipped("a.sh", SCRIPT),
    "script-behind-zip.zip": zipped("a.sh", SCRIPT) + b"\n" + SCRIPT.encode() * 9,
    # what can only be left out
    "real.zip": zipped("a.sh", SCRIPT),
    "real.tar": tarred("a.sh", SCRIPT),
    "real.gz": gzip.compress(SCRIPT.encode() + _NOISE, mtime=0),
    "real.pyc": _compiled(),
    "real.class": b"\xca\xfe\xba\xbe\0\0\0\x34" + _NOISE,
    "real.wasm": b"\0asm\1\0\0\0" + _NOISE,
    "real.sqlite": _database(),
    "noise.dat": _NOISE,
    "pointer.sh": b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 50000\n" % (b"5d" * 32),
    "older-pointer.sh": b"version https://hawser.github.com/spec/v1\r\noid sha256:%s\r\nsize 9\r\n\n" % (b"5d" * 32),
    # marks in the text
    "marked.go": f"// Code generated by x. DO NOT EDIT.\n{LINE}".encode(),
    "at-generated.rs": f"// @generated\n{LINE}".encode(),
    "minified.js": b"var a=1;" * 2_000 + LINE.encode(),
    "minified.min.css": b"a{}" * 3_000 + LINE.encode(),
    "ignored.py": f"# codeloupe: ignore-file\n{LINE}".encode(),
    "ignored-line.py": LINE.replace("\n", "  # codeloupe: ignore[secrets] fine\n").encode(),
    "allowed.py": LINE.replace("\n", "  # pragma: allowlist secret\n").encode(),
    "nosec.py": b"import subprocess\nsubprocess.call(input(), shell=True)  # noqa: S602 # nosec\n" + LINE.encode(),
    "notebook.ipynb": json.dumps({"cells": [{"cell_type": "code", "outputs": [{"text": [LINE]}]}]}).encode(),
    ".gitattributes": (
        b"*.nodiff -diff\n*.asbinary binary\n*.generated linguist-generated\n*.vendored linguist-vendored\n"
        b"*.unexported export-ignore\n*.filtered filter=hide\n*.encoded working-tree-encoding=UTF-16\n*.driver diff=x\n"
    ),
    # lock files
    "package-lock.json": npm_lock("registry.evil.example").encode(),
    "web/npm-shrinkwrap.json": npm_lock("127.0.0.1.evil.example").encode(),
    "go.sum": b"example.org/m v1.0.0 h1:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB=\n",
    "poetry.lock": LINE.encode() + b"]",
    "Cargo.lock": b'[[package]]\nname = "a"\nversion = "1.0.0"\nsource = "registry+http://evil.example/index"\n',
    "PACKAGE-LOCK.JSON": LINE.encode(),
    "uv.lock": f"version = 1\n{LINE}".encode(),
    # modes and moves
    "mode.sh": b"#!/bin/sh\necho\n" + LINE.encode(),
    "renamed-to.sh": _PADDING.encode() + LINE.encode(),
}
# Moved; of those that are called so one line was edited too.
MOVES: Mapping[str, str] = {
    "docs/notes.txt": "conftest.py",
    "docs/job.txt": ".github/workflows/job.yml",
    "docs/hooks/a.yml": ".github/hooks/a.yml",
    "docs/Makefile": "Makefile",
    "docs/lib.py": "docs/sitecustomize.py",
    "docs/plain.txt": "bin/run",
    "samples/x.py": "plugins/x.py",
    "docs/lock.txt": "locked/package-lock.json",
    "docs/edited.txt": ".github/workflows/edited.yml",
}
# In these only the mode changed.
MADE_EXECUTABLE = ("docs/tool.txt", "docs/tool", "docs/edited-tool")
# Links, and where they lead.
LINKS: Mapping[str, str] = {
    "outside": "/etc/hostname",
    "deep/outside": "../../elsewhere",
    "deep/inside-git": "../.git/config",
}
# Of these there is no content that an analyser could see: that they were touched is all.
HARMLESS = frozenset((".gitattributes",))


def plant(repository: GitRepository) -> None:
    """Commit the base on main and, on `change`, every hidden file, a submodule and a file in place of a link."""
    for name, content in BEFORE.items():
        repository.write(name, content)
    for name in (*MOVES, *MADE_EXECUTABLE):
        moved = npm_lock("registry.evil.example") if name == "docs/lock.txt" else f"{_PADDING}# {name}\n{LINE}"
        repository.write(name, moved)
    (repository.path / "link.sh").symlink_to("mode.sh")
    repository.commit("base")
    repository.checkout("change", new=True)
    for name, content in FILES.items():
        repository.write(name, content, executable=name == "mode.sh")
    for name, target in MOVES.items():
        (repository.path / target).parent.mkdir(parents=True, exist_ok=True)
        (repository.path / name).rename(repository.path / target)
    for name in MADE_EXECUTABLE:
        (repository.path / name).chmod(0o755)
    for name in (MOVES["docs/edited.txt"], "docs/edited-tool"):
        text = (repository.path / name).read_text(encoding="utf-8")
        (repository.path / name).write_text(text.replace("# step 3\n", "# step three\n"), encoding="utf-8")
    repository.remove("renamed-from.sh")
    repository.remove("link.sh")
    repository.write("link.sh", SCRIPT)
    for name, target in LINKS.items():
        (repository.path / name).symlink_to(target)
    repository.git("add", "--all", "--force")
    gitlink = f"160000,{repository.head()},module"
    repository.git("update-index", "--add", "--cacheinfo", gitlink)
    (repository.path / "module").mkdir()
    repository.commit_staged("hidden")


Plan = Callable[[GitRepository], tuple[str, ...]]


def _plan(*steps: tuple[Any, ...], words: tuple[str, ...] = ()) -> Plan:
    """What is done to a repository, method by method, and with which words it is reviewed then."""

    def plan(repository: GitRepository) -> tuple[str, ...]:
        for method, *arguments in steps:
            getattr(repository, method)(*arguments)
        return words

    return plan


_BRANCH = (("write", "README.md", "# a\n"), ("commit", "base"), ("git", "checkout", "--quiet", "-b", "change"))
_EVIL = (("write", "evil.sh", SCRIPT), ("commit", "evil"))
_NOTHING_READ = (("write", "codeloupe.yaml", "exclude: ['**']\n"), ("commit", "settings"))
_OWN_SETTINGS = (*_BRANCH, *_NOTHING_READ, *_EVIL)


def replaced_objects(repository: GitRepository) -> tuple[str, ...]:
    """A replacement makes git show something else."""
    _plan(*_BRANCH, *_EVIL)(repository)
    blob = repository.git("rev-parse", "HEAD:evil.sh").decode().strip()
    other = repository.git("hash-object", "-w", "--stdin", stdin=b"echo\n").decode().strip()
    repository.git("replace", blob, other)
    return ("main...HEAD",)


def a_repository_in_the_tree(repository: GitRepository) -> tuple[str, ...]:
    """An untracked folder that is a repository of its own."""
    _plan(*_BRANCH)(repository)
    GitRepository(repository.path / "nested").write("evil.sh", SCRIPT)
    (repository.path / "nested" / ".git" / "x").touch()
    return ("--uncommitted",)


def _diff(*lines: str) -> Plan:
    """A diff from elsewhere that shows nothing of what it changes."""
    return _plan(*_BRANCH, ("write", "change.diff", "\n".join(lines) + "\n"), words=("--diff-file", "change.diff"))


_INDEX = "index 1111111..2222222 100644"
_RENAME = ("similarity index 100%", "rename from docs/a.txt", "rename to conftest.py")
CHANGES: Mapping[str, Plan] = {
    # Who leaves files out: the branch itself, the commit before, the left side of a range, what is named as the base,
    # HEAD for what is staged, a main that has everything, and the base's own settings.
    "settings of the change": _plan(*_BRANCH, ("write", "codeloupe.yaml", "exclude: ['*.sh']\n"), *_EVIL),
    "settings of the parent": _plan(*_OWN_SETTINGS, words=("--commit", "HEAD")),
    "settings of a range": _plan(*_OWN_SETTINGS, words=("HEAD~1..HEAD",)),
    "settings of a base": _plan(*_OWN_SETTINGS, words=("--base", "HEAD~1")),
    "settings of HEAD": _plan(
        *_BRANCH, *_NOTHING_READ, ("write", "evil.sh", SCRIPT), ("git", "add", "--all"), words=("--staged",)
    ),
    "settings on the only branch": _plan(*_NOTHING_READ, *_EVIL, words=("--commit", "HEAD")),
    "everything left out by the base": _plan(("write", "codeloupe.yaml", "exclude: ['**']\n"), *_BRANCH, *_EVIL),
    "classes of the change": _plan(
        *(*_BRANCH, ("write", "codeloupe.yaml", "accept_unread: [archives, programs]\n")),
        *(("write", "a.zip", zipped("a.sh", SCRIPT)), ("commit", "evil")),
    ),
    "another branch of the stranger as base": _plan(
        *(*_BRANCH, *_EVIL, ("branch", "trunk")),
        *(("write", "codeloupe.yaml", "base_branch: trunk\n"), ("commit", "settings")),
    ),
    "an include that fits nothing": _plan(
        *_BRANCH, ("write", "src/evil.sh", SCRIPT), ("commit", "evil"), words=("--include", "scr/**")
    ),
    "moved out of what is excluded": _plan(
        *(("write", "codeloupe.yaml", "exclude: [samples/**]\n"), ("write", "samples/a.sh", SCRIPT), *_BRANCH),
        *(("git", "mv", "samples/a.sh", "run.sh"), ("commit", "move")),
    ),
    "a merge with more in it": _plan(
        *(*_BRANCH, ("write", "a.txt", "a\n"), ("commit", "one"), ("checkout", "main")),
        *(("write", "b.txt", "b\n"), ("commit", "other"), ("checkout", "change")),
        *(("git", "merge", "--no-commit", "--no-ff", "--quiet", "main"), *_EVIL),
        words=("main...HEAD",),
    ),
    "replaced objects": replaced_objects,
    "a repository in the tree": a_repository_in_the_tree,
    "flags of the index": _plan(
        *(("write", "evil.sh", "#!/bin/sh\n"), *_BRANCH, ("write", "evil.sh", SCRIPT)),
        ("git", "update-index", "--assume-unchanged", "evil.sh"),
    ),
    "a copied file": _plan(
        ("write", "long.sh", _PADDING), *_BRANCH, ("write", "copy.sh", _PADDING + LINE), ("commit", "copy")
    ),
    "binary files differ": _diff("diff --git a/a.dat b/a.dat", _INDEX, "Binary files a/a.dat and b/a.dat differ"),
    "a picture differs": _diff("diff --git a/a.png b/a.png", _INDEX, "Binary files a/a.png and b/a.png differ"),
    "a patch of git's own form": _diff(
        "diff --git a/a.dat b/a.dat",
        *("new file mode 100644", "index 0000000..2222222", "GIT binary patch", "literal 4", "LcmZQzU|?Y3VBi1%0093"),
        *("", "literal 0", "HcmV?d00001", ""),
    ),
    "a submodule in a diff": _diff(
        "diff --git a/lib b/lib",
        *("index 1111111..2222222 160000", "--- a/lib", "+++ b/lib", "@@ -1 +1 @@"),
        *(f"-Subproject commit {'1' * 40}", f"+Subproject commit {'2' * 40}"),
    ),
    "a move in a diff": _diff("diff --git a/docs/a.txt b/conftest.py", *_RENAME),
    "a mode in a diff": _diff("diff --git a/run b/run", "old mode 100644", "new mode 100755"),
    "a diff that shows nothing": _diff("diff --git a/run b/run", _INDEX),
    "a new file that is not shown": _diff("diff --git a/a.sh b/a.sh", "new file mode 100755", "index 0000000..2222222"),
    "a lock file in a diff": _diff(
        "diff --git a/yarn.lock b/yarn.lock", *(_INDEX, "--- a/yarn.lock", "+++ b/yarn.lock", "@@ -1 +1 @@", "-a", "+b")
    ),
}
