"""A lock file in each format with one package, and the same file after attacks and after ordinary changes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

NPM = "https://registry.npm" + "js.org"
YARN = "https://registry.yarn" + "pkg.com"
PYPI = "https://py" + "pi.org/simple"
FILES = "https://files.python" + "hosted.org/packages"
CRATES = "registry+https://github.com/rust-lang/crates" + ".io-index"
GEMS = "https://ruby" + "gems.org/"
EVIL = "https://evil.example"

HOST = "another host"
GIT = "a git source"
HTTP = "a source without TLS"
EXCHANGED = "a hash exchanged"
DROPPED = "a hash dropped"
OTHER = "the address of another package"
ATTACKS = (HOST, GIT, HTTP, EXCHANGED, DROPPED, OTHER)


@dataclass(frozen=True)
class Entry:
    """A package in a lock file. An empty `source` is the usual one, and an empty `digest` is none."""

    name: str = "left-pad"
    version: str = "1.0.0"
    digest: str = "a1"
    source: str = ""
    file: str = ""


@dataclass(frozen=True)
class NotRecorded:
    """An attack that a format has no field for."""

    reason: str


@dataclass(frozen=True)
class Sample:
    """How a format writes entries, and which entry each attack makes of the first one."""

    name: str
    write: Callable[..., str]
    attacks: Mapping[str, Entry | NotRecorded]


def write_npm(*entries: Entry) -> str:
    packages: dict[str, dict[str, str]] = {"": {"name": "a"}}
    for entry in entries:
        packages[f"node_modules/{entry.name}"] = _npm_fields(entry)
    return json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2)


def write_npm_1(*entries: Entry) -> str:
    dependencies = {entry.name: _npm_fields(entry) for entry in entries}
    return json.dumps({"lockfileVersion": 1, "dependencies": dependencies}, indent=2)


def _npm_fields(entry: Entry) -> dict[str, str]:
    fields = {"version": entry.version, "resolved": entry.source or _tarball(entry)}
    if entry.digest:
        fields["integrity"] = f"sha512-{entry.digest}"
    return fields


def _tarball(entry: Entry) -> str:
    return f"{NPM}/{entry.name}/-/{entry.name}-{entry.version}.tgz"


def write_yarn(*entries: Entry) -> str:
    text = "# yarn lockfile v1\n\n"
    for entry in entries:
        source = entry.source or _tarball(entry)
        text += f'\n{entry.name}@^1.0.0, {entry.name}@~1:\n  version "{entry.version}"\n  resolved "{source}"\n'
        if entry.digest:
            text += f"  integrity sha512-{entry.digest}\n"
        text += '  dependencies:\n    other "^2.0.0"\n'
    return text


def write_berry(*entries: Entry) -> str:
    text = "__metadata:\n  version: 8\n  cacheKey: 10\n"
    for entry in entries:
        locator = entry.source or f"{entry.name}@npm:{entry.version}"
        text += f'\n"{entry.name}@npm:^1.0.0":\n  version: {entry.version}\n  resolution: "{locator}"\n'
        if entry.digest:
            text += f"  checksum: 10/{entry.digest}\n"
        text += "  languageName: node\n  linkType: hard\n"
    return text


def write_pnpm(*entries: Entry) -> str:
    text = "lockfileVersion: '9.0'\n\npackages:\n"
    for entry in entries:
        fields: list[str] = []
        if entry.digest:
            fields.append(f"integrity: sha512-{entry.digest}")
        if entry.source.startswith("git+"):
            fields = ["type: git", f"repo: {entry.source.removeprefix('git+')}", f"commit: {'c' * 40}"]
        elif entry.source:
            fields.append(f"tarball: {entry.source}")
        text += f"\n  {entry.name}@{entry.version}:\n    resolution: {{{', '.join(fields)}}}\n"
    return text


def write_poetry(*entries: Entry) -> str:
    text = ""
    for entry in entries:
        text += f'[[package]]\nname = "{entry.name}"\nversion = "{entry.version}"\n'
        digest = f', hash = "sha256:{entry.digest}"' if entry.digest else ""
        text += f'files = [\n    {{file = "{_wheel(entry)}"{digest}}},\n]\n'
        if entry.source.startswith("git+"):
            text += f'\n[package.source]\ntype = "git"\nurl = "{entry.source.removeprefix("git+")}"\n'
        elif entry.source:
            text += f'\n[package.source]\ntype = "legacy"\nurl = "{entry.source}"\nreference = "own"\n'
        text += "\n"
    return text + '[metadata]\nlock-version = "2.0"\n'


def _wheel(entry: Entry) -> str:
    return entry.file or f"{entry.name.replace('-', '_')}-{entry.version}-py3-none-any.whl"


def write_uv(*entries: Entry) -> str:
    text = "version = 1\n"
    for entry in entries:
        text += f'\n[[package]]\nname = "{entry.name}"\nversion = "{entry.version}"\n'
        if entry.source.startswith("git+"):
            text += f'source = {{ git = "{entry.source.removeprefix("git+")}" }}\n'
            continue
        digest = f', hash = "sha256:{entry.digest}"' if entry.digest else ""
        wheel = f'{{ url = "{entry.source or FILES}/{_wheel(entry)}"{digest}, size = 1 }}'
        archive = f'{{ url = "{FILES}/{entry.name}-{entry.version}.tar.gz", hash = "sha256:s{entry.version}" }}'
        text += f'source = {{ registry = "{PYPI}" }}\nsdist = {archive}\nwheels = [\n    {wheel},\n]\n'
    return text


def write_pdm(*entries: Entry) -> str:
    text = '[metadata]\nlock_version = "4.5.0"\n'
    for entry in entries:
        text += f'\n[[package]]\nname = "{entry.name}"\nversion = "{entry.version}"\n'
        if entry.source.startswith("git+"):
            text += f'git = "{entry.source.removeprefix("git+")}"\nrevision = "{"c" * 40}"\n'
            continue
        digest = f', hash = "sha256:{entry.digest}"' if entry.digest else ""
        text += f'files = [\n    {{url = "{entry.source or FILES}/{_wheel(entry)}"{digest}}},\n]\n'
    return text


def write_pipfile(*entries: Entry) -> str:
    index = PYPI
    packages: dict[str, dict[str, object]] = {}
    for entry in entries:
        fields: dict[str, object] = {"version": f"=={entry.version}", "index": "main"}
        if entry.source.startswith("git+"):
            fields = {"git": entry.source.removeprefix("git+"), "ref": "c" * 40}
        elif entry.source:
            index = entry.source
        if entry.digest:
            fields["hashes"] = [f"sha256:{entry.digest}", f"sha256:sdist-{entry.version}"]
        packages[entry.name] = fields
    meta = {"sources": [{"name": "main", "url": index, "verify_ssl": True}]}
    return json.dumps({"_meta": meta, "default": packages, "develop": {}}, indent=4)


def write_requirements(*entries: Entry) -> str:
    text = ""
    for entry in entries:
        stated = f"{entry.name}=={entry.version}"
        if entry.source:
            stated = f"{entry.name} @ {entry.source}"
        text += stated
        if entry.digest:
            text += f" \\\n    --hash=sha256:{entry.digest} \\\n    --hash=sha256:sdist-{entry.version}"
        text += "\n    # via -r requirements.in\n"
    return text


def write_cargo(*entries: Entry) -> str:
    text = "version = 3\n"
    for entry in entries:
        text += (
            f'\n[[package]]\nname = "{entry.name}"\nversion = "{entry.version}"\nsource = "{entry.source or CRATES}"\n'
        )
        if entry.digest:
            text += f'checksum = "{entry.digest}"\n'
    return text


def write_gems(*entries: Entry) -> str:
    sections = ""
    checksums = ""
    for entry in entries:
        kind = "GIT" if entry.source.startswith("git+") else "GEM"
        remote = entry.source.removeprefix("git+") or GEMS
        sections += (
            f"{kind}\n  remote: {remote}\n  specs:\n    {entry.name} ({entry.version})\n      other (~> 1.0)\n\n"
        )
        digest = f" sha256={entry.digest}" if entry.digest else ""
        checksums += f"  {entry.name} ({entry.version}){digest}\n"
    return f"{sections}PLATFORMS\n  ruby\n\nDEPENDENCIES\n  rake\n\nCHECKSUMS\n{checksums}\nBUNDLED WITH\n   2.5.0\n"


def write_go(*entries: Entry) -> str:
    text = ""
    for entry in entries:
        if entry.digest:
            text += f"example.org/{entry.name} v{entry.version} h1:{entry.digest}=\n"
        text += f"example.org/{entry.name} v{entry.version}/go.mod h1:mod=\n"
    return text


def write_composer(*entries: Entry) -> str:
    packages: list[dict[str, object]] = []
    for entry in entries:
        repository = f"owner/{entry.name}"
        archive = entry.source or f"https://api.github.com/repos/{repository}"
        git = f"https://github.com/{repository}.git"
        if entry.source.startswith("git+"):
            git = entry.source.removeprefix("git+")
            archive = f"https://api.github.com/repos/{repository}"
        dist = {"type": "zip", "url": f"{archive}/zipball/{entry.digest}", "reference": entry.digest, "shasum": ""}
        source = {"type": "git", "url": git, "reference": entry.digest}
        packages.append({"name": f"owner/{entry.name}", "version": entry.version, "dist": dist, "source": source})
    return json.dumps({"packages": packages, "packages-dev": []}, indent=4)


_TARBALL_ATTACKS: dict[str, Entry | NotRecorded] = {
    HOST: Entry(source=f"{EVIL}/left-pad/-/left-pad-1.0.0.tgz"),
    GIT: Entry(source="git+https://github.com/evil/left-pad.git", digest=""),
    HTTP: Entry(source=_tarball(Entry()).replace("https:", "http:")),
    EXCHANGED: Entry(digest="b2"),
    DROPPED: Entry(digest=""),
    OTHER: Entry(source=f"{NPM}/evil/-/evil-1.0.0.tgz"),
}
_BERRY_ATTACKS: dict[str, Entry | NotRecorded] = {
    HOST: Entry(source=f"left-pad@{EVIL}/left-pad-1.0.0.tgz"),
    GIT: Entry(source=f"left-pad@https://github.com/evil/left-pad.git#commit={'c' * 40}"),
    HTTP: Entry(source="left-pad@http://registry.example/left-pad-1.0.0.tgz"),
    EXCHANGED: Entry(digest="b2"),
    DROPPED: Entry(digest=""),
    OTHER: Entry(source="evil@npm:1.0.0"),
}
_FILE_ATTACKS: dict[str, Entry | NotRecorded] = {
    HOST: Entry(source=EVIL),
    GIT: Entry(source="git+https://github.com/evil/left-pad"),
    HTTP: Entry(source=FILES.replace("https:", "http:")),
    EXCHANGED: Entry(digest="b2"),
    DROPPED: Entry(digest=""),
    OTHER: Entry(file="evil-1.0.0-py3-none-any.whl"),
}
_INDEX_ATTACKS: dict[str, Entry | NotRecorded] = {
    HOST: Entry(source=f"{EVIL}/simple"),
    GIT: Entry(source="git+https://github.com/evil/left-pad", digest=""),
    HTTP: Entry(source=PYPI.replace("https:", "http:")),
    EXCHANGED: Entry(digest="b2"),
    DROPPED: Entry(digest=""),
    OTHER: NotRecorded("an entry has a name, a version and hashes, but neither an address nor a file name"),
}
_REQUIREMENTS_ATTACKS: dict[str, Entry | NotRecorded] = {
    **_INDEX_ATTACKS,
    HOST: Entry(source=f"{EVIL}/left_pad-1.0.0-py3-none-any.whl"),
    HTTP: Entry(source="http://registry.example/left_pad-1.0.0-py3-none-any.whl"),
    OTHER: Entry(source=f"{FILES}/evil-1.0.0-py3-none-any.whl"),
}
_CARGO_ATTACKS: dict[str, Entry | NotRecorded] = {
    HOST: Entry(source=f"registry+{EVIL}/index"),
    GIT: Entry(source="git+https://github.com/evil/left-pad?rev=1#1", digest=""),
    HTTP: Entry(source="registry+http://registry.example/index"),
    EXCHANGED: Entry(digest="b2"),
    DROPPED: Entry(digest=""),
    OTHER: NotRecorded("an entry names the index, and cargo makes the address from the name and the version"),
}
_GEM_ATTACKS: dict[str, Entry | NotRecorded] = {
    HOST: Entry(source=f"{EVIL}/"),
    GIT: Entry(source="git+https://github.com/evil/left-pad.git", digest=""),
    HTTP: Entry(source=GEMS.replace("https:", "http:")),
    EXCHANGED: Entry(digest="b2"),
    DROPPED: Entry(digest=""),
    OTHER: NotRecorded("an entry names the server, and bundler makes the address from the name and the version"),
}
_NO_SOURCE = NotRecorded("a row has a module, a version and a hash, and no source")
_GO_ATTACKS: dict[str, Entry | NotRecorded] = {
    HOST: _NO_SOURCE,
    GIT: _NO_SOURCE,
    HTTP: _NO_SOURCE,
    EXCHANGED: Entry(digest="b2"),
    DROPPED: NotRecorded(
        "go removes the row of a module that is only needed for its go.mod, and refuses to build without it"
    ),
    OTHER: _NO_SOURCE,
}
_COMPOSER_ATTACKS: dict[str, Entry | NotRecorded] = {
    HOST: Entry(source=EVIL),
    GIT: Entry(source="git+https://github.com/evil/left-pad.git"),
    HTTP: Entry(source="http://api.github.com/repos/owner/left-pad"),
    EXCHANGED: Entry(digest="b2"),
    DROPPED: Entry(digest=""),
    OTHER: Entry(source="https://api.github.com/repos/evil/evil"),
}

SAMPLES = {
    "npm 3": Sample("package-lock.json", write_npm, _TARBALL_ATTACKS),
    "npm 1": Sample("package-lock.json", write_npm_1, _TARBALL_ATTACKS),
    "npm shrinkwrap": Sample("npm-shrinkwrap.json", write_npm, _TARBALL_ATTACKS),
    "yarn 1": Sample("yarn.lock", write_yarn, _TARBALL_ATTACKS),
    "yarn berry": Sample("yarn.lock", write_berry, _BERRY_ATTACKS),
    "pnpm": Sample("pnpm-lock.yaml", write_pnpm, _TARBALL_ATTACKS),
    "poetry": Sample("poetry.lock", write_poetry, {**_FILE_ATTACKS, HTTP: Entry(source=f"http{PYPI[5:]}")}),
    "uv": Sample("uv.lock", write_uv, _FILE_ATTACKS),
    "pdm": Sample("pdm.lock", write_pdm, _FILE_ATTACKS),
    "pipenv": Sample("pipfile.lock", write_pipfile, _INDEX_ATTACKS),
    "requirements": Sample("requirements.txt", write_requirements, _REQUIREMENTS_ATTACKS),
    "cargo": Sample("cargo.lock", write_cargo, _CARGO_ATTACKS),
    "bundler": Sample("gemfile.lock", write_gems, _GEM_ATTACKS),
    "go": Sample("go.sum", write_go, _GO_ATTACKS),
    "go workspace": Sample("go.work.sum", write_go, _GO_ATTACKS),
    "composer": Sample("composer.lock", write_composer, _COMPOSER_ATTACKS),
}
