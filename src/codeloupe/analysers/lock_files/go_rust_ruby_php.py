"""Read go.sum, Cargo.lock, Gemfile.lock and composer.lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from codeloupe.analysers.lock_files.parsing import parse_json, parse_toml, rows, table, text_of
from codeloupe.analysers.lock_files.pins import Pin, hash_set, local_pin
from codeloupe.system.regex import regex

_GEM_SECTIONS = ("GEM", "GIT", "PATH", "PLUGIN SOURCE")
_GEM = regex(r"    ([\w.-]+) \(([^)]+)\)")
_GEM_DETAIL = regex(r"  (specs:|\w+: )|      \S")
_GEM_CHECKSUM = regex(r"  ([\w.-]+) \(([^)]+)\)(?: (\S+))?")
_HEX = regex(r"[0-9a-f]+")
_COMMIT = regex(r"[0-9a-f]{40}")


def read_go(text: str) -> Iterator[Pin]:
    """Yield the rows of go.sum, one for a module and one for its go.mod. Raises ValueError."""
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 3 or not words[2].startswith("h1:"):
            raise ValueError(f"line {number} is not `module version h1:hash`")
        version, _, artifact = words[1].partition("/")
        yield Pin(words[0], version, artifact, "", hash_set([words[2]]))


def read_cargo(text: str) -> Iterator[Pin]:
    """Yield the pins of Cargo.lock; a package without a source is in the tree. Raises ValueError."""
    document = parse_toml(text)
    # Older versions of cargo list the checksums at the end.
    checksums = table(document.get("metadata"))
    for entry in rows(document.get("package")):
        name = text_of(entry["name"])
        version = text_of(entry["version"])
        source = text_of(entry.get("source"))
        if source:
            digest = entry.get("checksum") or checksums.get(f"checksum {name} {version} ({source})", "")
            hashes = [f"sha256:{digest}"] if digest and digest != "<none>" else []
            yield Pin(name, version, "", source, hash_set(hashes))


def read_gems(text: str) -> Iterator[Pin]:
    """Yield the pins of Gemfile.lock, one for each place that a gem may come from. Raises ValueError."""
    sections = _gem_sections(text)
    if not any(name in ("GEM", "GIT", "PATH") for name, _ in sections):
        raise ValueError("it has no section of gems")
    hashes: dict[tuple[str, str], frozenset[str]] = {}
    for name, lines in sections:
        if name == "CHECKSUMS":
            hashes.update(_gem_checksums(lines))
    for name, lines in sections:
        if name in _GEM_SECTIONS:
            yield from _gem_pins(name, lines, hashes)


def _gem_sections(text: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if not line.startswith(" "):
            found.append((line.rstrip(), []))
        elif found:
            found[-1][1].append(line.rstrip())
        else:
            raise ValueError("it begins with an indented line")
    return found


def _gem_checksums(lines: list[str]) -> dict[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], frozenset[str]] = {}
    for line in lines:
        row = _GEM_CHECKSUM.fullmatch(line)
        if row is None:
            raise ValueError(f"{line.strip()[:80]!r} is not a checksum of a gem")
        if (row[1], row[2]) in found:
            raise ValueError(f"{row[1]} {row[2]} has two rows of checksums")
        found[row[1], row[2]] = hash_set((row[3] or "").split(","))
    return found


def _gem_pins(section: str, lines: list[str], hashes: Mapping[tuple[str, str], frozenset[str]]) -> Iterator[Pin]:
    remotes: list[str] = []
    for line in lines:
        gem = _GEM.fullmatch(line)
        if line.startswith("  remote: "):
            remote = line.removeprefix("  remote: ").strip()
            remotes.append(f"git+{remote}" if section == "GIT" else remote)
        elif gem is not None:
            for remote in remotes or [""]:
                if section == "PATH":
                    yield local_pin(gem[1], remote)
                else:
                    yield Pin(gem[1], gem[2], "", remote, hashes.get((gem[1], gem[2]), frozenset()))
        elif not _GEM_DETAIL.match(line):
            raise ValueError(f"{line.strip()[:80]!r} is not valid in a Gemfile.lock")


def read_composer(text: str) -> Iterator[Pin]:
    """Yield the archive, the repository and the mirrors of each package of composer.lock. Raises ValueError."""
    document = parse_json(text)
    for entry in (*rows(document["packages"]), *rows(document.get("packages-dev"))):
        # These options can switch the check of certificates off.
        is_verified = not table(entry.get("transport-options") or None).get("ssl")
        for artifact in ("dist", "source"):
            place = table(entry.get(artifact))
            if place.get("type") == "path":
                yield local_pin(text_of(entry["name"]), text_of(place.get("url")))
                continue
            if not place:
                continue
            for server in (place, *rows(place.get("mirrors"))):
                address = text_of(server.get("url"))
                if not is_verified:
                    # Without verification, TLS protects no more than plain HTTP.
                    address = address.replace("https:", "http:", 1)
                yield _composer_pin(entry, artifact, address, place)


def _composer_pin(entry: Mapping[str, Any], artifact: str, address: str, place: Mapping[str, Any]) -> Pin:
    name = text_of(entry["name"])
    version = text_of(entry["version"])
    reference = text_of(place.get("reference"))
    checksum = text_of(place.get("shasum"))
    if version.startswith("dev-") or version.endswith("-dev"):
        # A branch, which has another commit each time.
        version = f"{version}#{reference}"
    hashes: list[str] = []
    other = ""
    # Old versions of composer record the name of a tag, which does not fix the content.
    if _HEX.fullmatch(reference):
        hashes.append(f"commit:{reference}")
        commits = _COMMIT.findall(address)
        if commits and reference not in address:
            other = f"the commit {commits[-1]}"
    if checksum:
        hashes.append(f"sha1:{checksum}")
    return Pin(name, version, artifact, address, hash_set(hashes), address_names=other)
