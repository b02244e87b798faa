"""Secrets out of everything that a call sends, returns, raises or tells."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from msgspec.structs import fields, replace

from codeloupe.errors import CodeloupeError
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.redaction import redact

# Fields of events that we name ourselves: masking costs, and there are many events.
_NAMES = frozenset({"agent", "from_agent", "to_agent", "model", "kind"})


def masked_request(request: AgentRequest) -> tuple[AgentRequest, tuple[str, ...]]:
    """The request without secrets in its texts, and a note that says where some were."""
    values = {name: getattr(request, name) for name in ("prompt", "system_prompt", "append_system_prompt")}
    changed = _changed({**values, "context": dict(request.context)})
    if not changed:
        return request, ()
    return replace(request, **changed), (f"secrets were masked in the {' and the '.join(changed)} before it was sent",)


def masked_result(result: AgentResult) -> AgentResult:
    """The result without secrets in its texts, and with half characters replaced: they cannot be written anywhere."""
    texts = ("output", "raw_output", "structured", "permission_denials", "error", "notes")
    return replace(result, **_changed({name: getattr(result, name) for name in texts}))


def masked_sink(emit: AgentEventSink) -> AgentEventSink:
    """A sink that masks the texts of an event before it is passed on."""

    def masking(event: AgentEvent) -> None:
        texts = {field.name: getattr(event, field.name) for field in fields(event) if field.name not in _NAMES}
        changed: dict[str, Any] = _changed(texts)
        emit(replace(event, **changed) if changed else event)

    return masking


def mask_error(error: CodeloupeError) -> None:
    """Take secrets out of the texts of an error and of all that led to it, in place."""
    family: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        failure = left.pop()
        if failure is not None and id(failure) not in family:
            family[id(failure)] = failure
            left += [failure.__cause__, failure.__context__]
    for failure in family.values():
        texts = {name: value for name, value in vars(failure).items() if isinstance(value, str) or name == "__notes__"}
        vars(failure).update(_changed(texts))
        failure.args = tuple(redact(part) if isinstance(part, str) else part for part in failure.args)
    for failure in family.values():
        for name in ("__cause__", "__context__"):
            earlier = getattr(failure, name)
            if earlier is not None and (shown := _presentable(earlier)) is not earlier:
                setattr(failure, name, shown)


def _presentable(error: BaseException) -> BaseException:
    """The error itself, or a plain one in its place when its text is made from what could not be masked."""
    try:
        text = f"{error} {error!r}"
    except Exception as unshowable:  # noqa: BLE001 - a vendor's error may fail at anything when it is shown
        text = f"it cannot be shown ({type(unshowable).__name__})"
    masked = redact(text)
    if masked == text:
        return error
    return CodeloupeError(f"{type(error).__name__}: {masked}").with_traceback(error.__traceback__)


def _changed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in which something was masked, by name. Texts in lists, tuples and objects are looked at too.

    All texts go through one pass: looking up our own secrets costs more than masking a short text.
    """
    texts: dict[str, None] = {}
    left = list(values.values())
    while left:
        item = left.pop()
        if isinstance(item, str) and item:
            texts[item] = None
        elif isinstance(item, dict):
            left += [*item.keys(), *item.values()]
        elif type(item) in (list, tuple):
            left += item
    # Nothing that is masked can reach over a NUL, and no text can hold what was drawn a moment ago.
    border = f"\n\0{secrets.token_hex(8)}\0\n"
    masked = redact(border.join(map(_whole, texts))).split(border) if texts else []
    masks = {text: mask for text, mask in zip(texts, masked, strict=True) if mask != text}
    if not masks:
        return {}
    return {name: new for name, value in values.items() if (new := _replaced(value, masks)) != value}


def _replaced(value: Any, masks: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return masks.get(value, value)
    if isinstance(value, dict):
        return {_replaced(name, masks): _replaced(item, masks) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(item, masks) for item in value)
    return value


def _whole(text: str) -> str:
    """The text with halves of characters joined or replaced."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
