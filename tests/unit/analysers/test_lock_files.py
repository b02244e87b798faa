"""Lock files: what is wrong is reported, ordinary bumps are not, and what cannot be read is refused."""

import json

import pytest

from codeloupe.analysers.lock_files import review_lock_file
from codeloupe.model.finding import Source
from tests.rows import each

_NPM = "https://registry.npm" + "js.org"
_PYPI = "https://py" + "pi.org/simple"
_FILES = "https://files.python" + "hosted.org/packages"
_CRATES = "registry+https://github.com/rust-lang/crates" + ".io-index"
_GEMS = "https://ruby" + "gems.org/"


def _npm(version: str = "1.0.0", address: str = "", digest: str | None = "sha512-A", **more: object) -> str:
    entry = {"version": version, "resolved": address or f"{_NPM}/left-pad/-/left-pad-{version}.tgz", **more}
    entry |= {} if digest is None else {"integrity": digest}
    other = {"version": "2.0.0", "resolved": f"{_NPM}/other/-/other-2.0.0.tgz", "integrity": "sha512-OTHER"}
    packages = {"": {"name": "a"}, "node_modules/left-pad": entry, "node_modules/other": other}
    return json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2)


def _yarn(version: str = "1.0.0", host: str = _NPM, digest: str = "sha512-A") -> str:
    return (
        "# yarn lockfile v1\n\n\nleft-pad@^1.0.0, left-pad@~1:\n"
        f'  version "{version}"\n  resolved "{host}/left-pad/-/left-pad-{version}.tgz#{"a" * 40}"\n'
        f'  integrity {digest}\n  dependencies:\n    other "^2.0.0"\n'
    )


def _berry(version: str = "1.0.0", digest: str = "10/aaaa") -> str:
    return (
        "__metadata:\n  version: 8\n  cacheKey: 10\n\n"
        f'"left-pad@npm:^1.0.0":\n  version: {version}\n  resolution: "left-pad@npm:{version}"\n'
        f"  checksum: {digest}\n  languageName: node\n  linkType: hard\n"
    )


def _pnpm(version: str = "1.0.0", resolution: str = "{integrity: sha512-A}", more: str = "") -> str:
    return f"lockfileVersion: '9.0'\n\npackages:\n\n  left-pad@{version}:\n    resolution: {resolution}\n{more}"


def _poetry(version: str = "1.0.0", digest: str = "sha256:a", source: str = "") -> str:
    entry = f'{{file = "a-{version}.whl", hash = "{digest}"}}' if digest else ""
    return f'[[package]]\nname = "a"\nversion = "{version}"\nfiles = [{entry}]\n{source}\n[metadata]\n'


def _uv(version: str = "1.0.0", digest: str = "sha256:a", host: str = _FILES) -> str:
    return (
        f'version = 1\n[[package]]\nname = "a"\nversion = "{version}"\nsource = {{ registry = "{_PYPI}" }}\n'
        f'wheels = [{{ url = "{host}/a.whl", hash = "{digest}" }}]\n'
    )


def _pipfile(version: str = "1.0.0", digest: str = "sha256:a", index: str = _PYPI) -> str:
    meta = {"sources": [{"name": "main", "url": index}]}
    return json.dumps({"_meta": meta, "default": {"a": {"version": f"=={version}", "hashes": [digest]}}, "develop": {}})


def _cargo(version: str = "1.0.0", digest: str = "aa", source: str = _CRATES) -> str:
    checksum = f'checksum = "{digest}"\n' if digest else ""
    return f'version = 3\n[[package]]\nname = "a"\nversion = "{version}"\nsource = "{source}"\n{checksum}'


def _gems(version: str = "1.0.0", remote: str = _GEMS, digest: str = "sha256=aa") -> str:
    return (
        f"GEM\n  remote: {remote}\n  specs:\n    rake ({version})\n      other (~> 1.0)\n\nPLATFORMS\n  ruby\n\n"
        f"DEPENDENCIES\n  rake\n\nCHECKSUMS\n  rake ({version}) {digest}\n\nBUNDLED WITH\n   2.5.0\n"
    )


def _go(version: str = "v1.0.0", digest: str = "h1:a=") -> str:
    return f"example.org/m {version} {digest}\nexample.org/m {version}/go.mod h1:mod{version}=\n"


def _composer(version: str = "1.0.0", host: str = "https://api.github.com", digest: str = "aa") -> str:
    dist = {"type": "zip", "url": f"{host}/repos/a/b/zipball/x", "shasum": digest, "reference": digest}
    return json.dumps({"packages": [{"name": "a/b", "version": version, "dist": dist}], "packages-dev": []})


def _pip(version: str = "1.0.0", digest: str = "sha256:a", more: str = "") -> str:
    return f"{more}a=={version} \\\n    --hash={digest}\n"


def _rules(name: str, old: str | None, new: str) -> set[str | None]:
    lines = frozenset(range(1, new.count("\n") + 2))
    found = review_lock_file(name, None if old is None else old.encode(), new.encode(), lines)
    assert all(one.source is Source.ANALYSER and one.file == name and one.line_start in lines for one in found)
    return {one.rule for one in found}


@each(
    ("name", "old", "new"),
    [
        ("package-lock.json", _npm(), _npm("1.0.1", digest="sha512-B")),
        ("package-lock.json", None, _npm()),
        ("package-lock.json", _npm(), _npm(address="https://registry.yarn" + "pkg.com/left-pad/-/left-pad-1.0.0.tgz")),
        ("package-lock.json", _npm(hasInstallScript=True), _npm("1.0.1", digest="sha512-B", hasInstallScript=True)),
        ("yarn.lock", _yarn(), _yarn("1.0.1", digest="sha512-B").replace("a" * 40, "b" * 40)),
        ("yarn.lock", _berry(), _berry("1.0.1", "10/bbbb")),
        ("pnpm-lock.yaml", _pnpm(), _pnpm("1.0.1", "{integrity: sha512-B}")),
        ("poetry.lock", _poetry(), _poetry("1.0.1", "sha256:b")),
        ("uv.lock", _uv(), _uv("1.0.1", "sha256:b")),
        ("Pipfile.lock", _pipfile(), _pipfile("1.0.1", "sha256:b")),
        ("Cargo.lock", _cargo(), _cargo("1.0.1", "bb")),
        ("Gemfile.lock", _gems(), _gems("1.0.1", digest="sha256=bb")),
        ("go.sum", _go(), _go() + _go("v1.0.1", "h1:b=")),
        ("composer.lock", _composer(), _composer("1.0.1", digest="bb")),
        ("requirements.txt", _pip(), _pip("1.0.1", "sha256:b")),
    ],
)
def test_an_ordinary_bump_is_silent(name: str, old: str | None, new: str) -> None:
    assert _rules(name, old, new) == set()


_EVIL = "https://evil.example"
_TARBALL = "{integrity: sha512-A, tarball: http://a.b/c}"


@pytest.mark.defect("T3")
@each(
    ("name", "old", "new", "rule"),
    [
        ("package-lock.json", _npm(), _npm(address=f"{_EVIL}/left-pad/-/left-pad-1.0.0.tgz"), "source-moved"),
        ("package-lock.json", _npm(), _npm(address="http://registry.npm" + "js.org/left-pad"), "insecure-source"),
        ("package-lock.json", _npm(), _npm(address="git+ssh://git@github.com/a/b.git#1"), "source-moved"),
        ("package-lock.json", _npm(), _npm(address="git@git.example:owner/name"), "source-moved"),
        ("package-lock.json", None, _npm(address=f"{_EVIL}/left-pad"), "new-source"),
        ("package-lock.json", _npm(), _npm(digest=None), "hash-missing"),
        ("package-lock.json", _npm(), _npm("1.0.1", digest=None), "hash-missing"),
        ("package-lock.json", _npm(), _npm("1.0.1", digest="sha1-B"), "hash-weakened"),
        ("package-lock.json", _npm(), _npm(digest="sha512-B"), "hash-changed"),
        ("package-lock.json", _npm(), _npm("1.0.1"), "hash-of-another"),
        ("package-lock.json", _npm(), _npm("1.0.1", digest="sha512-OTHER"), "hash-of-another"),
        ("package-lock.json", _npm(), _npm("1.0.1", f"{_NPM}/left-pad/-/left-pad-9.tgz", "sha512-B"), "other-package"),
        ("package-lock.json", _npm(), _npm("1.0.1", digest="sha512-B", hasInstallScript=True), "install-script"),
        ("yarn.lock", _yarn(), _yarn(host=_EVIL), "source-moved"),
        ("yarn.lock", _yarn(), _yarn(digest="sha512-B").replace("a" * 40, "b" * 40), "hash-changed"),
        ("yarn.lock", _berry(), _berry("1.0.1"), "hash-of-another"),
        ("pnpm-lock.yaml", _pnpm(), _pnpm(resolution="{tarball: http://evil.example/a.tgz}"), "hash-missing"),
        ("pnpm-lock.yaml", _pnpm(), _pnpm(resolution=_TARBALL), "insecure-source"),
        ("pnpm-lock.yaml", _pnpm(), _pnpm(more="    requiresBuild: true\n"), "install-script"),
        ("poetry.lock", _poetry(), _poetry("1.0.0", "sha256:b"), "hash-changed"),
        ("poetry.lock", _poetry(), _poetry("1.0.1", ""), "hash-missing"),
        ("poetry.lock", _poetry(), _poetry(source=f'[package.source]\nurl = "{_EVIL}"\n'), "new-source"),
        ("uv.lock", _uv(), _uv(host=_EVIL), "source-moved"),
        ("uv.lock", _uv(), _uv("1.0.1", "md5:b"), "hash-weakened"),
        ("Pipfile.lock", _pipfile(), _pipfile(index="http://evil.example/simple"), "insecure-source"),
        ("Pipfile.lock", _pipfile(), _pipfile("1.0.1"), "hash-of-another"),
        ("Cargo.lock", _cargo(), _cargo(source="git+https://evil.example/a?rev=1#1"), "source-moved"),
        ("Cargo.lock", _cargo(), _cargo("1.0.1", ""), "hash-missing"),
        ("Gemfile.lock", _gems(), _gems(remote="https://evil.example/"), "source-moved"),
        ("Gemfile.lock", _gems(), _gems(digest=""), "hash-missing"),
        ("go.sum", _go(), _go(digest="h1:b="), "hash-changed"),
        ("composer.lock", _composer(), _composer(host=_EVIL), "source-moved"),
        ("requirements.txt", _pip(), _pip(digest="sha256:b"), "hash-changed"),
        ("requirements.txt", _pip(), _pip(digest="md5:b"), "hash-weakened"),
        ("requirements-dev.txt", _pip(), _pip(more="--extra-index" + "-url http://a.b/simple\n"), "insecure-source"),
        ("requirements.txt", _pip(), _pip() + "b==1.0\n", "hash-missing"),
    ],
)
def test_what_is_wrong_is_reported(name: str, old: str | None, new: str, rule: str) -> None:
    assert rule in _rules(name, old, new)


@each(
    ("name", "content"),
    [
        ("package-lock.json", "{"),
        ("package-lock.json", "[]"),
        ("package-lock.json", "{}"),
        ("package-lock.json", '{"packages": {}, "packages": {"node_modules/a": {}}}'),
        ("yarn.lock", "eval(x)\n"),
        ("yarn.lock", "# yarn lockfile v1\nleft-pad@1: {resolved: x}\n"),
        ("pnpm-lock.yaml", "packages: {}\n"),
        ("pnpm-lock.yaml", "lockfileVersion: 6\npackages: &a {}\nsnapshots: *a\n"),
        ("poetry.lock", "import os\n"),
        ("Cargo.lock", '[[package]]\nversion = "1"\n'),
        ("Gemfile.lock", "puts 1\n"),
        ("Gemfile.lock", "GEM\n  system('x')\n"),
        ("go.sum", "package main\n"),
        ("composer.lock", "{}"),
        ("Pipfile.lock", "{}"),
    ],
)
def test_what_is_not_certain_is_refused(name: str, content: str) -> None:
    with pytest.raises(ValueError, match="."):
        review_lock_file(name, None, content.encode(), frozenset((1,)))


def test_a_moved_registry_is_one_finding_however_many_packages_move() -> None:
    def lock(host: str) -> bytes:
        packages = {
            f"node_modules/p{n}": {"version": "1.0.0", "resolved": f"https://{host}/p{n}", "integrity": f"sha512-{n}"}
            for n in range(500)
        }
        return json.dumps({"lockfileVersion": 3, "packages": packages}, indent=1).encode()

    (finding,) = review_lock_file(
        "package-lock.json", lock("one.example"), lock("two.example"), frozenset(range(1, 2_000))
    )
    assert (finding.rule, finding.severity.label) == ("source-moved", "high")
    assert "p0 1.0.0" in finding.body
    assert "and 495 more" in finding.body
