"""The guards of tests/guards.py bite, shown by a run of pytest on tests that misbehave."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tested_package import PROJECT

MISBEHAVING = """
import asyncio, contextlib, os, socket, subprocess, sys, tempfile
import pytest

@pytest.mark.program
@pytest.mark.parametrize("deed", [
    lambda line: line.connect(("192.0.2.1", 80)),
    lambda line: line.connect_ex(("192.0.2.2", 80)),
    lambda line: line.sendto(b"x", ("192.0.2.3", 53)),
    lambda line: line.sendmsg([b"x"], [], 0, ("192.0.2.4", 53)),
    lambda line: socket.getaddrinfo("host.invalid", 80),
    lambda line: socket.gethostbyname("old.invalid"),
    lambda line: socket.create_connection(("other.invalid", 80)),
    lambda line: asyncio.run(asyncio.wait_for(asyncio.open_connection("loop.invalid", 80), 20)),
])
def test_reaches_for_the_network(deed):
    with socket.socket(type=socket.SOCK_DGRAM) as line, contextlib.suppress(OSError):
        deed(line)

@pytest.mark.parametrize("deed", [
    lambda: subprocess.run([sys.executable, "-c", ""]),
    lambda: os.fork() or os._exit(0),
    lambda: socket.create_server(("127.0.0.1", 0)).close(),
    lambda: socket.create_connection(("127.0.0.1", 9)),
])
def test_of_the_unit_tier_starts_a_program_or_opens_a_socket(deed):
    with contextlib.suppress(OSError):
        deed()

def test_leaves_a_temporary_file():
    tempfile.mkstemp(prefix="forgotten-")
"""

BEHAVING = """
import os, pwd, socket, subprocess, sys, tempfile
from pathlib import Path
import pytest

def test_the_home_cannot_be_written(monkeypatch):
    homes = [Path.home(), Path(os.environ["XDG_STATE_HOME"]), Path(os.environ["CODELOUPE_HOME"])]
    monkeypatch.delenv("HOME")
    for home in (*homes, Path.home(), Path("~").expanduser(), Path(pwd.getpwuid(os.getuid()).pw_dir)):
        with pytest.raises(OSError):
            (home / ".config").mkdir(parents=True)

def test_another_program_may_write_to_the_real_home_meanwhile():
    home = Path(os.environ["REAL_HOME_OF_THE_RUN"])
    (home / ".config" / "browser").mkdir()
    (home / ".gitconfig").write_text("[user]")

def test_a_home_that_was_asked_for_is_private_and_empty(home):
    assert home == Path.home() != Path(os.environ["REAL_HOME_OF_THE_RUN"])
    assert list(home.iterdir()) == []
    for name in ("CODELOUPE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        assert Path(os.environ[name]).is_relative_to(home)

def test_temporary_files_go_to_the_private_directory():
    with tempfile.NamedTemporaryFile() as file:
        assert Path(file.name).parent == Path(os.environ["TMPDIR"])

def test_secrets_and_settings_are_gone():
    gone = ("GIT_DIR", "CODELOUPE_FAIL_ON", "SOME_TOKEN", "VENDOR_API_KEY", "NO_COLOR", "CI", "COLUMNS")
    assert [name for name in gone if name in os.environ] == []
    assert os.environ["HTTPS_PROXY"] == os.environ["http_proxy"] == "http://127.0.0.1:9"

@pytest.mark.program
def test_loopback_is_open_and_children_can_be_ended_by_signals_that_were_ignored_outside():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
    ask = "import signal; print(all(signal.getsignal(n) is not signal.SIG_IGN for n in (1, 2, 3, 15)))"
    assert subprocess.run([sys.executable, "-c", ask], capture_output=True).stdout.strip() == b"True"
"""


def run_pytest(directory: Path, text: str) -> str:
    """What pytest prints for tests that run with our guards, started by nohup as CI would."""
    home = directory / "real-home"
    (home / ".config").mkdir(parents=True)
    (directory / "test_them.py").write_text(text)
    settings = dict.fromkeys(("GIT_DIR", "CODELOUPE_FAIL_ON", "SOME_TOKEN", "VENDOR_API_KEY", "CI", "NO_COLOR"), "1")
    places = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), "HOME": str(home)}
    options = ("-p", "tests.guards", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", ".", "-rfEp", "-q")
    completed = subprocess.run(
        ("nohup", sys.executable, "-m", "pytest", *options, "--basetemp", str(directory / "base"), "test_them.py"),
        cwd=directory,
        env={**settings, **places, "REAL_HOME_OF_THE_RUN": str(home), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return completed.stdout + completed.stderr


def test_a_test_that_misbehaves_is_named_with_its_deed(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, MISBEHAVING)
    failed = re.findall(r"^FAILED test_them\.py::\S+ - Failed: this test went out of bounds: (.*)$", told, re.MULTILINE)
    hosts = ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "host", "old", "other", "loop")
    assert [host for host, deed in zip(hosts, failed, strict=False) if host not in deed] == [], told
    assert failed[8:] == ["Popen", "fork", "bind", "socket.connect"], told
    assert "tests left temporary files: forgotten-" in told


@pytest.mark.defect("U10")
def test_tests_that_behave_pass_in_their_private_places(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, BEHAVING)
    passed = [line for line in told.splitlines() if line.startswith("PASSED test_them.py::")]
    assert len(passed) == BEHAVING.count("\ndef test_"), told
    assert not re.search("^(ERROR|FAILED) ", told, re.MULTILINE), told
