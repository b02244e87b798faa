"""Compare the pins of a lock file before and after a change.

Only new and changed pins are compared. Each function that yields alarms states its rule in one sentence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from codeloupe.analysers.lock_files.pins import WEAK_ALGORITHMS, Pin, algorithm_of
from codeloupe.analysers.lock_files.places import Place, is_outside, place_of
from codeloupe.analysers.lock_files.rules import REGISTRIES


class Alarm(Struct, frozen=True):
    """A rule that a pin breaks. `before` names the earlier places of the package."""

    rule: str
    pin: Pin
    place: Place | None = None
    before: str = ""


class _Before:
    """The pins before the change, with the indexes that the comparison needs.

    `places` are those of each package and `all_places` those of the whole file. `has_all_hashes` is whether every pin
    that can have a hash has one.
    """

    def __init__(self, pins: Sequence[Pin], registries: str) -> None:
        self.pins = frozenset(pins)
        self.registries = registries
        self.by_name: dict[str, list[Pin]] = defaultdict(list)
        self.places: dict[str, set[Place]] = defaultdict(set)
        self.all_places: set[Place] = set()
        self.hashes: dict[tuple[str, str, str | None], set[str]] = defaultdict(set)
        self.has_all_hashes = bool(pins)
        for pin in pins:
            if pin.path:
                continue
            self.by_name[pin.name].append(pin)
            self.hashes[pin.key].update(pin.hashes)
            place = place_of(pin.source, registries)
            if place is not None:
                self.places[pin.name].add(place)
                self.all_places.add(place)
            if _can_have_hash(pin, place) and not pin.hashes:
                self.has_all_hashes = False


def compare(before: Sequence[Pin], after: Sequence[Pin], registries: str, folder: str = "") -> Iterator[Alarm]:
    """Yield an alarm for each rule that a new or changed pin breaks. `folder` is that of the lock file."""
    old = _Before(before, registries)
    algorithms: set[str] = set()
    for pin in after:
        algorithms |= pin.algorithms
    for pin in after:
        if pin in old.pins:
            continue
        if pin.path:
            if is_outside(pin.path, folder):
                yield Alarm("outside-source", pin)
            continue
        place = place_of(pin.source, registries)
        if place is not None:
            yield from _compare_place(pin, place, old)
        yield from _compare_package(pin, old)
        if pin.hashes:
            yield from _compare_hashes(pin, old, algorithms)
        elif _is_hash_expected(pin, place, old):
            yield Alarm("hash-missing", pin)


def _compare_place(pin: Pin, place: Place, old: _Before) -> Iterator[Alarm]:
    """Yield an alarm if a package comes from a place that is new to it.

    A known package may come from the places that it came from before. A new package may come from the registries of
    the format and from each place that the file used before.
    """
    own_places = old.places.get(pin.name)
    allowed = own_places or old.all_places
    if place in allowed:
        return
    same_origin = [one for one in allowed if one.origin == place.origin]
    if not place.is_encrypted and all(one.is_encrypted for one in same_origin):
        rule = "insecure-same-hash" if _has_known_hash(pin, old) else "insecure-source"
        yield Alarm(rule, pin, place)
    if same_origin:
        return
    if own_places:
        if not _is_return_to_registry(pin, place, old):
            before = ", ".join(sorted({one.origin for one in own_places}))
            yield Alarm("source-moved", pin, place, before)
    elif place.host not in REGISTRIES[old.registries]:
        yield Alarm("git-source" if place.is_repository else "new-source", pin, place)


def _is_return_to_registry(pin: Pin, place: Place, old: _Before) -> bool:
    """Return whether a package returns to the format's registry, from a repository or with the same hash."""
    if place.origin not in REGISTRIES[old.registries]:
        return False
    was_in_repositories = all(one.is_repository for one in old.places[pin.name])
    return was_in_repositories or _has_known_hash(pin, old)


def _has_known_hash(pin: Pin, old: _Before) -> bool:
    """Return whether a known artifact has the same hash as before. A commit is not one: archives are not checked."""
    known = old.hashes.get(pin.key, set())
    return any(algorithm_of(one) != "commit" for one in known & pin.hashes)


def _compare_package(pin: Pin, old: _Before) -> Iterator[Alarm]:
    """Yield an alarm if the address names another package or version, or a known name installs another package."""
    earlier_packages = {one.package for one in old.by_name.get(pin.name, [])}
    is_other_package = bool(earlier_packages) and pin.package not in earlier_packages
    if pin.address_names or is_other_package:
        yield Alarm("other-package", pin)


def _can_have_hash(pin: Pin, place: Place | None) -> bool:
    """Return whether package managers record a hash for a pin: not for an index, and not for every repository."""
    is_in_repository = place is not None and place.is_repository
    return bool(pin.version) and not is_in_repository


def _is_hash_expected(pin: Pin, place: Place | None, old: _Before) -> bool:
    """Return whether a known package had a hash before or, for a new package, whether all others had one.

    A package in a repository is expected to have a hash only if it had one in the same repository.
    """
    earlier = old.by_name.get(pin.name, [])
    with_hash = [one for one in earlier if one.hashes]
    if _can_have_hash(pin, place):
        return bool(with_hash) if earlier else old.has_all_hashes
    if not pin.version:
        return False
    return any(place_of(one.source, old.registries) == place for one in with_hash)


def _compare_hashes(pin: Pin, old: _Before, algorithms: set[str]) -> Iterator[Alarm]:
    """Yield an alarm if a known artifact has another hash, or a hash of a weaker algorithm.

    A hash may change to another algorithm if the old one is weak, or if the file no longer uses the old one.
    `algorithms` are those that the file uses now.
    """
    earlier = old.hashes.get(pin.key)
    if not earlier:
        return
    old_algorithms = {algorithm_of(one) for one in earlier}
    if old_algorithms & pin.algorithms:
        if _is_hash_replaced(pin, earlier):
            yield Alarm("hash-changed", pin)
        return
    was_weak = old_algorithms <= WEAK_ALGORITHMS
    is_weak = pin.algorithms <= WEAK_ALGORITHMS
    is_old_algorithm_in_use = bool(old_algorithms & algorithms)
    if is_weak and not was_weak:
        yield Alarm("hash-weakened", pin)
    elif is_old_algorithm_in_use and not was_weak:
        yield Alarm("hash-changed", pin)


def _is_hash_replaced(pin: Pin, earlier: set[str]) -> bool:
    """Return whether an artifact has another hash of an algorithm that it had before.

    If a file does not name the artifacts of a version, a further hash may belong to a new artifact, and a missing
    one to a deleted artifact. Then only both together count.
    """
    for algorithm in pin.algorithms:
        was = {one for one in earlier if algorithm_of(one) == algorithm}
        now = {one for one in pin.hashes if algorithm_of(one) == algorithm}
        has_further = bool(was) and bool(now - was)
        has_fewer = bool(was - now)
        if has_further and (has_fewer or pin.artifact is not None):
            return True
    return False
