"""Stages, gates, artifacts, recovery and the state of runs. Decides; every file and call goes through a port."""
