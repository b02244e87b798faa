"""Turn the alarms of changed lock files into claims."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from codeloupe.analysers.lock_files.comparison import Alarm, compare
from codeloupe.analysers.lock_files.pins import Pin
from codeloupe.analysers.lock_files.reading import read_pins, registries_of
from codeloupe.analysers.lock_files.rules import RULES
from codeloupe.model.change import FileChange
from codeloupe.model.finding import Claim, Source
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex

_MOST_NAMES = 5
_REGENERATE = "Regenerate the lock file with the package manager, and compare the result."
_REVOKE = "Revoke it, and let the package manager read a new one from its configuration or the environment."
_WORD = regex(r"[\w.@:/+%-]+")


def review_lock_files(
    files: Sequence[FileChange], blobs: Mapping[str, bytes], contents: Mapping[str, bytes | None]
) -> tuple[tuple[Claim, ...], dict[str, str]]:
    """Return the claims of changed lock files, and the reason for each file that was not read.

    `blobs` are the old contents by their object names, `contents` the new ones by path.
    """
    found: list[Claim] = []
    unread: dict[str, str] = {}
    for file in files:
        content = contents[file.path]
        if file.new_path is None:
            # A deleted lock file pins nothing.
            continue
        if file.is_symlink:
            unread[file.path] = "it is a symbolic link"
        elif content is None:
            unread[file.path] = "only its diff is known"
        else:
            try:
                found += review_lock_file(file.path, _old_content(file, blobs), content, file.added_line_numbers())
            except ValueError as error:
                unread[file.path] = f"it could not be read: {error}"
    return tuple(found), unread


def _old_content(file: FileChange, blobs: Mapping[str, bytes]) -> bytes | None:
    """Return the old content of a lock file. Under another name the file pinned nothing."""
    if PurePosixPath(file.old_path or "").name != PurePosixPath(file.path).name:
        return None
    return blobs.get(file.old_blob or "")


def review_lock_file(path: str, old: bytes | None, new: bytes, added: frozenset[int]) -> tuple[Claim, ...]:
    """Return the claims about a changed lock file; `old` is None if it is new or not known. Raises ValueError."""
    name = PurePosixPath(path).name
    after = read_pins(name, new)
    before: tuple[Pin, ...] = ()
    if old is not None:
        try:
            before = read_pins(name, old)
        except ValueError:
            # The new file is compared with nothing, so each unusual source is reported.
            before = ()
    groups: dict[tuple[str, str], list[Alarm]] = defaultdict(list)
    folder = str(PurePosixPath(path).parent)
    for alarm in compare(before, after, registries_of(name), folder):
        host = "" if alarm.place is None else alarm.place.host
        groups[alarm.rule, host].append(alarm)
    lines = new.decode("utf-8").split("\n")
    shown = _AddedLines(lines, added)
    found = [_claim_of(path, alarms, shown) for alarms in groups.values()]
    if old is None:
        added = frozenset(range(1, len(lines) + 1))
    return (*found, *_credentials(path, lines, added))


class _AddedLines:
    """The added lines of a file, indexed by their words."""

    def __init__(self, lines: Sequence[str], added: frozenset[int]) -> None:
        self.lines = lines
        self.numbers = sorted(number for number in added if number <= len(lines))
        self._by_word: dict[str, int] = {}
        for number in self.numbers:
            for word in _WORD.findall(lines[number - 1]):
                self._by_word.setdefault(word, number)

    def number_of(self, pin: Pin) -> int:
        """Return the added line that shows the source, the hash or the name of a pin, or else the first added line."""
        for text in (
            pin.source,
            pin.path,
            *sorted(pin.hashes),
            pin.artifact or "",
            pin.name,
            f"node_modules/{pin.name}",
        ):
            # Some formats write the algorithm of a hash or the scheme of an address apart from the rest.
            rest = re.split(r"[-:=]", text, maxsplit=1)[-1]
            for word in (*_WORD.findall(text)[:1], rest):
                if word in self._by_word:
                    return self._by_word[word]
        return self.numbers[0] if self.numbers else 1

    def text_of(self, number: int) -> str:
        """Return the text of a line."""
        return self.lines[number - 1].strip("\r")


def _claim_of(path: str, alarms: Sequence[Alarm], shown: _AddedLines) -> Claim:
    """Return one claim for the alarms of one rule and one host."""
    first = alarms[0]
    rule = RULES[first.rule]
    names: dict[str, None] = {}
    for alarm in alarms:
        names[f"{alarm.pin.name} {alarm.pin.version}".strip()] = None
    listed = ", ".join(list(names)[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        listed += f" and {len(names) - _MOST_NAMES:,} more"
    words = {
        "host": "" if first.place is None else first.place.host,
        "place": "" if first.place is None else first.place.origin,
        "before": first.before,
        "other": first.pin.address_names or first.pin.package,
        "path": first.pin.path,
        "this": f"{first.pin.name} {first.pin.version}",
    }
    number = shown.number_of(first.pin)
    return Claim(
        file=path,
        line_start=number,
        line_end=number,
        severity=rule.level,
        evidence=redact(shown.text_of(number))[:300],
        reporter="lock-files",
        source=Source.ANALYSER,
        category="supply-chain",
        title=redact(rule.title.format(**words)),
        body=redact(f"{listed}: {rule.why.format(**words)}."),
        rule=first.rule,
        rule_title=rule.title.replace("{host}", "another host"),
        suggestion=_REGENERATE,
    )


def _credentials(path: str, lines: Sequence[str], added: frozenset[int]) -> Iterator[Claim]:
    """Yield a claim for each added line with a credential: no other reviewer reads the file."""
    rule = RULES["credential"]
    shown: dict[int, str] = {}
    for number in sorted(added):
        if number <= len(lines):
            shown[number] = lines[number - 1].strip("\r")
    text = "\n".join(shown.values())
    # One search in the whole text is much faster than one for each line.
    if redact(text) == text:
        return
    for number, line in shown.items():
        masked = redact(line)
        if masked != line:
            yield Claim(
                file=path,
                line_start=number,
                line_end=number,
                severity=rule.level,
                evidence=masked[:300],
                reporter="lock-files",
                source=Source.ANALYSER,
                category="security",
                title=rule.title,
                body=rule.why,
                rule="credential",
                suggestion=_REVOKE,
            )
