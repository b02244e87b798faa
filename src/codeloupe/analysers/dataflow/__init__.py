"""Data flow in Python code: from what a request holds to where it does harm, within one module."""
