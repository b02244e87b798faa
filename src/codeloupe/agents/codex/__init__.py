"""Codex, by its command line."""
