"""The pages of the command line, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from pltf.cli.app import app


class Commands(SphinxDirective):
    """A section for each command: what it does, examples, and a table of its options by panel."""

    def run(self) -> list[nodes.Node]:
        """The sections, in the order of the help."""
        group: Any = typer.main.get_command(app)
        return [self._section(name, command) for name, command in group.commands.items()]

    def _section(self, name: str, command: Any) -> nodes.section:
        section = nodes.section(ids=[f"pltf-{name}"], names=[f"pltf {name}"])
        section += nodes.title(text=f"pltf {name}")
        what, *examples = re.split(r"\n\s*\n", (command.help or "").replace("\\[", "[").strip())
        section += nodes.paragraph(text=" ".join(what.split()))
        section += nodes.literal_block(text="\n".join(" ".join(one.split()) for one in examples), language="text")
        section += _table(list(_rows(command)))
        return section


def _rows(command: Any) -> Iterator[tuple[str, str, str]]:
    """Names, default and meaning of every argument and option."""
    for one in command.params:
        if "--help" in one.opts:
            continue
        names = one.name.upper() if one.param_type_name == "argument" else ", ".join(one.opts)
        default = "" if one.default is None or one.default is False or one.required else str(one.default)
        yield names, default, (one.help or "").replace("\\[", "[")


def _table(rows: list[tuple[str, str, str]]) -> nodes.table:
    table, group = nodes.table(), nodes.tgroup(cols=3)
    table += group
    group += [nodes.colspec(colwidth=width) for width in (20, 12, 68)]
    head, body = nodes.thead(), nodes.tbody()
    head += _row([nodes.paragraph(text=text) for text in ("option", "default", "")])
    body += [_row([_code(names), _code(default), nodes.paragraph(text=told)]) for names, default, told in rows]
    group += [head, body]
    return table


def _code(text: str) -> nodes.paragraph:
    return nodes.paragraph("", "", *([nodes.literal(text=text)] if text else []))


def _row(cells: list[nodes.paragraph]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def setup(sphinx: Any) -> dict[str, Any]:
    """Tell Sphinx of it."""
    sphinx.add_directive("pltf-commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
