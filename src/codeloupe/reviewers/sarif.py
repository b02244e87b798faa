"""SARIF 2.1.0, as an external reviewer prints it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from msgspec import Meta, Struct
from msgspec.structs import replace

from codeloupe.reviewers.answers import RawClaim, ReviewAnswer, read_item, read_list, shown
from codeloupe.system.json_values import read_parts

# -1 stands for none.
_Index = Annotated[int, Meta(ge=-1)]
_Item = TypeVar("_Item")
# The levels, the worst first.
_SEVERITIES = {"error": "high", "warning": "medium", "note": "low", "none": "low"}
_HARMLESS_LEVELS = ("warning", "note", "none")
# A run may have these parts in other files, which we do not read.
_PARTS_READ = ("results", "invocations", "driver", "extensions", "conversion")
# Results of these kinds do not report a defect.
_CLEAN_KINDS = ("pass", "notApplicable", "informational")


class _Message(Struct, frozen=True):
    text: str = ""
    markdown: str = ""


class _Configuration(Struct, frozen=True):
    level: str = ""


class _Descriptor(Struct, frozen=True, eq=False, rename="camel"):
    """A rule, or a kind of notification. Two of them may look the same and be in two components."""

    id: str = ""
    guid: str = ""
    default_configuration: _Configuration = _Configuration()


# Stands for one that is named although no component describes it.
_NOT_DESCRIBED = _Descriptor()
# The levels of overrides, by descriptor or by the id of one that is not described.
_Overrides = dict[_Descriptor | str, str]


class _ToolComponent(Struct, frozen=True):
    guid: str = ""
    rules: tuple[_Descriptor, ...] = ()
    notifications: tuple[_Descriptor, ...] = ()


class _Tool(Struct, frozen=True):
    driver: _ToolComponent = _ToolComponent()
    extensions: tuple[_ToolComponent, ...] = ()


class _ComponentReference(Struct, frozen=True):
    index: _Index = -1
    guid: str = ""


class _DescriptorReference(Struct, frozen=True, rename="camel"):
    id: str = ""
    index: _Index = -1
    guid: str = ""
    tool_component: _ComponentReference = _ComponentReference()


class _Override(Struct, frozen=True):
    descriptor: _DescriptorReference = _DescriptorReference()
    configuration: _Configuration = _Configuration()


class _Notification(Struct, frozen=True):
    level: str = ""
    descriptor: _DescriptorReference = _DescriptorReference()
    message: _Message = _Message()


class _Invocation(Struct, frozen=True, rename="camel"):
    execution_successful: bool | None = None
    tool_execution_notifications: tuple[_Notification, ...] = ()
    tool_configuration_notifications: tuple[_Notification, ...] = ()
    rule_configuration_overrides: tuple[_Override, ...] = ()
    notification_configuration_overrides: tuple[_Override, ...] = ()


class _Conversion(Struct, frozen=True):
    """How another program made the document from the output of the tool."""

    tool: _Tool = _Tool()
    invocation: _Invocation | None = None


class _SarifRun(Struct, frozen=True, rename="camel"):
    tool: _Tool = _Tool()
    invocations: tuple[_Invocation, ...] = ()
    conversion: _Conversion = _Conversion()
    external_property_file_references: dict[str, Any] = {}
    # Each is read as a `_SarifResult` of its own, so that one invalid result does not hide the others.
    results: list[Any] | None = None


class _SarifLog(Struct, frozen=True):
    runs: tuple[_SarifRun, ...] = ()


class _Snippet(Struct, frozen=True):
    text: str = ""


class _Region(Struct, frozen=True, rename="camel"):
    start_line: int | None = None
    end_line: int | None = None
    snippet: _Snippet = _Snippet()


class _ArtifactLocation(Struct, frozen=True):
    uri: str = ""


class _PhysicalLocation(Struct, frozen=True, rename="camel"):
    artifact_location: _ArtifactLocation = _ArtifactLocation()
    region: _Region = _Region()


class _Location(Struct, frozen=True, rename="camel"):
    physical_location: _PhysicalLocation = _PhysicalLocation()


class _Suppression(Struct, frozen=True):
    status: str = "accepted"


class _Provenance(Struct, frozen=True, rename="camel"):
    invocation_index: _Index = -1


class _SarifResult(Struct, frozen=True, rename="camel"):
    rule_id: str = ""
    rule_index: _Index = -1
    rule: _DescriptorReference = _DescriptorReference()
    provenance: _Provenance = _Provenance()
    level: str = ""
    kind: str = ""
    baseline_state: str = ""
    message: _Message = _Message()
    locations: tuple[_Location, ...] = ()
    suppressions: tuple[_Suppression, ...] = ()


def read_sarif(document: Any, *, trusted: bool) -> ReviewAnswer:
    """Return the results of all runs that report a defect and are neither suppressed nor gone."""
    log = read_parts(document, _SarifLog)
    if not log.runs:
        raise ValueError("missing field: runs")
    problem = ""
    results: list[tuple[_Levels, Any]] = []
    for run in log.runs:
        rules = _rules_of(run)
        problem = problem or _sarif_problem(run) or rules.problem
        results.extend((rules, result) for result in run.results or ())

    def read(rules_and_result: tuple[_Levels, Any]) -> RawClaim | None:
        rules, value = rules_and_result
        result = read_parts(value, _SarifResult)
        if not _reports_defect(result, trusted=trusted):
            return None
        return _claim_of_result(result, rules)

    return read_list(results, read, problem)


def _sarif_problem(run: _SarifRun) -> str:
    """Return the failure that a run reports, or an empty text."""
    if run.results is None:
        return "missing field: results"
    for name in _PARTS_READ:
        if name in run.external_property_file_references:
            return f"a part of it is in another file: {name}"
    problem = _problem_of_invocations(run.invocations, run.tool)
    conversion = run.conversion
    if not problem and conversion.invocation is not None:
        problem = _problem_of_invocations([conversion.invocation], conversion.tool)
    return problem


def _problem_of_invocations(invocations: Sequence[_Invocation], tool: _Tool) -> str:
    """Return why a run of a tool failed. It succeeded only if each invocation says so and reports no error."""
    kinds = _Levels(
        "kind of notification",
        driver=_Component(tool.driver.guid, tool.driver.notifications),
        extensions=[_Component(one.guid, one.notifications) for one in tool.extensions],
        overrides=[invocation.notification_configuration_overrides for invocation in invocations],
    )
    for invocation in invocations:
        if invocation.execution_successful is None:
            return "the tool does not say whether it succeeded"
        if not invocation.execution_successful:
            return "the tool says that it failed"
        notifications = (*invocation.tool_execution_notifications, *invocation.tool_configuration_notifications)
        for notification in notifications:
            try:
                level = notification.level or kinds.level(notification.descriptor)
            except ValueError as error:
                return f"invalid notification: {error}"
            if level not in _HARMLESS_LEVELS:
                return f"the tool reports an error: {shown(notification.message.text)}"
    return kinds.problem


def _reports_defect(result: _SarifResult, *, trusted: bool) -> bool:
    if result.kind in _CLEAN_KINDS or result.baseline_state == "absent":
        return False
    if not trusted or not result.suppressions:
        return True
    return any(suppression.status != "accepted" for suppression in result.suppressions)


def _claim_of_result(result: _SarifResult, rules: _Levels) -> RawClaim:
    """Return the claim of a result. Raise ValueError if it is invalid."""
    reference = _rule_reference(result)
    rule = rules.find(reference)
    level = result.level or rules.level(reference, result.provenance.invocation_index)
    location = _PhysicalLocation()
    if result.locations:
        location = result.locations[0].physical_location
    uri = location.artifact_location.uri
    claim = read_item(
        {
            "body": result.message.text or result.message.markdown,
            "severity": _severity(level),
            "file": unquote(uri.removeprefix("file://"), errors="surrogateescape"),
            "line_start": location.region.start_line,
            "line_end": location.region.end_line,
            "quote": location.region.snippet.text,
        }
    )
    return replace(claim, rule=reference.id or rule.id or None)


def _rule_reference(result: _SarifResult) -> _DescriptorReference:
    """Return how a result names its rule. Raise ValueError if it names two."""
    rule = result.rule
    if rule.id and result.rule_id not in ("", rule.id):
        raise ValueError(f"it names two rules: {shown(result.rule_id)} and {shown(rule.id)}")
    if rule.index >= 0 and result.rule_index not in (-1, rule.index):
        raise ValueError(f"it names two rules: {result.rule_index} and {rule.index}")
    return replace(rule, id=result.rule_id or rule.id, index=max(result.rule_index, rule.index))


def _rules_of(run: _SarifRun) -> _Levels:
    tool = run.tool
    return _Levels(
        "rule",
        driver=_Component(tool.driver.guid, tool.driver.rules),
        extensions=[_Component(one.guid, one.rules) for one in tool.extensions],
        overrides=[invocation.rule_configuration_overrides for invocation in run.invocations],
    )


# The levels of rules and of notifications.


def _severity(level: str) -> str:
    if level not in _SEVERITIES:
        raise ValueError(f"invalid severity: {shown(level)}")
    return _SEVERITIES[level]


def _worst(*levels: str) -> str:
    """Return the worst of some levels. Raise ValueError if one of them is not a level."""
    for level in levels:
        _severity(level)
    return min(levels, key=list(_SEVERITIES).index)


def _possible_ids(stated: str) -> list[str]:
    """Return the ids that a descriptor may have: the stated one, or the one above it, such as CA1000 for CA1000/1."""
    parent = stated.rpartition("/")[0]
    return [name for name in (stated, parent) if name]


def _item(items: Sequence[_Item], index: int, what: str) -> _Item:
    if index >= len(items):
        raise ValueError(f"it names the {what} {index}, which the document does not have")
    return items[index]


class _Component:
    """The descriptors of one component of a tool. If two have the same name, the first counts."""

    def __init__(self, guid: str, descriptors: Sequence[_Descriptor]) -> None:
        self.guid = guid
        self.descriptors = descriptors
        self.by_guid = {descriptor.guid: descriptor for descriptor in reversed(descriptors)}
        self.by_id = {descriptor.id: descriptor for descriptor in reversed(descriptors)}


class _Levels:
    """The levels of a tool's rules, or of its kinds of notifications, as SARIF defines them in section 3.27.10.

    `what` names such a descriptor. `overrides` are those of each invocation, and `problem` describes an invalid one.
    """

    def __init__(
        self,
        what: str,
        *,
        driver: _Component,
        extensions: Sequence[_Component],
        overrides: Iterable[Iterable[_Override]],
    ) -> None:
        self._what = what
        self._driver = driver
        self._extensions = extensions
        self._by_guid: dict[str, _Component] = {}
        self._by_id: dict[str, _Descriptor] = {}
        for component in (driver, *extensions):
            self._by_guid.setdefault(component.guid, component)
            for name, descriptor in component.by_id.items():
                self._by_id.setdefault(name, descriptor)
        self.problem = ""
        self._overrides: list[_Overrides] = []
        self._all_overrides: _Overrides = {}
        for some in overrides:
            levels = self._read_overrides(some)
            self._overrides.append(levels)
            for key, level in levels.items():
                self._all_overrides[key] = _worst(level, self._all_overrides.get(key, level))

    def find(self, reference: _DescriptorReference) -> _Descriptor:
        """Return the descriptor that a reference names, or an empty one if its id is not described.

        An index decides before a guid, and a guid before an id. Raise ValueError if the tool does not have the index,
        the guid or the component, or if the descriptor there has another id.
        """
        component = self._component(reference.tool_component)
        if reference.index >= 0:
            found = _item(component.descriptors, reference.index, self._what)
        elif not reference.guid:
            return self._with_id(reference.id, component)
        elif reference.guid in component.by_guid:
            found = component.by_guid[reference.guid]
        else:
            raise ValueError(f"it names the {self._what} {shown(reference.guid)}, which the document does not have")
        if reference.id and found.id not in _possible_ids(reference.id):
            raise ValueError(f"it names two {self._what}s: {shown(reference.id)} and {shown(found.id)}")
        return found

    def level(self, reference: _DescriptorReference, invocation_index: int = -1) -> str:
        """Return the level of what a reference describes if it does not state one. Raise ValueError as `find` does.

        An override of the named invocation decides. If no invocation is named, the worst of the descriptor's own level
        and all overrides counts.
        """
        descriptor = self.find(reference)
        own_level = descriptor.default_configuration.level or "warning"
        overrides = self._all_overrides
        if invocation_index >= 0:
            overrides = _item(self._overrides, invocation_index, "invocation")
        keys = [key for key in (descriptor, *_possible_ids(reference.id)) if key in overrides]
        if not keys:
            return own_level
        if invocation_index >= 0:
            return overrides[keys[0]]
        return _worst(own_level, overrides[keys[0]])

    def _component(self, reference: _ComponentReference) -> _Component:
        if reference.index >= 0:
            return _item(self._extensions, reference.index, "tool component")
        if not reference.guid:
            return self._driver
        if reference.guid not in self._by_guid:
            raise ValueError(f"it names the tool component {shown(reference.guid)}, which the document does not have")
        return self._by_guid[reference.guid]

    def _with_id(self, stated: str, component: _Component) -> _Descriptor:
        """Return the descriptor of an id, in the component or else in another one."""
        for name in _possible_ids(stated):
            descriptor = component.by_id.get(name) or self._by_id.get(name)
            if descriptor is not None:
                return descriptor
        return _NOT_DESCRIBED

    def _read_overrides(self, overrides: Iterable[_Override]) -> _Overrides:
        """Return the worst level that the overrides give each descriptor."""
        levels: _Overrides = {}
        for override in overrides:
            level = override.configuration.level
            if not level:
                continue
            try:
                descriptor = self.find(override.descriptor)
                key = override.descriptor.id if descriptor is _NOT_DESCRIBED else descriptor
                levels[key] = _worst(level, levels.get(key, level))
            except ValueError as error:
                self.problem = f"invalid override: {error}"
        return levels
