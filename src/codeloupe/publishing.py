"""Publishing put together: a saved review, the pull request, and the client of the forge."""
