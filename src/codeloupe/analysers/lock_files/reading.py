"""Choose the reader of a lock file by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from codeloupe.analysers.lock_files import go_rust_ruby_php, javascript, python
from codeloupe.analysers.lock_files.pins import Pin

_MOST_BYTES = 32 * 1024**2
_Reader = Callable[[str], Iterator[Pin]]
# The registries of a format by the name in rules.toml, and its reader.
_FORMATS: dict[str, tuple[str, _Reader]] = {
    "package-lock.json": ("npm", javascript.read_npm),
    "npm-shrinkwrap.json": ("npm", javascript.read_npm),
    "yarn.lock": ("npm", javascript.read_yarn),
    "pnpm-lock.yaml": ("npm", javascript.read_pnpm),
    "poetry.lock": ("python", python.read_toml_lock),
    "uv.lock": ("python", python.read_toml_lock),
    "pdm.lock": ("python", python.read_toml_lock),
    "pipfile.lock": ("python", python.read_pipfile),
    "cargo.lock": ("rust", go_rust_ruby_php.read_cargo),
    "gemfile.lock": ("ruby", go_rust_ruby_php.read_gems),
    "go.sum": ("go", go_rust_ruby_php.read_go),
    "go.work.sum": ("go", go_rust_ruby_php.read_go),
    "composer.lock": ("php", go_rust_ruby_php.read_composer),
}
_REQUIREMENTS: tuple[str, _Reader] = ("python", python.read_requirements)


def read_pins(name: str, content: bytes) -> tuple[Pin, ...]:
    """Return the pins of a lock file with this base name. Raises ValueError if it cannot be read for certain."""
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES:,} bytes")
    _, reader = _format(name)
    try:
        return tuple(dict.fromkeys(reader(content.decode("utf-8"))))
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it does not have the format of such a file ({type(error).__name__}: {error})") from error


def registries_of(name: str) -> str:
    """Return the name of the registries that packages of a lock file come from by default. Raises ValueError."""
    return _format(name)[0]


def _format(name: str) -> tuple[str, _Reader]:
    lowered = name.lower()
    if lowered.endswith(".txt"):
        return _REQUIREMENTS
    if lowered not in _FORMATS:
        raise ValueError("its format is not known")
    return _FORMATS[lowered]
