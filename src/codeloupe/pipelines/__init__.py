"""Pipelines of agent stages: definition, engine, stages, gates, artifacts, recovery. `run` puts them together."""
