"""The file of known findings: read from any revision, added to, pruned. It does not judge a review."""
