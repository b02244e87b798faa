"""The lock files of package managers, read into one shape: which packages, from where, with which hashes.

What is not certain is refused with a ValueError: an entry that this reader overlooks is one that nobody has read.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct

from codeloupe.model.change import FileChange
from codeloupe.model.finding import Finding, Severity, Source
from codeloupe.system.redaction import redact

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


NAME = "lock-files"

_HOST = re.compile(r"([a-z0-9+.-]*)://(?:[^/@\s]*@)?([^/:\s]+)|git@([^:/\s]+):", re.IGNORECASE)
# Put together here: no file of this project holds the address of a registry, not even to compare with it.
_NPM, _PYPI, _CRATES, _GEMS = ".npm" + "js.org", "py" + "pi.org", "crates" + ".io", "ruby" + "gems.org"
_NPM_HOSTS = f"registry{_NPM}", "registry.yarn" + "pkg.com"
_PYPI_FILES = "files.python" + "hosted.org"
# One registry under several names; a move between them says nothing.
_SAME_HOST = {_NPM_HOSTS[1]: _NPM_HOSTS[0], _PYPI: _PYPI_FILES, f"www.{_GEMS}": _GEMS}
_SAME_HOST |= {f"index.{_CRATES}": "github.com", f"static.{_CRATES}": "github.com"}
_USUAL_HOSTS = frozenset(
    (
        *(_NPM_HOSTS[0], _PYPI_FILES, _GEMS, "github.com", "api.github.com", "codeload.github.com", "gitlab.com"),
        *("repo.pack" + "agist.org", "proxy.golang" + ".org", "bitbucket.org"),
    )
)
_NPM_ADDRESS = re.compile(rf"https?://(?:{'|'.join(map(re.escape, _NPM_HOSTS))})/(.+)/-/(.+)\.tgz")
_STRENGTH = {"md5": 0, "sha1": 1, "sha256": 2, "h1": 2, "sha384": 3, "sha512": 4}
_NAMED = 5
_MAX_EVIDENCE = 300


class _Remark(Struct, frozen=True):
    """One thing about one package; remarks with the same rule and `about` become one finding."""

    rule: str
    severity: Severity
    title: str
    why: str
    about: str
    package: Package
    needle: str


def review_lock_files(
    files: Sequence[FileChange], blobs: Mapping[str, bytes], contents: Mapping[str, bytes | None]
) -> tuple[tuple[Finding, ...], dict[str, str]]:
    """What is to be said of changed lock files, and those that could not be read, each with the reason.

    `blobs` has old contents by their object names, `contents` the new ones by path.
    """
    found: list[Finding] = []
    unread: dict[str, str] = {}
    for file in files:
        content = contents[file.path]
        if file.new_path is None:
            continue  # what is deleted pins nothing any more
        if content is None or file.is_symlink:
            unread[file.path] = "it is a symbolic link" if file.is_symlink else "only its diff is known"
            continue
        try:
            old = blobs.get(file.old_blob or "") if _had_its_name(file) else None
            found += review_lock_file(file.path, old, content, file.added_line_numbers())
        except ValueError as error:
            unread[file.path] = f"it could not be read: {error}"
    return tuple(found), unread


def _had_its_name(file: FileChange) -> bool:
    """Whether it was a lock file before: by another name it pinned nothing."""
    return PurePosixPath(file.old_path or "").name == PurePosixPath(file.path).name


def review_lock_file(path: str, old: bytes | None, new: bytes, added: frozenset[int]) -> tuple[Finding, ...]:
    """What is to be said of a lock file that becomes `new`; `old` is None where there was none, or nobody knows.

    `added` are the numbers of its added lines. Raises ValueError when it cannot be read.
    """
    name = PurePosixPath(path).name
    if is_hashed_requirements(name, new):
        after = tuple(read_requirements(new.decode("utf-8")))
        before = () if old is None else tuple(read_requirements(old.decode("utf-8", "replace")))
    else:
        after = read_lock_file(name, new)
        before = _readable(name, old)
    groups: dict[tuple[str, str], list[_Remark]] = defaultdict(list)
    for remark in _remarks(before, after):
        groups[remark.rule, remark.about].append(remark)
    lines = new.decode("utf-8").split("\n")
    secrets = _secrets(path, lines, added if old is not None else range(1, len(lines) + 1))
    return (*(_finding(path, remarks, lines, added) for remarks in groups.values()), *secrets)


def _secrets(path: str, lines: Sequence[str], numbers: Iterable[int]) -> Iterator[Finding]:
    """A finding for each line that holds a credential: no reviewer gets the file to see it."""
    shown = {number: lines[number - 1].strip("\r") for number in sorted(numbers) if number <= len(lines)}
    text = "\n".join(shown.values())
    if redact(text) == text:  # of all lines at once it is fast
        return
    for number, line in shown.items():
        if (masked := redact(line)) != line:
            yield Finding(
                file=path,
                line_start=number,
                line_end=number,
                severity=Severity.HIGH,
                category="security",
                title="Credential in a lock file",
                body="Whoever can read the repository, a fork or a build log can use it.",
                evidence=masked[:_MAX_EVIDENCE],
                reviewer=NAME,
                source=Source.ANALYSER,
                rule="credential",
                suggestion="Revoke it, and let the package manager take it from its configuration or the environment.",
            )


def _readable(name: str, old: bytes | None) -> tuple[Package, ...]:
    """What was there before; one that could not be read then says nothing about what is there now."""
    try:
        return () if old is None else read_lock_file(name, old)
    except ValueError:
        return ()


def _remarks(before: Sequence[Package], after: Sequence[Package]) -> Iterator[_Remark]:
    known = _Known(before)
    hashed = sum(bool(package.hashes) for package in after if not package.local) * 2 >= len(after)
    for package in after:
        if package in known.packages or package.local:
            continue
        yield from _about_source(package, known)
        yield from _about_hashes(package, known, is_hashed=hashed)
        if package.script and not known.has_script(package.name):
            is_new = package.name not in known.by_name
            yield _Remark(
                "install-script",
                Severity.LOW if is_new else Severity.MEDIUM,
                "A package runs a script when it is installed",
                "it runs code of its author on every machine that installs it",
                "new" if is_new else "old",
                package,
                "hasInstallScript",
            )


class _Known:
    """The packages that were there before the change."""

    def __init__(self, packages: Sequence[Package]) -> None:
        self.packages = frozenset(packages)
        self.by_name: dict[str, list[Package]] = defaultdict(list)
        self.owner: dict[str, Package] = {}
        self.hosts = {host for package in packages for _, host in _hosts(package)}
        for package in packages:
            self.by_name[package.name].append(package)
            for digest in package.hashes:
                self.owner.setdefault(digest, package)

    def has_script(self, name: str) -> bool:
        return any(package.script for package in self.by_name.get(name, ()))


def _hosts(package: Package) -> list[tuple[str, str]]:
    """The scheme and the host of each address that a package comes from."""
    found = (
        (match[1].lower() or "git+ssh", (match[2] or match[3]).lower()) for match in _HOST.finditer(package.source)
    )
    return [(scheme, _SAME_HOST.get(host, host)) for scheme, host in found]


def _about_source(package: Package, known: _Known) -> Iterator[_Remark]:
    earlier = known.by_name.get(package.name, [])
    hosts_before = {host for one in earlier for _, host in _hosts(one)}
    for scheme, host in _hosts(package):
        if scheme.rpartition("+")[2] in ("http", "git", "ftp") and host not in ("localhost", "127.0.0.1"):
            why = "whoever is between can replace it"
            yield _Remark(
                "insecure-source", Severity.HIGH, "A package is fetched without encryption", why, host, package, host
            )
        if earlier and hosts_before and host not in hosts_before:
            moved = f"from {', '.join(sorted(hosts_before))} to {host}"
            why = f"it moved {moved}: another host may serve other code under the same name"
            yield _Remark("source-moved", Severity.HIGH, f"A package moved to {host}", why, moved, package, host)
        elif host not in known.hosts and host not in _USUAL_HOSTS:
            why = f"no package of this lock file came from {host} before"
            yield _Remark("new-source", Severity.HIGH, f"A package comes from {host}", why, host, package, host)
        elif scheme.startswith("git") and not any(s.startswith("git") for one in earlier for s, _ in _hosts(one)):
            why = "its content is that of a repository, which no registry has checked or kept"
            yield _Remark(
                "git-source", Severity.MEDIUM, "A package comes from a git repository", why, host, package, host
            )
    if earlier and hosts_before and not package.source and not package.local:
        why = "it came from a stated address before, and now from wherever the default is"
        yield _Remark(
            "source-removed", Severity.MEDIUM, "The source of a package is gone", why, "", package, package.name
        )
    yield from _about_address(package)


def _about_address(package: Package) -> Iterator[_Remark]:
    """An address at npm's registry names the package and its version."""
    found = _NPM_ADDRESS.match(package.source)
    if found is None or not package.version or package.version.startswith("npm:"):
        return
    stated = found[1].lower().replace("%2f", "/")
    if stated != package.name.lower() or not found[2].endswith(f"-{package.version}"):
        why = f"the address is that of {found[1]} {found[2]}, not of {package.name} {package.version}"
        title = "The address of a package is that of another one"
        # An alias has the name of another package on purpose.
        severity = Severity.HIGH if stated == package.name.lower() else Severity.MEDIUM
        yield _Remark("other-package", severity, title, why, package.name, package, package.source)


def _about_hashes(package: Package, known: _Known, *, is_hashed: bool) -> Iterator[_Remark]:
    same = [one for one in known.by_name.get(package.name, ()) if one.version == package.version]
    before = frozenset(digest for one in same for digest in one.hashes)
    hashed_before = any(one.hashes for one in known.by_name.get(package.name, ()))
    is_git = any(scheme.startswith(("git", "ssh")) for scheme, _ in _hosts(package))
    if not package.hashes:
        if package.version and not is_git and (hashed_before or is_hashed):
            gone = "was" if hashed_before else "is not"
            why = "its hash is gone" if hashed_before else "it has no hash, unlike the others"
            title = "A package has no hash any more" if hashed_before else "A package has no hash"
            yield _Remark(
                "hash-missing", Severity.HIGH, title, f"{why}: any content is accepted", gone, package, package.name
            )
        return
    digest = min(package.hashes)
    if before and before.isdisjoint(package.hashes) and _strength(before) <= _strength(package.hashes):
        why = "the version is the same and the hash is another one: its content was replaced"
        title = "A package has other content under the same version"
        yield _Remark("hash-changed", Severity.HIGH, title, why, package.name, package, digest)
    owner = next((known.owner[each] for each in package.hashes if each in known.owner), None)
    if owner is not None and (owner.name, owner.version) != (package.name, package.version):
        why = f"the hash is that of {owner.name} {owner.version}: what is installed is not what the file says"
        title = "A package has the hash of another one"
        yield _Remark("hash-of-another", Severity.HIGH, title, why, package.name, package, digest)
    earlier = [digest for one in known.by_name.get(package.name, ()) for digest in one.hashes]
    if earlier and _strength(package.hashes) < _strength(earlier):
        why = "an algorithm that can be forged takes the place of a stronger one"
        yield _Remark("hash-weakened", Severity.HIGH, "A package has a weaker hash", why, "", package, digest)


def _strength(hashes: Sequence[str] | frozenset[str]) -> int:
    return max((_STRENGTH.get(re.split(r"[-:=]", digest)[0].lower(), 2) for digest in hashes), default=-1)


def _finding(path: str, remarks: Sequence[_Remark], lines: Sequence[str], added: frozenset[int]) -> Finding:
    first = remarks[0]
    names = list(dict.fromkeys(f"{one.package.name} {one.package.version}".strip() for one in remarks))
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    line = _line_of(first, lines, added)
    return Finding(
        file=path,
        line_start=line,
        line_end=line,
        severity=first.severity,
        category="supply-chain",
        title=redact(first.title),
        body=redact(f"{', '.join(names[:_NAMED])}{more}: {first.why}."),
        evidence=redact(lines[line - 1].strip("\r") if line <= len(lines) else "")[:_MAX_EVIDENCE],
        reviewer=NAME,
        source=Source.ANALYSER,
        rule=first.rule,
        suggestion="Regenerate the lock file with the package manager, and compare.",
    )


def _line_of(remark: _Remark, lines: Sequence[str], added: frozenset[int]) -> int:
    """The added line that shows it, or else one of the package, or else the first one."""
    ordered = sorted(number for number in added if number <= len(lines))
    for needle in (remark.needle, remark.package.source.split(" ")[0], remark.package.name):
        for number in ordered:
            if needle and needle in lines[number - 1]:
                return number
    return ordered[0] if ordered else 1
