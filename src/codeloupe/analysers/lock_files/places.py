"""Find out where an address leads: to a registry, or to a repository on a host where anyone can publish."""

from __future__ import annotations

import re
from urllib.parse import unquote

from msgspec import Struct

from codeloupe.analysers.lock_files.rules import REGISTRIES, REPOSITORY_HOSTS, SAME_HOST
from codeloupe.system.regex import regex

_ADDRESS = regex(r"([a-z][a-z0-9+.-]*)://(?:[^/@\s]*@)?([^/:\s?#]+)(?::[0-9]+)?[/:]*([^?#\s]*)", re.IGNORECASE)
_SSH_ADDRESS = regex(r"(?:git\+)?[\w.-]+@([^:/\s]+):([^?#\s]*)")
_SHORT_ADDRESS = regex(r"(github|gitlab|bitbucket):([^?#\s]*)")
_SHORT_HOSTS = {"github": "github.com", "gitlab": "gitlab.com", "bitbucket": "bitbucket.org"}
_API_FOLDER = regex(r"^(?:repos|api/v4/projects)/")
_VERSION_CONTROL = frozenset(("git", "ssh", "hg", "svn", "bzr"))
_WITHOUT_TLS = frozenset(("http", "git", "ftp", "svn"))
_THIS_MACHINE = frozenset(("localhost", "127.0.0.1", "[::1]"))


class Place(Struct, frozen=True):
    """The place that artifacts come from.

    `origin` is the host of a registry, or the host and the path of a repository. Several hosts of the same registry
    have the same origin.
    """

    host: str
    origin: str
    is_repository: bool = False
    is_encrypted: bool = True


def place_of(source: str, registries: str) -> Place | None:
    """Return the place that a source leads to, or None if the format does not record sources.

    An artifact without a source comes from the first registry of its format. A source of an unknown form is its own
    origin.
    """
    if not source:
        hosts = REGISTRIES[registries]
        return Place(hosts[0], hosts[0]) if hosts else None
    by_ssh = _SSH_ADDRESS.match(source)
    if by_ssh is not None:
        return _place("git+ssh", by_ssh[1], by_ssh[2])
    short = _SHORT_ADDRESS.match(source)
    if short is not None:
        return _place("git+https", _SHORT_HOSTS[short[1]], short[2])
    address = _ADDRESS.match(source)
    if address is not None:
        return _place(address[1].lower(), address[2], address[3])
    return Place(source, source)


def _place(scheme: str, host: str, path: str) -> Place:
    host = host.lower()
    host = SAME_HOST.get(host, host)
    transport = scheme.rpartition("+")[2]
    is_encrypted = transport not in _WITHOUT_TLS or host in _THIS_MACHINE
    is_version_control = scheme.partition("+")[0] in _VERSION_CONTROL
    if host not in REPOSITORY_HOSTS and not is_version_control:
        return Place(host, host, is_encrypted=is_encrypted)
    parts = _API_FOLDER.sub("", unquote(path).strip("/").lower()).split("/")
    if host in REPOSITORY_HOSTS:
        # The rest of the path is a branch, a commit or a file.
        parts = parts[:2]
    origin = f"{host}/{'/'.join(parts).removesuffix('.git')}"
    if origin in SAME_HOST:
        return Place(SAME_HOST[origin], SAME_HOST[origin], is_encrypted=is_encrypted)
    return Place(host, origin, is_repository=True, is_encrypted=is_encrypted)
