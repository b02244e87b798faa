"""`python -m codeloupe.testing`: the stand-in server on a port, to try a program by hand."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path

from codeloupe.errors import CodeloupeError, UsageError
from codeloupe.testing.apis import RecordedRequest
from codeloupe.testing.replies import read_script
from codeloupe.testing.server import StandInServer

_USAGE = "Usage: python -m codeloupe.testing [SCRIPT.json] [PORT]"
_HELP = f"""\
{_USAGE}

Serves the APIs of Anthropic, OpenAI and Google on a local port, with scripted replies, and prints every request.
SCRIPT.json is a list of replies, one per request; the last one repeats:
  ["hello", {{"reply": "status", "code": 429, "retry_after": 3}}, {{"reply": "delay", "seconds": 2, "then": "done"}}]
Without PORT, the server uses a free port.
"""
_SETTINGS = """\
The stand-in server listens on {url}; Ctrl-C stops it. Set these for a program that should talk to it:

  claude    ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=stand-in
  codex     STAND_IN_KEY=stand-in codex exec \\
              -c 'model_providers.standin={{name="standin",base_url="{url}/v1",env_key="STAND_IN_KEY"}}' \\
              -c 'model_provider="standin"'
  gemini    GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY=stand-in
            and in ~/.gemini/settings.json {{"security": {{"auth": {{"selectedType": "gemini-api-key"}}}}}}
  openai    OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=stand-in
"""


def main(arguments: list[str]) -> int:
    """Serve until Ctrl-C; 2 when the arguments, the script or the port cannot be used."""
    if arguments in (["-h"], ["--help"]):
        _say(_HELP)
        return 0
    ports = [int(word) for word in arguments if word.isdecimal()]
    files = [word for word in arguments if not word.isdecimal()]
    try:
        if len(ports) > 1 or len(files) > 1 or any(word.startswith("-") for word in files):
            raise UsageError(f"Invalid arguments: {' '.join(arguments)}", hint=_USAGE)
        script = read_script(Path(files[0])) if files else []
        # From its start on: Ctrl-C may come before there is anything to wait for.
        with (
            suppress(KeyboardInterrupt),
            StandInServer(script, port=ports[0] if ports else 0, on_request=_show) as server,
        ):
            _say(_SETTINGS.format(url=server.url))
            threading.Event().wait()
    except (CodeloupeError, OSError) as error:
        sys.stderr.write(f"{error}\n{getattr(error, 'hint', 'The server cannot listen there. Try another port.')}\n")
        return 2
    return 0


def _show(request: RecordedRequest) -> None:
    mark = " (internal request of the program)" if request.auxiliary else ""
    _say(f"{request.method} {request.path}{mark}\n")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
