"""Find out where an address leads: to a registry, or to a repository on a host where anyone can publish."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from msgspec import Struct

from codeloupe.analysers.lock_files.rules import REGISTRIES, REPOSITORY_HOSTS, SAME_HOST
from codeloupe.system.regex import regex

# Programs differ in how they read a backslash, a blank or a second `@`, so a plain address contains none of these.
_HOST = r"[a-z0-9._-]+"
_ADDRESS = regex(
    rf"([a-z][a-z0-9+.-]*)://(?:[^/@\s?#\\]*@)?({_HOST})(:[0-9]+)?([/:][^?#\s\\]*)?(?:[?#]\S*)?", re.IGNORECASE
)
_SSH_ADDRESS = regex(rf"(?:git\+)?[\w.-]+@({_HOST}):([^?#\s\\]*)(?:[?#]\S*)?", re.IGNORECASE)
_SHORT_ADDRESS = regex(r"(github|gitlab|bitbucket):([^?#\s\\]*)(?:[?#]\S*)?")
_SHORT_HOSTS = {"github": "github.com", "gitlab": "gitlab.com", "bitbucket": "bitbucket.org"}
_DEFAULT_PORTS = {"https": ":443", "http": ":80", "ssh": ":22"}
_API_FOLDER = regex(r"^(?:repos|api/v4/projects)/")
_VERSION_CONTROL = frozenset(("git", "ssh", "hg", "svn", "bzr"))
_WITHOUT_TLS = frozenset(("http", "git", "ftp", "svn"))
_THIS_MACHINE = frozenset(("localhost", "127.0.0.1"))


class Place(Struct, frozen=True):
    """The place that artifacts come from.

    `host` includes a port that is not the default one. `origin` is the host of a registry, or the host and the path of
    a repository. Several hosts of the same registry have the same origin.
    """

    host: str
    origin: str
    is_repository: bool = False
    is_encrypted: bool = True


class _Address(Struct, frozen=True):
    """The parts of an address. The path is decoded and has no slash at its ends."""

    scheme: str
    host: str
    port: str
    path: str


def place_of(source: str, registries: str) -> Place | None:
    """Return the place that a source leads to, or None if the format does not record sources.

    An artifact without a source comes from the first registry of its format. A source that is not a plain address is
    its own origin, so it never equals a known place.
    """
    if not source:
        hosts = REGISTRIES[registries]
        return Place(hosts[0], hosts[0]) if hosts else None
    address = _plain_address(source)
    if address is None:
        return Place(source, source)
    return _place_of_address(address)


def path_of(source: str) -> str:
    """Return the decoded path of a plain address, or an empty text."""
    address = _plain_address(source)
    return "" if address is None else address.path


def is_outside(path: str, folder: str) -> bool:
    """Return whether a path, relative to a folder of the repository, leaves the repository."""
    plain = path.replace("\\", "/")
    # A colon is part of a drive or of an address.
    if plain.startswith(("/", "~")) or ":" in plain:
        return True
    return posixpath.normpath(posixpath.join(folder, plain)).split("/")[0] == ".."


def _plain_address(source: str) -> _Address | None:
    """Return the parts of an address that every program reads in the same way, or None."""
    found = _address(source)
    if found is None or not {".", ".."}.isdisjoint(found.path.split("/")):
        return None
    return found


def _address(source: str) -> _Address | None:
    address = _ADDRESS.fullmatch(source)
    if address is not None:
        return _Address(address[1].lower(), address[2].lower(), address[3] or "", _decoded(address[4] or ""))
    by_ssh = _SSH_ADDRESS.fullmatch(source)
    if by_ssh is not None:
        return _Address("git+ssh", by_ssh[1].lower(), "", _decoded(by_ssh[2]))
    short = _SHORT_ADDRESS.fullmatch(source)
    if short is not None:
        return _Address("git+https", _SHORT_HOSTS[short[1]], "", _decoded(short[2]))
    return None


def _decoded(path: str) -> str:
    return unquote(path).strip("/:")


def _place_of_address(address: _Address) -> Place:
    transport = address.scheme.rpartition("+")[2]
    is_encrypted = transport not in _WITHOUT_TLS or address.host in _THIS_MACHINE
    host = SAME_HOST.get(address.host, address.host)
    if address.port != _DEFAULT_PORTS.get(transport):
        host += address.port
    is_version_control = address.scheme.partition("+")[0] in _VERSION_CONTROL
    if host not in REPOSITORY_HOSTS and not is_version_control:
        return Place(host, host, is_encrypted=is_encrypted)
    parts = _API_FOLDER.sub("", address.path.lower()).split("/")
    if host in REPOSITORY_HOSTS:
        # The rest of the path is a branch, a commit or a file.
        parts = parts[:2]
    origin = f"{host}/{'/'.join(parts).removesuffix('.git')}"
    if origin in SAME_HOST:
        return Place(SAME_HOST[origin], SAME_HOST[origin], is_encrypted=is_encrypted)
    return Place(host, origin, is_repository=True, is_encrypted=is_encrypted)
