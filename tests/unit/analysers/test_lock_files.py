"""Lock files: attacks are reported, honest regenerations are not, and a file that cannot be read is refused."""

import json

import pytest

from codeloupe.analysers.lock_files import review_lock_file
from codeloupe.model.finding import Severity, Source
from tests.unit.analysers import lock_file_samples as samples
from tests.unit.analysers.lock_file_samples import CRATES, EVIL, FILES, NPM, PYPI, YARN, Entry

_SECOND = Entry("other", "2.0.0", "c3")
_COMMITS = ("a" * 40, "b" * 40)
_OWN = "https://npm.example/left-pad/-/left-pad-{version}.tgz"
_WITHOUT_TLS = "http://npm.example/left-pad/-/left-pad-{version}.tgz"


def _rules(name: str, old: str | None, new: str) -> set[str | None]:
    lines = frozenset(range(1, new.count("\n") + 2))
    old_content = None if old is None else old.encode()
    found = review_lock_file(name, old_content, new.encode(), lines)
    assert all(one.source is Source.ANALYSER and one.file == name and one.line_start in lines for one in found)
    return {one.rule for one in found}


def _npm(entry: dict[str, object], name: str = "left-pad") -> str:
    other = {"version": "2.0.0", "resolved": f"{NPM}/other/-/other-2.0.0.tgz", "integrity": "sha512-OTHER"}
    packages = {"": {"name": "a"}, f"node_modules/{name}": entry, "node_modules/other": other}
    return json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2)


def _npm_at(address: str, version: str = "1.0.0", digest: str = "sha512-A") -> str:
    entry: dict[str, object] = {"version": version, "resolved": address.format(version=version)}
    if digest:
        entry["integrity"] = digest
    return _npm(entry)


def _yarn_1(fields: str) -> str:
    return f'# yarn lockfile v1\n\n\nleft-pad@^1.0.0:\n  version "1.0.0"\n{fields}'


def _berry(cache_key: str, *entries: str) -> str:
    return f"__metadata:\n  version: 8\n  cacheKey: {cache_key}\n\n" + "\n".join(entries)


def _berry_entry(name: str, resolution: str, checksum: str) -> str:
    return f'"{name}@npm:^1.0.0":\n  version: 1.0.0\n  resolution: "{resolution}"\n  checksum: {checksum}\n'


def _berry_git(commit: str, checksum: str) -> str:
    locator = f"left-pad@https://github.com/owner/left-pad.git#commit={commit}"
    header = '"left-pad@https://github.com/owner/left-pad.git":'
    return _berry("10", f'{header}\n  version: 1.0.0\n  resolution: "{locator}"\n  checksum: 10/{checksum}\n')


def _uv(*wheels: str, index: str = PYPI) -> str:
    rows = "".join(f"    {wheel},\n" for wheel in wheels)
    source = f'source = {{ registry = "{index}" }}'
    return f'version = 1\n\n[[package]]\nname = "a"\nversion = "1.0.0"\n{source}\nwheels = [\n{rows}]\n'


def _wheel(tag: str, digest: str = "", host: str = FILES, release: str = "a-1.0.0") -> str:
    stated = f', hash = "sha256:{digest}"' if digest else ""
    return f'{{ url = "{host}/{release}-{tag}-none-any.whl"{stated}, size = 1 }}'


_LINUX = _wheel("cp311", "linux")
_WINDOWS = _wheel("cp312", "windows")


def _pnpm_with_alias(version: str) -> str:
    importers = f"importers:\n  .:\n    dependencies:\n      left-pad:\n        version: {version}\n\npackages:\n"
    return samples.write_pnpm(Entry(), _SECOND).replace("packages:\n", importers)


def _git_npm(commit: str, owner: str = "owner") -> str:
    return _npm({"version": "1.0.0", "resolved": f"git+ssh://git@github.com/{owner}/left-pad.git#{commit}"})


def _git_cargo(commit: str, owner: str = "owner") -> str:
    return samples.write_cargo(Entry(source=f"git+https://github.com/{owner}/a?branch=main#{commit}", digest=""))


def _git_uv(commit: str) -> str:
    return samples.write_uv(Entry(source=f"git+https://github.com/owner/a?rev=main#{commit}"))


def _composer_branch(commit: str) -> str:
    return samples.write_composer(Entry(version="dev-main", digest=commit))


def _pipfile(index: str, *, verify: bool = True, hashes: tuple[str, ...] = ("sha256:a",)) -> str:
    meta = {"sources": [{"name": "main", "url": index, "verify_ssl": verify}]}
    return json.dumps({"_meta": meta, "default": {"a": {"version": "==1.0.0", "hashes": list(hashes)}}})


def _pip(*digests: str, options: str = "") -> str:
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in digests)
    return f"{options}a==1.0.0{hashes}\n"


@pytest.mark.defect("N1")
def test_two_versions_of_a_go_module_may_share_the_hash_of_go_mod() -> None:
    old = "example.org/m v1.0.0 h1:a=\nexample.org/m v1.0.0/go.mod h1:mod=\n"
    new = "example.org/m v1.0.1 h1:b=\nexample.org/m v1.0.1/go.mod h1:mod=\n"
    assert _rules("go.sum", old, new) == set()
    assert _rules("go.sum", old, old + new) == set()
    assert _rules("go.sum", old, old.replace("h1:mod=", "h1:other=")) == {"hash-changed"}


@pytest.mark.defect("N2")
@pytest.mark.parametrize(
    ("wheel", "rule"),
    [
        pytest.param(_wheel("cp312", "evil"), "hash-changed", id="hash exchanged"),
        pytest.param(_wheel("cp312"), "hash-missing", id="hash dropped"),
        pytest.param(_wheel("cp312", "windows", FILES.replace("https:", "http:")), "insecure-same-hash", id="http"),
        pytest.param(_wheel("cp312", "windows", EVIL), "source-moved", id="host"),
        pytest.param(_wheel("cp312", "windows", release="evil-1.0.0"), "other-package", id="other package"),
        pytest.param(_wheel("cp312", "windows", release="a-0.9.0"), "other-package", id="other version"),
    ],
)
def test_one_changed_wheel_among_others_is_found(wheel: str, rule: str) -> None:
    assert _rules("uv.lock", _uv(_LINUX, _WINDOWS), _uv(_LINUX, wheel)) == {rule}


_POETRY_FILES = '[{file = "a-1.0.0-py3-none-any.whl", hash = "sha256:1"}]'
_REGENERATIONS = {
    "one SHA-1 becomes SHA-512": ("package-lock.json", _npm_at(_OWN, digest="sha1-A"), _npm_at(_OWN)),
    "yarn's name of npm's registry": (
        "package-lock.json",
        samples.write_npm(Entry()),
        samples.write_npm(Entry(source=f"{YARN}/left-pad/-/left-pad-1.0.0.tgz")),
    ),
    "addresses dropped": (
        "package-lock.json",
        samples.write_npm(Entry(), _SECOND),
        samples.write_npm(Entry(), _SECOND).replace('"resolved"', '"unknown"'),
    ),
    "addresses added": (
        "package-lock.json",
        samples.write_npm(Entry(), _SECOND).replace('"resolved"', '"unknown"'),
        samples.write_npm(Entry(), _SECOND),
    ),
    "npm 1 to 3": ("package-lock.json", samples.write_npm_1(Entry(), _SECOND), samples.write_npm(Entry(), _SECOND)),
    "a bundled package": (
        "package-lock.json",
        _npm_at(_OWN),
        _npm({"version": "1.0.0", "inBundle": True}, "other/node_modules/left-pad"),
    ),
    "an alias of yarn beside the package": (
        "yarn.lock",
        samples.write_yarn(Entry()),
        samples.write_yarn(Entry()).replace("left-pad@^1.0.0,", '"pad-cjs@npm:left-pad@^1.0.0", left-pad@^1.0.0,'),
    ),
    "a workspace": ("package-lock.json", _npm_at(_OWN), _npm({"resolved": "packages/left-pad", "link": True})),
    "a private registry in use": ("package-lock.json", _npm_at(_OWN), _npm_at(_OWN, "1.0.1", "sha512-B")),
    "a registry without TLS in use": (
        "package-lock.json",
        _npm_at(_WITHOUT_TLS),
        _npm_at(_WITHOUT_TLS, "1.0.1", "sha512-B"),
    ),
    "a mirror back to the registry": (
        "package-lock.json",
        _npm_at(_OWN),
        _npm_at(_OWN.replace("https://npm.example", NPM)),
    ),
    "a git dependency back to the registry": (
        "package-lock.json",
        _git_npm(_COMMITS[0]),
        samples.write_npm(Entry(), Entry("other", "2.0.0", "OTHER")),
    ),
    "a commit of npm": ("package-lock.json", _git_npm(_COMMITS[0]), _git_npm(_COMMITS[1])),
    "a commit of yarn": ("yarn.lock", _berry_git(_COMMITS[0], "a"), _berry_git(_COMMITS[1], "b")),
    "a commit of cargo": ("Cargo.lock", _git_cargo(_COMMITS[0]), _git_cargo(_COMMITS[1])),
    "a commit of uv": ("uv.lock", _git_uv(_COMMITS[0]), _git_uv(_COMMITS[1])),
    "a commit of a branch of composer": (
        "composer.lock",
        _composer_branch(_COMMITS[0]),
        _composer_branch(_COMMITS[1]),
    ),
    "yarn 1 writes the integrity": (
        "yarn.lock",
        _yarn_1(f'  resolved "{NPM}/left-pad/-/left-pad-1.0.0.tgz#{"00" * 20}"\n'),
        _yarn_1(f'  resolved "{NPM}/left-pad/-/left-pad-1.0.0.tgz#{"00" * 20}"\n  integrity sha1-{"A" * 27}=\n'),
    ),
    "yarn 1 links a folder": (
        "yarn.lock",
        samples.write_yarn(Entry()),
        samples.write_yarn(Entry()) + '\n"other@link:../other":\n  version "0.0.0"\n  uid ""\n',
    ),
    "yarn 1 to berry": ("yarn.lock", samples.write_yarn(Entry(), _SECOND), samples.write_berry(Entry(), _SECOND)),
    "a cache key of yarn": (
        "yarn.lock",
        _berry("8", _berry_entry("a", "a@npm:1.0.0", "1"), _berry_entry("b", "b@npm:1.0.0", "2")),
        _berry("10", _berry_entry("a", "a@npm:1.0.0", "10/3"), _berry_entry("b", "b@npm:1.0.0", "10/4")),
    ),
    "a patch of yarn": (
        "yarn.lock",
        samples.write_berry(Entry()),
        samples.write_berry(Entry())
        + '\n"left-pad@patch:left-pad@npm%3A^1.0.0#./a.patch":\n  version: 1.0.0\n'
        + '  resolution: "left-pad@patch:left-pad@npm%3A1.0.0#./a.patch::version=1.0.0&hash=1"\n  checksum: 10/p\n',
    ),
    "pnpm 6 to 9": (
        "pnpm-lock.yaml",
        samples.write_pnpm(Entry()).replace("  left-pad@1.0.0:", "  /left-pad@1.0.0(react@18.0.0):"),
        samples.write_pnpm(Entry()),
    ),
    "poetry moves hashes": (
        "poetry.lock",
        f'[[package]]\nname = "a"\nversion = "1.0.0"\n\n[metadata.files]\na = {_POETRY_FILES}\n',
        f'[[package]]\nname = "a"\nversion = "1.0.0"\nfiles = {_POETRY_FILES}\n',
    ),
    "a wheel is removed": ("uv.lock", _uv(_LINUX, _WINDOWS), _uv(_LINUX)),
    "a hash of several is removed": ("requirements.txt", _pip("a", "b"), _pip("a")),
    "the old name of the index": ("Pipfile.lock", _pipfile("https://py" + "pi.python.org/simple"), _pipfile(PYPI)),
    "cargo moves checksums": (
        "Cargo.lock",
        samples.write_cargo(Entry(digest="")) + f'\n[metadata]\n"checksum left-pad 1.0.0 ({CRATES})" = "a1"\n',
        samples.write_cargo(Entry()),
    ),
    "cargo's sparse index": (
        "Cargo.lock",
        samples.write_cargo(Entry()),
        samples.write_cargo(Entry(source="sparse+https://index.crates" + ".io/")),
    ),
    "a gem of another platform": (
        "Gemfile.lock",
        samples.write_gems(Entry()),
        samples.write_gems(Entry(), Entry(version="1.0.0-x86_64-linux", digest="b2")),
    ),
    "go keeps only go.mod": ("go.sum", samples.write_go(Entry()), samples.write_go(Entry(digest=""))),
    "a new file": ("package-lock.json", None, samples.write_npm(Entry(), _SECOND)),
}


@pytest.mark.parametrize("case", _REGENERATIONS)
def test_an_honest_regeneration_raises_nothing(case: str) -> None:
    assert _rules(*_REGENERATIONS[case]) == set()


_NPM_LOCK = samples.write_npm(Entry(), _SECOND)
_ATTACKS = {
    "a second hash is accepted too": (
        *("package-lock.json", _NPM_LOCK, _NPM_LOCK.replace("sha512-a1", "sha512-a1 sha512-evil")),
        "hash-changed",
    ),
    "a weaker hash": ("package-lock.json", _NPM_LOCK, _NPM_LOCK.replace("sha512-a1", "sha1-a1"), "hash-weakened"),
    "an algorithm for one package": (
        *("package-lock.json", _NPM_LOCK, _NPM_LOCK.replace("sha512-a1", "sha384-evil")),
        "hash-changed",
    ),
    "a bump loses the hash": (
        *("package-lock.json", _NPM_LOCK, samples.write_npm(Entry(version="1.0.1", digest=""), _SECOND)),
        "hash-missing",
    ),
    "a new package without a hash": (
        *("package-lock.json", samples.write_npm(Entry()), samples.write_npm(Entry(), Entry("other", digest=""))),
        "hash-missing",
    ),
    "a private package from the public registry": (
        *("package-lock.json", _npm_at(_OWN), samples.write_npm(Entry(version="9.0.0", digest="evil"))),
        "source-moved",
    ),
    "a known name stands for another package": (
        *("package-lock.json", _NPM_LOCK),
        _npm({"name": "evil", "version": "1.0.0", "resolved": f"{NPM}/evil/-/evil-1.0.0.tgz", "integrity": "sha512-E"}),
        "other-package",
    ),
    "another version in the address": (
        *("package-lock.json", _NPM_LOCK, samples.write_npm(Entry(source=f"{NPM}/left-pad/-/left-pad-0.9.0.tgz"))),
        "other-package",
    ),
    "a new file with another host": ("package-lock.json", None, _npm_at(f"{EVIL}/left-pad.tgz"), "new-source"),
    "a new package from a repository": (
        *("package-lock.json", samples.write_npm(_SECOND), _git_npm(_COMMITS[0])),
        "git-source",
    ),
    "another owner on a known host": (
        *("package-lock.json", _git_npm(_COMMITS[0]), _git_npm(_COMMITS[0], "evil")),
        "source-moved",
    ),
    "another owner for cargo": ("Cargo.lock", _git_cargo("1"), _git_cargo("1", "evil"), "source-moved"),
    "another index on the same host": (
        *("Cargo.lock", samples.write_cargo(Entry())),
        samples.write_cargo(Entry(source=CRATES.replace("rust-lang", "evil"))),
        "source-moved",
    ),
    "the index of a package with the same files": ("uv.lock", _uv(_LINUX), _uv(_LINUX, index=EVIL), "source-moved"),
    "a new wheel without a hash": ("uv.lock", _uv(_LINUX), _uv(_LINUX, _wheel("cp312")), "hash-missing"),
    "no files at all": (
        *("poetry.lock", samples.write_poetry(Entry())),
        '[[package]]\nname = "left-pad"\nversion = "1.0.0"\nfiles = []\n',
        "hash-missing",
    ),
    "certificates are not checked": ("Pipfile.lock", _pipfile(PYPI), _pipfile(PYPI, verify=False), "insecure-source"),
    "a trusted host": (
        *("requirements.txt", _pip("a"), _pip("a", options="--trusted-host npm.example\n")),
        "insecure-source",
    ),
    "a further index": (
        *("requirements.txt", _pip("a"), _pip("a", options=f"--extra-index-url {EVIL}/simple\n")),
        "new-source",
    ),
    "all hashes of a file are dropped": ("requirements/dev.txt", _pip("a"), _pip(), "hash-missing"),
    "one of several hashes is replaced": ("requirements.txt", _pip("a", "b"), _pip("a", "c"), "hash-changed"),
    "a further server of gems": (
        *("Gemfile.lock", samples.write_gems(Entry())),
        samples.write_gems(Entry()).replace("  specs:", f"  remote: {EVIL}/\n  specs:"),
        "source-moved",
    ),
    "a local source beside a remote one": (
        *("uv.lock", _uv(_LINUX)),
        _uv(_LINUX, index=EVIL).replace("registry =", 'editable = ".", registry ='),
        "source-moved",
    ),
    "a link beside an address": (
        *("yarn.lock", samples.write_yarn(Entry())),
        samples.write_yarn(Entry(source=f"{EVIL}/a.tgz")).replace("left-pad@^1.0.0,", '"left-pad@link:./a",'),
        "source-moved",
    ),
    "a git address in the form of scp": (
        *("poetry.lock", samples.write_poetry(Entry())),
        samples.write_poetry(Entry(source="git+git@github.com:evil/left-pad")),
        "source-moved",
    ),
    "an address of an unknown form": (
        *("package-lock.json", _NPM_LOCK, samples.write_npm(Entry(source="evil.example"), _SECOND)),
        "source-moved",
    ),
    "a hash replaced behind a commit in the fragment": (
        *("package-lock.json", _NPM_LOCK),
        samples.write_npm(
            Entry(source=f"{NPM}/{'left-pad/-/left-pad-1.0.0.tgz'}#{_COMMITS[0]}", digest="evil"), _SECOND
        ),
        "hash-changed",
    ),
    "a bundled package of no other package": (
        *("package-lock.json", _npm_at(_OWN), _npm({"version": "1.0.0", "inBundle": True})),
        "hash-missing",
    ),
    "a short address in place of a version": (
        *("package-lock.json", _npm_at(_OWN), _npm({"version": "evil/left-pad", "integrity": "sha512-A"})),
        "source-moved",
    ),
    "a further name of another package in yarn 1": (
        *("yarn.lock", samples.write_yarn(Entry(), _SECOND)),
        samples.write_yarn(Entry("evil"), _SECOND).replace("evil@^1.0.0,", "evil@^1.0.0, left-pad@^1.0.0,"),
        "other-package",
    ),
    "a further name of another package in berry": (
        *("yarn.lock", samples.write_berry(Entry(), _SECOND)),
        samples.write_berry(Entry("evil"), _SECOND).replace('"evil@npm:^1.0.0"', '"evil@npm:^1.0.0, left-pad@npm:^1"'),
        "other-package",
    ),
    "a patch of a package from elsewhere": (
        *("yarn.lock", samples.write_berry(Entry(), _SECOND)),
        samples.write_berry(Entry(source="left-pad@patch:left-pad@https%3A//evil.example/a.tgz#./a.patch"), _SECOND),
        "source-moved",
    ),
    "an encoded address in a binding of berry": (
        *("yarn.lock", samples.write_berry(Entry(), _SECOND)),
        samples.write_berry(
            Entry(source="left-pad@npm:1.0.0::a=1&__archiveUrl=https%3a%2f%2fevil.example%2fa.tgz"), _SECOND
        ),
        "source-moved",
    ),
    "an alias in pnpm": (
        *("pnpm-lock.yaml", _pnpm_with_alias("1.0.0"), _pnpm_with_alias("evil@1.0.0")),
        "other-package",
    ),
    "a type that hides a registry": (
        *("uv.lock", _uv(_LINUX), _uv(_LINUX, index=EVIL).replace("registry =", 'type = "directory", registry =')),
        "source-moved",
    ),
    "a file name beside the address of another package": (
        *("pdm.lock", samples.write_pdm(Entry())),
        samples.write_pdm(Entry(file="evil-1.0.0-py3-none-any.whl")).replace(
            "{url", '{file = "left_pad-1.0.0-py3-none-any.whl", url'
        ),
        "other-package",
    ),
    "a repository of another system": (
        *(
            "pdm.lock",
            samples.write_pdm(Entry()),
            samples.write_pdm(Entry()).replace("files =", 'hg = "https://evil.example/a"\nfiles ='),
        ),
        "source-moved",
    ),
    "an index of cargo that climbs": (
        *("Cargo.lock", samples.write_cargo(Entry())),
        samples.write_cargo(Entry(source=f"{CRATES}/../../evil/index")),
        "source-moved",
    ),
    "a mirror of composer": (
        *("composer.lock", samples.write_composer(Entry())),
        samples.write_composer(Entry()).replace(
            '"shasum": ""', f'"mirrors": [{{"url": "{EVIL}/a.zip"}}], "shasum": ""'
        ),
        "source-moved",
    ),
    "certificates are not checked by composer": (
        *("composer.lock", samples.write_composer(Entry())),
        samples.write_composer(Entry()).replace(
            '"dist"', '"transport-options": {"ssl": {"verify_peer": false}}, "dist"'
        ),
        "insecure-source",
    ),
    "an archive of another commit": (
        *("composer.lock", samples.write_composer(Entry(digest=_COMMITS[0]))),
        samples.write_composer(Entry(digest=_COMMITS[0])).replace(f"zipball/{_COMMITS[0]}", f"zipball/{_COMMITS[1]}"),
        "other-package",
    ),
}


_TARBALL = "left-pad/-/left-pad-1.0.0.tgz"
_HOSTILE_ADDRESSES = {
    "a suffix": (f"{NPM}.evil.example/{_TARBALL}", "source-moved"),
    "a user name": (f"{NPM}@evil.example/{_TARBALL}", "source-moved"),
    "a backslash": ("https://evil.example\\@" + f"{NPM[8:]}/{_TARBALL}", "source-moved"),
    "a query before the user name": (f"https://evil.example?@{NPM[8:]}/{_TARBALL}", "source-moved"),
    "a fragment before the user name": (f"https://evil.example#@{NPM[8:]}/{_TARBALL}", "source-moved"),
    "another port": (f"{NPM}:8443/{_TARBALL}", "source-moved"),
    "a letter of another script": (f"{NPM.replace('o', chr(0x43E))}/{_TARBALL}", "source-moved"),
    "a path that climbs": (f"{NPM}/left-pad/-/../../evil/-/evil-1.0.0.tgz", "source-moved"),
    "an encoded path that climbs": (f"{NPM}/evil/-/%2e%2e/%2e%2e/{_TARBALL}", "source-moved"),
    "the scope of another owner": (f"{NPM}/@evil/{_TARBALL}", "other-package"),
    "the package in the query": (f"{NPM}/evil/-/evil-1.0.0.tgz?/{_TARBALL}", "other-package"),
    "the package in the fragment": (f"{NPM}/evil/-/evil-1.0.0.tgz#/{_TARBALL}", "other-package"),
    "an encoded hyphen": (f"{NPM}/evil/%2d/evil-1.0.0.tgz", "other-package"),
    "another form at the registry": (f"{NPM}/evil.tgz", "other-package"),
}


@pytest.mark.defect("T3")
@pytest.mark.parametrize("case", _HOSTILE_ADDRESSES)
def test_an_address_that_only_looks_like_the_known_one_is_reported(case: str) -> None:
    address, rule = _HOSTILE_ADDRESSES[case]
    assert rule in _rules("package-lock.json", _NPM_LOCK, samples.write_npm(Entry(source=address), _SECOND))


def test_the_default_port_and_an_encoded_scope_are_the_same_address() -> None:
    old = samples.write_npm(Entry("@a/b", source=f"{NPM}/@a/b/-/b-1.0.0.tgz"))
    new = samples.write_npm(Entry("@a/b", source=f"{NPM}:443/@a%2fb/-/b-1.0.0.tgz"))
    assert _rules("package-lock.json", old, new) == set()


@pytest.mark.defect("T3")
@pytest.mark.parametrize(
    "line",
    [
        *("--index-url https://evil.example", "--index-u https://evil.example", "-ihttps://evil.example"),
        *("--pre --extra-index-url=https://evil.example", "-r https://evil.example/a.txt", "--trusted evil.example"),
        *("# a comment \\\n--index-url https://evil.example", "-c https://evil.example/a.txt"),
    ],
)
def test_an_option_with_an_address_is_reported_however_it_is_written(line: str) -> None:
    assert _rules("requirements.txt", _pip("a"), _pip("a", options=f"{line}\n")) & {"new-source", "insecure-source"}


def _local(name: str, path: str) -> str:
    """Return a lock file in which left-pad is at a path."""
    if name == "package-lock.json":
        return _npm({"resolved": path, "link": True})
    if name == "yarn.lock":
        locator = f"left-pad@portal:{path}::locator=a%40workspace%3Apackages%2Fa"
        return samples.write_berry(Entry(source=locator, digest=""), _SECOND)
    if name == "pnpm-lock.yaml":
        return samples.write_pnpm(Entry(digest="")).replace("{}", f"{{type: directory, directory: {path}}}")
    if name == "uv.lock":
        return f'[[package]]\nname = "left-pad"\nversion = "1.0.0"\nsource = {{ editable = "{path}" }}\n'
    if name == "poetry.lock":
        source = f'[package.source]\ntype = "directory"\nurl = "{path}"\n'
        return f'[[package]]\nname = "left-pad"\nversion = "1.0.0"\nfiles = []\n\n{source}'
    if name == "Pipfile.lock":
        return json.dumps({"_meta": {"sources": []}, "default": {"left-pad": {"path": path}}})
    if name == "Gemfile.lock":
        return f"PATH\n  remote: {path}\n  specs:\n    left-pad (1.0.0)\n"
    dist = {"type": "path", "url": path, "reference": "a"}
    return json.dumps({"packages": [{"name": "owner/left-pad", "version": "1.0.0", "dist": dist}]})


@pytest.mark.defect("T3")
@pytest.mark.parametrize(
    "name",
    [
        *("package-lock.json", "yarn.lock", "pnpm-lock.yaml", "uv.lock", "poetry.lock", "Pipfile.lock"),
        *("Gemfile.lock", "composer.lock"),
    ],
)
def test_a_path_is_reported_only_if_it_leaves_the_repository(name: str) -> None:
    for folder, path, expected in (
        ("web/app", "../shared", set()),
        ("web/app", "../../../../../outside", {"outside-source"}),
        ("web/app", "/tmp/outside", {"outside-source"}),
        ("web/app", "./here", set()),
    ):
        found = review_lock_file(f"{folder}/{name}", None, _local(name, path).encode(), frozenset((1,)))
        assert {one.rule for one in found} == expected, path


def test_a_further_artifact_of_a_locked_release_is_not_reported() -> None:
    for name, old, new in (
        ("uv.lock", _uv(_LINUX), _uv(_LINUX, _WINDOWS)),
        ("requirements.txt", _pip("a"), _pip("a", "b")),
        ("Pipfile.lock", _pipfile(PYPI), _pipfile(PYPI, hashes=("sha256:a", "sha256:b"))),
    ):
        assert review_lock_file(name, old.encode(), new.encode(), frozenset((1,))) == ()


@pytest.mark.parametrize(("digest", "severity"), [("sha512-A", Severity.LOW), ("sha512-B", Severity.HIGH)])
def test_without_tls_only_a_known_hash_makes_the_finding_low(digest: str, severity: Severity) -> None:
    version = "1.0.0" if severity is Severity.LOW else "1.0.1"
    new = _npm_at(_WITHOUT_TLS, version, digest)
    (finding,) = review_lock_file("package-lock.json", _npm_at(_OWN).encode(), new.encode(), frozenset((1,)))
    assert finding.severity is severity


@pytest.mark.defect("T3")
@pytest.mark.parametrize("case", _ATTACKS)
def test_an_attack_is_reported(case: str) -> None:
    name, old, new, rule = _ATTACKS[case]
    assert new is not None
    assert rule in _rules(name or "", old, new)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("package-lock.json", "{"),
        ("package-lock.json", "[]"),
        ("package-lock.json", "{}"),
        ("package-lock.json", '{"packages": {}, "packages": {"node_modules/a": {}}}'),
        ("package-lock.json", '{"packages": {"node_modules/a": []}}'),
        ("package-lock.json", '{"packages": {"node_modules/a": {"version": "1", "integrity": ["sha512-a"]}}}'),
        ("yarn.lock", "eval(x)\n"),
        ("yarn.lock", "# yarn lockfile v1\nleft-pad@1: {resolved: x}\n"),
        ("yarn.lock", _yarn_1('  resolved "a"\n  resolved "b"\n')),
        ("yarn.lock", _yarn_1('  resolved "a"\n  resolution "left-pad@npm:1.0.0"\n')),
        ("yarn.lock", _berry("10", 'a@1:\n  version: 1\n  resolution:\n    "a@npm:1"\n')),
        pytest.param("yarn.lock", samples.write_berry(Entry(source="a@patch:" * 20 + "a@npm:1")), id="many patches"),
        ("pnpm-lock.yaml", "packages: {}\n"),
        ("pnpm-lock.yaml", "lockfileVersion: 6\npackages: &a {}\nsnapshots: *a\n"),
        ("pnpm-lock.yaml", "lockfileVersion: 6\npackages: {}\npackages: {}\n"),
        ("pnpm-lock.yaml", samples.write_pnpm(Entry()).replace("{integrity", "{type: unknown, integrity")),
        ("pnpm-lock.yaml", "lockfileVersion: 6\n---\nlockfileVersion: 6\n"),
        pytest.param("pnpm-lock.yaml", "lockfileVersion: 6\npackages: " + "[" * 100_000, id="deeply nested"),
        ("poetry.lock", "import os\n"),
        ("Cargo.lock", '[[package]]\nversion = "1"\n'),
        ("Gemfile.lock", "puts 1\n"),
        ("Gemfile.lock", "GEM\n  system('x')\n"),
        ("Gemfile.lock", f"{samples.write_gems(Entry())}CHECKSUMS\n  a (1) sha256=a\n  a (1) sha256=b\n"),
        ("requirements.txt", "# coding: utf-7\na==1.0\n"),
        ("go.sum", "package main\n"),
        ("composer.lock", "{}"),
        ("Pipfile.lock", "{}"),
        ("install.txt", "Install it with --hash=sha256:a, please.\n"),
        ("unknown.lock", ""),
    ],
)
def test_a_file_that_is_not_certain_is_refused(name: str, content: str) -> None:
    with pytest.raises(ValueError, match="."):
        review_lock_file(name, None, content.encode(), frozenset((1,)))


def test_a_moved_registry_is_one_finding_however_many_packages_move() -> None:
    def lock(host: str) -> bytes:
        entries = [Entry(f"p{number}", source=f"https://{host}/p{number}") for number in range(500)]
        return samples.write_npm(*entries).encode()

    (finding,) = review_lock_file(
        "package-lock.json", lock("one.example"), lock("two.example"), frozenset(range(1, 2_000))
    )
    assert (finding.rule, finding.severity) == ("source-moved", Severity.HIGH)
    assert "p0 1.0.0" in finding.body
    assert "and 495 more" in finding.body


def test_a_finding_is_at_the_added_line_that_shows_it() -> None:
    new = samples.write_npm(Entry(source=f"{EVIL}/left-pad.tgz"), _SECOND)
    number = next(number for number, line in enumerate(new.split("\n"), start=1) if EVIL in line)
    (finding,) = review_lock_file("package-lock.json", _NPM_LOCK.encode(), new.encode(), frozenset((2, number)))
    assert (finding.line_start, EVIL in finding.evidence) == (number, True)


def test_a_credential_in_an_added_line_is_found() -> None:
    token = "ghp_" + "1234567890abcdefghijklmnopqrstuvwxyz"
    new = _npm_at(f"https://{token}@npm.example/left-pad.tgz")
    number = next(number for number, line in enumerate(new.split("\n"), start=1) if token in line)
    found = review_lock_file("package-lock.json", _npm_at(_OWN).encode(), new.encode(), frozenset((number,)))
    (finding,) = [one for one in found if one.rule == "credential"]
    assert finding.line_start == number
    assert token not in finding.evidence
