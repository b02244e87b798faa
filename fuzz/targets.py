"""What can be fuzzed, by name."""

from __future__ import annotations

from fuzz import configuration_target, diff_target, extraction_target, report_target, sanitiser_target
from fuzz.target import Target

TARGETS: dict[str, Target] = {
    each.TARGET.name: each.TARGET
    for each in (extraction_target, diff_target, configuration_target, report_target, sanitiser_target)
}
