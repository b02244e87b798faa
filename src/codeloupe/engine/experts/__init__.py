"""The checklists that reviewing agents get: one YAML file an expert, and the loading of what users add."""
