"""The names of the formats, for options and their help; apart, so that to name them loads none of them."""

FORMAT_NAMES = (
    "text",
    "concise",
    "json",
    "sarif",
    "markdown",
    "html",
    "junit",
    "gitlab-codequality",
    "rdjson",
    "rdjsonl",
    "github",
)
