"""Figures and how they are printed: 80 columns, medians with the spread beside them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 80


@dataclass(frozen=True)
class Aim:
    """What a figure should reach: at least (or at most) ``value``."""

    value: float
    at_most: bool = False

    def met(self, figure: float) -> bool:
        return figure <= self.value if self.at_most else figure >= self.value

    def __str__(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.value:g}"


def section(title: str) -> None:
    print(f"\n{title}")
    print(f"{'':34}{'median':>11}{'min … max':>19}{'ratio':>7}{'aim':>9}")
    print("─" * WIDTH, flush=True)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def line(
    label: str,
    values: Sequence[float],
    *,
    unit: str = "",
    beside: Sequence[float] | None = None,
    aim: Aim | None = None,
    aim_on_ratio: bool = True,
) -> None:
    """One figure; with ``beside``, its ratio to those values' median."""
    middle = median(values)
    ratio = middle / median(beside) if beside else None
    spread = f"{number(min(values))} … {number(max(values))}" if len(values) > 1 else ""
    judged = ratio if aim_on_ratio else middle
    verdict = "" if aim is None or judged is None else (" ✓" if aim.met(judged) else " ✗")
    print(
        f"{label[:34]:34}{number(middle) + unit:>11}{spread:>19}"
        f"{'' if ratio is None else f'{ratio:.2f}':>7}{(str(aim) + verdict) if aim else '':>9}",
        flush=True,
    )


def note(text: str) -> None:
    print(f"  {text}")


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
