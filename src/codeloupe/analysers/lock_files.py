"""What a change of a lock file means: packages from elsewhere, hashes that are gone, weaker or do not fit.

Ordinary bumps are silent. Findings of one kind and one host are one finding, since a change of the registry moves
thousands of entries at once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from codeloupe.analysers.lock_formats import Package, is_hashed_requirements, read_lock_file, read_requirements
from codeloupe.model.change import FileChange
from codeloupe.model.finding import Finding, Severity, Source
from codeloupe.system.redaction import redact

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
