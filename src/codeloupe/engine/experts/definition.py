"""From the keys and values of a definition to an expert. What does not fit is refused, by its place and its key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import ConfigError
from codeloupe.model.expert import Expert
from codeloupe.model.finding import Severity

_KEYS = ("description", "brief", "focus", "sceptical_of", "do_not_flag", "paths", "severity_guide")
_MOST_ITEMS = 40
_LONGEST_TEXT = 400
# A checklist is paid for in every call.
_MOST_CHARACTERS = 6_000
_LONGEST_GUESSED = 60
_MOST_LISTED = 40
_SEPARATORS = re.compile(r"[^a-z0-9]+")


class Definition(Struct, frozen=True):
    """An expert, and its checklist in one line for where many share the room."""

    expert: Expert
    brief: str = ""

    def in_brief(self) -> Expert:
        """The expert with nothing but the one line, or with its focus when it has none, as one of several in a call."""
        focus = (self.brief,) if self.brief else self.expert.focus
        bare: Mapping[str, str] = MappingProxyType({})
        return replace(self.expert, focus=focus, sceptical_of=(), do_not_flag=(), severity_guide=bare, joined=True)


def define(name: str, values: object, *, place: str) -> Definition:
    """Check a definition and make it an expert. Raises ConfigError that names the place and the key."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{place}: expected `key: value`, found {_kind(values)}", hint="give at least `focus`")
    for key in values:
        if key not in _KEYS:
            raise ConfigError(f"{place}: unknown key {str(key)[:60]!r}", hint=did_you_mean(str(key), _KEYS))
    reader = _Values(values, place)
    expert = Expert(
        name=name,
        description=reader.text("description") or name.replace("_", " "),
        focus=reader.texts("focus"),
        sceptical_of=reader.texts("sceptical_of"),
        do_not_flag=reader.texts("do_not_flag"),
        paths=reader.texts("paths"),
        severity_guide=reader.severity_guide(),
    )
    if not expert.focus:
        raise ConfigError(f"{place}: focus: expected at least one thing to look for", hint="give a list of short texts")
    return Definition(expert, reader.text("brief"))


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A hint that names the known word that is meant, if one is near, and all of them."""
    more = ", …" if len(known) > _MOST_LISTED else ""
    listed = f"known: {', '.join(known[:_MOST_LISTED])}{more}"
    plain = _SEPARATORS.sub("_", word[:_LONGEST_GUESSED].lower()).strip("_")
    near = difflib.get_close_matches(plain, known, n=1)
    return f"did you mean `{near[0]}`? ({listed})" if near else listed


class _Values:
    """The values of one definition, with a limit on what they are together."""

    def __init__(self, values: Mapping[str, object], place: str) -> None:
        self._values = values
        self._place = place
        self._characters = 0

    def text(self, key: str) -> str:
        """One line of text; empty when the key is not given."""
        value = self._values.get(key)
        return "" if value is None else self._line(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of lines; a single text is a list of one."""
        value = self._values.get(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return (self._line(key, value),)
        if not isinstance(value, list | tuple):
            raise self._refusal(key, f"expected a list of texts, found {_kind(value)}")
        if len(value) > _MOST_ITEMS:
            raise self._refusal(key, f"more than {_MOST_ITEMS} entries")
        return tuple(self._line(key, item) for item in value)

    def severity_guide(self) -> Mapping[str, str]:
        """What deserves which severity, the worst first."""
        key, value = "severity_guide", self._values.get("severity_guide")
        if value is None:
            return MappingProxyType({})
        if not isinstance(value, Mapping):
            raise self._refusal(key, f"expected `severity: words`, found {_kind(value)}")
        guide: dict[Severity, str] = {}
        for word, words in value.items():
            try:
                severity = Severity.parse(word)
            except ValueError as error:
                raise self._refusal(key, str(error)) from error
            if severity in guide:
                raise self._refusal(key, f"{severity.label} is given twice")
            guide[severity] = self._line(key, words)
        return MappingProxyType({severity.label: guide[severity] for severity in Severity if severity in guide})

    def _line(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._refusal(key, f"expected a text, found {_kind(value)}")
        line = " ".join(value.split())
        self._characters += len(line)
        if not line:
            raise self._refusal(key, "a text is empty")
        if not line.isprintable():
            raise self._refusal(key, f"a text holds a character that cannot be seen: {line[:60]!r}")
        if len(line) > _LONGEST_TEXT or self._characters > _MOST_CHARACTERS:
            limits = f"{_LONGEST_TEXT} characters for each text, {_MOST_CHARACTERS:,} for all"
            raise self._refusal(key, f"too long ({limits}): an agent reads it with every call")
        return line

    def _refusal(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self._place}: {key}: {what}", hint="correct this expert's definition")


def _kind(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str():
            return "a text"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case _:
            return type(value).__name__
