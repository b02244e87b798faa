"""Settings from text, without files, for the tests of this room."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from codeloupe.config.files import ConfigText
from codeloupe.config.loading import LoadedSettings, load_settings
from codeloupe.errors import ConfigError


def load(
    text: str | None = None,
    *,
    user_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> LoadedSettings:
    """Load `text` as the repository's file, with nothing from the machine."""
    return load_settings(
        repository_file=None if text is None else ConfigText("codeloupe.yaml", text),
        user_file=user_file,
        environment=environment or {},
        flags=flags or {},
    )


def refusal(text: str | None = None, **sources: Mapping[str, str]) -> ConfigError:
    """The error that loading ends with; the test fails when it does not."""
    with pytest.raises(ConfigError) as caught:
        load(text, **sources)  # type: ignore[arg-type]  # environment or flags, both mappings
    return caught.value
