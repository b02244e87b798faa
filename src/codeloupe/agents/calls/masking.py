"""Secrets out of everything that a call sends, returns, raises or tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import fields, replace

from codeloupe.errors import CodeloupeError
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.redaction import redact

# Fields of events that we name ourselves: masking costs, and there are many events.
_NAMES = frozenset({"agent", "from_agent", "to_agent", "model", "error"})


def masked_request(request: AgentRequest) -> tuple[AgentRequest, tuple[str, ...]]:
    """The request without secrets in its texts, and a note that says where some were."""
    values = {name: getattr(request, name) for name in ("prompt", "system_prompt", "append_system_prompt")}
    changed = _changed({**values, "context": dict(request.context)})
    if not changed:
        return request, ()
    return replace(request, **changed), (f"secrets were masked in the {' and the '.join(changed)} before it was sent",)


def masked_result(result: AgentResult) -> AgentResult:
    """The result without secrets in its texts, and with half characters replaced: they cannot be written anywhere."""
    texts = (
        "output", "other_answers", "inexact", "raw_output", "structured", "permission_denials", "error", "notes"
    )  # fmt: skip
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
    family: list[BaseException] = [error]
    for failure in family:
        causes = (failure.__cause__, failure.__context__)
        family += [cause for cause in causes if cause is not None and all(cause is not one for one in family)]
    for failure in family:
        names = [name for name, value in vars(failure).items() if isinstance(value, str)]
        texts = {name: vars(failure)[name] for name in (*names, "__notes__", "other_answers") if name in vars(failure)}
        vars(failure).update(_changed(texts))
        failure.args = tuple(redact(part) if isinstance(part, str) else part for part in failure.args)
    for failure in family:
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
    """The values in which something was masked, by name. Texts in lists, tuples and objects are looked at too."""
    known: dict[str, str] = {}

    def masked(value: Any) -> Any:
        if isinstance(value, str):
            if value not in known:
                # Halves of characters are joined or replaced.
                whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
                known[value] = redact(whole) if whole else ""
            return known[value]
        if isinstance(value, dict):
            return {masked(name): masked(item) for name, item in value.items()}
        return type(value)(map(masked, value)) if type(value) in (list, tuple) else value

    return {name: new for name, value in values.items() if (new := masked(value)) != value}
