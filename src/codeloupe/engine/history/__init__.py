"""History for the app and the command line: names a repository, keeps reviews, finds them again, judges them anew."""
