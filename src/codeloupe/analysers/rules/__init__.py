"""codeloupe's own rules for ast-grep: data, one folder a language, and `pack`, which reads it. Starts nothing."""
