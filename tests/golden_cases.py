"""Reviews, a sweep and a pipeline whose whole output is kept in `tests/golden`, and what makes them.

`python -m tests.golden_cases` renews the files with the installed program, or with the one that GOLDEN_PROGRAM names.
What differs from run to run (ids, durations, ports, directories) is replaced by a fixed word.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer, Text
from tests.program import PROGRAM, Ended, codeloupe
from tests.proofs import asks_for_proofs, proofs
from tests.repository import GitRepository

GOLDEN = Path(__file__).with_name("golden")
FORMATS = {"json": "review.json", "text": "review.txt", "sarif": "review.sarif"}
_KEY = "made-up-" + "for-tests"
_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e366"
    "0000000049454e44ae426082"
)
_SHELL = 'import subprocess\n\n\ndef listing(name):\n    return subprocess.run("ls " + name, shell=True)\n'
_AVERAGE = "def average(prices):\n    return sum(prices) / len(prices)\n"
_TOTAL = "def total(prices):\n    return sum(prices)\n"
_MUTABLE = "def collect(item, into=[]):\n    into.append(item)\n    return into\n"

Answers = Callable[[RecordedRequest], Reply]
Run = Callable[..., Ended]


@dataclass(frozen=True)
class Case:
    """One review: what is committed first, what is changed, how the program is called, and what a model says."""

    name: str
    prepare: Callable[[GitRepository], None]
    words: tuple[str, ...]
    answers: Answers | None = None
    stdin: Callable[[GitRepository], bytes] = lambda _repository: b""
    rounds: Callable[[GitRepository, Run], None] = lambda _repository, _run: None


def _begin(repository: GitRepository) -> None:
    repository.commit_files({"README.md": "a shop\n"})
    repository.checkout("work", new=True)


def _several_languages(repository: GitRepository) -> None:
    _begin(repository)
    script = "function show(text) {\n  eval(text);\n}\n"
    repository.commit_files({"shop/files.py": _SHELL, "shop/lists.py": _MUTABLE, "web/page.js": script})


def _clean(repository: GitRepository) -> None:
    _begin(repository)
    repository.commit_files({"shop/total.py": _TOTAL})


def _staged_secret(repository: GitRepository) -> None:
    _begin(repository)
    repository.write("deploy.py", 'KEY = "AKIA' + "QYLPMN5HFIQR7" + 'XYA"\n')
    repository.git("add", "deploy.py")


def _left_out(repository: GitRepository) -> None:
    _begin(repository)
    lock = json.dumps({"name": "shop", "lockfileVersion": 3, "packages": {}}) + "\n"
    repository.commit_files(
        {"logo.png": _PIXEL, "package-lock.json": lock, "vendor/lib.js": "var x = 1;\n", "app.py": _MUTABLE}
    )


def _average(repository: GitRepository) -> None:
    _begin(repository)
    repository.commit_files({"shop/average.py": _AVERAGE})


def _baseline(repository: GitRepository) -> None:
    _begin(repository)
    ignored = _MUTABLE.replace("=[]):", "=[]):  # codeloupe: ignore[correctness] kept for callers")
    repository.commit_files({"shop/files.py": _SHELL, "shop/lists.py": ignored})


def _add_to_baseline(repository: GitRepository, run: Run) -> None:
    run("review", "--reviewer", "offline", "--quiet")
    run("baseline", "add", "--all", "--reason", "known", "--owner", "shop")
    repository.commit()


def _second_round(repository: GitRepository, run: Run) -> None:
    run(*_API, "--format", "json")
    mended = _AVERAGE.replace("len(prices)", "max(1, len(prices))")
    repository.commit_files({"shop/average.py": mended, "shop/first.py": "def first(prices):\n    return prices[0]\n"})


_QUOTES = {
    "    return sum(prices) / len(prices)": ("shop/average.py", 2, "Division by zero for no prices", "high"),
    "    return prices[0]": ("shop/first.py", 2, "Index error for no prices", "medium"),
}


def _found(request: RecordedRequest) -> Reply:
    """What a careful model says: one finding for each known line that the diff adds, and each is confirmed."""
    if asks_for_proofs(request):
        return proofs(request, "confirmed", "An empty list reaches this line.")
    added = {line for text in request.strings() for line in text.split("\n") if line.startswith("+")}
    about = {"body": "It fails for an empty list.", "category": "correctness"}
    found = [
        {"file": file, "line": line, "quote": quote, "title": title, **about, "severity": severity}
        for quote, (file, line, title, severity) in _QUOTES.items()
        if f"+{quote}" in added
    ]
    return Json({"findings": found})


_OFFLINE = ("review", "--reviewer", "offline")
_API = ("review", "--reviewer", "api")

CASES = (
    Case("offline-findings", _several_languages, _OFFLINE),
    Case("offline-clean", _clean, _OFFLINE),
    Case("offline-nothing-changed", _begin, _OFFLINE),
    Case("staged-secret", _staged_secret, (*_OFFLINE, "--staged")),
    Case("left-out-of-a-commit", _left_out, (*_OFFLINE, "--commit", "HEAD")),
    Case("untrusted-range", _several_languages, (*_OFFLINE, "main..work", "--untrusted")),
    Case(
        "diff-file",
        _several_languages,
        (*_OFFLINE, "--diff-file", "-"),
        stdin=lambda made: made.git("diff", "main..work"),
    ),
    Case("suppressed", _baseline, _OFFLINE, rounds=_add_to_baseline),
    Case("agent-confirmed", _average, _API, answers=_found),
    Case("agent-garbage", _average, _API, answers=lambda _request: Text("I looked at it, and it is a change.")),
    Case("agent-second-round", _average, _API, answers=_found, rounds=_second_round),
    Case("agent-and-analysers", _average, (*_API, "--reviewer", "offline", "--fail-on", "critical"), answers=_found),
)


def environment(server: StandInServer | None, home: Path) -> dict[str, str]:
    """What the program is started with; `home` is where it keeps its state."""
    variables = {"CODELOUPE_HOME": str(home), "COLUMNS": "100"}
    if server is not None:
        variables |= {
            "ANTHROPIC_API_KEY": _KEY,
            "CODELOUPE_API_MODEL": "anthropic:claude-stand-in",
            "CODELOUPE_API_BASE_URL": server.url,
        }
    return variables


def documents(case: Case, directory: Path, run: Run) -> Iterator[tuple[str, str]]:
    """The name and the text of each golden file of a review."""
    repository = GitRepository(directory / "repository")
    case.prepare(repository)
    with StandInServer(reply=case.answers or (lambda _request: Text("not asked"))) as server:
        variables = environment(server if case.answers else None, directory / "home")

        def call(*words: str, stdin: bytes = b"") -> Ended:
            return run(*words, cwd=repository.path, stdin=stdin, environment=variables)

        case.rounds(repository, call)
        kept = [word for name, file in FORMATS.items() for word in ("--format", name, "-o", str(directory / file))]
        ended = call(*case.words, *kept, stdin=case.stdin(repository))
        for file in FORMATS.values():
            yield file, plain((directory / file).read_text(encoding="utf-8"), directory, server)
    yield "exit_code", f"{ended.exit_code}\n"


def sweep_documents(directory: Path, run: Run) -> Iterator[tuple[str, str]]:
    """A sweep over three commits as JSON and as text."""
    repository = GitRepository(directory / "repository")
    _several_languages(repository)
    repository.commit_files({"shop/total.py": _TOTAL})
    words = ("commits", "--since", "2000-01-01", "--reviewer", "offline")
    for name, file in (("json", "sweep.json"), ("text", "sweep.txt")):
        ended = run(
            *words, "--format", name, cwd=repository.path, environment=environment(None, directory / f"home-{name}")
        )
        yield file, plain(ended.stdout, directory, None)
        yield f"{file}.exit_code", f"{ended.exit_code}\n"


_PIPELINE = """name: note
inputs:
  topic:
    description: what to write about
workspace: directory
stages:
  - name: outline
    agent: api
    step: outline.md
  - name: draft
    agent: api
    needs: outline
    step: draft.md
"""


def pipeline_documents(directory: Path, run: Run) -> Iterator[tuple[str, str]]:
    """A run of a pipeline of two stages as JSON."""
    (directory / "place").mkdir(parents=True)
    file = directory / "place" / "pipeline.yaml"
    file.write_text(_PIPELINE, encoding="utf-8")
    for step in ("outline", "draft"):
        file.with_name(f"{step}.md").write_text(f"Write the {step} of a note.\n", encoding="utf-8")
    with StandInServer(reply=lambda _request: Text("A note about names.")) as server:
        ended = run(
            *("pipeline", "run", str(file), "--input", "topic=names", "--json"),
            cwd=file.parent,
            environment=environment(server, directory / "home"),
        )
        yield "run.json", plain(ended.stdout, directory, server)
    yield "exit_code", f"{ended.exit_code}\n"


_CHANGING: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r'("(?:review_id|run_id|sweep_id|guid|session_id|result_id)": )"[^"]*"'), r'\1"ID"'),
    (re.compile(r'("(?:duration_seconds|duration_ms|[a-z]*_at|at|[a-zA-Z]*Utc)": )[^,\n}]+'), r"\1T"),
    (re.compile(r"\b[0-9]+(?:\.[0-9]+)? ?m?s\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{32}\b|\b20\d{6}-\d{6}-[0-9a-f]{6}\b"), "ID"),
)


def plain(text: str, directory: Path, server: StandInServer | None) -> str:
    """The text without what differs from run to run."""
    text = text.replace(str(directory), "DIRECTORY")
    if server is not None:
        text = text.replace(server.url, "SERVER")
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return text


def all_documents(directory: Path, run: Run) -> Iterator[tuple[str, str]]:
    """Every golden file, by its path below `tests/golden`."""
    for case in CASES:
        for name, text in documents(case, directory / case.name, run):
            yield f"{case.name}/{name}", text
    for name, text in sweep_documents(directory / "sweep", run):
        yield f"sweep/{name}", text
    for name, text in pipeline_documents(directory / "pipeline", run):
        yield f"pipeline/{name}", text


def _renew(program: Path) -> None:
    def run(*words: str, **options: Any) -> Ended:
        return codeloupe(*words, program=program, **options)

    with tempfile.TemporaryDirectory() as place:
        os.environ["HOME"] = place
        made = dict(all_documents(Path(place), run))
    for folder in {GOLDEN / Path(name).parts[0] for name in made}:
        shutil.rmtree(folder, ignore_errors=True)
    for name, text in made.items():
        (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
        (GOLDEN / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _renew(Path(os.environ.get("GOLDEN_PROGRAM", PROGRAM)))
    sys.stdout.write(f"renewed {GOLDEN.name}\n")
