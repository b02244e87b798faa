"""Read the lock files of npm, yarn and pnpm.

Workspaces and patches are not pins: the review reads their files. Links and paths are pins with only a path.
"""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers.lock_files.parsing import parse_json, parse_yaml, rows, table, text_of
from codeloupe.analysers.lock_files.pins import Pin, hash_set, local_pin
from codeloupe.analysers.lock_files.places import path_of, place_of
from codeloupe.analysers.lock_files.rules import REGISTRIES
from codeloupe.system.regex import regex

_NAME = r"(?:@[^/@]+/)?[^/@]+"
_VERSION = regex(r"v?[0-9][\w.+~-]*")
_ALIAS = regex(rf"npm:({_NAME})@(.+)")
_DESCRIPTOR = regex(rf"({_NAME})@(.*)")
_YARN_FIELD = regex(r'  "?([\w-]+)"?(?::|:? "?([^"]*)"?)')
_YARN_LOCAL = regex(r"(?:workspace|patch|portal|link|file|virtual|exec):")
_SHA1 = regex(r"[0-9a-f]{40}")
_COMMIT = regex(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_PNPM_TYPES = (None, "git", "directory", "binary")
_PNPM_KEY = regex(rf"/?({_NAME})[@/](.+)")
# A dependency on a package of another name: `name@1.0.0` or `/name/1.0.0`, but not `1.0.0_peer@2.0.0`.
_PNPM_ALIAS = regex(r"(?:/|(?![0-9]+\.))((?:@[^/@:()]+/)?[^/@:()]+)[@/][0-9].*")
_PNPM_DEPENDENCIES = ("dependencies", "devDependencies", "optionalDependencies")
_MOST_PATCHES = 10
_YARN_SCALARS = ("version", "resolved", "resolution", "integrity", "checksum")


def read_npm(text: str) -> Iterator[Pin]:
    """Yield the pins of package-lock.json and npm-shrinkwrap.json, versions 1 to 3. Raises ValueError."""
    document = parse_json(text)
    if document.keys().isdisjoint(("packages", "dependencies", "lockfileVersion")):
        raise ValueError("it has neither packages nor dependencies")
    for path, value in table(document.get("packages")).items():
        entry = table(value)
        name = path.rpartition("node_modules/")[2]
        if entry.get("link"):
            yield local_pin(name, text_of(entry.get("resolved")))
        elif "node_modules/" in path:
            is_nested = path.count("node_modules/") > 1
            yield from _npm_pins(name, text_of(entry.get("name")) or name, entry, is_nested=is_nested)
    # npm 6 reads these, npm 7 reads `packages`.
    yield from _npm_dependencies(table(document.get("dependencies")))


def _npm_dependencies(dependencies: Mapping[str, Any]) -> Iterator[Pin]:
    """Yield the pins of the nested dependencies of versions 1 and 2."""
    pending = [dependencies]
    is_nested = False
    while pending:
        for name, value in pending.pop().items():
            entry = table(value)
            alias = _ALIAS.fullmatch(text_of(entry.get("version")))
            if alias is None:
                yield from _npm_pins(name, name, entry, is_nested=is_nested)
            else:
                yield from _npm_pins(name, alias[1], {**entry, "version": alias[2]}, is_nested=is_nested)
            pending.append(table(entry.get("dependencies")))
        is_nested = True


def _npm_pins(name: str, package: str, entry: Mapping[str, Any], *, is_nested: bool) -> Iterator[Pin]:
    version = text_of(entry.get("version"))
    resolved = entry.get("resolved")
    source = resolved if isinstance(resolved, str) else ""
    if version and not source and not _VERSION.fullmatch(version):
        # The address takes the place of the version.
        source = version
    # A bundled package is in the archive of the package that it is nested in.
    is_bundled = is_nested and bool(entry.get("inBundle") or entry.get("bundled")) and not source
    if is_bundled:
        return
    yield _tarball_pin(name, version, source, text_of(entry.get("integrity")).split(), package=package)


def _tarball_pin(name: str, version: str, source: str, hashes: list[str], *, package: str = "") -> Pin:
    """Return the pin of a tarball, with the names in its address if these differ from the recorded ones."""
    if source.startswith("file:"):
        return local_pin(name, _local_path(source))
    package = package or name
    other = ""
    if source and _VERSION.fullmatch(version):
        other = _other_tarball(package.lower(), version.lower(), source)
    return Pin(name, version, _commit_in(source), source, hash_set(hashes), package=package, address_names=other)


def _local_path(source: str) -> str:
    """Return the path in a source such as `file:../left-pad.tgz#hash`."""
    return source.partition(":")[2].partition("#")[0]


def _commit_in(address: str) -> str:
    """Return the commit in an address: archives of two commits are two artifacts, even of the same version.

    The registry has one archive for each version, so a commit in its addresses means nothing.
    """
    found = _COMMIT.search(address)
    return "" if found is None or _is_at_registry(address) else found[0]


def _is_at_registry(address: str) -> bool:
    place = place_of(address, "npm")
    return place is not None and place.host in REGISTRIES["npm"]


def _other_tarball(package: str, version: str, address: str) -> str:
    """Return the path of an address if it names another package or version.

    At the registry, the path is `NAME/-/BASE-VERSION.tgz`, in which BASE is NAME without its scope. On another host,
    folders may come before NAME, and an address of another form names nothing.
    """
    is_at_registry = _is_at_registry(address)
    path = path_of(address).lower()
    folder, separator, file = path.rpartition("/-/")
    if not separator and not is_at_registry:
        return ""
    has_version = file.rpartition("/")[2] == f"{package.rpartition('/')[2]}-{version}.tgz"
    if has_version and _is_folder_of(package, folder, is_at_registry=is_at_registry):
        return ""
    return path


def _is_folder_of(package: str, folder: str, *, is_at_registry: bool) -> bool:
    """Return whether a folder is that of a package, and not that of a package of the same name in a scope."""
    if folder == package or is_at_registry:
        return folder == package
    parent = folder.removesuffix(f"/{package}")
    is_in_scope = parent.rpartition("/")[2].startswith("@")
    return parent != folder and not is_in_scope


class _YarnEntry(Struct, frozen=True):
    """An entry of yarn.lock: its descriptors as written, and its scalar fields."""

    header: str
    fields: dict[str, str]


def read_yarn(text: str) -> Iterator[Pin]:
    """Yield the pins of yarn.lock of each version of yarn, one for each name of an entry. Raises ValueError."""
    cache_key = ""
    for entry in _yarn_entries(text):
        if entry.header == "__metadata":
            # It is the first entry.
            cache_key = entry.fields.get("cacheKey", "")
            continue
        if "resolution" in entry.fields and "resolved" in entry.fields:
            raise ValueError(f"{entry.header[:80]!r} has fields of two versions of yarn")
        for written in re.split(r'"?, *"?', entry.header):
            descriptor = _DESCRIPTOR.fullmatch(written.strip('"'))
            if descriptor is None:
                raise ValueError(f"{written[:80]!r} does not name a package")
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
    yield _tarball_pin(name, fields.get("version", ""), source, hashes, package=package)


def _berry_pins(name: str, package: str, fields: Mapping[str, str], cache_key: str) -> Iterator[Pin]:
    locator = _berry_locator(fields["resolution"])
    base = _without_patches(locator)
    is_patched = base is not locator
    place, _, bindings = base[2].partition("::")
    if is_patched and base[1] == package and place.startswith("npm:"):
        # The patch is in the tree, and the unpatched package has an entry of its own.
        return
    if place.startswith(("link:", "portal:", "file:")):
        # The path is relative to the workspace that depends on the package.
        workspace = parse_qs(bindings).get("locator", [""])[-1].partition("@workspace:")[2]
        yield local_pin(name, posixpath.join(workspace, _local_path(place)))
    if _YARN_LOCAL.match(place):
        return
    source = place
    other = ""
    version = fields.get("version", "")
    if place.startswith("npm:"):
        source = parse_qs(bindings).get("__archiveUrl", [""])[-1]
        if base[1] != package or place != f"npm:{version}":
            other = fields["resolution"]
    if is_patched:
        # The checksum is that of the patched package, so only the source is compared.
        yield Pin(name, "", "", source, package=package, address_names=other)
        return
    checksum = fields.get("checksum", "")
    if checksum and "/" not in checksum:
        checksum = f"{cache_key}/{checksum}"
    hashes = hash_set([checksum])
    yield Pin(name, version, _commit_in(source), source, hashes, package=package, address_names=other)


def _berry_locator(text: str) -> re.Match[str]:
    """Return the package and the place that a locator such as `left-pad@npm:1.0.0` names. Raises ValueError."""
    locator = _DESCRIPTOR.fullmatch(text)
    if locator is None:
        raise ValueError(f"{text[:80]!r} does not name a package")
    return locator


def _without_patches(locator: re.Match[str]) -> re.Match[str]:
    """Return the locator of the package that patches are applied to. Raises ValueError if there are too many."""
    for _ in range(_MOST_PATCHES):
        if not locator[2].startswith("patch:"):
            return locator
        patched = locator[2].removeprefix("patch:").partition("#")[0]
        locator = _berry_locator(unquote(patched))
    raise ValueError(f"{locator[1][:80]!r} has too many patches")


def _yarn_entries(text: str) -> list[_YarnEntry]:
    """Return the entries, in the form of yarn 1 or in the YAML that its successors write. Raises ValueError.

    Both forms have an entry at each line without indentation, and its fields at lines with two blanks.
    """
    if "# yarn lockfile" not in text and "__metadata:" not in text:
        raise ValueError("it does not have the header of a yarn lock file")
    entries: list[_YarnEntry] = []
    is_in_nested_field = False
    for number, written in enumerate(text.splitlines(), start=1):
        line = written.rstrip()
        if not line or line.startswith("#"):
            continue
        if is_in_nested_field and line.startswith("    "):
            continue
        is_in_nested_field = False
        field = _YARN_FIELD.fullmatch(line)
        if not line.startswith(" ") and line.endswith(":"):
            header = line.removesuffix(":").removeprefix("? ")
            entries.append(_YarnEntry(header, {}))
        elif field is None or not entries:
            raise ValueError(f"line {number} is neither an entry nor a field of one")
        elif field[1] in entries[-1].fields:
            raise ValueError(f"line {number} has a field that the entry already has")
        elif field[2] is not None:
            entries[-1].fields[field[1]] = field[2]
        elif field[1] in _YARN_SCALARS:
            raise ValueError(f"line {number} has no value")
        else:
            is_in_nested_field = True
    return entries


def read_pnpm(text: str) -> Iterator[Pin]:
    """Yield the pins of pnpm-lock.yaml, versions 5 to 9. Raises ValueError."""
    document = table(parse_yaml(text))
    if "lockfileVersion" not in document:
        raise ValueError("it has no lockfileVersion")
    packages = table(document.get("packages") or None)
    for key, value in packages.items():
        yield from _pnpm_pins(key, table(value))
    importers = table(document.get("importers") or None)
    snapshots = table(document.get("snapshots") or None)
    for entry in (document, *importers.values(), *packages.values(), *snapshots.values()):
        yield from _pnpm_alias_pins(table(entry or None))


def _pnpm_alias_pins(entry: Mapping[str, Any]) -> Iterator[Pin]:
    """Yield a pin without a version for each dependency that is installed under another name than its own."""
    for field in _PNPM_DEPENDENCIES:
        for name, value in table(entry.get(field) or None).items():
            version = value.get("version") if isinstance(value, dict) else value
            alias = _PNPM_ALIAS.fullmatch(text_of(version))
            if alias is not None and alias[1] != name:
                yield Pin(name, "", "alias", package=alias[1])


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
    if resolution.get("type") == "directory":
        source = f"file:{text_of(resolution.get('directory'))}"
    yield _tarball_pin(name, version, source, text_of(resolution.get("integrity")).split())
