"""Read the lock files of poetry, uv, pdm and pipenv, and requirements files with hashes.

Editable and path dependencies are pins with only a path: the review reads their files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from codeloupe.analysers.lock_files.parsing import parse_json, parse_toml, rows, table, text_of
from codeloupe.analysers.lock_files.pins import Pin, alphanumeric, hash_set, local_pin
from codeloupe.system.regex import regex

_LOCAL_SOURCES = ("editable", "virtual", "directory", "path")
_VERSION_CONTROL = ("git", "hg", "svn", "bzr")
# pip accepts each option by the beginning of its name.
_TRUSTED_HOST = regex(r"(?<!\S)--t[a-z-]*[= ](\S+)")
_ENCODING = regex(r"#.*coding[:=][ \t]*([\w.-]+)")
_REQUIREMENT = regex(r"([A-Za-z0-9][\w.-]*) ?(?:\[[^\]]*\])? ?((?:[=<>!~][^ ].*|[=<>!~]+ .*)?)")


def read_toml_lock(text: str) -> Iterator[Pin]:
    """Yield the pins of poetry.lock, uv.lock and pdm.lock. Raises ValueError."""
    document = parse_toml(text)
    # Older versions of poetry list the files of all packages at the end by name, and those of pdm by name and version.
    files_apart = table(table(document.get("metadata")).get("files"))
    for entry in rows(document.get("package")):
        name = text_of(entry["name"])
        files = rows(files_apart.get(name))
        if not files:
            files = rows(files_apart.get(f"{name} {text_of(entry.get('version'))}"))
        yield from _toml_pins(name, entry, files)


def _toml_pins(name: str, entry: Mapping[str, Any], files_apart: list[dict[str, Any]]) -> Iterator[Pin]:
    stated = entry.get("source")
    source = {"url": stated} if isinstance(stated, str) else table(stated)
    if _is_in_tree(entry, source):
        yield local_pin(name, _path_in(entry, source))
        return
    version = text_of(entry.get("version"))
    repository = _repository_in(source) or _repository_in(entry)
    if source.get("type") == "git":
        repository = f"git+{text_of(source['url']).removeprefix('git+')}"
    if repository:
        yield Pin(name, version, "", repository)
        return
    index = text_of(source.get("registry") or source.get("url") or entry.get("url"))
    if index:
        yield Pin(name, "", "index", index)
    files = [*rows(entry.get("files")), *rows(entry.get("wheels"))]
    if entry.get("sdist") is not None:
        files.append(table(entry["sdist"]))
    is_direct = "url" in entry or ("url" in source and source.get("type") != "legacy")
    for file in files:
        yield _file_pin(Pin(name, version, "", index), file, version, is_direct=is_direct)
    for file in files_apart:
        # These are the files of all versions of the package, so their names may contain any version.
        yield _file_pin(Pin(name, version, "", index), file, "", is_direct=is_direct)
    if not files and not files_apart:
        yield Pin(name, version, "", index)


def _repository_in(entry: Mapping[str, Any]) -> str:
    """Return the address of the repository that an entry names, or an empty text."""
    for system in _VERSION_CONTROL:
        address = text_of(entry.get(system))
        if address:
            return f"{system}+{address.removeprefix(f'{system}+')}"
    return ""


def _is_in_tree(entry: Mapping[str, Any], source: Mapping[str, Any]) -> bool:
    """Return whether a package is in the working tree. A remote source beside a local one is the one that counts."""
    for one in (entry, source):
        if one.get("registry") or "://" in text_of(one.get("url")) or _repository_in(one):
            return False
    if "type" in source:
        return source["type"] in ("directory", "file")
    return "path" in entry or any(key in source for key in _LOCAL_SOURCES)


def _path_in(entry: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    """Return the path of a package in the working tree."""
    stated = [entry.get("path"), source.get("url"), *(source.get(key) for key in _LOCAL_SOURCES)]
    return next((text_of(path) for path in stated if path), ".")


def _file_pin(pin: Pin, file: Mapping[str, Any], version: str, *, is_direct: bool) -> Pin:
    """Return the pin of one wheel or source archive of a package. Each of its names must begin with name and version.

    `is_direct` is whether the package has an address in place of an index. Then a source archive may have any name.
    """
    address = text_of(file.get("url"))
    names: list[str] = []
    for stated in (text_of(file.get("file")), text_of(file.get("path")), address):
        name = _file_name(stated)
        if name:
            names.append(name)
    if not names:
        names.append(_file_name(pin.source))
    other = ""
    for name in names:
        is_named_by_index = name.endswith(".whl") or not is_direct
        if is_named_by_index and not _is_file_of(pin.name, version, name):
            other = name
    hashes = hash_set([file.get("hash")])
    return replace(pin, artifact=names[0], source=address or pin.source, hashes=hashes, address_names=other)


def _file_name(address: str) -> str:
    """Return the name of the file that an address ends in."""
    path = re.split(r"[?#]", address, maxsplit=1)[0]
    return unquote(path.rstrip("/").rpartition("/")[2])


def _is_file_of(name: str, version: str, file_name: str) -> bool:
    """Return whether the name of a wheel or source archive begins with the package and the version."""
    package = alphanumeric(name)
    rest = alphanumeric(file_name).removeprefix(f"{package}-")
    if rest == alphanumeric(file_name):
        return False
    numbers = _numbers(version)
    return _numbers(rest)[: len(numbers)] == numbers


def _numbers(text: str) -> list[int]:
    """Return the numbers in a text: versions are compared by these, because tools differ in how they spell the rest."""
    return [int(number) for number in re.findall(r"[0-9]{1,18}", text)]


def read_pipfile(text: str) -> Iterator[Pin]:
    """Yield the indexes and the pins of Pipfile.lock. Raises ValueError."""
    document = parse_json(text)
    indexes: dict[str, str] = {}
    for row in rows(table(document["_meta"]).get("sources")):
        address = text_of(row["url"])
        if not row.get("verify_ssl", True):
            # Without verification, TLS protects no more than plain HTTP.
            address = address.replace("https:", "http:", 1)
        name = text_of(row.get("name"))
        indexes[name] = address
        yield Pin(f"index {name}", "", "index", address)
    for group, entries in document.items():
        if group == "_meta":
            continue
        for name, value in table(entries).items():
            yield from _pipfile_pins(name, table(value), indexes)


def _pipfile_pins(name: str, entry: Mapping[str, Any], indexes: Mapping[str, str]) -> Iterator[Pin]:
    version = text_of(entry.get("version")).lstrip("=")
    repository = _repository_in(entry)
    if repository:
        yield Pin(name, version, "", repository)
        return
    file = text_of(entry.get("file"))
    is_in_tree = bool(entry.get("path")) or (bool(file) and "://" not in file)
    if is_in_tree:
        yield local_pin(name, text_of(entry.get("path")) or file)
    else:
        source = file or indexes.get(text_of(entry.get("index")), "")
        yield Pin(name, version, None, source, hash_set(entry.get("hashes") or []))


def read_requirements(text: str) -> Iterator[Pin]:
    """Yield the indexes and the pins of a requirements file. Raises ValueError if a line is not a requirement."""
    for line in _joined_lines(text):
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if not words:
            continue
        if words[0].startswith("-"):
            yield from _option_pins(" ".join(words))
            continue
        hashes = hash_set(word.removeprefix("--hash=") for word in words if word.startswith("--hash="))
        stated = " ".join(word for word in words if not word.startswith("--"))
        if "://" in stated:
            yield _address_pin(stated, hashes)
        else:
            yield _version_pin(stated, hashes)


def _joined_lines(text: str) -> Iterator[str]:
    """Yield the lines of a requirements file. A backslash at the end continues a line, except for a comment line.

    Raises ValueError if one of the first two lines names an encoding that is not UTF-8, because pip would use it.
    """
    lines = text.splitlines()
    for line in lines[:2]:
        encoding = _ENCODING.match(line)
        if encoding is not None and encoding[1].lower() not in ("utf-8", "utf8"):
            raise ValueError(f"it is in the encoding {encoding[1][:40]}")
    waiting: list[str] = []
    for line in lines:
        is_comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not is_comment:
            waiting.append(line.removesuffix("\\"))
            continue
        # The blank keeps a comment apart from the words before it.
        waiting.append(f" {line}" if is_comment else line)
        yield "".join(waiting)
        waiting.clear()
    yield "".join(waiting)


def _version_pin(stated: str, hashes: frozenset[str]) -> Pin:
    """Return the pin of a requirement such as `name[extra]==1.0 ; marker`. Raises ValueError."""
    specifier = stated.partition(";")[0].strip()
    requirement = _REQUIREMENT.fullmatch(specifier)
    if requirement is None:
        raise ValueError(f"{stated[:80]!r} is not a requirement")
    _, separator, version = requirement[2].partition("==")
    if not separator:
        version = requirement[2]
    return Pin(alphanumeric(requirement[1]), version.strip("= "), None, "", hashes)


def _address_pin(stated: str, hashes: frozenset[str]) -> Pin:
    """Return the pin of a requirement with an address, which takes the place of a version."""
    before, _, after = stated.partition("://")
    stated_name, _, scheme = before.rpartition("@")
    address = f"{scheme.strip()}://{after.split(' ')[0]}"
    if not stated_name:
        stated_name = address
        for part in address.partition("#")[2].split("&"):
            if part.startswith("egg="):
                stated_name = part.removeprefix("egg=")
    # Extras or a version may follow the name.
    name = re.split(r"[\[=]", stated_name, maxsplit=1)[0].strip()
    file_name = _file_name(address)
    other = ""
    if file_name.endswith(".whl") and not _is_file_of(name, "", file_name):
        other = file_name
    return Pin(alphanumeric(name), address, None, address, hashes, address_names=other)


def _option_pins(line: str) -> Iterator[Pin]:
    """Yield a pin for each address in a line of options: an index, a further requirements file or a repository."""
    option = re.split(r"[= ]", line, maxsplit=1)[0]
    for host in _TRUSTED_HOST.findall(line):
        # pip accepts any certificate of such a host, so TLS does not protect it.
        yield Pin("--trusted-host", "", "index", f"http://{host}")
    for word in line.split():
        address = word
        if word.startswith("--"):
            address = word.partition("=")[2]
        elif word.startswith("-"):
            # A value may follow the letter of an option without a blank.
            address = word[2:]
        if "://" not in address:
            continue
        if option.startswith(("-e", "--ed")):
            yield _address_pin(address, frozenset())
        else:
            yield Pin(option, "", "index", address)
