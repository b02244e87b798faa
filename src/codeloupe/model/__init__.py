"""Frozen data that every room speaks: change, finding, review, usage, events. No I/O, no imports from other rooms."""
