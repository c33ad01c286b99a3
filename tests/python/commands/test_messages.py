"""`bytescheduler docs --message`: the section of a page about a message as it was printed."""

import pathlib

import pytest
from click.testing import Result
from click_runner import Runner

from bytescheduler import cli
from bytescheduler.commands.messages import sections_about

PAGE = """# Messages

## Some

### `lost … …: connection closed`

**Cure.** Start it again.

### ``the name `…` is taken``, `taken twice by …`

**Cure.** Take another.

### It is slow

## Others

| message | cure |
|---|---|
| `PORT=… is no port of yours` | Set `PORT`. |
| `the second of both` | Take the first. |

| option | default |
|---|---|
| `an option of this length` | 1 |
"""


def invoke(*arguments: str) -> Result:
    return Runner().invoke(cli._cli, ["docs", *arguments])


@pytest.mark.parametrize(
    ("message", "heading"),
    [
        ("12:00 [worker 0] lost worker 1 (10.0.0.1:1): connection closed\n (killed)", "### `lost"),
        ("the name `fc` is taken", "### ``the name"),
        ("key taken twice by worker 1", "### ``the name"),
        ("[0] PORT=7 is no port of yours: 7", "### `PORT=… is no port of yours`\n\n**Cure.** Set"),
        ("it is the second of both", "### `the second of both`"),
    ],
)
def test_a_whole_message_leads_to_its_section(
    tmp_path: pathlib.Path, message: str, heading: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (section,) = sections_about([page], message)
    assert section.text.startswith(heading)
    assert "**Cure.**" in section.text
    assert section.text.count("###") == 1


@pytest.mark.parametrize(
    "message",
    ["", "lost", "It is slow", "connection closed, lost worker 1", "an option of this length"],
)
def test_other_texts_lead_nowhere(tmp_path: pathlib.Path, message: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert not sections_about([page], message)


def test_the_best_sections_of_all_pages_are_printed() -> None:
    text = "rendezvous: after 60 s still missing 1 of 2 workers; registered: worker 10.0.0.1:4711"
    result = invoke("--message", f"bytescheduler: {text}")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].endswith("docs/user/troubleshooting-start.md")
    assert "\n### `rendezvous: after … still missing …" in result.output


@pytest.mark.parametrize(
    "message",
    [
        "BYTESCHEDULER_COMM=direct, and this job has 1 server: unset BYTESCHEDULER_COMM, or let",
        "BYTESCHEDULER_COMM=mpi, and this job has 3 servers: unset BYTESCHEDULER_COMM, or let",
        "BYTESCHEDULER_COMM=servers, and this process has RANK=0 of WORLD_SIZE=2, so there are no "
        "servers: start the job with",
        "BYTESCHEDULER_COMM=nccl beside BYTESCHEDULER_BACKEND=passthrough, with which MXNet's own",
        "BYTESCHEDULER_BACKEND=kvstore needs servers of MXNet's own, and this is a direct job",
        "BYTESCHEDULER_BACKEND=passthrough: with DMLC_NUM_SERVER=0 workers host servers of ours",
        "BYTESCHEDULER_REJOIN_TIMEOUT: with DMLC_NUM_SERVER=0 a lost worker takes the server",
        "BYTESCHEDULER_REJOIN_TIMEOUT=10 in a direct job, where a lost worker takes its server",
        "DMLC_NUM_SERVER=2 without DMLC_ROLE",
    ],
)
def test_messages_of_direct_jobs_lead_to_the_table_of_their_page(message: str) -> None:
    page, _, section, _, cure, *_ = invoke("--message", message).output.splitlines()
    assert page.endswith("docs/user/direct.md")
    assert section.startswith("### ")
    assert cure.startswith("**Cure.** ")


def test_a_message_of_no_page_and_a_page_beside_it_are_refused() -> None:
    assert invoke("--message", "no such text is anywhere").exit_code == 1
    assert invoke("running", "--message", "text").exit_code == 2
