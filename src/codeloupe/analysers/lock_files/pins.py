"""The records of a lock file: one for each artifact of a package."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from codeloupe.system.regex import regex

_END_OF_ALGORITHM = regex(r"[-:=/]")
WEAK_ALGORITHMS = frozenset(("md5", "sha1", "commit"))


class Pin(Struct, frozen=True):
    """One artifact that a lock file pins, such as a wheel, a tarball or a row of go.sum.

    `version` is empty for an index, which has only a source. `artifact` is None if the file lists the hashes of all
    artifacts of a version without their names. `source` is empty if the artifact comes from the format's default
    registry. `package` is the name in the registry if the lock file installs the package under another name, and
    `address_names` is the package and the version that the address names if these are not the recorded ones. `path`
    is the place of a package on this machine, relative to the lock file. Such a pin has neither a source nor hashes.
    """

    name: str
    version: str
    artifact: str | None = ""
    source: str = ""
    hashes: frozenset[str] = frozenset()
    package: str = ""
    address_names: str = ""
    path: str = ""

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Return the package, the version and the artifact: pins with the same key have the same content."""
        return self.package or self.name, self.version, self.artifact

    @property
    def algorithms(self) -> frozenset[str]:
        """Return the names of the hash algorithms."""
        return frozenset(algorithm_of(one) for one in self.hashes)


def local_pin(name: str, path: str) -> Pin:
    """Return the pin of a package on this machine."""
    return Pin(name, "", path=path or ".")


def algorithm_of(text: str) -> str:
    """Return the algorithm of a hash: `sha512` of `sha512-…`, and the cache key of a checksum of yarn."""
    return _END_OF_ALGORITHM.split(text, maxsplit=1)[0].lower()


def hash_set(hashes: Iterable[object]) -> frozenset[str]:
    """Return the hashes that are not empty. Raises ValueError if one is not a text."""
    found: set[str] = set()
    for one in hashes:
        if one is not None and not isinstance(one, str):
            raise ValueError("it has a hash that is not a text")
        if one:
            found.add(one)
    return frozenset(found)


def alphanumeric(text: str) -> str:
    """Return a name in lower case with one hyphen in place of each run of other characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())
