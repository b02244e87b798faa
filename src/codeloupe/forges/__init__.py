"""A review on a pull request: what to post, change and resolve, and the client that does it. GitHub first."""
