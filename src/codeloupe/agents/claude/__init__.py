"""Claude Code, by its command line and by the Agent SDK."""
