"""All data of the model is frozen, without a dictionary, and hashable."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

import codeloupe.model

MODULES = [
    importlib.import_module(f"codeloupe.model.{module.name}")
    for module in pkgutil.iter_modules(codeloupe.model.__path__)
]
CLASSES = [
    kind
    for module in MODULES
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if kind.__module__ == module.__name__ and dataclasses.is_dataclass(kind)
]


def test_there_is_data_to_look_at() -> None:
    assert len(CLASSES) > 15


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.requirement("S1")
def test_a_class_of_the_model_is_frozen_and_has_slots(kind: type) -> None:
    parameters = kind.__dataclass_params__  # type: ignore[attr-defined]  # every class here is a dataclass
    assert parameters.frozen
    assert "__slots__" in vars(kind)
    assert kind.__hash__ is not None
