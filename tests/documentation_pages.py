"""The pages of the documentation as tests read them: fenced blocks, commands, spans of code, links."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parent.parent
DOCS = PROJECT / "docs"
# The pages with commands of the program; CONTRIBUTING.md has those of the project's tools.
PAGES = (
    PROJECT / "README.md",
    PROJECT / "SECURITY.md",
    PROJECT / "examples" / "README.md",
    *sorted(DOCS.glob("*.md")),
)

_FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
_FILE_NAME = re.compile(r"^# ([\w./-]+\.(?:ya?ml|json|md))\n")
_SHELL = ("", "sh")


class Block(NamedTuple):
    """A fenced block; `line` is where it begins in its page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """A file that the page shows is named in a comment on its first line."""
        named = _FILE_NAME.match(self.text) if self.language == "yaml" else None
        return named[1] if named else None

    @property
    def is_script(self) -> bool:
        """A whole file, such as a hook: shown, and not typed."""
        return self.text.startswith("#!")


class Command(NamedTuple):
    """One line that a reader types, joined where it goes on in the next one."""

    block: Block
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.block.page)}:{self.block.line}: {self.text}"


def name_of(page: Path) -> str:
    """A page as people name it: two of them are called README.md."""
    return str(page.relative_to(PROJECT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in _FENCE.finditer(text)]


def commands(block: Block) -> list[Command]:
    """What is typed in a block: nothing unless it is one of a shell."""
    if block.language not in _SHELL or block.is_script:
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    return [Command(block, line.strip()) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def spans(page: Path) -> list[str]:
    return _SPAN.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    return _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def all_commands() -> Iterator[Command]:
    return (command for page in PAGES for block in blocks(page) for command in commands(block))
