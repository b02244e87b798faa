"""The tokens that a review sends to a model, as a ratio to the tokens of the diff.

`rows` builds the prompts of changes without an engine or a model, and counts system prompt, prompt and schema. With
CODELOUPE_BENCH_REPOSITORIES=FOLDER the changes come from the history of each git repository in the folder, otherwise
from `bench.lifelike`. The other functions count what a stand-in server received.

Real tokenizers must be downloaded, so there are three independent measures: our own estimate, the pieces into which
tokenizers first cut a text, and bytes. Limits apply to the first two. On the lifelike changes their ratios were within
.02 of those of OpenAI's tokenizer o200k, and up to .05 above those of Claude's. Bytes count English prose a quarter too
high beside code.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.changes import git
from bench.lifelike import LARGE, SMALL, make_lifelike_change
from bench.table import BenchRow
from codeloupe.config.schema import Settings
from codeloupe.git.command import PATCH_FLAGS
from codeloupe.git.diff import parse_diff
from codeloupe.git.guidance import GUIDANCE_NAMES
from codeloupe.model.change import (
    Change,
    Effort,
    FileChange,
    FileStatus,
    GuidanceFile,
    Hunk,
    Intent,
    Scope,
    ScopeKind,
    Unit,
)
from codeloupe.model.finding import Claim, Finding, Severity, Source
from codeloupe.planning.experts import DEFAULT, load_experts
from codeloupe.planning.select import select_by_diff
from codeloupe.planning.units import plan_units, tokens_of
from codeloupe.reviewers.diff_text import shown_line
from codeloupe.reviewers.prompt import Prompt, PromptMaterial, review_prompt
from codeloupe.testing import RecordedRequest

MOST_SMALL_RATIO = 1.35
MOST_LARGE_RATIO = 1.25
MOST_FOLLOW_UP_SHARE = 0.05
REPOSITORIES = "CODELOUPE_BENCH_REPOSITORIES"
# The measures that limits apply to.
JUDGED = ("estimate", "pieces")
_SMALL_TOKENS = 2_400
_SMALL_FILES = 5
_LARGE_FILES = 60
_NEWEST_COMMITS = 300
_FEWEST_SMALL_TOKENS = 2_000
_MOST_SMALL_TOKENS = 4_000
_KNOWN_IN_FOLLOW_UP = 3
# A random marker would change the count from run to run. Written as a number, it is in no diff of this file.
_FENCE = f"data-{0x5E17AB90:x}"

_PIECE = re.compile(r"[A-Za-z]+|[0-9]{1,3}|\n|[^\sA-Za-z0-9]")
_BYTES_PER_TOKEN = 3.5
_LINE_NUMBER = re.compile(r"^:[0-9]+\n", re.MULTILINE)
# Where the vendors' APIs have the texts of a prompt; all else of a request is counted as the JSON that it is.
_PROMPT_KEYS = ("system", "messages", "systemInstruction", "contents", "instructions", "input")


def _pieces(text: str) -> int:
    return sum(1 for _ in _PIECE.finditer(text))


def _bytes(text: str) -> int:
    return round(len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN)


MEASURES: Mapping[str, Callable[[str], int]] = {"estimate": tokens_of, "pieces": _pieces, "bytes / 3.5": _bytes}


def tokens_in(text: str) -> dict[str, int]:
    """The tokens of a text by each measure."""
    return {name: measure(text) for name, measure in MEASURES.items()}


def tokens_sent(requests: Sequence[RecordedRequest]) -> dict[str, int]:
    """The tokens of whole requests by each measure: instructions, messages, schemas and options."""
    texts = [_whole(request) for request in requests]
    return {name: sum(map(measure, texts)) for name, measure in MEASURES.items()}


def times_sent(diff: bytes, requests: Sequence[RecordedRequest]) -> dict[str, int]:
    """How often each hunk stands in the prompts, whole and under the name of its file, by its place.

    The diff must be made with the flags that the review itself uses, since others cut hunks elsewhere.
    """
    sent = [part for request in requests for part in _file_parts(_LINE_NUMBER.sub("", prompt_of(request)))]
    times: dict[str, int] = {}
    for file in parse_diff(diff):
        texts = [f"{text}\n" for path, text in sent if path == file.path]
        for hunk in file.hunks:
            place = f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@"
            body = hunk.body.decode()
            times[f"{file.path} {place}"] = sum(
                text.count(f"\n{place}\n{body}") + text.count(f"\n{place} {hunk.section}\n{body}") for text in texts
            )
    return times


def lines_not_sent(diff: bytes, requests: Sequence[RecordedRequest]) -> set[str]:
    """The added lines of a diff that stand in no prompt."""
    sent = {line[1:] for request in requests for line in prompt_of(request).split("\n")}
    added = (line for file in parse_diff(diff) for hunk in file.hunks for line in hunk.lines() if line.kind == "added")
    return {line.text.decode() for line in added} - sent


def _file_parts(prompt: str) -> Iterator[tuple[str, str]]:
    """The files of a prompt with what is sent of them: each begins with `=== path`, and facts in brackets."""
    for part in prompt.split("\n=== ")[1:]:
        first, _, rest = part.partition("\n")
        yield first.partition(" (")[0], f"\n{rest}"


def prompt_of(request: RecordedRequest) -> str:
    """The texts of a request that a model reads as prompts."""
    return "\n".join(_texts([_messages(request.body.get(key)) for key in _PROMPT_KEYS]))


def _whole(request: RecordedRequest) -> str:
    rest = {key: value for key, value in request.body.items() if key not in _PROMPT_KEYS}
    tools = [item for item in request.body.get("input") or () if _is_tools(item)]
    return f"{prompt_of(request)}\n{json.dumps([rest, *tools])}"


def _messages(value: Any) -> Any:
    return [item for item in value if not _is_tools(item)] if isinstance(value, list) else value


def _is_tools(item: Any) -> bool:
    """Whether it is one of the tools that codex has among the messages of some models."""
    return isinstance(item, dict) and "tools" in item


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """A change between two commits: the diff as git prints it, its files as a review reads them, and the material."""

    name: str
    diff: str
    files: tuple[FileChange, ...]
    material: PromptMaterial

    def prompts(self) -> list[Prompt]:
        """Return the prompts of a first review at medium effort with the default experts."""
        units = plan_units(self.files, effort=Effort.MEDIUM, experts=load_experts([DEFAULT]))
        return [review_prompt(unit, self.material) for unit in units]

    def follow_up(self) -> Prompt:
        """Return the prompt after a further commit that changes one line, with known findings in its file."""
        units = plan_units([one_line_change(self.files)], effort=Effort.MEDIUM, experts=load_experts([DEFAULT]))
        (unit,) = units
        known = tuple(_known_finding(unit, number) for number in range(_KNOWN_IN_FOLLOW_UP))
        fields = {name: getattr(self.material, name) for name in ("fence", "guidance", "intent")}
        return review_prompt(unit, PromptMaterial(**fields, known=known, is_follow_up=True))


def rows() -> Iterator[BenchRow]:
    """Measure real changes if a folder of repositories is given, otherwise the lifelike ones."""
    folder = os.environ.get(REPOSITORIES)
    if folder:
        for root in sorted(place.parent for place in Path(folder).glob("*/.git")):
            yield from _repository_rows(root)
        return
    print(f"{REPOSITORIES} is not set: measuring the built-in changes of bench.lifelike", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        for name, size in (("small", SMALL), ("large", LARGE)):
            root = Path(directory) / name
            make_lifelike_change(root, size)
            change = measured_change(root, f"lifelike {name}", "main", "reservations")
            yield from _change_rows(change, is_large=name == "large")


def _repository_rows(root: Path) -> Iterator[BenchRow]:
    small = small_commit(root)
    if small:
        change = measured_change(root, f"{root.name} {small[:10]}", f"{small}^", small)
        yield from _change_rows(change, is_large=False)
    base = large_base(root)
    if base:
        change = measured_change(root, f"{root.name} {base[:10]}..HEAD", base, "HEAD")
        yield from _change_rows(change, is_large=True)


def _change_rows(change: MeasuredChange, *, is_large: bool) -> Iterator[BenchRow]:
    prompts = change.prompts()
    sent = _tokens_of_prompts(prompts)
    missing = added_lines_not_in(change.files, [prompt.text for prompt in prompts])
    if missing:
        raise RuntimeError(f"{change.name}: {len(missing)} added line(s) were not sent")
    in_diff = tokens_in(change.diff)
    limit = MOST_LARGE_RATIO if is_large else MOST_SMALL_RATIO
    for measure, tokens in sent.items():
        detail = f"{tokens:,} / {in_diff[measure]:,} tokens in {len(prompts)} call(s), every added line sent"
        limit_of_measure = limit if measure in JUDGED else None
        yield BenchRow(f"{change.name}, {measure}", detail, tokens / in_diff[measure], limit_of_measure)
    if is_large:
        after = _tokens_of_prompts([change.follow_up()])
        for measure in JUDGED:
            share = after[measure] / sent[measure]
            title = f"{change.name}, one line more / first round, {measure}"
            yield BenchRow(title, f"{after[measure]:,} tokens", share, MOST_FOLLOW_UP_SHARE)


def _tokens_of_prompts(prompts: Sequence[Prompt]) -> dict[str, int]:
    texts = [f"{prompt.system}\n{prompt.text}\n{json.dumps(prompt.schema)}" for prompt in prompts]
    return {name: sum(map(measure, texts)) for name, measure in MEASURES.items()}


def added_lines_not_in(files: Sequence[FileChange], texts: Sequence[str]) -> set[str]:
    """Return the added lines of some files that are in none of the prompts."""
    sent: set[str] = set()
    for text in texts:
        sent.update(row[1:] for row in text.split("\n") if row.startswith("+"))
    missing: set[str] = set()
    for file in files:
        for hunk in file.hunks:
            for line in hunk.lines():
                forms = {shown_line(line.text), shown_line(line.text.removesuffix(b"\r"))}
                if line.kind == "added" and sent.isdisjoint(forms):
                    missing.add(shown_line(line.text))
    return missing


def small_commit(root: Path) -> str | None:
    """Return the commit with at least 5 files whose diff is nearest in size to the small lifelike change."""
    sizes: dict[str, int] = {}
    words = ("log", "--first-parent", f"--max-count={_NEWEST_COMMITS}", "--format=%H")
    for commit in git(root, *words).decode().split():
        is_root = git(root, "rev-list", "--parents", "--max-count=1", commit).count(b" ") == 0
        if is_root or len(_text_files(root, f"{commit}^", commit)) < _SMALL_FILES:
            continue
        tokens = tokens_of(_diff(root, f"{commit}^", commit))
        if _FEWEST_SMALL_TOKENS <= tokens <= _MOST_SMALL_TOKENS:
            sizes[commit] = abs(tokens - _SMALL_TOKENS)
    return min(sizes, key=lambda commit: sizes[commit], default=None)


def large_base(root: Path) -> str | None:
    """Return the newest commit since which at least 60 text files were changed."""
    for commit in git(root, "rev-list", "--first-parent", "HEAD").decode().split():
        if len(_text_files(root, commit, "HEAD")) >= _LARGE_FILES:
            return commit
    return None


def measured_change(root: Path, name: str, base: str, head: str) -> MeasuredChange:
    """Read the change between two commits; a repository without guidance gets that of the lifelike changes."""
    messages = git(root, "log", "--reverse", "--format=%B%x00", f"{base}..{head}").decode("utf-8", "replace")
    intent = Intent(messages=tuple(message.strip()[:2_000] for message in messages.split("\0") if message.strip()))
    guidance: dict[str, str] = {}
    for file in git(root, "ls-tree", "--name-only", head).decode().split("\n"):
        if file in GUIDANCE_NAMES:
            guidance[file] = git(root, "show", f"{head}:{file}").decode("utf-8", "replace")
    if not guidance:
        guidance["AGENTS.md"] = Path(__file__).with_name("shop_guidance.md").read_text(encoding="utf-8")
    guidance_files = tuple(GuidanceFile(path, text) for path, text in guidance.items())
    return MeasuredChange(
        name,
        diff=_diff(root, base, head).decode("utf-8", "replace"),
        files=tuple(parse_diff(_diff(root, base, head, *PATCH_FLAGS))),
        material=PromptMaterial(fence=_FENCE, intent=intent, guidance=guidance_files),
    )


def _text_files(root: Path, base: str, head: str) -> list[str]:
    """Return the text files of a change that a review sends to agents: analysers read lock files instead."""
    listed = git(root, "diff", "--no-renames", "--numstat", "-z", base, head).decode("utf-8", "surrogateescape")
    found: list[FileChange] = []
    for row in listed.split("\0"):
        added, _, rest = row.partition("\t")
        if added.isdecimal():
            path = rest.partition("\t")[2]
            found.append(FileChange(path, path, FileStatus.MODIFIED))
    scope = Scope(ScopeKind.RANGE, base, head, "")
    selection = select_by_diff(Change(scope, tuple(found)), Settings())
    return [file.path for file in selection.files]


def _diff(root: Path, base: str, head: str, *flags: str) -> bytes:
    files = _text_files(root, base, head)
    return git(root, "diff", *flags, base, head, "--", *files) if files else b""


def one_line_change(files: Sequence[FileChange]) -> FileChange:
    """Return a change of one line in a file of a change, in the middle of seven lines."""
    for file in files:
        for hunk in file.hunks:
            lines = [line for line in hunk.lines() if line.kind != "deleted"]
            if file.new_path and len(lines) >= 7:
                rows = [b" " + line.text for line in lines[:7]]
                rows.insert(4, b"+" + lines[3].text + b" or None")
                rows[3] = b"-" + lines[3].text
                start = lines[0].new_number or 1
                changed = Hunk(start, 7, start, 7, b"\n".join(rows) + b"\n", hunk.section, added=1, deleted=1)
                return FileChange(file.new_path, file.new_path, FileStatus.MODIFIED, hunks=(changed,))
    raise RuntimeError("no file of the change has seven lines")


def _known_finding(unit: Unit, number: int) -> Finding:
    claim = Claim(
        reporter="bench",
        source=Source.AGENT,
        severity=Severity.MEDIUM,
        title="The reservation is released twice if the payment fails",
        file=unit.files[0],
        line_start=10 * number + 7,
    )
    return Finding(claims=(claim,), severity=claim.severity, fingerprint=f"{number:016x}")
