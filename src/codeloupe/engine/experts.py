"""Experts, the checklists that reviewing agents get: one JSON file each in `checklists/`, and what users add.

Those of the settings come before those of a folder, and those before what is built in.
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
from codeloupe.config.yaml import Problem, Refused, config_error, escape
from codeloupe.errors import ConfigError
from codeloupe.model.change import Expert
from codeloupe.system.regex import regex

DEFAULT = "default"
"""A name for all experts of an ordinary review, each with its checklist in one line."""

CHECKLISTS = Path(__file__).parent / "checklists"
_IN_DEFAULT = (
    *("correctness", "security", "reliability", "concurrency", "performance", "api_compatibility"),
    *("tests", "documentation"),
)
BUILT_IN = (*_IN_DEFAULT, "architecture", "code_quality", "general")
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_NONE: Mapping[str, str] = MappingProxyType({})
# A checklist is paid for in every call.
_MOST_CHARACTERS = 6_000


def load_experts(
    names: Sequence[str], *, own: Mapping[str, Mapping[str, object]] | None = None, folder: Path | None = None
) -> tuple[Expert, ...]:
    """The experts of these names, in order, each once.

    `own` are definitions as the settings hold them; `folder` holds one `<name>.yaml` an expert. `default` means several
    in short; one that is named as well is loaded whole. Only what is asked for is read. Raises ConfigError.
    """
    in_brief: dict[str, bool] = {}
    for name in names:
        if name == DEFAULT:
            in_brief = {**dict.fromkeys(_IN_DEFAULT, True), **in_brief}
        else:
            in_brief[name] = False
    files = _files_in(folder) if folder else {}
    return tuple(_expert(name, own or {}, files, in_brief=is_brief) for name, is_brief in in_brief.items())


def _files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder by the names of their experts."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        what = f"the folder of experts {str(folder)!r} cannot be read: {reason}"
        raise ConfigError(what, hint="check where it is") from error
    files: dict[str, Path] = {}
    for file in entries:
        name = file.stem
        if file.suffix not in (".yaml", ".yml") or file.name.startswith("."):
            continue
        if name == DEFAULT or not _NAME.fullmatch(name):
            hint = f"use letters, digits, - and _; `{DEFAULT}` means the experts of an ordinary review"
            raise ConfigError(f"experts: {name[:60]!r} cannot be the name of an expert", hint=hint)
        if (other := files.setdefault(name, file)) is not file:
            what = f"the expert {name} has two files: {other.name} and {file.name}"
            raise ConfigError(what, hint="keep one of the two")
    return files


def _expert(name: str, own: Mapping[str, Mapping[str, Any]], files: Mapping[str, Path], *, in_brief: bool) -> Expert:
    if name in own:
        values = own[name]
    elif name in files:
        values = _read(name, files[name])
    elif name in BUILT_IN:
        values = msgspec.json.decode((CHECKLISTS / f"{name}.json").read_bytes())
    else:
        known = list(dict.fromkeys((*own, *files, *BUILT_IN, DEFAULT)))
        listed = f"known: {', '.join(known[:40])}{', …' if len(known) > 40 else ''}"
        near = yaml.closest(name, known)
        hint = f"did you mean `{near}`? ({listed})" if near else listed
        raise ConfigError(f"there is no expert {name[:60]!r}", hint=hint)

    def one_line(text: str) -> str:
        return " ".join(text.split())

    keys = ("focus", "sceptical_of", "do_not_flag", "paths")
    lines: dict[str, Any] = {key: tuple(map(one_line, values.get(key, ()))) for key in keys}
    brief, description = (one_line(values.get(key, "")) for key in ("brief", "description"))
    guide = {label: one_line(words) for label, words in values.get("severity_guide", _NONE).items()}
    texts = (brief, description, *guide.values(), *(line for key in keys for line in lines[key]))
    if sum(map(len, texts)) > _MOST_CHARACTERS:
        what = f"the expert {name} has more than {_MOST_CHARACTERS:,} characters"
        raise ConfigError(what, hint="shorten it: an agent reads it with every call")
    expert = Expert(
        name=name, description=description or name.replace("_", " "), severity_guide=MappingProxyType(guide), **lines
    )
    if not in_brief:
        return expert
    focus = (brief,) if brief else expert.focus
    return replace(expert, focus=focus, sceptical_of=(), do_not_flag=(), severity_guide=_NONE, joined=True)


def _read(name: str, file: Path) -> Mapping[str, Any]:
    """What a file says of an expert, as the settings would hold it."""
    place = str(PurePath(file.parent.name, file.name))
    text = read_config_file(file, name=place, follow_symlinks=False).text
    try:
        document = yaml.read_document(place, text, deepest_level=3)
    except Refused as refused:
        raise config_error([refused.problem]) from refused
    problems = list(yaml.repetitions(place, document))
    # A checklist is made of words: `yes` and `1.10` stay texts.
    values = {key.text: yaml.plain(value, as_written=True) for key, value in document.entries}
    read: Mapping[str, Any] = {}
    try:
        read = OWN_EXPERTS.read({name: {key: value for key, value in values.items() if value is not None}})
    except Wrong as wrong:
        for mistake in wrong.mistakes:
            blamed, line = yaml.part(document, mistake.place[1:])
            what = f"{mistake.what}, found {yaml.describe(blamed)}" if mistake.found else mistake.what
            what = f"{yaml.path_text(name, mistake.place[1:])}: {what}"
            meant = yaml.closest(str(mistake.place[-1]), mistake.choices)
            hint = f"did you mean `{meant}`?" if meant else "correct this expert's definition"
            problems.append(Problem(f"{escape(place)}:{line}", what, hint, line))
    if problems:
        raise config_error(problems)
    return read[name]  # type: ignore[no-any-return]  # as the kind says
