"""The command line: one file a verb. Parse, call the app, render, return an exit code; no decisions of its own."""
