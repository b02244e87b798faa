"""The lock files of package managers, read into one shape: which packages, from where, with which hashes.

What is not certain is refused with a ValueError: an entry that this reader overlooks is one that nobody has read.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

_MAX_BYTES = 32 * 1024**2


class Package(Struct, frozen=True, kw_only=True):
    """One entry. `source` is where it comes from, empty for the usual registry; `local` for what is in the tree."""

    name: str
    version: str
    source: str = ""
    hashes: frozenset[str] = frozenset()
    script: bool = False
    local: bool = False


def read_lock_file(name: str, content: bytes) -> tuple[Package, ...]:
    """The packages of a lock file with this base name. Raises ValueError when it cannot be read for certain."""
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES:,} bytes")
    text = content.decode("utf-8")
    try:
        return tuple(_READERS[name.lower()](text))
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it does not have the form of such a file ({type(error).__name__}: {error})") from error


def is_hashed_requirements(name: str, content: bytes) -> bool:
    """Whether this is a requirements file of pip that pins hashes."""
    return re.fullmatch(r"[\w.-]*requirements[\w.-]*\.txt|[\w-]*constraints[\w-]*\.txt", name.lower()) is not None and (
        b"--hash=" in content
    )


def read_requirements(text: str) -> Iterator[Package]:
    """The pinned packages of pip's own format; an index or a find-links line is an entry without a version."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if not words:
            continue
        if words[0].startswith("-"):
            option, _, value = " ".join(words).replace("=", " ", 1).partition(" ")
            if re.fullmatch(r"-i|-f|--find[-]links|--(?:extra-)?index[-]url", option):
                yield Package(name=option, version="", source=value.strip())
            continue
        hashes = frozenset(word.removeprefix("--hash=") for word in words if word.startswith("--hash="))
        stated = " ".join(word for word in words if not word.startswith("--hash="))
        name, _, version = re.split(r"[;@]", stated, maxsplit=1)[0].partition("==")
        url = re.search(r"(?:git\+|hg\+|svn\+)?[a-z+]+://\S+", stated)
        yield Package(
            name=name.strip().lower() or stated, version=version.strip(), source=url[0] if url else "", hashes=hashes
        )


def _npm(text: str) -> Iterator[Package]:
    document = _json(text)
    if "packages" not in document and "dependencies" not in document:
        if "lockfileVersion" in document:
            return
        raise ValueError("it has neither packages nor dependencies")
    for path, entry in document.get("packages", {}).items():
        if path:
            name = entry.get("name") or path.rpartition("node_modules/")[2]
            yield _npm_package(name, entry, local=bool(entry.get("link")) or "node_modules/" not in f"{path}/")
    # A reader of npm 6 goes by these, one of npm 7 by the others.
    yield from _npm_dependencies(document.get("dependencies", {}))


def _npm_dependencies(dependencies: Mapping[str, Any]) -> Iterator[Package]:
    for name, entry in dependencies.items():
        if isinstance(entry, dict):
            yield _npm_package(name, entry, local=str(entry.get("version", "")).startswith("file:"))
            yield from _npm_dependencies(entry.get("dependencies", {}))


def _npm_package(name: str, entry: Mapping[str, Any], *, local: bool) -> Package:
    version = str(entry.get("version", ""))
    source = entry.get("resolved", "")
    if not isinstance(source, str):
        source = ""
    if not source and re.match(r"git|https?:|github:", version):
        source = version
    is_local = local or bool(entry.get("inBundle") or entry.get("bundled")) or source.startswith("file:")
    hashes = frozenset(str(entry.get("integrity", "")).split())
    return Package(
        name=name,
        version=version,
        source=source,
        hashes=hashes,
        script=bool(entry.get("hasInstallScript")),
        local=is_local,
    )


_YARN_FIELD = re.compile(r'  "?([\w-]+)"?:? "?([^"]*?)"?\s*')


def _yarn(text: str) -> Iterator[Package]:
    """Both forms: that of yarn 1, and the YAML of its successors, which they write in one way only."""
    if "# yarn lockfile" not in text and "__metadata:" not in text:
        raise ValueError("it does not say that it is a lock file of yarn")
    header, fields, inner = "", dict[str, str](), False
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            if not line.rstrip().endswith(":"):
                raise ValueError(f"line {number} is neither an entry nor a field of one")
            yield from _yarn_package(header, fields)
            header, fields, inner = line.rstrip()[:-1], {}, False
        elif line.startswith("    "):
            if not inner:
                raise ValueError(f"line {number} belongs to no field")
        else:
            inner = re.fullmatch(r'  "?[\w-]+"?:\s*', line) is not None
            found = _YARN_FIELD.fullmatch(line)
            if not inner and found is None:
                raise ValueError(f"line {number} is no field")
            if found is not None and not inner:
                fields[found[1]] = found[2]
    yield from _yarn_package(header, fields)


def _yarn_package(header: str, fields: Mapping[str, str]) -> Iterator[Package]:
    if not header or header == "__metadata":
        return
    first = header.split(",", maxsplit=1)[0].strip().strip('"')
    name = first[: first.index("@", 1)]
    resolution = fields.get("resolution", "")
    source = fields.get("resolved", "") or resolution.removeprefix(f"{name}@").removeprefix("npm:")
    protocol = re.match(r"(workspace|patch|portal|link|file|virtual):", source)
    if resolution and not protocol and "://" not in source and not source.startswith("git"):
        source = ""  # of a registry, which is not named
    hashes = {*fields.get("integrity", "").split(), *filter(None, (fields.get("checksum", ""),))}
    base, mark, digest = source.partition("#")
    if mark and re.fullmatch(r"[0-9a-f]{40}", digest) and not base.startswith("git"):
        hashes.add(f"sha1-{digest}")
        source = base
    yield Package(
        name=name,
        version=fields.get("version", ""),
        source="" if protocol else source,
        hashes=frozenset(hashes),
        local=bool(protocol),
    )


def _pnpm(text: str) -> Iterator[Package]:
    document = _yaml(text)
    if "lockfileVersion" not in document:
        raise ValueError("it has no lockfileVersion")
    for key, entry in (document.get("packages") or {}).items():
        found = re.fullmatch(r"/?((?:@[^/@]+/)?[^/@]+)[@/](.+)", key)
        name, version = (found[1], found[2].partition("(")[0]) if found else (key, "")
        resolution = (entry or {}).get("resolution", {})
        hashes = frozenset(filter(None, (resolution.get("integrity", ""),)))
        source = resolution.get("tarball") or resolution.get("repo") or ""
        local = resolution.get("type") == "directory" or source.startswith("file:")
        if resolution.get("repo"):
            source = f"git+{source}#{resolution.get('commit', '')}"
        script = bool((entry or {}).get("requiresBuild"))
        yield Package(name=name, version=version, source=source, hashes=hashes, script=script, local=local)


def _python(text: str) -> Iterator[Package]:
    """poetry, uv and pdm."""
    document = tomllib.loads(text)
    metadata = document.get("metadata", {})
    files_apart = metadata.get("files", {}) if isinstance(metadata, dict) else {}
    for entry in document.get("package", []):
        source = entry.get("source", {})
        source = {"url": source} if isinstance(source, str) else source
        files = [*entry.get("files", []), *entry.get("wheels", []), *files_apart.get(entry["name"], [])]
        files += [entry["sdist"]] if isinstance(entry.get("sdist"), dict) else []
        kind = source.get("type", "")
        local = kind in ("directory", "file") or any(
            key in source for key in ("editable", "virtual", "directory", "path")
        )
        where = source.get("url") or source.get("registry") or source.get("git") or entry.get("git") or ""
        if kind == "git" or "git" in source:
            where = f"git+{where}" if not str(where).startswith("git+") else where
        if kind != "git" and "git" not in source and not where:
            where = next((str(file["url"]) for file in files if "url" in file), "")
        # The addresses of the files themselves count too: an index may lead anywhere.
        strange = {_host(str(file["url"])) for file in files if "url" in file}
        where = " ".join([str(where), *sorted(f"https://{host}" for host in strange if host)]).strip()
        hashes = frozenset(str(file["hash"]) for file in files if file.get("hash"))
        version = str(entry.get("version", ""))
        yield Package(name=entry["name"], version=version, source=where, hashes=hashes, local=local)


def _host(url: str) -> str:
    found = re.match(r"[a-z+]*://([^/@]*@)?([^/:]+)", url)
    return found[2] if found else ""


def _pipfile(text: str) -> Iterator[Package]:
    document = _json(text)
    for source in document["_meta"].get("sources", []):
        yield Package(name=f"index {source.get('name', '')}", version="", source=str(source["url"]))
    for group, entries in document.items():
        for name, entry in entries.items() if group != "_meta" else ():
            where = f"git+{entry['git']}" if entry.get("git") else entry.get("file", "")
            local = bool(entry.get("path") or entry.get("editable"))
            hashes = frozenset(entry.get("hashes", []))
            version = str(entry.get("version", entry.get("ref", ""))).lstrip("=")
            yield Package(name=name, version=version, source=where, hashes=hashes, local=local)


def _cargo(text: str) -> Iterator[Package]:
    document = tomllib.loads(text)
    checksums = document.get("metadata", {})
    for entry in document.get("package", []):
        source = entry.get("source", "")
        key = f"checksum {entry['name']} {entry['version']} ({source})"
        digest = entry.get("checksum") or checksums.get(key, "")
        hashes = frozenset((f"sha256:{digest}",) if digest else ())
        yield Package(name=entry["name"], version=entry["version"], source=source, hashes=hashes, local=not source)


_GEM = re.compile(r"    ([\w.-]+) \(([^)]+)\)")
_GEM_CHECKSUM = re.compile(r"  ([\w.-]+) \(([^)]+)\)(?: (\S+))?")


def _gems(text: str) -> Iterator[Package]:
    sections = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    if not any(part.startswith(("GEM\n", "GIT\n", "PATH\n")) for part in sections):
        raise ValueError("it has no section of gems")
    hashes: dict[tuple[str, str], frozenset[str]] = {}
    for part in sections:
        if part.startswith("CHECKSUMS\n"):
            hashes.update(_gem_checksums(part))
    for part in sections:
        name, _, body = part.partition("\n")
        if name in ("GEM", "GIT", "PATH", "PLUGIN SOURCE"):
            yield from _gems_of(name, body, hashes)


def _gem_checksums(part: str) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    for line in filter(str.strip, part.splitlines()[1:]):
        found = _GEM_CHECKSUM.fullmatch(line.rstrip())
        if found is None:
            raise ValueError(f"{line.strip()!r} is no checksum of a gem")
        yield (found[1], found[2]), frozenset(filter(None, (found[3] or "").split(",")))


def _gems_of(section: str, body: str, hashes: Mapping[tuple[str, str], frozenset[str]]) -> Iterator[Package]:
    remotes: list[str] = []
    for line in filter(str.strip, body.splitlines()):
        if line.startswith("  remote: "):
            remotes.append(line[10:].strip())
        elif gem := _GEM.fullmatch(line):
            where = " ".join(f"git+{remote}" if section == "GIT" else remote for remote in remotes)
            digests = hashes.get((gem[1], gem[2]), frozenset())
            yield Package(name=gem[1], version=gem[2], source=where, hashes=digests, local=section == "PATH")
        elif not re.match(r"  (specs:|\w+: )|      \S", line):
            raise ValueError(f"{line.strip()!r} does not belong into a Gemfile.lock")


def _go(text: str) -> Iterator[Package]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        words = line.split()
        if len(words) != 3 or not words[2].startswith("h1:"):
            raise ValueError(f"line {number} is not `module version h1:hash`")
        yield Package(name=words[0], version=words[1], hashes=frozenset((words[2],)))


def _composer(text: str) -> Iterator[Package]:
    document = _json(text)
    for entry in (*document["packages"], *(document.get("packages-dev") or ())):
        dist, source = entry.get("dist") or {}, entry.get("source") or {}
        digest = dist.get("shasum") or dist.get("reference") or source.get("reference") or ""
        where = " ".join(filter(None, (dist.get("url", ""), source.get("url", ""))))
        yield Package(
            name=entry["name"],
            version=str(entry["version"]),
            source=where,
            hashes=frozenset((f"sha1:{digest}",) if digest else ()),
            local=dist.get("type") == "path",
        )


def _json(text: str) -> dict[str, Any]:
    document = json.loads(text, object_pairs_hook=_without_doubles)
    if not isinstance(document, dict):
        raise TypeError("no object")
    return document


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Which of two equal keys counts depends on the reader, so a file with such is not read."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it has the same key twice")
    return found


def _yaml(text: str) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - of all formats only this one needs it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if re.search(r"(^|[\s,\[{])[&*][\w-]+", re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "", text)):
        raise ValueError("it has anchors, which no package manager writes")
    try:
        document = loader(text).get_single_data()
    except yaml.YAMLError as error:
        raise ValueError("it is no YAML") from error
    if not isinstance(document, dict):
        raise TypeError("no mapping")
    return document


_READERS: dict[str, Callable[[str], Iterator[Package]]] = {
    "package-lock.json": _npm,
    "npm-shrinkwrap.json": _npm,
    "yarn.lock": _yarn,
    "pnpm-lock.yaml": _pnpm,
    "poetry.lock": _python,
    "uv.lock": _python,
    "pdm.lock": _python,
    "pipfile.lock": _pipfile,
    "cargo.lock": _cargo,
    "gemfile.lock": _gems,
    "go.sum": _go,
    "go.work.sum": _go,
    "composer.lock": _composer,
}
