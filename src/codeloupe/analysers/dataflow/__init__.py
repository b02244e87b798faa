"""Data flow in Python code: from a source of outside data to a sink in which it does harm, within one module."""
