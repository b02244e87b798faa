"""From claims to a verdict: same defect, rounds, suppressions, severity."""
