"""Pipelines put together: from a file to a run, with agents, workspaces, gates and the store of runs."""
