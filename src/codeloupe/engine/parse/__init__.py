"""JSON and findings out of whatever a model says: linear, capped, safe on hostile text; it never invents anything."""
