"""A reader for JSON that is almost JSON. It never goes back, and takes nothing that does not stand in the text.

It bears trailing and missing commas, comments, other quotes, bare keys and words, Python literals, raw line ends,
text between items, and missing brackets at the end. What it could not read leaves a flaw on the object that held it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from codeloupe.engine.parse.flaws import TRUNCATED, CutList, FlawedObject, duplicate_key
from codeloupe.engine.parse.json_text import MAX_DEPTH, string_end
from codeloupe.engine.parse.loose_tokens import (
    FENCES,
    QUOTES,
    LooseText,
    Token,
    bare_text_at,
    blank_end,
    key_at,
    plain_value_at,
    poor_key_at,
    string_in_list,
    string_in_object,
    word_at,
)
from codeloupe.engine.parse.patterns import late

_MAX_CONTAINERS = 200_000
# Of a key that stands in one object many times.
_MAX_OTHERS = 100
_BRACKET = late(r"[{}\[\]]")
_WORD_CHARACTER = late(r"\w")
_NEXT_IN_OBJECT = late(r'[{}\[\],]|"++|\\.|\n[ \t]{0,3}(?:```|~~~)|\n(?=\{)')
_BEHIND_STRING = late(r"[\s,:}\]]|\Z")


class BeyondCap(ValueError):
    """The text nests deeper, or holds more, than anything that is meant to be read."""


class LooseValue(Struct, frozen=True):
    """An object or a list, or None where a bracket turned out to begin neither; and where reading ended.

    `truncated` is on when the text, or the fence around it, ended before the value did.
    """

    value: dict[str, Any] | list[Any] | None
    end: int
    truncated: bool = False


def read_loosely(source: LooseText, start: int) -> LooseValue:
    """The value that begins with the bracket at `start`. Raises BeyondCap."""
    return _Reader(source).read(start)


class _Frame(Struct):
    """A container that is still open."""

    value: dict[str, Any] | list[Any]
    key: str | None = None
    flaw: str = ""
    others: tuple[tuple[str, Any], ...] = ()
    has_container: bool = False


class _Reader:
    def __init__(self, source: LooseText) -> None:
        self._source = source
        self._text = source.text
        self._stack: list[_Frame] = []
        self._open_lists = 0
        self._opened = 0
        self._root: dict[str, Any] | list[Any] | None = None
        self._is_abandoned = False

    def read(self, start: int) -> LooseValue:
        text = self._text
        position = self._open(start)
        while self._stack:
            position = blank_end(self._source, position)
            if position >= len(text) or text.startswith(FENCES, position) or self._is_abandoned:
                return self._cut(position)
            in_object = isinstance(self._stack[-1].value, dict)
            position = self._member(position) if in_object else self._item(position)
        return LooseValue(self._root, position)

    def _cut(self, position: int) -> LooseValue:
        """Close all that is open: the text ended, or what follows belongs to something else."""
        while self._stack:
            frame = self._stack[-1]
            frame.flaw = TRUNCATED
            if isinstance(frame.value, list):
                frame.value = CutList(frame.value)
            self._close(position)
        return LooseValue(self._root, position, truncated=not self._is_abandoned)

    def _open(self, position: int) -> int:
        if len(self._stack) >= MAX_DEPTH:
            raise BeyondCap(f"nested more than {MAX_DEPTH} levels deep")
        self._opened += 1
        if self._opened > _MAX_CONTAINERS:
            raise BeyondCap(f"more than {_MAX_CONTAINERS:,} objects and lists")
        is_list = self._text[position] == "["
        if self._stack:
            self._stack[-1].has_container = True
        self._stack.append(_Frame([] if is_list else {}))
        self._open_lists += is_list
        return position + 1

    def _close(self, position: int) -> int:
        frame = self._stack.pop()
        value = frame.value
        if isinstance(value, list):
            self._open_lists -= 1
        elif frame.flaw:
            value = FlawedObject(value, frame.flaw, frame.others)
        if self._stack:
            self._attach(value)
        else:
            self._root = value
        return position

    def _attach(self, value: Any) -> None:
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
            return
        key = frame.key or ""
        if key in frame.value:
            frame.flaw = frame.flaw or duplicate_key(key)
            frame.others = (*frame.others, (key, value)) if len(frame.others) < _MAX_OTHERS else frame.others
            return
        frame.value[key] = value

    def _member(self, position: int) -> int:
        char = self._text[position]
        if char == "}":
            return self._close(position + 1)
        if char in ",;":
            return position + 1
        if char == "]" or (char == "{" and self._is_item()):
            return self._object_without_end(position)
        key = key_at(self._text, position) or poor_key_at(self._text, position)
        if key is None:
            return self._skip_member(position)
        self._stack[-1].key = key.value
        return self._member_value(blank_end(self._source, key.end))

    def _member_value(self, position: int) -> int:
        text = self._text
        if position >= len(text):
            return position
        if text[position] in "{[":
            return self._open(position)
        is_string = text[position] in QUOTES
        members = self._stack[-1].value
        known = members if isinstance(members, dict) else {}
        if is_string:
            token: Token | None = string_in_object(self._source, position, known)
        else:
            token = word_at(text, position) or bare_text_at(text, position)
        if token is None:
            return self._skip_member(position)
        self._attach(token.value)
        return token.end if token.clean else self._skip_member(token.end)

    def _is_item(self) -> bool:
        """Whether the open object stands in a list and has members: then a brace begins the next item."""
        return len(self._stack) > 1 and isinstance(self._stack[-2].value, list) and bool(self._stack[-1].value)

    def _object_without_end(self, position: int) -> int:
        """A list ends where an object is open: the brace of the object is missing, so it is not whole."""
        frame = self._stack[-1]
        frame.flaw = frame.flaw or TRUNCATED
        return self._close(position) if self._open_lists else position + 1

    def _skip_member(self, position: int) -> int:
        """The next comma or closing bracket of this object, past what cannot be read in it.

        What begins with a brace and has no key at all is prose, and is given up.
        """
        frame = self._stack[-1]
        if len(self._stack) == 1 and frame.key is None:
            self._stack.clear()
            return position
        end = self._member_end(position)
        frame.flaw = frame.flaw or f"unreadable from character {position + 1:,} to {end:,}"
        return end

    def _member_end(self, position: int) -> int:
        text, depth = self._text, 0
        while match := _NEXT_IN_OBJECT.search(text, position):
            char = match[0]
            if char[0] == "\n":
                self._is_abandoned = char == "\n"
                return match.end() - (0 if self._is_abandoned else len("```"))
            if depth == 0 and char in "},]":
                return match.start()
            depth += (char in "{[") - (char in "}]")
            # Several quotes in a row are an empty string, or none at all.
            position = self._skipped_string_end(match.end()) if char == '"' else match.end()
        return len(text)

    def _skipped_string_end(self, position: int) -> int:
        """The end of a string, unless it ends where none does: then its quote was the end of another one."""
        end = string_end(self._text, position)
        is_string = self._text[end - 1] != '"' or _BEHIND_STRING.match(self._text, end)
        return end if is_string else position

    def _item(self, position: int) -> int:
        text, char = self._text, self._text[position]
        if char == "]":
            return self._close(position + 1)
        if char == "}":
            return self._list_without_end(position)
        if char in ",;":
            return position + 1
        if char in "{[":
            return self._open(position)
        token = string_in_list(text, position) if char in QUOTES else plain_value_at(text, position)
        if token is None:
            return self._skip_stray_text(position)
        self._attach(token.value)
        return token.end

    def _list_without_end(self, position: int) -> int:
        """An object ends where a list is open: the bracket of the list is missing, and maybe more."""
        if len(self._stack) == self._open_lists:
            return position + 1
        frame = self._stack[-1]
        frame.value = CutList(frame.value)
        return self._close(position)

    def _skip_stray_text(self, position: int) -> int:
        """The next bracket. Words before it stand for an item that is none: they may have been meant as one.

        A list that has held no object or list so far is prose in brackets, and is given up.
        """
        if len(self._stack) == 1 and not self._stack[0].has_container:
            self._stack.clear()
            return position
        bracket = _BRACKET.search(self._text, position)
        end = bracket.start() if bracket else len(self._text)
        if _WORD_CHARACTER.search(self._text, position, end):
            self._attach(FlawedObject({}, f"stray text at character {position + 1:,}"))
        return end
