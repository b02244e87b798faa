"""One frozen settings object that knows where each value came from. It reads files and variables, and writes none."""
