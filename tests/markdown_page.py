"""What a Markdown page does when a reader of the standard shows it, with raw HTML and tables switched on."""

from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

_READER = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])
# What takes a reader elsewhere, shows something from elsewhere, or is markup of somebody else.
ACTIVE = frozenset({"link_open", "image", "html_inline", "html_block"})


def tokens(page: str) -> list[Token]:
    """Every token of a page, those inside of paragraphs too."""
    return list(_flat(_READER.parse(page)))


def kinds(page: str) -> set[str]:
    """Which kinds of tokens a page has."""
    return {token.type for token in tokens(page)}


def shown_text(page: str) -> str:
    """What stands on a page outside of code."""
    return "\n".join(token.content for token in tokens(page) if token.type == "text")


def code(page: str) -> list[str]:
    """The contents of code spans and blocks."""
    return [token.content for token in tokens(page) if token.type in ("code_inline", "fence", "code_block")]


def _flat(found: list[Token]) -> Iterator[Token]:
    for token in found:
        yield token
        yield from _flat(token.children or [])
