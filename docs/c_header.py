"""The directive ``c-header``: a C header as reference, with each comment beside what it is about.

It knows the layout of include/bytescheduler/c_api.h: a ``//`` comment stands right before its
declarations, a blank line ends them, and ``// ---- title ----`` begins a section.
"""

import re
from typing import Dict, Iterator, List, NamedTuple, Tuple

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

__all__ = ["Group", "groups", "setup"]

_SECTION = re.compile(r"-{2,} (.+?) -{2,}$")
_STRUCT = re.compile(r"typedef (struct|enum) \{\n(.*)\} (\w+);$", re.S)
_INLINE = "static inline "
_OPAQUE = re.compile(r"typedef struct (\w+) \1;$")
# Lines that are for the compiler or a linter alone.
_IGNORED = re.compile(r'#(?:if|endif|include|define \w+_H_)|extern "C"|\} *// extern|// NOLINT')
_SPECIAL = re.compile(r"([\\*_|<>])")


class Group(NamedTuple):
    """A comment and the declarations below it; a section's title has none."""

    text: str
    declarations: List[str]
    title: str = ""


def groups(header: str) -> Iterator[Group]:
    """Yield the sections and the groups of a header, in order."""
    text: List[str] = []
    lines: List[str] = []
    found: List[str] = []
    for line in [*header.splitlines(), ""]:
        section = _SECTION.match(line[3:]) if line.startswith("// ") else None
        is_comment = line.startswith("//")
        if _IGNORED.match(line):
            continue
        if not lines and found and (section or is_comment or not line):
            yield Group(" ".join(text), found)
            text, found = [], []
        if section:
            yield Group("", [], section.group(1))
        elif is_comment and not lines:
            text.append(line[2:].strip())
        elif line or lines:
            lines.append(line)
            opened = sum(each.count("{") - each.count("}") for each in lines)
            is_end = line.endswith(";") or line.startswith("#define") or line == "}"
            if opened == 0 and is_end:
                found.append("\n".join(lines))
                lines = []
        else:  # a blank line behind a comment: it is about the whole header
            if text:
                yield Group(" ".join(text), [])
            text = []
    if lines:
        raise ValueError(f"a declaration without an end: {lines[0]}")


def marked_up(text: str) -> str:
    """Return a comment as reStructuredText; what stands in backticks is code."""
    parts = text.split("`")
    return "".join(
        f"``{part}``" if index % 2 else _SPECIAL.sub(r"\\\1", part)
        for index, part in enumerate(parts)
    )


def declared(declaration: str) -> "Tuple[str, List[str]]":
    """Return what Sphinx calls a declaration, and the lines that only its text can show."""
    struct, opaque = _STRUCT.match(declaration), _OPAQUE.match(declaration)
    if struct:
        fields = [f"   {line[2:]}" for line in struct.group(2).splitlines()]
        return f"{struct.group(1)}:: {struct.group(3)}", [".. code-block:: c", "", *fields]
    if opaque:
        return f"type:: {opaque.group(1)}", []
    if declaration.startswith("#define "):
        name, value = declaration.split()[1:]
        return f"macro:: {name}", [f"Its value is {value}."]
    if declaration.startswith(_INLINE):
        declaration = declaration[len(_INLINE) :].partition(" {")[0]
    one_line = " ".join(declaration.rstrip(";").split())
    name = one_line[len("typedef ") :]
    return (f"type:: {name}" if one_line.startswith("typedef ") else f"function:: {one_line}"), []


def rendered(group: Group) -> List[str]:
    """Return the lines of reStructuredText for a group.

    Its comment stands with its structure, or else with what it declares first.
    """
    if group.title:
        return [f".. rubric:: {group.title}", ""]
    if not group.declarations:
        return [marked_up(group.text), ""]
    structs = [each for each in group.declarations if _STRUCT.match(each)]
    about = [*structs, *group.declarations][0]
    lines = []
    for declaration in group.declarations:
        name, body = declared(declaration)
        text = [marked_up(group.text), ""] if declaration is about else []
        lines += [f".. c:{name}", "", *(f"   {line}" for line in [*text, *body]), ""]
    return lines


class CHeader(Directive):
    """``.. c-header:: PATH``, from the top folder of the tree."""

    required_arguments = 1

    def run(self) -> List[nodes.Node]:
        """Return the nodes of all that the header declares."""
        env = self.state.document.settings.env
        path = env.srcdir / self.arguments[0]
        env.note_dependency(str(path))
        try:
            found = list(groups(path.read_text()))
        except (OSError, ValueError) as error:
            raise self.error(f"{self.arguments[0]}: {error}") from None
        lines = [line for group in found for line in rendered(group)]
        place = nodes.container()
        self.state.nested_parse(StringList(lines, str(path)), self.content_offset, place)
        return place.children


def setup(app: Sphinx) -> Dict[str, bool]:
    """Add the directive; Sphinx calls this."""
    app.add_directive("c-header", CHeader)
    return {"parallel_read_safe": True}
