"""Codeloupe as people install it: the built wheel in a new virtual environment, as a pytest plugin.

The environment is made once in a test session, when the first test asks for it, and all workers share it. It has the
extra `all`, as the documentation says, and `embedded`, at the pinned versions. Packages come from uv's cache by hard
links. The cache has nearly everything after `make test` has set up; uv fetches the rest from the package index.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).with_name("uv")
_FOLDER = "FRESH_INSTALL_FOLDER"
_EXTRAS = "all,embedded"
_A_DAY_SECONDS = 86_400
# The environment before tests get a home of their own and proxies that lead nowhere. uv finds its cache by it.
_OUTSIDE: dict[str, str] = {}
_IGNORED = ("PYTHON", "VIRTUAL_ENV", "CODELOUPE_")


@dataclass(frozen=True)
class Install:
    """A virtual environment with codeloupe in it, and the wheel that it came from."""

    folder: Path
    wheel: Path

    @property
    def program(self) -> Path:
        """Return the path of the program."""
        return self.folder / "bin" / "codeloupe"

    @property
    def python(self) -> Path:
        """Return the path of the interpreter."""
        return self.folder / "bin" / "python"

    def path(self, *folders: Path) -> str:
        """Return a PATH that finds this program first, behind the given folders."""
        return os.pathsep.join((*map(str, folders), str(self.folder / "bin"), os.environ["PATH"]))


def pytest_configure(config: pytest.Config) -> None:
    _OUTSIDE.update({name: value for name, value in os.environ.items() if not name.startswith(_IGNORED)})
    if _FOLDER not in os.environ:
        # In the checkout, because hard links work only within one file system.
        cache = PROJECT / ".cache"
        cache.mkdir(exist_ok=True)
        _remove_old_folders(cache)
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="install-", dir=cache)
        config.add_cleanup(_remove_folder)


def _remove_old_folders(cache: Path) -> None:
    """Remove the folders of sessions that were killed."""
    for folder in cache.glob("install-*"):
        if time.time() - folder.stat().st_mtime > _A_DAY_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_folder() -> None:
    shutil.rmtree(os.environ.pop(_FOLDER), ignore_errors=True)


@pytest.fixture(scope="session")
def fresh_install() -> Install:
    """Return the environment of this session. The first worker that asks makes it, and the others wait."""
    folder = Path(os.environ[_FOLDER])
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install = Install(folder / "environment", built_wheel(folder / "wheel"))
        if not (folder / "done").exists():
            install_wheel(install, folder)
            (folder / "done").touch()
    return install


def built_wheel(folder: Path) -> Path:
    """Build the wheel of the source tree into a folder, unless it is there, and return its path."""
    if not folder.exists():
        uv("build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder))
    [wheel] = folder.glob("*.whl")
    return wheel


def install_wheel(install: Install, folder: Path) -> None:
    """Make a new environment and install the wheel into it."""
    uv("venv", "--quiet", "--no-config", "--python", sys.executable, str(install.folder))
    words = ("--python", str(install.python), "--constraint", str(pinned_versions(folder)))
    uv("pip", "install", "--quiet", "--no-config", *words, f"codeloupe[{_EXTRAS}] @ {install.wheel.as_uri()}")


def pinned_versions(folder: Path) -> Path:
    """Write the pinned versions without hashes, because pip and uv check no hash of a local file."""
    pinned = (PROJECT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    file = folder / "versions.txt"
    file.write_text(re.sub(r"(?: *\\\n +--hash=\S+)+", "", pinned))
    return file


def uv(*words: str) -> None:
    """Run uv: with its cache alone if that has everything, otherwise with the package index."""
    command = (str(UV), *words)
    offline = {**_OUTSIDE, "UV_OFFLINE": "1"}
    ended = subprocess.run(command, cwd=PROJECT, env=offline, capture_output=True, check=False)
    if ended.returncode != 0:
        ended = subprocess.run(command, cwd=PROJECT, env=_OUTSIDE, capture_output=True, check=False)
    assert ended.returncode == 0, f"uv {' '.join(words)}:\n{ended.stderr.decode()}"


def tool_variables(folder: Path) -> dict[str, str]:
    """Return an environment for uv, uvx and pipx: their programs go below a folder, and packages come from uv's cache.

    Of the machine it has only what leads to the package index.
    """
    cache = subprocess.run((str(UV), "cache", "dir"), env=_OUTSIDE, capture_output=True, text=True, check=True)
    tools = folder / "tools"
    tools.mkdir()
    for name in ("uv", "uvx", "pipx"):
        (tools / name).symlink_to(UV.with_name(name))
    (tools / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    # uv leaves lock files there.
    temporary = folder / "tmp"
    temporary.mkdir()
    programs = folder / "programs"
    # As a URL, because uv takes a path with a space for two paths.
    versions = pinned_versions(folder).as_uri()
    return {
        **os.environ,
        **network_variables(),
        "PATH": os.pathsep.join((str(tools), str(programs), os.environ["PATH"])),
        "TMPDIR": str(temporary),
        "UV_CACHE_DIR": cache.stdout.strip(),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_CONSTRAINT": versions,
        "UV_BUILD_CONSTRAINT": versions,
        "UV_TOOL_DIR": str(folder / "uv"),
        "UV_TOOL_BIN_DIR": str(programs),
        "PIPX_HOME": str(folder / "pipx"),
        "PIPX_BIN_DIR": str(programs),
        "PIPX_MAN_DIR": str(folder / "man"),
    }


def network_variables() -> dict[str, str]:
    """Return the variables that lead uv and pip to the package index, in place of the dead proxies."""
    variables = {}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        variables[name] = _OUTSIDE.get(name, "")
        variables[name.lower()] = _OUTSIDE.get(name.lower(), "")
    settings = Path(_OUTSIDE.get("XDG_CONFIG_HOME", Path(_OUTSIDE.get("HOME", "/nonexistent")) / ".config"))
    for name, file in (("UV_CONFIG_FILE", settings / "uv/uv.toml"), ("PIP_CONFIG_FILE", settings / "pip/pip.conf")):
        if file.exists():
            variables.setdefault(name, str(file))
    return variables


def copy_of_project(folder: Path) -> Path:
    """Copy the files of a checkout that an installation reads, so that nothing is written into the source tree."""
    for name in ("src", "requirements"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".pre-commit-hooks.yaml"):
        shutil.copy2(PROJECT / name, folder / name)
    return folder
