"""A program in the place of the review-gate, which holds its caller to the contract.

It refuses what the real one refuses: an unknown option, a missing session, a range that the repository does not have,
a review while another one is running. Its reviewer is a process of its own, which the start leaves behind and the wait
waits for. How a wait ends is written down beforehand, one ending for each wait.
"""

import json
import sys
from pathlib import Path
from typing import Any

_PROGRAM = r"""#!@python@ -IS
import json, os, re, subprocess, sys, time

folder = @folder@
session = os.environ.get("CLAUDE_SESSION_ID", "")
active = os.path.join(folder, "active")


def record(**what):
    with open(os.path.join(folder, "calls.jsonl"), "a") as file:
        said = {"argv": sys.argv[1:], "cwd": os.getcwd(), "pid": os.getpid(), "environment": dict(os.environ), **what}
        file.write(json.dumps(said) + "\n")


def die(text, code=2):
    sys.stderr.write("Error: " + text + "\n")
    sys.exit(code)


def running():
    try:
        return open(active).read()
    except FileNotFoundError:
        return ""


def commit(name):
    if not re.fullmatch("[0-9a-f]{40}", name) or subprocess.call(["git", "cat-file", "-e", name + "^{commit}"]):
        die("not a commit of this repository: " + name)


def spawn(words):
    rounds, selected, context = None, [], None
    while words:
        word = words.pop(0)
        if word == "--max-rounds":
            rounds = words.pop(0)
        elif word in ("--exclude", "--mode", "--agents"):
            words.pop(0) or die(word + " requires a value")
        elif word == "--context-file":
            context = open(words.pop(0)).read() or die("Context file is empty")
        elif word == "--commit":
            selected, words = words, []
            for name in selected:
                commit(name)
        elif word.startswith("-"):
            die("Unknown option " + word)
        else:
            selected.append(word)
            for name in word.split(".."):
                commit(name)
    record(context=context)
    if rounds != "0" or not selected:
        die("wrong options")
    if running() not in ("", session):
        record(overlap=True)
        die("another review is running", 9)
    if running():
        die("Review gate already active (status: pending, age: 3s)")
    if @refusal@:
        die(@refusal@)
    open(active, "w").write(session)
    # As the real one does: the reviewer is a process in a session of its own, which goes on after this one.
    review = "import time; time.sleep(0.05); open(%r, 'w').close()" % (active + ".done")
    nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen([sys.executable, "-ISc", review], start_new_session=True, **nothing)


def wait(words):
    record()
    if words[:5] != ["--json", "--finalize", "--session-id", session, "--timeout"] or len(words) != 6:
        die("wrong options")
    if int(words[5]) < 1:
        die("Invalid --timeout")
    if running() != session:
        die("no review of this session", 4)
    end = time.monotonic() + int(words[5])
    while not os.path.exists(active + ".done"):
        if time.monotonic() > end:
            die("the reviewer is gone", 3)
        time.sleep(0.01)
    endings = os.path.join(folder, "endings.json")
    first, *rest = json.load(open(endings))
    json.dump(rest, open(endings, "w"))
    time.sleep(first.get("seconds", 0))
    sys.stdout.write(first["stdout"])
    sys.stderr.write(first.get("stderr", ""))
    if first["exit"] != 3:
        forget()
    sys.exit(first["exit"])


def resolve(words):
    record()
    if len(words) != 2 or words[0] != "--reason" or not words[1]:
        die("wrong options")
    if running() != session:
        die("No active gate", 1)
    forget()


def forget():
    for name in (active, active + ".done"):
        if os.path.exists(name):
            os.unlink(name)


if not session:
    die("Unable to determine session id. Set CLAUDE_SESSION_ID.")
if "CLAUDECODE" in os.environ:
    die("nested")
{"spawn-code-review": spawn, "wait": wait, "resolve": resolve}[sys.argv[1]](sys.argv[2:])
"""


class FakeGate:
    """The program at `path`, with one ending for each wait. `refusal` is what it says instead of starting a review."""

    def __init__(self, folder: Path, *endings: dict[str, Any], refusal: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.path = str(folder / "review-gate")
        # A first line has its limit of length, so the interpreter is reached over a short way.
        (folder / "python").symlink_to(sys.executable)
        (folder / "endings.json").write_text(json.dumps(endings), encoding="utf-8")
        text = _PROGRAM.replace("@python@", str(folder / "python")).replace("@folder@", repr(str(folder)))
        Path(self.path).write_text(text.replace("@refusal@", repr(refusal)), encoding="utf-8")
        Path(self.path).chmod(0o755)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """How it was started, each time."""
        calls = self._folder / "calls.jsonl"
        return [json.loads(line) for line in calls.read_text(encoding="utf-8").splitlines()] if calls.exists() else []

    @property
    def verbs(self) -> list[str]:
        """What it was asked to do, in order."""
        return [call["argv"][0] for call in self.calls]

    def activate(self, session: str) -> None:
        """Let a review be running already."""
        (self._folder / "active").write_text(session, encoding="utf-8")
        (self._folder / "active.done").touch()


def ending(
    exit_code: int, verdict: str | None = None, *findings: dict[str, Any], status: str = "complete", **more: Any
) -> dict[str, Any]:
    """The ending of a wait with a document as the gate prints it; `seconds` is how long it takes."""
    seconds = more.pop("seconds", 0)
    said: dict[str, Any] = {"status": status, "consensus_verdict": verdict, "aggregated_findings": list(findings)}
    document = {**said, "reviewers": {}, "parse_errors": [], **more}
    return {"exit": exit_code, "stdout": json.dumps(document), "seconds": seconds}
