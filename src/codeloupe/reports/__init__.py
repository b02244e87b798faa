"""From a review to text: one file a format, pure. Nothing untrusted passes without its sink's sanitiser."""
