"""From the text of a baseline to its entries. Whatever is wrong is told with its line, all of it at once.

The text is read from the parser's events, so that limits hold while it is read. There is no use for tags, anchors and
aliases here, so they are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from codeloupe.config.problems import Problem, escape, plain_or_quoted, quote
from codeloupe.config.suggestions import closest
from codeloupe.config.syntax import explain, unreadable_text
from codeloupe.errors import ConfigError
from codeloupe.model.baseline import BASELINE_NAME, Baseline, BaselineEntry
from codeloupe.store.baseline.entry_fields import FIELDS, LONGEST_TEXT, NEEDED

if TYPE_CHECKING:
    import yaml

VERSION = "1"
MOST_ENTRIES = 50_000
_DEEPEST_LEVEL = 8
_MOST_LISTED = 20
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_TOP_KEYS = ("version", "entries")
_HINT = f"correct each line of {BASELINE_NAME}"


class _Value(NamedTuple):
    """A plain value with its line; `text` is None when there is none."""

    line: int
    text: str | None


class _Refused(Exception):
    """The text cannot be read any further."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


@cache
def _yaml() -> Any:
    """The parser, loaded when there is a baseline to parse."""
    return import_module("yaml")


def parse_baseline(name: str, text: str) -> Baseline:
    """The entries of a baseline; an empty text has none. Raises ConfigError with every mistake and its line."""
    text = text.removeprefix("\ufeff")
    if problem := unreadable_text(name, text):
        raise _error([problem])
    parser = _Parser(name, text)
    try:
        entries = parser.entries()
    except _Refused as refusal:
        raise _error([*parser.problems, refusal.problem]) from None
    except _yaml().YAMLError as error:
        raise _error([*parser.problems, explain(name, text, error)]) from error
    if parser.problems:
        raise _error(parser.problems)
    return Baseline(entries, name)


def _error(problems: list[Problem]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(f"{problems[0].place}: {problems[0].what}", hint=problems[0].hint)
    ranked = sorted(problems, key=lambda problem: problem.line)
    rows = [f"  {problem.place}: {problem.what}{f' ({problem.hint})' if problem.hint else ''}" for problem in ranked]
    more = [f"  and {len(rows) - _MOST_LISTED:,} more"] if len(rows) > _MOST_LISTED else []
    return ConfigError(
        "\n".join([f"the baseline has {len(rows):,} mistakes:", *rows[:_MOST_LISTED], *more]), hint=_HINT
    )


class _Parser:
    """Reads one text. `problems` are the mistakes after which reading could go on."""

    def __init__(self, name: str, text: str) -> None:
        self._yaml = _yaml()
        self._name = escape(name)
        loader = getattr(self._yaml, "CSafeLoader", self._yaml.SafeLoader)(text)
        self._events: Iterator[yaml.Event] = iter(loader.get_event, None)
        self.problems: list[Problem] = []

    def entries(self) -> tuple[BaselineEntry, ...]:
        """All entries of the text. Raises _Refused and the parser's own errors."""
        next(self._events)
        if isinstance(next(self._events), self._yaml.StreamEndEvent):
            return ()
        found: list[BaselineEntry] = []
        lines: dict[str, int] = {}

        def take(key: _Value) -> None:
            if key.text not in _TOP_KEYS:
                self._unknown_key(key, _TOP_KEYS)
                return
            if key.text in lines:
                self._problem(key.line, f"{key.text}: already given on line {lines[key.text]}", "keep one of the two")
            lines[key.text] = key.line
            if key.text == "entries":
                found.extend(self._list_of_entries())
            else:
                self._check_version(self._scalar(next(self._events)))

        start = next(self._events)
        if not (isinstance(start, self._yaml.ScalarEvent) and self._scalar(start).text is None):
            self._map(start, take, what="`version: 1` and `entries:`")
            if "version" not in lines:
                self._problem(_line(start), "`version: 1` is missing", "add it as the first line")
        next(self._events)
        after = next(self._events)
        if not isinstance(after, self._yaml.StreamEndEvent):
            raise self._refusal(_line(after), "a second document begins here", "keep one document, without `---` lines")
        self._check_unique(found)
        return tuple(found)

    def _check_version(self, version: _Value) -> None:
        if version.text != VERSION:
            shown = quote(version.text or "")
            self._problem(version.line, f"version: this codeloupe reads version 1, found {shown}", "update codeloupe")

    def _check_unique(self, entries: list[BaselineEntry]) -> None:
        first: dict[tuple[str, str], int] = {}
        for entry in entries:
            line = first.setdefault(entry.key, entry.line)
            if line != entry.line:
                self._problem(entry.line, f"the same fingerprint and file are on line {line}", "keep one of the two")

    def _list_of_entries(self) -> Iterator[BaselineEntry]:
        start = next(self._events)
        if isinstance(start, self._yaml.ScalarEvent) and self._scalar(start).text is None:
            return
        if not isinstance(start, self._yaml.SequenceStartEvent):
            raise self._refusal(_line(start), "entries: expected a list", "begin each entry with `- fingerprint: `")
        self._check_plain(start)
        count = 0
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            count += 1
            if count > MOST_ENTRIES:
                raise self._refusal(_line(event), f"more than {MOST_ENTRIES:,} entries", "fix some of the findings")
            entry = self._entry(event)
            if entry is not None:
                yield entry

    def _entry(self, start: yaml.Event) -> BaselineEntry | None:
        line, before = _line(start), len(self.problems)
        values: dict[str, Any] = {}
        seen: set[str] = set()

        def take(key: _Value) -> None:
            if key.text is None or key.text not in FIELDS:
                self._unknown_key(key, tuple(FIELDS))
                return
            if key.text in seen:
                self._problem(key.line, f"{key.text}: is given twice in this entry", "keep one of the two")
            seen.add(key.text)
            self._take_field(key.text, values)

        self._map(start, take, what="an entry with fingerprint, file, title, reason, owner and expires")
        for name in NEEDED:
            if name not in seen:
                self._problem(line, f"this entry has no {name}", f"add `{name}: `")
        return BaselineEntry(**values, line=line) if len(self.problems) == before else None

    def _take_field(self, name: str, values: dict[str, Any]) -> None:
        value = self._scalar(next(self._events))
        field = FIELDS[name]
        text = value.text or ""
        if not text.strip() and name not in NEEDED:
            return
        try:
            values[name] = field.read(text)
        except ValueError:
            found = quote(text) if text.strip() else "nothing"
            self._problem(value.line, f"{name}: expected {field.expected}, found {found}", field.hint)

    def _map(self, start: yaml.Event, take: Callable[[_Value], None], *, what: str) -> None:
        """Let `take` read the value of each key of a map."""
        if not isinstance(start, self._yaml.MappingStartEvent):
            raise self._refusal(_line(start), f"expected {what}", "write `key: value`, indented with spaces")
        self._check_plain(start)
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            take(self._scalar(event))

    def _scalar(self, event: yaml.Event) -> _Value:
        self._check_plain(event)
        if not isinstance(event, self._yaml.ScalarEvent):
            raise self._refusal(_line(event), "expected a plain text here", "write it on one line, in quotes")
        if len(event.value) > LONGEST_TEXT:
            raise self._refusal(_line(event), f"a text longer than {LONGEST_TEXT:,} characters", "shorten it")
        # Only without quotes is it a word of YAML's own.
        is_nothing = event.implicit[0] and event.value in _NOTHING
        return _Value(_line(event), None if is_nothing else event.value)

    def _check_plain(self, event: yaml.Event) -> None:
        if isinstance(event, self._yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._refusal(
                _line(event), "anchors and aliases (`&`, `*`) are not allowed", "put the text in quotes"
            )
        if getattr(event, "tag", None) is not None:
            raise self._refusal(_line(event), "tags (`!`) are not allowed", "put the text in quotes")

    def _unknown_key(self, key: _Value, known: tuple[str, ...]) -> None:
        meant = closest(key.text or "", known)
        hint = f"did you mean `{meant}`?" if meant else f"the keys are {', '.join(known)}"
        self._problem(key.line, f"{plain_or_quoted(key.text or '')}: unknown key", hint)
        self._skip()

    def _skip(self) -> None:
        """Leave out the value of a key, however it is made up."""
        depth = 0
        while True:
            event = next(self._events)
            depth += isinstance(event, self._yaml.CollectionStartEvent)
            depth -= isinstance(event, self._yaml.CollectionEndEvent)
            if depth > _DEEPEST_LEVEL:
                raise self._refusal(_line(event), f"nested more than {_DEEPEST_LEVEL} levels deep", "remove this value")
            if not depth:
                return

    def _problem(self, line: int, what: str, hint: str) -> None:
        self.problems.append(Problem(f"{self._name}:{line}", what, hint, line))

    def _refusal(self, line: int, what: str, hint: str) -> _Refused:
        return _Refused(Problem(f"{self._name}:{line}", what, hint, line))


def _line(event: yaml.Event) -> int:
    return 1 if event.start_mark is None else event.start_mark.line + 1
