"""Gemini, by its command line."""
