"""What autodoc does not do by itself: comments beside fields, headings after parameters, links to public names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from sphinx.pycode import ModuleAnalyzer

import pltf
import pltf.datasets
import pltf.metrics
import pltf.report
import pltf.sklearn

MODULES: tuple[ModuleType, ...] = (pltf, pltf.datasets, pltf.metrics, pltf.report, pltf.sklearn)
MADE_BY_USERS = ("pltf.Model", "pltf.Gamma", "pltf.sklearn.PoissonNMF")  # all other classes come out of a call
SINGLE = ("property", "attribute")  # what napoleon takes for "type: description" if it has a colon


def describe_fields(app: Any) -> None:
    """The comment beside a field of a class is what there is to say about it."""
    public = (getattr(m, name) for m in MODULES for name in m.__all__)
    for cls in (thing for thing in public if isinstance(thing, type)):
        analyzer = ModuleAnalyzer.for_module(cls.__module__)
        analyzer.analyze()
        for field, told in _fields(inspect.getsource(cls)):
            analyzer.attr_docs[cls.__name__, field] = [told[0].upper() + told[1:] + "."]


def _fields(source: str) -> Iterator[tuple[str, str]]:
    """Fields with a comment on their line."""
    lines = source.splitlines()
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            told = re.search(r"  # (.*)", lines[statement.lineno - 1])
            if told:
                yield statement.target.id, told[1]


_kept: dict[str, list[str]] = {}


def keep(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Lay a text with a colon aside, for napoleon would tear it apart there."""
    if what in SINGLE:
        _kept[name], lines[:] = list(lines), ["..."]


def give_back(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """And have it again."""
    if what in SINGLE:
        lines[:] = _kept.pop(name)


def with_headings(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Prose and examples after a list of parameters get a heading: without one they would be read as parameters."""
    if "----------" not in lines:
        return
    at = lines.index("----------") + 1
    while at < len(lines) - 1:
        begins = lines[at - 1] == "" and lines[at] != "" and lines[at][0] != " " and not lines[at + 1].startswith(" ")
        if begins and not lines[at + 1].startswith("---"):
            title = "Examples" if lines[at].startswith(">>>") else "Notes"
            lines[at:at] = [title, "-" * len(title), ""]
            if title == "Examples":
                return
            at += 3
        at += 1


def without_fields(app: Any, what: str, name: str, thing: Any, options: Any, signature: str, result: str) -> Any:
    """Nobody makes a result by hand: its long list of fields is no signature."""
    return ("", None) if what == "class" and name not in MADE_BY_USERS else None


def to_public_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Hints name the module where a class lives; link them to where users find it."""
    last = str(node.get("reftarget", "")).rpartition(".")[2]
    public = next((f"{m.__name__}.{last}" for m in MODULES if last in m.__all__), None)
    if node.get("refdomain") != "py" or public is None or node["reftarget"] == public:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, content)


def setup(app: Any) -> dict[str, Any]:
    """Tell Sphinx of it; napoleon reads docstrings at priority 500."""
    app.connect("builder-inited", describe_fields)
    app.connect("autodoc-process-docstring", with_headings, priority=400)
    app.connect("autodoc-process-docstring", keep, priority=450)
    app.connect("autodoc-process-docstring", give_back, priority=550)
    app.connect("autodoc-process-signature", without_fields)
    app.connect("missing-reference", to_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
