"""Load experts, the checklists for reviewing agents: one JSON file each in `checklists/`, and those of the user.

An expert in the settings replaces one of the same name in a folder, which replaces a built-in one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from codeloupe.config import yaml
from codeloupe.config.files import read_config_file
from codeloupe.config.kinds import OWN_EXPERTS, Wrong
from codeloupe.config.schema import Settings
from codeloupe.config.yaml import Problem, Refused, config_error, escape
from codeloupe.errors import ConfigError
from codeloupe.model.change import Expert
from codeloupe.system.regex import regex

DEFAULT = "default"
"""The name for all experts of an ordinary review, each with its checklist in one line."""

CHECKLISTS = Path(__file__).parent / "checklists"
_IN_DEFAULT = (
    "correctness",
    "security",
    "reliability",
    "concurrency",
    "performance",
    "api_compatibility",
    "tests",
    "documentation",
)
BUILT_IN = (*_IN_DEFAULT, "architecture", "code_quality", "general")
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_NONE: Mapping[str, str] = MappingProxyType({})
# Every call pays for the checklist.
_MOST_CHARACTERS = 6_000
_MOST_LISTED = 40
_LIST_KEYS = ("focus", "sceptical_of", "do_not_flag", "paths")


def load_experts(
    names: Sequence[str], *, own: Mapping[str, Mapping[str, object]] | None = None, folder: Path | None = None
) -> tuple[Expert, ...]:
    """Return the experts of these names, in order, each once.

    `own` are the definitions in the settings. `folder` has one file `<name>.yaml` for each expert. `default` means
    several experts in brief; an expert that is also named itself is loaded in full. Only the files of these experts are
    read. Raise ConfigError.
    """
    in_brief: dict[str, bool] = {}
    for name in names:
        if name == DEFAULT:
            for other in _IN_DEFAULT:
                in_brief.setdefault(other, True)
        else:
            in_brief[name] = False
    files: Mapping[str, Path] = {}
    if folder is not None:
        files = _files_in(folder)
    experts: list[Expert] = []
    for name, is_brief in in_brief.items():
        values = _definition(name, own or {}, files)
        experts.append(_expert(name, values, in_brief=is_brief))
    return tuple(experts)


def _files_in(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by the names of their experts."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        what = f"cannot read the folder of experts {str(folder)!r}: {reason}"
        raise ConfigError(what, hint="check its path and permissions") from error
    files: dict[str, Path] = {}
    for file in entries:
        name = file.stem
        if file.suffix not in (".yaml", ".yml") or file.name.startswith("."):
            continue
        if name == DEFAULT or not _NAME.fullmatch(name):
            hint = f"use letters, digits, - and _; `{DEFAULT}` is reserved: it means the experts of an ordinary review"
            raise ConfigError(f"experts: {name[:60]!r} is not a valid name of an expert", hint=hint)
        if name in files:
            what = f"the expert {name} has two files: {files[name].name} and {file.name}"
            raise ConfigError(what, hint="keep one of the two")
        files[name] = file
    return files


def _definition(name: str, own: Mapping[str, Mapping[str, Any]], files: Mapping[str, Path]) -> Mapping[str, Any]:
    """Return the definition of an expert. Raise ConfigError if unknown expert of that name."""
    if name in own:
        return own[name]
    if name in files:
        return _read(name, files[name])
    if name in BUILT_IN:
        built_in: Mapping[str, Any] = msgspec.json.decode((CHECKLISTS / f"{name}.json").read_bytes())
        return built_in
    known = list(dict.fromkeys((*own, *files, *BUILT_IN, DEFAULT)))
    listed = f"known: {', '.join(known[:_MOST_LISTED])}"
    if len(known) > _MOST_LISTED:
        listed += ", …"
    near = yaml.closest(name, known)
    hint = listed
    if near is not None:
        hint = f"did you mean `{near}`? ({listed})"
    raise ConfigError(f"unknown expert {name[:60]!r}", hint=hint)


def _expert(name: str, values: Mapping[str, Any], *, in_brief: bool) -> Expert:
    """Return the expert of a definition, each text in one line."""
    lists: dict[str, tuple[str, ...]] = {}
    for key in _LIST_KEYS:
        lists[key] = tuple(_one_line(text) for text in values.get(key, ()))
    severity_guide: dict[str, str] = {}
    for label, words in values.get("severity_guide", _NONE).items():
        severity_guide[label] = _one_line(words)
    brief = _one_line(values.get("brief", ""))
    description = _one_line(values.get("description", ""))
    characters = len(brief) + len(description) + sum(len(words) for words in severity_guide.values())
    for texts in lists.values():
        characters += sum(len(text) for text in texts)
    if characters > _MOST_CHARACTERS:
        what = f"the expert {name} has more than {_MOST_CHARACTERS:,} characters"
        raise ConfigError(what, hint="shorten it: an agent reads it with every call")
    expert = Expert(
        name=name,
        description=description or name.replace("_", " "),
        focus=lists["focus"],
        sceptical_of=lists["sceptical_of"],
        do_not_flag=lists["do_not_flag"],
        paths=lists["paths"],
        severity_guide=severity_guide,
    )
    if not in_brief:
        return expert
    focus = expert.focus
    if brief:
        focus = (brief,)
    return replace(expert, focus=focus, sceptical_of=(), do_not_flag=(), severity_guide=_NONE, joined=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _read(name: str, file: Path) -> Mapping[str, Any]:
    """Return the definition of an expert in a file, as the settings would have it."""
    place = str(PurePath(file.parent.name, file.name))
    text = read_config_file(file, name=place, follow_symlinks=False).text
    try:
        document = yaml.read_document(place, text, deepest_level=3)
    except Refused as refused:
        raise config_error([refused.problem]) from refused
    problems = list(yaml.repetitions(place, document))
    values: dict[str, Any] = {}
    for key, entry in document.entries:
        # A checklist consists of words, so `yes` and `1.10` stay texts.
        value = yaml.plain(entry, as_written=True)
        if value is not None:
            values[key.text] = value
    read: Mapping[str, Any] = {}
    try:
        read = OWN_EXPERTS.read({name: values})
    except Wrong as wrong:
        for mistake in wrong.mistakes:
            blamed, line = yaml.part(document, mistake.place[1:])
            what = f"{yaml.path_text(name, mistake.place[1:])}: {mistake.what}"
            if mistake.found:
                what += f", found {yaml.describe(blamed)}"
            meant = yaml.closest(str(mistake.place[-1]), mistake.choices)
            hint = "correct this expert's definition"
            if meant is not None:
                hint = f"did you mean `{meant}`?"
            problems.append(Problem(f"{escape(place)}:{line}", what, hint, line))
    if problems:
        raise config_error(problems)
    return read[name]  # type: ignore[no-any-return]  # as the kind says


def experts_of(settings: Settings, names: Sequence[str] | None = None) -> tuple[Expert, ...]:
    """Return the experts of these names, or of those in the settings, or the default ones.

    Raise ConfigError as `load_experts` does.
    """
    folder: Path | None = None
    if settings.experts_folder:
        folder = Path(settings.experts_folder)
    chosen = names or settings.experts or (DEFAULT,)
    return load_experts(chosen, own=settings.own_experts, folder=folder)
