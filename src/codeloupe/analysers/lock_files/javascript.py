"""Read the lock files of npm, yarn and pnpm.

Entries in the tree, such as workspaces, links and patches, are not pins: the review reads their files themselves.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers.lock_files.parsing import parse_json, parse_yaml, rows, table, text_of
from codeloupe.analysers.lock_files.pins import Pin, hash_set
from codeloupe.system.regex import regex

_NAME = r"(?:@[^/@]+/)?[^/@]+"
_REMOTE_VERSION = regex(r"git|https?:|github:")
_ALIAS = regex(rf"npm:({_NAME})@(.+)")
_DESCRIPTOR = regex(rf"({_NAME})@(.*)")
_YARN_FIELD = regex(r'  "?([\w-]+)"?(?::|:? "?([^"]*)"?)')
_YARN_LOCAL = regex(r"(?:workspace|patch|portal|link|file|virtual|exec):")
_SHA1 = regex(r"[0-9a-f]{40}")
_COMMIT = regex(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_PNPM_TYPES = (None, "git", "directory", "binary")
_PNPM_KEY = regex(rf"/?({_NAME})[@/](.+)")


def read_npm(text: str) -> Iterator[Pin]:
    """Yield the pins of package-lock.json and npm-shrinkwrap.json, versions 1 to 3. Raises ValueError."""
    document = parse_json(text)
    if document.keys().isdisjoint(("packages", "dependencies", "lockfileVersion")):
        raise ValueError("it has neither packages nor dependencies")
    for path, value in table(document.get("packages")).items():
        entry = table(value)
        is_in_tree = bool(entry.get("link")) or "node_modules/" not in path
        if not is_in_tree:
            name = path.rpartition("node_modules/")[2]
            yield from _npm_pins(name, text_of(entry.get("name")) or name, entry)
    # npm 6 reads these, npm 7 reads `packages`.
    yield from _npm_dependencies(table(document.get("dependencies")))


def _npm_dependencies(dependencies: Mapping[str, Any]) -> Iterator[Pin]:
    """Yield the pins of the nested dependencies of versions 1 and 2."""
    pending = [dependencies]
    while pending:
        for name, value in pending.pop().items():
            entry = table(value)
            alias = _ALIAS.fullmatch(text_of(entry.get("version")))
            if alias is None:
                yield from _npm_pins(name, name, entry)
            else:
                yield from _npm_pins(name, alias[1], {**entry, "version": alias[2]})
            pending.append(table(entry.get("dependencies")))


def _npm_pins(name: str, package: str, entry: Mapping[str, Any]) -> Iterator[Pin]:
    version = text_of(entry.get("version"))
    resolved = entry.get("resolved")
    source = resolved if isinstance(resolved, str) else ""
    if not source and _REMOTE_VERSION.match(version):
        source = version
    is_bundled = bool(entry.get("inBundle") or entry.get("bundled")) and not source
    is_in_tree = version.startswith("file:") or source.startswith("file:")
    if is_bundled or is_in_tree:
        return
    yield _tarball_pin(name, version, source, text_of(entry.get("integrity")).split(), package=package)


def _tarball_pin(name: str, version: str, source: str, hashes: list[str], *, package: str = "") -> Pin:
    """Return the pin of a tarball, with the names in its address if these differ from the recorded ones."""
    package = package or name
    other = ""
    if version and not _REMOTE_VERSION.match(version):
        other = _other_tarball(package.lower(), version.lower(), source)
    return Pin(name, version, _commit_in(source), source, hash_set(hashes), package=package, address_names=other)


def _commit_in(address: str) -> str:
    """Return the commit in an address: archives of two commits are two artifacts, even of the same version."""
    found = _COMMIT.search(address)
    return "" if found is None else found[0]


def _other_tarball(package: str, version: str, address: str) -> str:
    """Return the end of an address if it names another package or version.

    At registries an address ends in `/NAME/-/BASE-VERSION.tgz`, in which BASE is NAME without its scope. An address
    of another form names nothing.
    """
    folder, separator, file = address.lower().replace("%2f", "/").rpartition("/-/")
    if not separator:
        return ""
    base_name = package.rpartition("/")[2]
    file_name = file.rpartition("/")[2]
    if folder.endswith(f"/{package}") and file_name == f"{base_name}-{version}.tgz":
        return ""
    return file_name


class _YarnEntry(Struct, frozen=True):
    """An entry of yarn.lock: the first of its descriptors as written, and its scalar fields."""

    header: str
    fields: dict[str, str]


def read_yarn(text: str) -> Iterator[Pin]:
    """Yield the pins of yarn.lock, of yarn 1 and of its successors. Raises ValueError."""
    entries = _yarn_entries(text)
    cache_key = entries[0].fields.get("cacheKey", "")
    for entry in entries[1:]:
        first = entry.header.split(",", maxsplit=1)[0].strip().strip('"')
        descriptor = _DESCRIPTOR.fullmatch(first)
        if descriptor is None:
            raise ValueError(f"{first!r} does not name a package")
        alias = _ALIAS.fullmatch(descriptor[2])
        package = alias[1] if alias is not None else descriptor[1]
        if "resolution" in entry.fields:
            yield from _berry_pins(descriptor[1], package, entry.fields, cache_key)
        elif "resolved" in entry.fields or not _YARN_LOCAL.match(descriptor[2]):
            yield from _yarn_1_pins(descriptor[1], package, entry.fields)


def _yarn_1_pins(name: str, package: str, fields: Mapping[str, str]) -> Iterator[Pin]:
    source = fields.get("resolved", "")
    hashes = fields.get("integrity", "").split()
    address, _, digest = source.partition("#")
    if _SHA1.fullmatch(digest) and not address.startswith("git"):
        source = address
        # The integrity may state the same hash, in this form.
        encoded = base64.b64encode(bytes.fromhex(digest)).decode("ascii")
        hashes.append(f"sha1-{encoded}")
    if not source.startswith("file:"):
        yield _tarball_pin(name, fields.get("version", ""), source, hashes, package=package)


def _berry_pins(name: str, package: str, fields: Mapping[str, str], cache_key: str) -> Iterator[Pin]:
    locator = _DESCRIPTOR.fullmatch(fields["resolution"])
    if locator is None:
        raise ValueError(f"{fields['resolution']!r} does not name a package")
    if _YARN_LOCAL.match(locator[2]):
        return
    version = fields.get("version", "")
    place, _, binding = locator[2].partition("::__archiveUrl=")
    source = binding.replace("%3A", ":").replace("%2F", "/")
    other = ""
    if place.startswith("npm:"):
        if locator[1] != package or place != f"npm:{version}":
            other = fields["resolution"]
    else:
        source = place
    checksum = fields.get("checksum", "")
    if checksum and "/" not in checksum:
        checksum = f"{cache_key}/{checksum}"
    hashes = hash_set([checksum])
    yield Pin(name, version, _commit_in(source), source, hashes, package=package, address_names=other)


def _yarn_entries(text: str) -> list[_YarnEntry]:
    """Return the metadata and the entries, in the form of yarn 1 or in the YAML that its successors write."""
    if "# yarn lockfile" not in text and "__metadata:" not in text:
        raise ValueError("it does not have the header of a yarn lock file")
    metadata = _YarnEntry("__metadata", {})
    entries = [metadata]
    is_in_nested_field = False
    current = metadata
    for number, written in enumerate(text.splitlines(), start=1):
        line = written.rstrip()
        if not line or line.startswith("#"):
            continue
        if is_in_nested_field and line.startswith("    "):
            continue
        is_in_nested_field = False
        if not line.startswith(" ") and line.endswith(":"):
            header = line.removesuffix(":").removeprefix("? ")
            current = metadata if header == "__metadata" else _YarnEntry(header, {})
            entries.append(current)
            continue
        field = _YARN_FIELD.fullmatch(line)
        if field is None:
            raise ValueError(f"line {number} is neither an entry nor a field of one")
        if field[2] is None:
            is_in_nested_field = True
        else:
            current.fields[field[1]] = field[2]
    return [metadata, *(entry for entry in entries if entry is not metadata)]


def read_pnpm(text: str) -> Iterator[Pin]:
    """Yield the pins of pnpm-lock.yaml, versions 5 to 9. Raises ValueError."""
    document = table(parse_yaml(text))
    if "lockfileVersion" not in document:
        raise ValueError("it has no lockfileVersion")
    for key, value in table(document.get("packages") or None).items():
        yield from _pnpm_pins(key, table(value))


def _pnpm_pins(key: str, entry: Mapping[str, Any]) -> Iterator[Pin]:
    found = _PNPM_KEY.fullmatch(key)
    name = key
    version = ""
    if found is not None:
        name = found[1]
        # Peer dependencies follow the version.
        version = re.split(r"[(_]", found[2], maxsplit=1)[0]
    name = text_of(entry.get("name")) or name
    version = text_of(entry.get("version")) or version
    resolution = table(entry.get("resolution"))
    variants = rows(resolution.get("variants"))
    if not variants:
        yield from _pnpm_resolution_pins(name, version, resolution)
    for variant in variants:
        # Programs such as node have one archive for each platform.
        for pin in _pnpm_resolution_pins(name, version, table(variant.get("resolution"))):
            yield replace(pin, artifact=pin.source)


def _pnpm_resolution_pins(name: str, version: str, resolution: Mapping[str, Any]) -> Iterator[Pin]:
    if resolution.get("type") not in _PNPM_TYPES:
        raise ValueError(f"{name[:80]!r} has a resolution of an unknown type")
    source = text_of(resolution.get("tarball") or resolution.get("url"))
    if resolution.get("repo"):
        source = f"git+{text_of(resolution['repo'])}"
    is_in_tree = resolution.get("type") == "directory" or source.startswith("file:")
    if not is_in_tree:
        yield _tarball_pin(name, version, source, text_of(resolution.get("integrity")).split())
