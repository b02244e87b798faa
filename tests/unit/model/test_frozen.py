"""No caller can change public data, and it can still be copied, pickled, hashed and encoded."""

import copy
import importlib
import inspect
import json
import pickle
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from msgspec import Struct

import codeloupe
from codeloupe import AgentRequest, RunOptions, Settings, StageRequest
from codeloupe.model.frozen import FrozenDict, FrozenStruct, frozen
from tests.rows import each

CHANGES: tuple[Callable[[Any], object], ...] = (
    lambda mapping: mapping.__setitem__("key", "other"),
    lambda mapping: mapping.__delitem__("key"),
    lambda mapping: mapping.__ior__({"more": "text"}),
    lambda mapping: mapping.clear(),
    lambda mapping: mapping.pop("key"),
    lambda mapping: mapping.popitem(),
    lambda mapping: mapping.setdefault("more", "text"),
    lambda mapping: mapping.update(more="text"),
)


@each("change", CHANGES)
def test_nothing_changes_a_frozen_mapping(change: Callable[[Any], object]) -> None:
    mapping = FrozenDict({"key": "value"})
    with pytest.raises(TypeError, match="cannot be changed"):
        change(mapping)
    assert mapping == {"key": "value"}


def test_a_frozen_mapping_is_copied_pickled_hashed_and_encoded_like_a_dict() -> None:
    given = {"key": {"list": [1, {"deep": "text"}]}}
    mapping = frozen(given)
    assert mapping == given
    assert isinstance(mapping["key"]["list"][1], FrozenDict)
    for made in (copy.copy(mapping), copy.deepcopy(mapping), pickle.loads(pickle.dumps(mapping))):
        assert (made, type(made)) == (mapping, FrozenDict)
    assert hash(FrozenDict({"a": FrozenDict({"b": 1})})) == hash(frozen({"a": {"b": 1}}))
    assert json.loads(json.dumps(mapping)) == json.loads(msgspec.json.encode(mapping)) == given


@pytest.mark.requirement("S1")
@pytest.mark.defect("E26")
def test_a_stage_request_is_public_and_cannot_be_changed() -> None:
    context, answers = {"topic": "rivers"}, {"outline": "three parts"}
    request = StageRequest(stage="write", step_file=Path("step.md"), elicitation_context=context, prior_answers=answers)
    context["topic"] = answers["outline"] = "changed"
    assert (request.elicitation_context["topic"], request.prior_answers["outline"]) == ("rivers", "three parts")
    for mapping in (request.elicitation_context, request.prior_answers):
        with pytest.raises(TypeError, match="cannot be changed"):
            mapping["more"] = "text"  # type: ignore[index]  # a type checker sees it too
    with pytest.raises(AttributeError, match="immutable"):
        request.stage = "other"  # type: ignore[misc]  # a type checker sees it too
    assert pickle.loads(pickle.dumps(request)) == copy.deepcopy(request) == request
    assert hash(request) == hash(copy.deepcopy(request))


@pytest.mark.defect("E26")
def test_a_request_keeps_the_schema_that_it_was_made_with() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    request = AgentRequest(prompt="Say hello.", working_dir=Path(), output_schema=schema)
    schema["properties"]["a"]["type"] = "integer"
    schema["required"].append("b")
    assert request.output_schema is not None
    assert request.output_schema["properties"] == {"a": {"type": "string"}}
    assert request.output_schema["required"] == ["a"]


@pytest.mark.defect("E26")
def test_settings_and_options_can_be_pickled_and_hashed() -> None:
    settings = Settings(own_experts={"payments": {"focus": ["rounding"]}}, commit_experts={"bug_fix": ["tests"]})  # type: ignore[dict-item]
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert hash(settings) == hash(copy.deepcopy(settings)) != hash(Settings())
    agents: dict[str, Any] = {}
    options = RunOptions(agents=agents)
    agents["late"] = None
    assert options.agents == {}


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def _public_structs() -> Iterator[type[Struct]]:
    """Yield all data of `codeloupe.model` and all public data of `codeloupe`."""
    yield from (each for name in codeloupe.__all__ if _is_struct(each := getattr(codeloupe, name)))
    for module in _modules(importlib.import_module("codeloupe.model")):
        yield from (each for each in vars(module).values() if _is_struct(each) and each.__module__ == module.__name__)


def _is_struct(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Struct)


@pytest.mark.defect("E26")
def test_no_public_data_has_a_part_that_can_be_changed() -> None:
    wrong: list[str] = []
    for kind in _public_structs():
        assert kind.__struct_config__.frozen, kind
        for name, hint in kind.__annotations__.items():
            # What a file gives for a setting is read, and frozen, when it is set.
            if kind is not Settings and re.search(r"\b(dict|list|set)\[", hint):
                wrong.append(f"{kind.__name__}.{name}")
            if kind is not Settings and "Mapping[" in hint and not issubclass(kind, FrozenStruct):
                wrong.append(f"{kind.__name__}.{name}")
    assert wrong == []
