"""A second look at the code, for rules of ruff that depend on more than the form of a statement.

Each check returns whether a diagnostic is a defect. The checks read rows of text: code under review is not parsed in
this process. Every check is linear in the rows that it reads and reads a bounded number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from codeloupe.analysers.secret_values import speaks_about_secrets
from codeloupe.system.regex import regex

# A longer row is read up to here.
_MOST_COLUMNS = 400
_MOST_ROWS = 20
_ROWS_AROUND = 50
_MOST_ROWS_OF_FUNCTION = 300
# The shortest line length that a formatter is usually given.
_LINE_LENGTH = 79


class Place(Struct, frozen=True):
    """The place of a diagnostic: the rows of its file, its first and last row, and the column where it starts.

    `first`, `last` and `column` start at 1. `message` is ruff's own.
    """

    rows: Sequence[str]
    first: int
    last: int
    column: int
    message: str

    @property
    def own_rows(self) -> list[str]:
        """Return the rows of the diagnostic."""
        return [row[:_MOST_COLUMNS] for row in self.rows[self.first - 1 : self.last]]


_NAME_AT_END = regex(r'"([^"]*)"$')


def _is_secret(place: Place) -> bool:
    """Return whether the variable is named like a secret, not like something about it, as in `TOKEN_ENV`."""
    name = _NAME_AT_END.search(place.message)
    return name is None or not speaks_about_secrets(name[1])


def _is_import_for_itself(place: Place) -> bool:
    """Return whether an unused import is an `import` statement at the top level of the module.

    A name that `from … import` brings into a module, or an import under a condition, may be there for other modules.
    """
    rows = place.own_rows
    return bool(rows) and rows[0].startswith("import ")


def _misses_comma(place: Place) -> bool:
    """Return whether the parts of a string would fit on one line, so that there was no reason to split it.

    A part that ends with a line break is a line of a longer text, which is split on purpose.
    """
    rows = place.own_rows
    if len(rows) == 1:
        return True
    if len(rows) > _MOST_ROWS:
        return False
    first_parts = [row.rstrip() for row in rows[:-1]]
    if any(part.endswith(("\\n'", '\\n"')) for part in first_parts):
        return False
    nearby = place.rows[max(0, place.first - _ROWS_AROUND) : place.last + _ROWS_AROUND]
    longest = max(len(row) for row in nearby if len(row) <= _MOST_COLUMNS)
    joined = len(first_parts[0]) + sum(len(row.strip()) - 2 for row in rows[1:])
    return joined <= max(longest, _LINE_LENGTH)


_CONVERTED = regex(r"\b(?:int|float|str)\(\s*os\.(?:getenv|environ\.get)\([^()]*$")


def _has_two_types(place: Place) -> bool:
    """Return whether a variable of the environment is not converted at once, so that its default has another type."""
    row = place.own_rows[0][: place.column - 1]
    row_before = place.rows[place.first - 2][:_MOST_COLUMNS] if place.first > 1 else ""
    return _CONVERTED.search(f"{row_before}\n{row}") is None


_REASON = regex(r"#(?!\s*(?:noqa|nosec|pylint|pragma|ruff|type:))\s*\w")


def _is_unexplained(place: Place) -> bool:
    """Return whether the handler that discards an error has no comment that explains it."""
    return not any(_REASON.search(row) for row in place.own_rows[:_MOST_ROWS])


# The last parameter before a default; annotations may contain commas.
_PARAMETER = regex(r".*(?:^|[(,*])[ \t]*(\w+)[ \t]*(?::[^=]*)?=[ \t]*$")
_FUNCTION = regex(r"[ \t]*(?:async[ \t]+)?def\b")
_CHANGES = (
    r"\b{name}(?:[ \t]*(?:\+=|\|=|-=|&=)"
    r"|\.(?:append|extend|insert|add|update|setdefault|pop|popitem|clear|remove|discard|sort|reverse)\("
    r"|[ \t]*\[[^\]=]*\][ \t]*[-+*/|&]?=(?!=))"
    r"|\b(?:return|yield|del)[ \t]+{name}\b(?!\w*\()"
    r"|=[ \t]*{name}[ \t]*(?:\#.*)?$"
)


def _changes_default(place: Place) -> bool:
    """Return whether the function changes, stores or returns the default value that all its calls share."""
    rows = place.own_rows
    parameter = _PARAMETER.search(rows[0][: place.column - 1]) if rows else None
    if parameter is None:
        return True
    body = _rows_of_function(place.rows, place.first - 1)
    if body is None:
        return True
    change = regex(_CHANGES.replace("{name}", parameter[1]))
    # The body of a short function is on the row of its signature.
    return any(change.search(row) for row in (rows[0][place.column - 1 :], *body))


def _rows_of_function(rows: Sequence[str], index: int) -> list[str] | None:
    """Return the rows of a function after the row at `index` of its signature, or None if they are too many."""
    start = index
    while not _FUNCTION.match(rows[start]):
        start -= 1
        if start < 0 or index - start > _MOST_ROWS:
            return None
    margin = len(rows[start]) - len(rows[start].lstrip())
    end = index + 1 + _MOST_ROWS_OF_FUNCTION
    body: list[str] = []
    for row in rows[index + 1 : end]:
        text = row.strip()
        if text and len(row) - len(row.lstrip()) <= margin and not text.startswith(")"):
            return body
        body.append(row[:_MOST_COLUMNS])
    return body if len(rows) <= end else None


# A text that is raised, printed or logged is read by a person, not by a database.
_MESSAGE = regex(
    r"\s*(?:raise\b|print\(|assert\b|warnings\.warn\(|[\w.]{0,60}log(?:ger|ging)?\.(?:debug|info|warning|error|exception)\()"
)
_RUNS = regex(r"(?i)execute|query|cursor")


def _may_be_injected(place: Place) -> bool:
    """Return whether the text may be a query, and not only a message that has the words of one."""
    rows = place.own_rows
    if not rows or not _MESSAGE.match(rows[0]):
        return True
    return len(rows) > _MOST_ROWS or any(_RUNS.search(row) for row in rows)


CHECKS: Mapping[str, Callable[[Place], bool]] = {
    "B006": _changes_default,
    "F401": _is_import_for_itself,
    "ISC004": _misses_comma,
    "PLW1508": _has_two_types,
    "S105": _is_secret,
    "S106": _is_secret,
    "S107": _is_secret,
    "S110": _is_unexplained,
    "S112": _is_unexplained,
    "S608": _may_be_injected,
}
