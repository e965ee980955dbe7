"""The Dataflow template: its metadata are the options, and the Dockerfile fits the repository."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pipelines.partition_selection import main, make_parser

ROOT = Path(__file__).parents[1]
METADATA = json.loads((ROOT / "templates" / "partition_selection.json").read_text(encoding="utf-8"))
PARAMETERS = {parameter["name"]: parameter for parameter in METADATA["parameters"]}
OPTIONS = {action.dest: action for action in make_parser()._actions if action.dest != "help"}
README = (ROOT / "templates" / "README.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)`", README, re.MULTILINE))
RUN = dict(re.findall(r"--parameters (\w+)=(\S+)", README))
DOCKERFILE = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))


def accepts(name: str, value: str) -> bool:
    """Tell whether a parameter takes a value; Dataflow requires that every pattern matches the whole of it."""
    return all(re.fullmatch(pattern, value) for pattern in PARAMETERS[name].get("regexes", []))


def test_the_parameters_are_exactly_the_options():
    assert list(PARAMETERS) == list(OPTIONS)
    assert len(PARAMETERS) == len(METADATA["parameters"])
    for name, action in OPTIONS.items():
        assert action.option_strings == [f"--{name}"]


def test_the_metadata_have_the_fields_that_dataflow_knows():
    assert set(METADATA) == {"name", "description", "parameters"}
    for name, parameter in PARAMETERS.items():
        assert {"name", "label", "helpText", "isOptional"} <= set(parameter)
        assert set(parameter) <= {"name", "label", "helpText", "isOptional", "regexes"}
        assert parameter["label"] and parameter["helpText"].endswith("."), name


def test_required_options_are_not_optional_parameters():
    for name, action in OPTIONS.items():
        assert PARAMETERS[name]["isOptional"] is not action.required


def test_patterns_take_exactly_the_choices():
    with_choices = {name: action.choices for name, action in OPTIONS.items() if action.choices}
    assert len(with_choices) == 5
    for name, choices in with_choices.items():
        (pattern,) = PARAMETERS[name]["regexes"]
        assert pattern == f"^({'|'.join(choices)})$"


def test_the_readme_has_an_example_of_every_parameter_that_is_accepted():
    assert list(EXAMPLES) == list(OPTIONS)
    for name, value in EXAMPLES.items():
        assert accepts(name, value), name
    given = make_parser().parse_args([f"--{name}={value}" for name, value in EXAMPLES.items()])
    assert (given.header, given.keep_case, given.item_column) == (True, False, 1)


def test_the_readmes_job_is_accepted():
    own = {name: value for name, value in RUN.items() if name != "sdk_container_image"}
    assert RUN["sdk_container_image"] == "$IMAGE", "a Beam option: else the workers lack the package"
    assert {name for name, action in OPTIONS.items() if action.required} < set(own)
    assert all(accepts(name, value) for name, value in own.items())
    make_parser().parse_args([f"--{name}={value}" for name, value in own.items()])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("input", ["", "pairs.tsv", "/data/pairs.tsv", "gs://", "gs://a\nb"]),
        ("output", ["", "out", "gs://bucket/out*", "gs://bucket/out[1]", "gs://bucket/out?"]),
        ("report", ["", "report.json", "gs://bucket/*.json"]),
        ("epsilon", ["", "-1", "nan", "inf", "true", "1,5", "1e", "."]),
        ("delta", ["", "0", "1", "-1e-5", "1e5", "1e-", "10%", "nan"]),
        ("max_degree", ["", "0", "-1", "1.5", "many"]),
        ("num_shards", ["", "0", "-1", "1.5"]),
        ("max_adaptive_degree", ["0", "-2", "2.5"]),
        ("seed", ["", "1.5", "x"]),
        ("budget_split", ["", "0.1;0.9", ",", "0.1,", "a,b", "0.1, 0.9"]),
        ("header", ["", "True", "yes", "1"]),
        ("tokenize", ["TRUE"]),
        ("keep_case", ["no"]),
        ("user_per", ["word", "lines"]),
        ("algorithm", ["", "best", "mad2r "]),
        ("profile", ["loose"]),
        ("input_format", ["xml", "TSV"]),
        ("output_format", ["csv"]),
    ],
)
def test_patterns_refuse_bad_values(name, values):
    assert [value for value in values if accepts(name, value)] == []


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("epsilon", ["1", "0.5", ".5", "10", "1e-1", "2.5E+0"]),
        ("delta", ["1e-5", "0.00001", ".001", "1.5e-9", "0.5"]),
        ("budget_split", ["1", "0.1,0.9", "0.1,0.2,0.7", "1e-1,9e-1"]),
    ],
)
def test_patterns_take_every_way_to_write_a_number(name, values):
    assert [value for value in values if not accepts(name, value)] == []
    for value in values:
        assert all(float(part) > 0 for part in value.split(","))


def test_flags_may_be_given_with_a_value_as_the_launcher_does(tmp_path):
    (tmp_path / "in.tsv").write_text("user\tdocument\n" + "".join(f"{user}\tA b\n" for user in range(99)))
    parameters = {
        **{"input": str(tmp_path / "in.tsv"), "output": str(tmp_path / "out"), "algorithm": "mad"},
        **{"header": "true", "tokenize": "true", "keep_case": "false", "item_column": "1"},
        **{"epsilon": "1", "delta": "1e-8", "max_degree": "10", "seed": "1"},
    }
    assert main([f"--{name}={value}" for name, value in parameters.items()]) == 0
    assert sorted((tmp_path / "out-00000-of-00001.txt").read_text().split()) == ["a", "b"]


def copies() -> dict[str, str]:
    """Return source in the repository -> place in the image of everything the Dockerfile copies."""
    places = {}
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        *sources, place = line.split()
        for source in sources:
            places[source] = place + source if place.endswith("/") else place
    return places


def test_everything_that_the_image_copies_exists_and_is_not_ignored():
    assert {"setup.py", "beam_dp", "pipelines"} <= set(copies())
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored, "nothing gets into the image unless it is listed"
    for source in copies():
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored
    for line in ignored:
        assert not line.startswith("!") or line[1:] in copies()


def test_the_image_gets_every_package_and_what_setup_reads():
    manifest = (ROOT / "setup.py").read_text(encoding="utf-8")
    packages = ast.literal_eval(re.search(r"find_packages\(include=(\[.*?\])\)", manifest)[1])
    assert {name.split(".")[0] for name in packages} <= set(copies())
    assert set(re.findall(r"with_name\(\"(.*?)\"\)", manifest)) <= set(copies())


def test_the_launchers_file_exists_and_shows_its_options(tmp_path):
    (path,) = re.findall(r"^ENV FLEX_TEMPLATE_PYTHON_PY_FILE=(\S+)$", DOCKERFILE, re.MULTILINE)
    (script,) = [
        ROOT / source / path.removeprefix(place).lstrip("/")
        for source, place in copies().items()
        if path.startswith(place + "/")
    ]
    done = subprocess.run(
        [sys.executable, str(script), "--help"],
        cwd=tmp_path,  # as in the image, the package is found because it is installed, not by the folder
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(f"--{name}" in done.stdout for name in PARAMETERS)


def requirement(name: str) -> Requirement:
    """Return a requirement that setup.py always installs."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (always,) = [
        ast.literal_eval(keyword.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "install_requires"
    ]
    (found,) = [parsed for parsed in map(Requirement, always) if parsed.name == name]
    return found


def test_the_images_versions_are_those_that_setup_allows():
    (beam_version,) = re.findall(r"^ARG BEAM_VERSION=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert requirement("apache-beam").specifier.contains(beam_version)
    ((python_version, tag),) = re.findall(
        r"^FROM apache/beam_python([\d.]+)_sdk:(\S+)$", DOCKERFILE, re.MULTILINE
    )
    assert tag == "${BEAM_VERSION}"
    assert '"apache-beam==${BEAM_VERSION}"' in DOCKERFILE
    required = re.search(r"python_requires=\"(.*?)\"", (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert SpecifierSet(required[1]).contains(python_version)
    assert f"python{python_version.replace('.', '')}-template-launcher-base" in DOCKERFILE
