"""Fuzzing guided by coverage: mutated inputs look for what breaks the readers of hostile text, and the reports."""
