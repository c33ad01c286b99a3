"""`bytescheduler docs` and `examples`: what an installation shows of its pages and examples."""

import json
import pathlib
import re

import pytest
from click.testing import Result
from click_runner import Runner

from bytescheduler import cli
from bytescheduler.commands import pages


def invoke(*arguments: str) -> Result:
    return Runner().invoke(cli._cli, list(arguments))


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the share of an installation that lacks everything."""
    monkeypatch.setattr(pages, "_share", lambda: tmp_path)
    return tmp_path


def test_the_list_has_pages_with_their_titles() -> None:
    result = invoke("docs")
    assert result.exit_code == 0
    assert re.search(r"^running\.md +How do I run a job\?$", result.output, re.M)
    assert len({len(re.findall(r"^\S+ +", line)[0]) for line in result.output.splitlines()}) == 1
    listed = json.loads(invoke("docs", "--json").output)
    assert {"cli.md", "from-mxnet.md", "grafana.json", "supported.md", "README.md"} <= {
        row["page"] for row in listed
    }
    assert all(pathlib.Path(row["path"]).is_file() and row["title"] for row in listed)


@pytest.mark.parametrize("name", ["running", "running.md", "docs/user/running.md"])
def test_a_page_is_printed_as_it_is(name: str) -> None:
    path = invoke("docs", "--path", name).output.strip()
    assert path.endswith("docs/user/running.md")
    assert invoke("docs", name).output == pathlib.Path(path).read_text()


def test_the_dashboard_is_json_and_pages_that_are_not_listed_are_found() -> None:
    assert json.loads(invoke("docs", "grafana").output)["title"] == "bytescheduler"
    assert invoke("docs", "architecture").output.startswith("# ")


@pytest.mark.parametrize("name", ["nonesuch", "", "../pyproject.toml", "docs"])
def test_a_name_of_no_page_is_refused(name: str) -> None:
    result = invoke("docs", name)
    assert result.exit_code == 2
    assert f"there is no page {name}" in result.output


def test_an_installation_without_pages_says_so(
    installation: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for command in (("docs",), ("examples", str(tmp_path / "new"))):
        result = invoke(*command)
        assert result.exit_code == 1
        assert "install the package again" in result.output


def test_examples_are_copied_to_a_new_or_empty_folder_only(tmp_path: pathlib.Path) -> None:
    for folder in (tmp_path / "new", tmp_path / "empty"):
        if folder.name == "empty":
            folder.mkdir()
        result = invoke("examples", str(folder))
        assert result.exit_code == 0
        assert str(folder / "image-classification") in result.output
        assert (folder / "image-classification" / "train_mnist.py").is_file()
        assert not list(folder.rglob("__pycache__"))
    again = invoke("examples", str(tmp_path / "new"))
    assert again.exit_code == 2
    assert "is not empty; name a new folder" in again.output
    (tmp_path / "file").write_text("")
    below = invoke("examples", str(tmp_path / "file" / "below"))
    assert below.exit_code == 1
    assert "Not a directory" in below.output
