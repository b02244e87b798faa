"""Experts, the checklists that reviewing agents get: one JSON file each in `checklists/`, and what users add.

Those of the configuration come before those of a folder, and those before what is built in. What does not fit is
refused, by its place and its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from codeloupe.config import yaml
from codeloupe.config.files import read_config_file
from codeloupe.config.yaml import ListNode, MapNode, Node, Refused, config_error, escape
from codeloupe.errors import ConfigError
from codeloupe.model.change import Expert
from codeloupe.model.finding import Severity
from codeloupe.system.regex import regex

DEFAULT = "default"
"""A name for all experts of an ordinary review, each with its checklist in one line."""

CHECKLISTS = Path(__file__).parent / "checklists"
_IN_DEFAULT = (
    *("correctness", "security", "reliability", "concurrency", "performance", "api_compatibility"),
    *("tests", "documentation"),
)
BUILT_IN = (*_IN_DEFAULT, "architecture", "code_quality", "general")
_KEYS = ("description", "brief", "focus", "sceptical_of", "do_not_flag", "paths", "severity_guide")
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_NONE: Mapping[str, str] = MappingProxyType({})
_MOST_ITEMS = 40
_LONGEST_TEXT = 400
# A checklist is paid for in every call.
_MOST_CHARACTERS = 6_000


def load_experts(
    names: Sequence[str], *, own: Mapping[str, Mapping[str, object]] | None = None, folder: Path | None = None
) -> tuple[Expert, ...]:
    """The experts of these names, in order, each once.

    `own` are definitions from the configuration; `folder` holds one `<name>.yaml` an expert, never reached through a
    symbolic link. `default` means several experts in short; one that is named as well is loaded whole. Only what is
    asked for is read. Raises ConfigError for an unknown name, a malformed definition or an unreadable file.
    """
    own = own or {}
    in_brief: dict[str, bool] = {}
    for name in names:
        if name == DEFAULT:
            in_brief = {**dict.fromkeys(_IN_DEFAULT, True), **in_brief}
        else:
            in_brief[name] = False
    files = _files_in(folder) if folder else {}
    for name in (*own, *files):
        if name == DEFAULT or not _NAME.fullmatch(name):
            raise ConfigError(
                f"experts: {name[:60]!r} cannot be the name of an expert",
                hint=f"use letters, digits, - and _; `{DEFAULT}` means the experts of an ordinary review",
            )
    loaded: list[Expert] = []
    for name, is_brief in in_brief.items():
        expert, brief = _Definition(*_values_of(name, own, files)).read(name)
        if is_brief:
            focus = (brief,) if brief else expert.focus
            expert = replace(expert, focus=focus, sceptical_of=(), do_not_flag=(), severity_guide=_NONE, joined=True)
        loaded.append(expert)
    return tuple(loaded)


def _files_in(folder: Path) -> dict[str, list[Path]]:
    """The files of a folder by the names of their experts."""
    try:
        entries = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise ConfigError(
            f"the folder of experts {str(folder)!r} cannot be read: {reason}", hint="check where it is"
        ) from error
    files: dict[str, list[Path]] = {}
    for entry in entries:
        if entry.endswith((".yaml", ".yml")) and not entry.startswith("."):
            files.setdefault(entry.rpartition(".")[0], []).append(folder / entry)
    return files


def _values_of(name: str, own: Mapping[str, object], files: Mapping[str, Sequence[Path]]) -> tuple[object, str]:
    """What is written about an expert, and where."""
    if name in own:
        return own[name], f"experts.{name}"
    if name in files:
        first, *others = files[name]
        if others:
            raise ConfigError(
                f"the expert {name} has two files: {first.name} and {others[0].name}", hint="keep one of the two"
            )
        place = str(PurePath(first.parent.name, first.name))
        text = read_config_file(first, name=place, follow_symlinks=False).text
        try:
            document = yaml.read_document(place, text, deepest_level=3)
        except Refused as refused:
            raise config_error([refused.problem]) from refused
        if problems := list(yaml.repetitions(place, document)):
            raise config_error(problems)
        return _plain(document), escape(place)
    if name in BUILT_IN:
        return msgspec.json.decode((CHECKLISTS / f"{name}.json").read_bytes()), name
    known = list(dict.fromkeys((*own, *files, *BUILT_IN, DEFAULT)))
    raise ConfigError(f"there is no expert {name[:60]!r}", hint=_did_you_mean(name, known))


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    listed = f"known: {', '.join(known[:40])}{', …' if len(known) > 40 else ''}"
    near = yaml.closest(word, known)
    return f"did you mean `{near}`? ({listed})" if near else listed


def _plain(node: Node) -> object:
    """The value as it is written, since a checklist is made of words: `yes` and `1.10` stay texts."""
    if isinstance(node, ListNode):
        return [_plain(item) for item in node.items]
    if isinstance(node, MapNode):
        return {key.text: _plain(value) for key, value in node.entries}
    return None if node.value is None else node.text


class _Definition:
    """The values of one definition, with a limit on what they are together. Raises ConfigError by place and key."""

    def __init__(self, values: object, place: str) -> None:
        self._place = place
        self._characters = 0
        if not isinstance(values, Mapping):
            raise ConfigError(f"{place}: expected `key: value`, found {_kind(values)}", hint="give at least `focus`")
        self._values: Mapping[object, object] = values
        for key in values:
            if key not in _KEYS:
                raise ConfigError(f"{place}: unknown key {str(key)[:60]!r}", hint=_did_you_mean(str(key), _KEYS))

    def read(self, name: str) -> tuple[Expert, str]:
        """The expert of this name, and its checklist in one line for where many share the room, if it has one."""
        brief, description = (
            "" if self._values.get(key) is None else self._line(key, self._values[key])
            for key in ("brief", "description")
        )
        focus, sceptical_of, do_not_flag, paths = map(self._texts, ("focus", "sceptical_of", "do_not_flag", "paths"))
        if not focus:
            hint = "give a list of short texts"
            raise ConfigError(f"{self._place}: focus: expected at least one thing to look for", hint=hint)
        expert = Expert(
            name=name,
            description=description or name.replace("_", " "),
            focus=focus,
            sceptical_of=sceptical_of,
            do_not_flag=do_not_flag,
            paths=paths,
            severity_guide=self._severity_guide(),
        )
        return expert, brief

    def _texts(self, key: str) -> tuple[str, ...]:
        """A list of lines; a single text is a list of one."""
        value = self._values.get(key)
        value = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(value, list | tuple):
            raise self._refusal(key, f"expected a list of texts, found {_kind(value)}")
        if len(value) > _MOST_ITEMS:
            raise self._refusal(key, f"more than {_MOST_ITEMS} entries")
        return tuple(self._line(key, item) for item in value)

    def _severity_guide(self) -> Mapping[str, str]:
        """What deserves which severity, the worst first."""
        key, value = "severity_guide", self._values.get("severity_guide")
        if value is not None and not isinstance(value, Mapping):
            raise self._refusal(key, f"expected `severity: words`, found {_kind(value)}")
        guide: dict[Severity, str] = {}
        for word, words in (value or {}).items():
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
    kinds = {type(None): "nothing", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else kinds.get(type(value), type(value).__name__)
