"""Reviewers that are other programs. What they print is read like any model's answer, and believed as little."""
