"""What only one place may do: start programs, parse arguments, draw on the terminal, read YAML. And what none may."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from tests.architecture.sources import Source, dotted, imports, source_of, sources

RESERVED_IMPORTS = {
    "subprocess": ("process/*",),
    "pty": ("process/*",),
    "multiprocessing": ("process/*",),
    "concurrent.futures.ProcessPoolExecutor": ("process/*",),
    "argparse": ("cli/*",),
    "shtab": ("cli/*",),
    "rich": ("report/*", "cli/*", "demo/*"),
    "pydantic": (),
    "yaml": ("config/*", "analysers/*", "experts/*", "baseline/*"),
    "detect_secrets": ("analysers/secret*.py",),
    "pickle": (),
    "marshal": (),
    "shelve": (),
}
STARTS_A_PROGRAM = re.compile(
    r"(os\.(system|popen|fork|forkpty|posix_spawnp?|(exec|spawn)[lv]p?e?)|asyncio\.create_subprocess_\w+"
    r"|.*\.subprocess_(exec|shell))"
)
RUNS_TEXT = {"eval", "exec", "__import__", "builtins.eval", "builtins.exec"}
UNSAFE_YAML = re.compile(r"yaml\.(unsafe_|full_)load(_all)?")
# What a text has that could be a misuse: a reserved name, or one of those that start a program or run a text.
MAY_BE_MISUSE = re.compile(
    rf"\b(?:{'|'.join(name.rpartition('.')[2] for name in RESERVED_IMPORTS)})\b|subprocess"
    r"|\b(?:system|popen|fork|forkpty|posix_spawnp?|(?:exec|spawn)[lv]p?e?|eval|exec|__import__)\b"
)


def misuse(source: Source) -> list[str]:
    if not MAY_BE_MISUSE.search(source.text):
        return []
    return [*_reserved_imports(source), *_programs(source), *_text_as_code(source)]


def _place(source: Source) -> str:
    return str(source.path).removeprefix("src/codeloupe/")


def _reserved_imports(source: Source) -> Iterator[str]:
    for name, line in imports(source.tree):
        for reserved, places in RESERVED_IMPORTS.items():
            is_it = f"{name}.".startswith(f"{reserved}.")
            if is_it and not any(fnmatch(_place(source), place) for place in places):
                yield f"{source.at(line)} imports {reserved}, which belongs to {', '.join(places) or 'no place'}"


def _programs(source: Source) -> Iterator[str]:
    if fnmatch(_place(source), "process/*"):
        return
    named = ((name, line) for name, line in imports(source.tree))
    used = ((dotted(node), node.lineno) for node in ast.walk(source.tree) if isinstance(node, ast.Attribute))
    for name, line in (*named, *used):
        if STARTS_A_PROGRAM.fullmatch(name):
            yield f"{source.at(line)} uses {name}, but only process/ starts programs"


def _text_as_code(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        if name in RUNS_TEXT:
            yield f"{source.at(node.lineno)} calls {name}"
        if UNSAFE_YAML.fullmatch(name) or (re.fullmatch(r"yaml\.load(_all)?", name) and not _has_safe_loader(node)):
            yield f"{source.at(node.lineno)} calls {name} without a safe loader"


def _has_safe_loader(call: ast.Call) -> bool:
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg == "Loader")]
    return any("Safe" in dotted(loader) for loader in given)


def test_every_part_of_the_package_keeps_to_its_own_means() -> None:
    found = [line for source in sources("src") for line in misuse(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess",
        "from subprocess import run",
        "def late():\n    import subprocess",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "from asyncio import create_subprocess_shell",
        "loop.subprocess_exec(None, 'x')",
        "asyncio.get_running_loop().subprocess_shell(None, 'x')",
        "import os\nos.system('x')",
        "from os import execvp",
        "import os\nstart = os.posix_spawn",
        "import os\nos.spawnlp(0, 'x')",
        "import pty",
        "from multiprocessing.pool import Pool",
        "from concurrent.futures import ProcessPoolExecutor",
        "import argparse",
        "from rich.text import Text",
        "from pydantic import BaseModel",
        "import yaml",
        "from detect_secrets.core import scan",
        "import pickle",
        "eval('1')",
        "exec('1')",
    ],
)
def test_a_misuse_is_found(text: str) -> None:
    assert len(misuse(source_of(text))) == 1


@pytest.mark.parametrize(
    "call", ["yaml.load(x)", "yaml.load(x, Loader=yaml.Loader)", "yaml.unsafe_load(x)", "yaml.full_load_all(x)"]
)
def test_yaml_that_can_make_any_object_is_found(call: str) -> None:
    assert len(misuse(source_of(call, "src/codeloupe/config/sample.py"))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("process/running.py", "import subprocess\nimport os\nos.execv('x', [])"),
        ("cli/main.py", "import argparse\nfrom rich.console import Console"),
        ("config/loading.py", "import yaml\nyaml.safe_load(x)\nyaml.load(x, Loader=yaml.CSafeLoader)"),
        ("review/parts.py", "import os\nimport pydantic_core\nos.execution = 1\nmodel.eval()\nre.compile('x')"),
    ],
)
def test_a_right_use_is_not(path: str, text: str) -> None:
    assert misuse(source_of(text, f"src/codeloupe/{path}")) == []
