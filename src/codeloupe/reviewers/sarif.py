"""SARIF 2.1.0, as an external reviewer prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from msgspec import Meta, Struct
from msgspec.structs import replace

from codeloupe.reviewers.answers import RawClaim, ReviewAnswer, read_item, shown
from codeloupe.reviewers.documents import read_list, read_parts

# -1 stands for none.
_Index = Annotated[int, Meta(ge=-1)]
_Item = TypeVar("_Item")
# The levels, the worst first.
_SEVERITIES = {"error": "high", "warning": "medium", "note": "low", "none": "low"}
# Results of these kinds do not report a defect.
_CLEAN_KINDS = ("pass", "notApplicable", "informational")


class _Message(Struct, frozen=True):
    text: str = ""
    markdown: str = ""


class _Configuration(Struct, frozen=True):
    level: str = ""


class _Descriptor(Struct, frozen=True, eq=False, rename="camel"):
    """A rule. Two of them may look the same and be in two components."""

    id: str = ""
    guid: str = ""
    default_configuration: _Configuration = _Configuration()


# A rule that results name although no component describes it.
_NOT_DESCRIBED = _Descriptor()
# The levels of an invocation's overrides, by rule or by the id of a rule that is not described.
_Overrides = dict[_Descriptor | str, str]


class _ToolComponent(Struct, frozen=True):
    guid: str = ""
    rules: tuple[_Descriptor, ...] = ()


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
    message: _Message = _Message()


class _Invocation(Struct, frozen=True, rename="camel"):
    execution_successful: bool = True
    tool_execution_notifications: tuple[_Notification, ...] = ()
    tool_configuration_notifications: tuple[_Notification, ...] = ()
    rule_configuration_overrides: tuple[_Override, ...] = ()


class _SarifRun(Struct, frozen=True):
    tool: _Tool = _Tool()
    invocations: tuple[_Invocation, ...] = ()
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
    results: list[tuple[_Rules, Any]] = []
    for run in log.runs:
        rules = _Rules(run)
        problem = problem or _sarif_problem(run) or rules.problem
        results.extend((rules, result) for result in run.results or ())

    def read(rules_and_result: tuple[_Rules, Any]) -> RawClaim | None:
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
    for invocation in run.invocations:
        if not invocation.execution_successful:
            return "the tool says that it failed"
        notifications = (*invocation.tool_execution_notifications, *invocation.tool_configuration_notifications)
        for notification in notifications:
            if notification.level == "error":
                return f"the tool reports an error: {shown(notification.message.text)}"
    return ""


def _reports_defect(result: _SarifResult, *, trusted: bool) -> bool:
    if result.kind in _CLEAN_KINDS or result.baseline_state == "absent":
        return False
    if not trusted or not result.suppressions:
        return True
    return any(suppression.status != "accepted" for suppression in result.suppressions)


def _claim_of_result(result: _SarifResult, rules: _Rules) -> RawClaim:
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


# The rule of a result, and its level.


def _rule_reference(result: _SarifResult) -> _DescriptorReference:
    """Return how a result names its rule. Raise ValueError if it names two."""
    rule = result.rule
    if rule.id and result.rule_id not in ("", rule.id):
        raise ValueError(f"it names two rules: {shown(result.rule_id)} and {shown(rule.id)}")
    if rule.index >= 0 and result.rule_index not in (-1, rule.index):
        raise ValueError(f"it names two rules: {result.rule_index} and {rule.index}")
    return replace(rule, id=result.rule_id or rule.id, index=max(result.rule_index, rule.index))


def _possible_ids(rule_id: str) -> list[str]:
    """Return the ids that the rule may have: the stated one, or the one above it, such as CA1000 for CA1000/1."""
    parent = rule_id.rpartition("/")[0]
    return [name for name in (rule_id, parent) if name]


def _item(items: Sequence[_Item], index: int, what: str) -> _Item:
    if index >= len(items):
        raise ValueError(f"it names the {what} {index}, which the document does not have")
    return items[index]


class _Descriptors:
    """The descriptors of one component of a tool."""

    def __init__(self, component: _ToolComponent) -> None:
        self.guid = component.guid
        self._all = component.rules
        self._by_guid = {descriptor.guid: descriptor for descriptor in reversed(self._all)}
        self.by_id = {descriptor.id: descriptor for descriptor in reversed(self._all)}

    def at_index(self, index: int) -> _Descriptor:
        return _item(self._all, index, "rule")

    def with_guid(self, guid: str) -> _Descriptor:
        if guid not in self._by_guid:
            raise ValueError(f"it names the rule {shown(guid)}, which the document does not have")
        return self._by_guid[guid]


class _Rules:
    """The rules of a run, and the levels of the results that do not state one."""

    def __init__(self, run: _SarifRun) -> None:
        self._driver = _Descriptors(run.tool.driver)
        self._extensions = [_Descriptors(component) for component in run.tool.extensions]
        self._by_guid: dict[str, _Descriptors] = {}
        self._by_id: dict[str, _Descriptor] = {}
        # If two have the same name, the driver and then the first extension count.
        for component in (self._driver, *self._extensions):
            self._by_guid.setdefault(component.guid, component)
            for name, rule in component.by_id.items():
                self._by_id.setdefault(name, rule)
        self.problem = ""
        self._overrides = [self._overrides_of(invocation) for invocation in run.invocations]

    def find(self, reference: _DescriptorReference) -> _Descriptor:
        """Return the rule that a reference names, or an empty one if the tool does not describe a rule of that id.

        An index decides before a guid, and a guid before an id. Raise ValueError if the tool does not have the index,
        the guid or the component, or if the rule there has another id.
        """
        component = self._component(reference.tool_component)
        if reference.index >= 0:
            found = component.at_index(reference.index)
        elif reference.guid:
            found = component.with_guid(reference.guid)
        else:
            return self._with_id(reference.id, component)
        if reference.id and found.id not in _possible_ids(reference.id):
            raise ValueError(f"it names two rules: {shown(reference.id)} and {shown(found.id)}")
        return found

    def level(self, reference: _DescriptorReference, invocation_index: int) -> str:
        """Return the level of a result of the rule that a reference names. Raise ValueError if there is none.

        An override of the invocation that the result names decides. If the result does not name its invocation, the
        worst of the rule's own level and all overrides counts.
        """
        rule = self.find(reference)
        own_level = rule.default_configuration.level or "warning"
        if invocation_index >= 0:
            overrides = _item(self._overrides, invocation_index, "invocation")
            return _overriding_level(overrides, rule, reference.id) or own_level
        levels = [own_level]
        for overrides in self._overrides:
            level = _overriding_level(overrides, rule, reference.id)
            if level:
                levels.append(level)
        return min(levels, key=_rank)

    def _component(self, reference: _ComponentReference) -> _Descriptors:
        if reference.index >= 0:
            return _item(self._extensions, reference.index, "tool component")
        if not reference.guid:
            return self._driver
        if reference.guid not in self._by_guid:
            raise ValueError(f"it names the tool component {shown(reference.guid)}, which the document does not have")
        return self._by_guid[reference.guid]

    def _with_id(self, rule_id: str, component: _Descriptors) -> _Descriptor:
        """Return the rule of an id, in the component or else in another one."""
        for name in _possible_ids(rule_id):
            rule = component.by_id.get(name) or self._by_id.get(name)
            if rule is not None:
                return rule
        return _NOT_DESCRIBED

    def _overrides_of(self, invocation: _Invocation) -> _Overrides:
        """Return the worst overriding level of each rule. Rules that are not described are named by their ids."""
        levels: _Overrides = {}
        for override in invocation.rule_configuration_overrides:
            level = override.configuration.level
            if not level:
                continue
            try:
                rule = self.find(override.descriptor)
                key = override.descriptor.id if rule is _NOT_DESCRIBED else rule
                levels[key] = min(level, levels.get(key, level), key=_rank)
            except ValueError as error:
                self.problem = f"invalid override: {error}"
        return levels


def _overriding_level(overrides: _Overrides, rule: _Descriptor, rule_id: str) -> str:
    for key in (rule, *_possible_ids(rule_id)):
        if key in overrides:
            return overrides[key]
    return ""


def _severity(level: str) -> str:
    if level not in _SEVERITIES:
        raise ValueError(f"invalid severity: {shown(level)}")
    return _SEVERITIES[level]


def _rank(level: str) -> int:
    """Return the place of a level among all levels, the worst first. Raise ValueError if it is not one."""
    _severity(level)
    return list(_SEVERITIES).index(level)
