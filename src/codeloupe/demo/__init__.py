"""A small real repository with a faulty change in it, for a first look and for pictures."""
