"""The GitHub server of the tests against GitHub's published description; its answers are checked as it gives them."""

from pathlib import Path

from graphql import parse, validate

from codeloupe.forges.github import client as github_client
from tests.github_server_description import answer_problems, description
from tests.github_server_graph import schema
from tests.github_server_rest import HANDLERS


def test_a_wrong_answer_of_ours_is_found_and_every_route_is_one_of_githubs() -> None:
    route = ("PATCH", "/repos/{owner}/{repo}/issues/comments/{comment_id}")
    assert list(answer_problems(*route, 200, {"id": 1, "body": "x"})) == []
    for wrong in ({"id": "1"}, {"made_up": 1}, {"user": 5}, {"author_association": "nobody"}, None):
        assert list(answer_problems(*route, 200, wrong)), wrong
    for method, template in HANDLERS:
        assert description()["paths"][template][method.lower()]["responses"]


def test_what_publishing_asks_of_graphql_is_valid() -> None:
    text = Path(github_client.__file__).with_name("queries.graphql").read_text(encoding="utf-8")
    assert validate(schema(), parse(text)) == []
