"""The lock files of package managers, read into one shape: which packages, from where, with which hashes.

What is not certain is refused with a ValueError: an entry that this reader overlooks is one that nobody has read.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import FileChange
from codeloupe.model.finding import Claim, Severity, Source
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex

_REQUIREMENTS = regex(r"[\w.-]*requirements[\w.-]*\.txt|[\w-]*constraints[\w-]*\.txt", re.IGNORECASE)


class Package(Struct, frozen=True):
    """One entry. `source` is where it comes from, empty for the usual registry; `local` for what is in the tree."""

    name: str
    version: str
    source: str = ""
    hashes: Iterable[str] = ()
    script: bool = False
    local: bool = False


def _packages(name: str, content: bytes, *, is_requirements: bool) -> tuple[Package, ...]:
    """The packages of a lock file with this base name. Raises ValueError when it cannot be read for certain."""
    if len(content) > 32 * 1024**2:
        raise ValueError("it is larger than 33,554,432 bytes")
    text = content.decode("utf-8")
    try:
        packages = _requirements(text) if is_requirements else _READERS[name.lower()](text)
        return tuple(replace(each, hashes=frozenset(filter(None, each.hashes))) for each in packages)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it does not have the format of such a file ({type(error).__name__}: {error})") from error


def _requirements(text: str) -> Iterator[Package]:
    """The pinned packages of pip's own format; an index or a find-links line is an entry without a version."""
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if words and words[0].startswith("-"):
            option, _, value = " ".join(words).replace("=", " ", 1).partition(" ")
            if re.fullmatch(r"-i|-f|--find[-]links|--(?:extra-)?index[-]url", option):
                yield Package(option, "", value.strip())
        elif words:
            hashes = [word.removeprefix("--hash=") for word in words if word.startswith("--hash=")]
            stated = " ".join(word for word in words if not word.startswith("--hash="))
            name, _, version = re.split(r"[;@]", stated, maxsplit=1)[0].partition("==")
            url = re.search(r"(?:git\+|hg\+|svn\+)?[a-z+]+://\S+", stated)
            yield Package(name.strip().lower() or stated, version.strip(), url[0] if url else "", hashes)


def _npm(text: str) -> Iterator[Package]:
    document = _json(text)
    if document.keys().isdisjoint(("packages", "dependencies", "lockfileVersion")):
        raise ValueError("it has neither packages nor dependencies")
    entries: list[tuple[str, dict[str, Any], bool]] = []  # each with its name, and whether it is in the tree
    for path, entry in document.get("packages", {}).items():
        if path:
            name = entry.get("name") or path.rpartition("node_modules/")[2]
            entries.append((name, entry, bool(entry.get("link")) or "node_modules/" not in f"{path}/"))

    def collect(dependencies: Mapping[str, Any]) -> None:
        for name, entry in dependencies.items():
            if isinstance(entry, dict):
                entries.append((name, entry, str(entry.get("version", "")).startswith("file:")))
                collect(entry.get("dependencies", {}))

    collect(document.get("dependencies", {}))  # npm 6 goes by these, npm 7 by the others
    for name, entry, is_local in entries:
        version, resolved = str(entry.get("version", "")), entry.get("resolved")
        source = resolved if isinstance(resolved, str) else ""
        if not source and re.match(r"git|https?:|github:", version):
            source = version
        local = is_local or bool(entry.get("inBundle") or entry.get("bundled")) or source.startswith("file:")
        hashes, script = str(entry.get("integrity", "")).split(), bool(entry.get("hasInstallScript"))
        yield Package(name, version, source, hashes, script=script, local=local)


def _yarn(text: str) -> Iterator[Package]:
    for header, fields in _yarn_entries(text):
        first = header.split(",", maxsplit=1)[0].strip().strip('"')
        name = first[: first.index("@", 1)]
        resolution = fields.get("resolution", "")
        source = fields.get("resolved", "") or resolution.removeprefix(f"{name}@").removeprefix("npm:")
        local = re.match(r"(workspace|patch|portal|link|file|virtual):", source) is not None
        if local or (resolution and "://" not in source and not source.startswith("git")):
            source = ""  # in the tree, or of a registry, which is not named
        hashes = [*fields.get("integrity", "").split(), fields.get("checksum", "")]
        base, _, digest = source.partition("#")
        if re.fullmatch(r"[0-9a-f]{40}", digest) and not base.startswith("git"):
            hashes.append(f"sha1-{digest}")
            source = base
        yield Package(name, fields.get("version", ""), source, hashes, local=local)


def _yarn_entries(text: str) -> list[tuple[str, dict[str, str]]]:
    """Both forms: that of yarn 1, and the YAML of its successors, which they write in one way only."""
    if "# yarn lockfile" not in text and "__metadata:" not in text:
        raise ValueError("it does not have the header of a yarn lock file")
    entries: list[tuple[str, dict[str, str]]] = [("__metadata", {})]
    has_parts = False  # of a field: they are further in
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#") or (has_parts and line.startswith("    ")):
            continue
        field = re.fullmatch(r'  "?([\w-]+)"?(?::|:? "?([^"]*?)"?)\s*', line)
        has_parts = field is not None and field[2] is None
        if not line.startswith(" ") and line.rstrip().endswith(":"):
            entries.append((line.rstrip()[:-1], {}))
        elif field is None:
            raise ValueError(f"line {number} is neither an entry nor a field of one")
        elif not has_parts:
            entries[-1][1][field[1]] = field[2]
    return [entry for entry in entries if entry[0] != "__metadata"]


def _pnpm(text: str) -> Iterator[Package]:
    import yaml  # noqa: PLC0415 - of all formats only this one needs it

    if re.search(r"(^|[\s,\[{])[&*][\w-]+", re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "", text)):
        raise ValueError("it has YAML anchors, which package managers do not write")
    try:
        document = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text).get_single_data()
    except yaml.YAMLError as error:
        raise ValueError("it is not valid YAML") from error
    if "lockfileVersion" not in document:
        raise ValueError("it has no lockfileVersion")
    for key, entry in (document.get("packages") or {}).items():
        found = re.fullmatch(r"/?((?:@[^/@]+/)?[^/@]+)[@/](.+)", key)
        name, version = (found[1], found[2].partition("(")[0]) if found else (key, "")
        resolution, script = (entry or {}).get("resolution", {}), bool((entry or {}).get("requiresBuild"))
        source = resolution.get("tarball") or resolution.get("repo") or ""
        local = resolution.get("type") == "directory" or source.startswith("file:")
        if resolution.get("repo"):
            source = f"git+{source}#{resolution.get('commit', '')}"
        yield Package(name, version, source, [resolution.get("integrity", "")], script=script, local=local)


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
        addresses = [str(file["url"]) for file in files if "url" in file]
        kind = source.get("type", "")
        local = kind in ("directory", "file") or not {"editable", "virtual", "directory", "path"}.isdisjoint(source)
        where = str(source.get("url") or source.get("registry") or source.get("git") or entry.get("git") or "")
        if kind == "git" or "git" in source:
            where = where if where.startswith("git+") else f"git+{where}"
        elif not where and addresses:
            where = addresses[0]
        # The addresses of the files themselves count too: an index may lead anywhere.
        found = (re.match(r"[a-z+]*://([^/@]*@)?([^/:]+)", address) for address in addresses)
        hosts = sorted({f"https://{host[2]}" for host in found if host})
        hashes = [str(file.get("hash") or "") for file in files]
        version = str(entry.get("version", ""))
        yield Package(entry["name"], version, " ".join([where, *hosts]).strip(), hashes, local=local)


def _pipfile(text: str) -> Iterator[Package]:
    document = _json(text)
    for source in document["_meta"].get("sources", []):
        yield Package(f"index {source.get('name', '')}", "", str(source["url"]))
    for group, entries in document.items():
        for name, entry in entries.items() if group != "_meta" else ():
            where = f"git+{entry['git']}" if entry.get("git") else entry.get("file", "")
            version = str(entry.get("version", entry.get("ref", ""))).lstrip("=")
            local = bool(entry.get("path") or entry.get("editable"))
            yield Package(name, version, where, entry.get("hashes", []), local=local)


def _cargo(text: str) -> Iterator[Package]:
    document = tomllib.loads(text)
    checksums = document.get("metadata", {})
    for entry in document.get("package", []):
        source = entry.get("source", "")
        key = f"checksum {entry['name']} {entry['version']} ({source})"
        digest = entry.get("checksum") or checksums.get(key, "")
        yield Package(entry["name"], entry["version"], source, [digest and f"sha256:{digest}"], local=not source)


def _gems(text: str) -> Iterator[Package]:
    sections = [part.partition("\n") for part in re.split(r"^(?=\S)", text, flags=re.MULTILINE)]
    if not any(name in ("GEM", "GIT", "PATH") and end for name, end, _ in sections):
        raise ValueError("it has no section of gems")
    lines = [(name, list(filter(str.strip, body.splitlines()))) for name, _, body in sections]
    hashes: dict[tuple[str, str], list[str]] = {}
    for line in (line for name, body in lines if name == "CHECKSUMS" for line in body):
        found = re.fullmatch(r"  ([\w.-]+) \(([^)]+)\)(?: (\S+))?", line.rstrip())
        if found is None:
            raise ValueError(f"{line.strip()!r} is not a checksum of a gem")
        hashes[found[1], found[2]] = (found[3] or "").split(",")
    for name, body in lines:
        remotes: list[str] = []
        for line in body if name in ("GEM", "GIT", "PATH", "PLUGIN SOURCE") else ():
            if line.startswith("  remote: "):
                remotes.append(f"git+{line[10:].strip()}" if name == "GIT" else line[10:].strip())
            elif gem := re.fullmatch(r"    ([\w.-]+) \(([^)]+)\)", line):
                digests = hashes.get((gem[1], gem[2]), [])
                yield Package(gem[1], gem[2], " ".join(remotes), digests, local=name == "PATH")
            elif not re.match(r"  (specs:|\w+: )|      \S", line):
                raise ValueError(f"{line.strip()!r} is not valid in a Gemfile.lock")


def _go(text: str) -> Iterator[Package]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if words:
            if len(words) != 3 or not words[2].startswith("h1:"):
                raise ValueError(f"line {number} is not `module version h1:hash`")
            yield Package(words[0], words[1], hashes=[words[2]])


def _composer(text: str) -> Iterator[Package]:
    document = _json(text)
    for entry in (*document["packages"], *(document.get("packages-dev") or ())):
        dist, source = entry.get("dist") or {}, entry.get("source") or {}
        digest = dist.get("shasum") or dist.get("reference") or source.get("reference")
        where = " ".join(filter(None, (dist.get("url", ""), source.get("url", ""))))
        hashes = [f"sha1:{digest}" if digest else ""]
        yield Package(entry["name"], str(entry["version"]), where, hashes, local=dist.get("type") == "path")


def _json(text: str) -> dict[str, Any]:
    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):  # which of two equal keys counts depends on the reader
            raise ValueError("it has a duplicate key")
        return found

    return json.loads(text, object_pairs_hook=collect)  # type: ignore[no-any-return]  # else the reader stumbles


_READERS: dict[str, Callable[[str], Iterator[Package]]] = {
    **dict.fromkeys(("package-lock.json", "npm-shrinkwrap.json"), _npm),
    **dict.fromkeys(("poetry.lock", "uv.lock", "pdm.lock"), _python),
    **dict.fromkeys(("go.sum", "go.work.sum"), _go),
    "yarn.lock": _yarn,
    "pnpm-lock.yaml": _pnpm,
    "pipfile.lock": _pipfile,
    "composer.lock": _composer,
    "cargo.lock": _cargo,
    "gemfile.lock": _gems,
}

_HOST = regex(r"([a-z0-9+.-]*)://(?:[^/@\s]*@)?([^/:\s]+)|git@([^:/\s]+):", re.IGNORECASE)
# No file of this project holds the address of a registry, not even to compare with it: there is a `~` in each.
_RULES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8").replace("~", ""))
_HOSTS = _RULES["hosts"]
_NPM_ADDRESS = regex(rf"https?://(?:{'|'.join(map(re.escape, _HOSTS['npm']))})/(.+)/-/(.+)\.tgz")


class _Remark(Struct, frozen=True):
    """One thing about a package, which `needle` shows in the file; those of one `kind` and `about` are one finding."""

    kind: str
    package: Package
    needle: str
    about: str = ""
    words: Mapping[str, str] = {}
    severity: Severity | None = None


def review_lock_files(
    files: Sequence[FileChange], blobs: Mapping[str, bytes], contents: Mapping[str, bytes | None]
) -> tuple[tuple[Claim, ...], dict[str, str]]:
    """Claims of changed lock files, and why others are unread; `blobs` are the old contents by their object names."""
    found: list[Claim] = []
    unread: dict[str, str] = {}
    for file in files:
        content = contents[file.path]
        if file.new_path is None:
            continue  # what is deleted pins nothing any more
        if content is None or file.is_symlink:
            unread[file.path] = "it is a symbolic link" if file.is_symlink else "only its diff is known"
            continue
        try:
            # Under another name it was no lock file, and pinned nothing.
            had_its_name = PurePosixPath(file.old_path or "").name == PurePosixPath(file.path).name
            old = blobs.get(file.old_blob or "") if had_its_name else None
            found += review_lock_file(file.path, old, content, file.added_line_numbers())
        except ValueError as error:
            unread[file.path] = f"it could not be read: {error}"
    return tuple(found), unread


def review_lock_file(path: str, old: bytes | None, new: bytes, added: frozenset[int]) -> tuple[Claim, ...]:
    """What is to be said of a lock file that becomes `new`; `old` is None where nobody knows. Raises ValueError."""
    name = PurePosixPath(path).name
    is_requirements = _REQUIREMENTS.fullmatch(name) is not None and b"--hash=" in new
    after = _packages(name, new, is_requirements=is_requirements)
    before: tuple[Package, ...] = ()
    with contextlib.suppress(ValueError):  # what could not be read then says nothing about what is there now
        before = () if old is None else _packages(name, old, is_requirements=is_requirements)
    groups: dict[tuple[str, str], list[_Remark]] = defaultdict(list)
    for remark in _remarks(before, after):
        groups[remark.kind, remark.about].append(remark)
    lines = new.decode("utf-8").split("\n")
    found = [_summed_up(path, remarks, lines, added) for remarks in groups.values()]
    # A finding for each line that holds a credential: no reviewer gets the file to see it.
    numbers = range(1, len(lines) + 1) if old is None else sorted(added)
    shown = {number: lines[number - 1].strip("\r") for number in numbers if number <= len(lines)}
    text = "\n".join(shown.values())
    for number, line in shown.items() if redact(text) != text else ():  # of all lines at once it is fast
        if redact(line) != line:
            fix = "Revoke it, and let the package manager read a new one from its configuration or the environment."
            words = {"title": _RULES["credential"]["title"], "body": _RULES["credential"]["why"], "suggestion": fix}
            found.append(_finding(path, number, line, category="security", rule="credential", **words))
    return tuple(found)


def _finding(path: str, line: int, evidence: str, *, severity: Severity = Severity.HIGH, **fields: str) -> Claim:
    return Claim(
        file=path,
        line_start=line,
        line_end=line,
        severity=severity,
        evidence=redact(evidence)[:300],
        reporter="lock-files",
        source=Source.ANALYSER,
        **fields,  # type: ignore[arg-type]  # category, title, body, rule and suggestion are texts
    )


def _remarks(before: Sequence[Package], after: Sequence[Package]) -> Iterator[_Remark]:
    by_name: dict[str, list[Package]] = defaultdict(list)
    owners: dict[str, Package] = {}
    for package in before:
        by_name[package.name].append(package)
        for digest in package.hashes:
            owners.setdefault(digest, package)
    known, hosts = frozenset(before), {host for package in before for _, host in _hosts(package)}
    hashed = sum(bool(package.hashes) for package in after if not package.local) * 2 >= len(after)
    for package in after:
        earlier = by_name.get(package.name, [])
        if package in known or package.local:
            continue
        yield from _about_source(package, earlier, hosts)
        yield from _about_hashes(package, earlier, owners, is_hashed=hashed)
        if package.script and not any(one.script for one in earlier):
            severity = None if earlier else Severity.LOW
            yield _Remark("install-script", package, "hasInstallScript", str(severity), severity=severity)


def _hosts(package: Package) -> list[tuple[str, str]]:
    """The scheme and the host of each address that a package comes from."""
    matches = _HOST.finditer(package.source)
    found = (((match[1] or "git+ssh").lower(), (match[2] or match[3]).lower()) for match in matches)
    return [(scheme, _HOSTS["same"].get(host, host)) for scheme, host in found]


def _about_source(package: Package, earlier: Sequence[Package], known_hosts: set[str]) -> Iterator[_Remark]:
    before = [place for one in earlier for place in _hosts(one)]
    hosts_before = ", ".join(sorted({host for _, host in before}))
    for scheme, host in _hosts(package):
        words = {"host": host, "before": hosts_before}
        if scheme.rpartition("+")[2] in ("http", "git", "ftp") and host not in ("localhost", "127.0.0.1"):
            yield _Remark("insecure-source", package, host, host, words)
        if before and host not in {host for _, host in before}:
            yield _Remark("source-moved", package, host, f"{hosts_before} {host}", words)
        elif host not in known_hosts and host not in _HOSTS["usual"]:
            yield _Remark("new-source", package, host, host, words)
        elif scheme.startswith("git") and not any(scheme.startswith("git") for scheme, _ in before):
            yield _Remark("git-source", package, host, host, words)
    if before and not package.source:
        yield _Remark("source-removed", package, package.name)
    # An address at npm's registry names the package and its version.
    found = _NPM_ADDRESS.match(package.source)
    if found is None or not package.version or package.version.startswith("npm:"):
        return
    is_same = found[1].lower().replace("%2f", "/") == package.name.lower()
    if not is_same or not found[2].endswith(f"-{package.version}"):
        words = {"other": f"{found[1]} {found[2]}", "this": f"{package.name} {package.version}"}
        # An alias has the name of another package on purpose.
        severity = None if is_same else Severity.MEDIUM
        yield _Remark("other-package", package, package.source, package.name, words, severity)


def _about_hashes(
    package: Package, earlier: Sequence[Package], owners: Mapping[str, Package], *, is_hashed: bool
) -> Iterator[_Remark]:
    before = [digest for one in earlier for digest in one.hashes]
    if not package.hashes:
        is_git = any(scheme.startswith(("git", "ssh")) for scheme, _ in _hosts(package))
        if package.version and not is_git and (before or is_hashed):
            yield _Remark("hash-gone" if before else "hash-missing", package, package.name)
        return
    digest = min(package.hashes)
    same = [digest for one in earlier if one.version == package.version for digest in one.hashes]
    if same and not set(package.hashes) & set(same) and _strength(same) <= _strength(package.hashes):
        yield _Remark("hash-changed", package, digest, package.name)
    owner = next((owners[each] for each in package.hashes if each in owners), None)
    if owner is not None and (owner.name, owner.version) != (package.name, package.version):
        words = {"other": f"{owner.name} {owner.version}"}
        yield _Remark("hash-of-another", package, digest, package.name, words)
    if before and _strength(package.hashes) < _strength(before):
        yield _Remark("hash-weakened", package, digest)


def _strength(hashes: Iterable[str]) -> int:
    strengths = {"md5": 0, "sha1": 1, "sha256": 2, "h1": 2, "sha384": 3, "sha512": 4}
    return max((strengths.get(re.split(r"[-:=]", digest)[0].lower(), 2) for digest in hashes), default=-1)


def _summed_up(path: str, remarks: Sequence[_Remark], lines: Sequence[str], added: frozenset[int]) -> Claim:
    """One finding for remarks of a kind, at the added line that shows the first of them, or else any added line."""
    first = remarks[0]
    rule = _RULES[first.kind]
    title, why = (rule[key].format(**first.words) for key in ("title", "why"))
    names = list(dict.fromkeys(f"{one.package.name} {one.package.version}".strip() for one in remarks))
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    ordered = sorted(number for number in added if number <= len(lines))
    needles = filter(None, (first.needle, first.package.source.split(" ")[0], first.package.name))
    shown = (number for needle in needles for number in ordered if needle in lines[number - 1])
    line = next(shown, ordered[0] if ordered else 1)
    return _finding(
        path,
        line,
        lines[line - 1].strip("\r") if line <= len(lines) else "",
        severity=first.severity or Severity.parse(rule["severity"]),
        category="supply-chain",
        title=redact(title),
        body=redact(f"{', '.join(names[:5])}{more}: {why}."),
        rule=rule.get("rule", first.kind),
        rule_title=rule["title"].replace("{host}", "another host"),
        suggestion="Regenerate the lock file with the package manager, and compare the result.",
    )
