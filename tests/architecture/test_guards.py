"""Every guard of tests/guards.py is shown to bite, by a run of pytest on tests that misbehave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]

MISBEHAVING = """
import asyncio, contextlib, socket, tempfile

def test_leaves_a_temporary_file():
    tempfile.mkstemp(prefix="forgotten-")

def test_connects_to_an_address():
    with socket.socket() as connection, contextlib.suppress(OSError):
        connection.connect(("192.0.2.1", 80))

def test_connects_without_an_exception():
    with socket.socket() as connection, contextlib.suppress(OSError):
        connection.connect_ex(("192.0.2.2", 80))

def test_sends_a_datagram():
    with socket.socket(type=socket.SOCK_DGRAM) as connection, contextlib.suppress(OSError):
        connection.sendto(b"x", ("192.0.2.3", 53))

def test_sends_a_message():
    with socket.socket(type=socket.SOCK_DGRAM) as connection, contextlib.suppress(OSError):
        connection.sendmsg([b"x"], [], 0, ("192.0.2.4", 53))

def test_connects_to_a_name():
    with socket.socket() as connection, contextlib.suppress(OSError):
        connection.connect(("direct.invalid", 80))

def test_looks_up_a_name():
    with contextlib.suppress(OSError):
        socket.getaddrinfo("host.invalid", 80)

def test_opens_a_connection_in_an_event_loop():
    with contextlib.suppress(OSError):
        asyncio.run(asyncio.wait_for(asyncio.open_connection("loop.invalid", 80), 20))

def test_looks_up_an_old_name():
    with contextlib.suppress(OSError):
        socket.gethostbyname("old.invalid")

def test_opens_a_connection_by_name():
    with contextlib.suppress(OSError):
        socket.create_connection(("other.invalid", 80))
"""

BEHAVING = """
import os, pwd, signal, socket, subprocess, sys, tempfile
from pathlib import Path
import pytest

def test_the_real_home_cannot_be_found(monkeypatch):
    monkeypatch.delenv("HOME")
    for home in (Path.home(), Path("~").expanduser(), Path(pwd.getpwuid(os.getuid()).pw_dir)):
        with pytest.raises(OSError):
            (home / ".config").mkdir(parents=True)

def test_another_program_may_write_to_the_real_home_meanwhile():
    home = Path(os.environ["REAL_HOME_OF_THE_RUN"])
    (home / "download").touch()
    (home / ".config" / "browser").mkdir()
    (home / ".gitconfig").write_text("[user]")

def test_children_can_be_ended_by_signals_that_were_ignored_outside():
    ask = "import signal; print(all(signal.getsignal(n) is not signal.SIG_IGN for n in (1, 2, 3, 15)))"
    assert subprocess.run([sys.executable, "-c", ask], capture_output=True).stdout.strip() == b"True"

def test_home_is_private_and_empty():
    assert list(Path.home().iterdir()) == []
    assert Path("~").expanduser() != Path(os.environ["REAL_HOME_OF_THE_RUN"])
    (Path.home() / "anything").touch()

def test_every_place_is_below_the_private_home():
    for name in ("CODELOUPE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        assert Path(os.environ[name]).is_relative_to(Path.home())

def test_temporary_files_go_to_the_private_directory():
    with tempfile.NamedTemporaryFile() as file:
        assert Path(file.name).parent == Path(os.environ["TMPDIR"])

def test_secrets_and_settings_are_gone():
    gone = ("GIT_DIR", "CODELOUPE_FAIL_ON", "SOME_TOKEN", "VENDOR_API_KEY", "NO_COLOR", "FORCE_COLOR", "CI", "COLUMNS")
    assert [name for name in gone if name in os.environ] == []

def test_children_find_a_proxy_that_leads_nowhere():
    assert os.environ["HTTPS_PROXY"] == os.environ["http_proxy"] == "http://127.0.0.1:9"
    assert os.environ["NO_PROXY"] == "127.0.0.1,localhost"

def test_loopback_is_open():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
    assert socket.getaddrinfo("localhost", 80)
    assert socket.getaddrinfo(host="localhost", port=80)

def test_local_sockets_are_open(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("s")
        server.listen()
        client.connect("s")
"""


def run_pytest(directory: Path) -> str:
    """What pytest tells of the tests that misbehave and of those that behave, in one run."""
    home = directory / "real-home"
    (home / ".config").mkdir(parents=True)
    (home / ".gitconfig").touch()
    (directory / "test_misbehaving.py").write_text(MISBEHAVING)
    (directory / "test_behaving.py").write_text(BEHAVING)
    settings = {"GIT_DIR": "x", "CODELOUPE_FAIL_ON": "low", "SOME_TOKEN": "x", "VENDOR_API_KEY": "x", "CI": "1"}
    environment = {
        **settings,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PROJECT),
        "HOME": str(home),
        "REAL_HOME_OF_THE_RUN": str(home),
        "NO_COLOR": "1",
        "COLUMNS": "300",
    }
    options = ("-p", "tests.guards", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", ".", "-rfEp", "-q")
    base = ("--basetemp", str(directory / "base"))
    completed = subprocess.run(
        ("nohup", sys.executable, "-m", "pytest", *options, *base, "test_misbehaving.py", "test_behaving.py"),
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return completed.stdout


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_pytest(tmp_path_factory.mktemp("guarded"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("leaves_a_temporary_file", "temporary directory is not empty"),
        ("connects_to_an_address", "socket.connect to '192.0.2.1'"),
        ("connects_without_an_exception", "socket.connect_ex to '192.0.2.2'"),
        ("sends_a_datagram", "socket.sendto to '192.0.2.3'"),
        ("sends_a_message", "socket.sendmsg to '192.0.2.4'"),
        ("connects_to_a_name", "socket.connect to 'direct.invalid'"),
        ("looks_up_a_name", "socket.getaddrinfo to 'host.invalid'"),
        ("opens_a_connection_in_an_event_loop", "socket.getaddrinfo to 'loop.invalid'"),
        ("looks_up_an_old_name", "socket.gethostbyname to 'old.invalid'"),
        ("opens_a_connection_by_name", "socket.getaddrinfo to 'other.invalid'"),
    ],
)
def test_a_test_that_misbehaves_is_named_with_its_deed(told: str, name: str, words: str) -> None:
    errors = [line for line in told.splitlines() if line.startswith(f"ERROR test_misbehaving.py::test_{name} ")]
    assert len(errors) == 1, told
    assert words in errors[0]


@pytest.mark.defect("U10")
def test_tests_that_behave_pass_in_their_private_places(told: str) -> None:
    passed = [line for line in told.splitlines() if line.startswith("PASSED test_behaving.py::")]
    assert len(passed) == BEHAVING.count("\ndef test_"), told
    assert not any(line.startswith(("ERROR test_behaving", "FAILED test_behaving")) for line in told.splitlines())
