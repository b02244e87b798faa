"""Changes of a known size in a real repository, the same at every run."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

_IDENTITY = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")
# Nothing may go on in the background once a command has ended.
_GIT = ("git", *_IDENTITY, "-c", "core.fsync=none", "-c", "gc.auto=0", "-c", "maintenance.auto=false")

_TEMPLATES = {
    "py": "def work_{n}(items, limit={n}):\n    total = 0\n    for item in items:\n        if item > limit:\n"
    "            total += item * {n}\n    return total\n\n\n",
    "js": "export function work{n}(items) {{\n  let total = 0;\n  for (const item of items) {{\n"
    "    if (item > {n}) {{\n      total += item;\n    }}\n  }}\n  return total;\n}}\n",
    "go": "func work{n}(items []int) int {{\n\ttotal := 0\n\tfor _, item := range items {{\n"
    "\t\tif item > {n} {{\n\t\t\ttotal += item\n\t\t}}\n\t}}\n\treturn total\n}}\n",
    "java": "  int work{n}(int[] items) {{\n    int total = 0;\n    for (int item : items) {{\n"
    "      if (item > {n}) {{\n        total += item;\n      }}\n    }}\n    return total;\n  }}\n",
}
_FAULTS = {
    "py": "def fault_{n}(connection, name):\n"
    "    return connection.execute(f\"SELECT * FROM t WHERE n = '{{name}}'\")\n\n\n",
    "js": "export function fault{n}(node, text) {{\n  node.innerHTML = text + '{n}';\n}}\n",
    "go": "func fault{n}() *tls.Config {{\n\treturn &tls.Config{{InsecureSkipVerify: true}}\n}}\n",
    "java": '  boolean fault{n}(String name) {{\n    return name == "admin{n}";\n  }}\n',
}


def source(kind: str, lines: int, seed: int) -> str:
    """A source file of about so many lines, with a fault here and there."""
    random_ = random.Random(seed)
    pieces: list[str] = []
    count = 0
    while count < lines:
        template = (_FAULTS if random_.random() < 0.03 else _TEMPLATES)[kind]
        piece = template.format(n=random_.randrange(10_000))
        pieces.append(piece)
        count += piece.count("\n")
    return "".join(pieces)


def make_change(root: Path, *, files: int, lines: int) -> None:
    """A repository at `root` whose last commit adds `files` files with `lines` lines in all."""
    root.mkdir(parents=True)
    git(root, "init", "--quiet", "--template=", "--initial-branch=main")
    git(root, "commit", "--quiet", "--allow-empty", "--message=empty")
    kinds = tuple(_TEMPLATES)
    for number in range(files):
        kind = kinds[number % len(kinds)]
        target = root / f"part{number % 7}" / f"module{number}.{kind}"
        target.parent.mkdir(exist_ok=True)
        target.write_text(source(kind, lines // files, seed=number))
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=the change")


def git(root: Path, *words: str, stdin: bytes = b"") -> bytes:
    """Plain git in a repository of our own."""
    return subprocess.run((*_GIT, *words), cwd=root, input=stdin, capture_output=True, check=True).stdout
