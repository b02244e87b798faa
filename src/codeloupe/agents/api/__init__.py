"""Models behind a vendor's API."""
