"""`bytescheduler docs` and `bytescheduler examples`: pages, dashboard and examples of this version.

An installation has them beside the modules; in a clone they stand above the package.
"""

import json
import pathlib
import shutil
from typing import Dict, List, Optional

import click

from bytescheduler._process.say import plain
from bytescheduler.commands.messages import sections_about

__all__ = ["docs", "examples"]

_SHOWN = (
    "docs/user",
    "docs/migrate",
    "docs/operate",
    "docs/reference",
)  # the list; any other page can be named
_ALSO = ("README.md", "CHANGELOG.md", "SECURITY.md")
_MOST_SECTIONS = 2
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")


def _share() -> pathlib.Path:
    """Return the folder that holds `docs` and `example`."""
    package = pathlib.Path(__file__).resolve().parent.parent
    installed = package / "_share"
    return installed if installed.is_dir() else package.parent


def _listed(share: pathlib.Path) -> List[pathlib.Path]:
    """Return the pages for people that use the package."""
    folders = (sorted((share / folder).iterdir()) for folder in _SHOWN if (share / folder).is_dir())
    pages = [page for folder in folders for page in folder if page.suffix in (".md", ".json")]
    return [*(share / name for name in _ALSO if (share / name).is_file()), *pages]


def _title(page: pathlib.Path) -> str:
    """Return what a page says it is about."""
    if page.suffix == ".json":
        return str(json.loads(page.read_text(encoding="utf-8")).get("title", ""))
    with page.open(encoding="utf-8") as lines:
        return next((line.strip("# \n") for line in lines if line.startswith("# ")), "")


def _find(share: pathlib.Path, name: str) -> Optional[pathlib.Path]:
    """Return the page of that name, with or without folders and ending."""
    pages = _listed(share)
    others = (path for path in sorted((share / "docs").rglob("*")) if path not in pages)
    for page in [*pages, *others]:
        relative = page.relative_to(share)
        names = {str(relative), str(relative.with_suffix("")), page.name, page.stem}
        if page.is_file() and page.suffix in (".md", ".json") and name in names:
            return page
    return None


@click.command(short_help="Print a page of the documentation, or the dashboard.")
@click.argument("page", required=False)
@click.option("--path", "as_path", is_flag=True, help="Print where it lies instead.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the list, or where a page lies, as JSON."
)
@click.option("--message", help="Print what the pages say about this message, as it was printed.")
def docs(page: Optional[str], as_path: bool, as_json: bool, message: Optional[str]) -> None:
    """Print a page of the documentation, or the list of pages.

    PAGE is a name of the list, such as running or grafana.json (the dashboard).
    """
    share = _share()
    if not (share / "docs").is_dir():
        raise click.ClickException(f"{share} has no pages; install the package again")
    if message is not None:
        if page is not None or as_path or as_json:
            raise click.UsageError("--message goes alone")
        click.echo(_about(share, message))
        return
    if page is None:
        if as_path:
            click.echo(share / "docs")
            return
        rows = [
            {"page": path.name, "title": _title(path), "path": str(path)} for path in _listed(share)
        ]
        click.echo(json.dumps(rows, indent=2) if as_json else _table(rows))
        return
    path = _find(share, page)
    if path is None:
        raise click.UsageError(f"there is no page {plain(page)}; `bytescheduler docs` lists them")
    if as_json:
        click.echo(json.dumps({"page": path.name, "title": _title(path), "path": str(path)}))
    else:
        click.echo(path if as_path else path.read_text(encoding="utf-8"), nl=as_path)


def _about(share: pathlib.Path, message: str) -> str:
    """Return the sections that fit a message best."""
    sections = sections_about([page for page in _listed(share) if page.suffix == ".md"], message)
    if not sections:
        raise click.ClickException("no page has this message; give the line of the error alone")
    parts = [f"{section.page}\n\n{section.text}" for section in sections[:_MOST_SECTIONS]]
    return "\n\n".join(parts)


def _table(rows: List[Dict[str, str]]) -> str:
    """Return names and titles in columns."""
    width = max(len(row["page"]) for row in rows)
    return "\n".join(f"{row['page']:<{width}}  {row['title']}".rstrip() for row in rows)


@click.command(short_help="Copy the examples into a new folder.")
@click.argument("folder", type=click.Path(path_type=pathlib.Path))
def examples(folder: pathlib.Path) -> None:
    """Copy the examples into FOLDER, which must be new or empty."""
    source = _share() / "example"
    if not source.is_dir():
        raise click.ClickException(f"{source} is missing; install the package again")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise click.UsageError(f"{plain(str(folder))} is not empty; name a new folder")
        shutil.copytree(str(source), str(folder), ignore=_IGNORED, dirs_exist_ok=True)
    except OSError as error:
        reason = error.strerror or f"not all files: {error}"
        raise click.ClickException(f"cannot copy to {plain(str(folder))}: {reason}") from None
    for name in sorted(path.name for path in folder.iterdir()):
        click.echo(folder / name)
