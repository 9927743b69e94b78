"""Text, tables and links of the pages."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.settings import LEVELS


def percent(share: float, digits: int = 0) -> str:
    """A fraction as a percentage."""
    return f"{100 * share:.{digits}f} %"


LEVEL_NAMES = tuple(f"{percent(missing)} missing" for missing in LEVELS)


def prose(text: str) -> str:
    """Wrapped paragraphs; blocks that are indented further, and tables, stay as they are."""
    blocks = textwrap.dedent(text).strip().split("\n\n")
    return "\n\n".join(block if block.startswith(("    ", "|", "!")) else _wrapped(block) for block in blocks)


def _wrapped(block: str) -> str:
    lead = "> " if block.startswith("> ") else ""
    words = " ".join(block.removeprefix(lead).split())
    return textwrap.fill(
        words, 120, initial_indent=lead, subsequent_indent=lead, break_long_words=False, break_on_hyphens=False
    )


def page(*parts: str) -> str:
    """Parts separated by empty lines; empty parts are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def figure(name: str, caption: str) -> str:
    """A link to a figure."""
    return f"![{caption}](figures/paper-{name}.svg)"


def spread(runs: Any) -> Any:
    """Standard deviation over the runs; zero for a single run."""
    runs = np.asarray(runs)
    return runs.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(runs.shape[1:])


def standard_error(runs: Any) -> float:
    """Standard error of the mean over the runs."""
    return float(spread(runs) / np.sqrt(len(runs)))


def pm(values: Any, digits: int = 3) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(values):.{digits}f} ± {spread(values):.{digits}f}"


def gain(a: Sequence[float], b: Sequence[float]) -> float:
    """Mean difference."""
    return float(np.mean(a) - np.mean(b))


def paired(a: Sequence[float], b: Sequence[float]) -> str:
    """Mean difference on the same masks, and its standard error."""
    return f"{gain(a, b):+.4f} ({standard_error(np.subtract(a, b)):.4f})"


def counts(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether a exceeds b by more than two standard errors, on the same masks."""
    return gain(a, b) > 2 * standard_error(np.subtract(a, b))


def judged(flags: Sequence[bool]) -> str:
    """The verdict on a claim: whether all, some or none of its parts hold."""
    return "Agrees" if all(flags) else "Agrees in part" if any(flags) else "Differs"


def slashed(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Numbers for 40, 60 and 80 % missing."""
    return " / ".join(f"{value:{sign}.{digits}f}" for value in values)


def at_levels(flags: Sequence[bool]) -> str:
    """The shares of missing cells whose flag is set."""
    named = [f"{100 * missing:.0f}" for missing, flag in zip(LEVELS, flags, strict=True) if flag]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named) + " % missing"


def choices(best: Sequence[int]) -> str:
    """The chosen orders, and how often each was chosen."""
    return ", ".join(f"{order} ({times} of {len(best)})" for order, times in Counter(best).most_common())


def span(values: Sequence[float]) -> str:
    """From the smallest to the largest."""
    return f"{min(values):,.0f} to {max(values):,.0f}"
