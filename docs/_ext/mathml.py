"""Equations as MathML, which browsers draw by themselves: no script, no font, no other site."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

log = logging.getLogger(__name__)

AS_IT_SHOULD_LOOK = {
    r"{\hat X}": r"{\hat X{}}",  # else the index goes under the letter, not beside it
    r"\log ": r"\log\, ",  # else the name and what follows are one word
}


def written(node: nodes.Element, block: bool) -> str:
    """An equation in MathML; one that cannot be read is a warning, and so the end of the build."""
    tex = node.astext()
    for ours, theirs in AS_IT_SHOULD_LOOK.items():
        tex = tex.replace(ours, theirs)
    many_lines = block and r"\\" in tex and r"\begin{" not in tex
    try:
        return str(tex2mathml(rf"\begin{{aligned}}{tex}\end{{aligned}}" if many_lines else tex, as_block=block))
    except MathError as reason:
        log.warning("equation %r: %s", tex, reason, location=node)
        return ""


def in_line(page: Any, node: nodes.Element) -> None:
    """An equation within a sentence."""
    page.body.append(written(node, block=False))
    raise nodes.SkipNode


def alone(page: Any, node: nodes.Element) -> None:
    """An equation on lines of its own."""
    page.body.append(f'<div class="equation">{written(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    """Tell Sphinx of it."""
    app.add_html_math_renderer("mathml", (in_line, None), (alone, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
