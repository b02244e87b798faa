"""The base of all events: each has a `kind`, which its JSON begins with."""

from __future__ import annotations

import re

from msgspec import Struct


def _kind_of(class_name: str) -> str:
    """Return the kind of an event: `unit_finished` for `UnitFinished`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


class EventBase(Struct, frozen=True, tag_field="kind", tag=_kind_of):
    """Something that happened. `kind` is the name of its class in snake case, such as `unit_finished`."""

    @property
    def kind(self) -> str:
        """The kind of the event, as in its JSON."""
        return str(self.__struct_config__.tag)
