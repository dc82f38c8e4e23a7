"""Recomputes the numbers in the course's text. A number of two or more digits, or with a decimal point, is followed by a claim, a
comment with the Python expression that gives it:

    With four ranks it sends 24<!--= 2*4*3 --> messages of 1,024 bytes<!--= 2**10 -->, 1.5<!--= 2*3/4 --> times the array.

    python notebooks/claims.py          all sources, and the pages in PAGES; exit code 1 if a number is wrong or has no claim

np, math, minispore and cost are at hand. A number with decimals must be the value rounded to them, another the value itself.
No claim is needed for: code and formulas (but one may stand behind them, for their last number), addresses, names with digits in
them (E12, float32), chapters, versions, dates, and the minutes that a chapter takes. build.py leaves claims out of notebooks.
"""
import argparse
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minispore
from minispore.lab import cost

ROOT = Path(__file__).resolve().parents[1]
SOURCES = "notebooks/src/[0-9][0-9]_*.py"
PAGES = (SOURCES, "notebooks/README.md", "docs/glossary.md", "exercises/*/hints.md")        # each number is checked
ALSO = ("README.md",)                                                                       # claims are, where there are any
NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
CLAIM = re.compile(r"<!--=(.*?)-->", re.S)
CLAIMED = re.compile(rf"({NUMBER})(?:(?:[ \u00a0\n]|(?<=\d)(?![\d.,]))[^\s\d<]{{1,20}}|[*`$)]{{1,3}})?<!--=(.*?)-->", re.S)
LAST_IN_A_SPAN = re.compile(rf"(?:`[^`\n]*?|\$[^$\n]*?)({NUMBER})[^\d`$]*[`$]<!--=(.*?)-->", re.S)
ALONE = re.compile(rf"(?<![A-Za-z_\d.])(?:{NUMBER})")
NEEDS_NONE = tuple(re.compile(pattern, re.S | re.M) for pattern in (
    r"```.*?```",                                   # code
    r"`[^`\n]*`",
    r"\$\$.*?\$\$|\$[^$\n]+\$",                     # formulas
    r"<!--.*?-->|<[^>]+>",                          # comments and tags
    r"\]\([^)]*\)|https?://\S+|arXiv:[\d.]+",       # addresses
    r"\d{4}-\d\d-\d\d|(?<=[(, ])(?:19|20)\d\d(?=[),.;:])",
    r"^# \d\d · ",                                  # a chapter's heading
    r"\b[Cc]hapters?\s\d\d(?:(?:,|\sand|\sto|,\sand)\s\d\d)*|\b0\d\b",
    r"\d+\.\d+\.\d+\S*|\b(?:Python|NumPy|Numba|MindSpore|MPI|Linux|version) v?\d+(?:\.\d+)*",
    r"\b\d+ minutes\b",
    r"\| \d\d \|$",                                # the glossary's column of chapters
))


@dataclass(frozen=True)
class Fault:
    """A number that isn't as it should be: path:line, what the text says there, and what is wrong with it."""
    path: str
    line: int
    says: str
    wrong: str

    def __str__(self):
        return f"{self.path}:{self.line}: the text says {self.says!r}, {self.wrong}"


def text_of(path: Path) -> str:
    """A page's text; of a notebook's source its markdown cells, all else as empty lines, so that lines keep their numbers."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return text
    out, markdown = [], False
    for line in text.splitlines():
        if line.startswith("# %%"):
            markdown = "[markdown]" in line
            out.append("")
        else:
            out.append(line.removeprefix("#").removeprefix(" ") if markdown else "")
    return "\n".join(out)


def faults(text: str, path: str, all_numbers: bool = True) -> Iterator[Fault]:
    """The wrong claims of a text, and its numbers without one."""
    def line(at: int) -> int:
        return text.count("\n", 0, at) + 1

    found = {match.start(2): match for pattern in (CLAIMED, LAST_IN_A_SPAN) for match in pattern.finditer(text)}
    for claim in CLAIM.finditer(text):
        match = found.get(claim.start(1))
        if match is None:
            before = text[max(0, claim.start() - 30):claim.start()].split("\n")[-1]
            yield Fault(path, line(claim.start()), f"{before}{claim[0]}", "but there is no number before the claim")
        elif wrong := compare(match[1], claim[1]):
            yield Fault(path, line(match.start(1)), match[1], wrong)
    if all_numbers:
        rest = text
        for match in found.values():
            rest = rest[:match.start(1)] + blank(match[1]) + rest[match.end(1):]
        for pattern in NEEDS_NONE:
            rest = pattern.sub(lambda m: blank(m[0]), rest)
        for number in ALONE.finditer(rest):
            if len(number[0]) > 1:
                around = text[max(0, number.start() - 25):number.end() + 15].replace("\n", " ")
                yield Fault(path, line(number.start()), number[0], f"in “…{around}…”, without a claim <!--= … --> behind it")


def blank(text: str) -> str:
    """As long, with the same lines, and nothing in it."""
    return re.sub(r"[^\n]", " ", text)


def compare(says: str, expression: str) -> str:
    """What is wrong with a claim, "" if nothing is."""
    try:
        value = eval(expression.strip(), {"np": np, "math": math, "minispore": minispore, "cost": cost})
        value = float(value)
    except Exception as e:          # a claim is anybody's expression; whatever it raises is its fault
        return f"the claim {expression.strip()!r} fails: {type(e).__name__}: {e}"
    number, decimals = float(says.replace(",", "")), len(says.partition(".")[2])
    off = 0.5000001 * 10.0 ** -decimals if decimals else 1e-9 * max(1.0, abs(number))
    return "" if abs(number - value) <= off else f"{expression.strip()} gives {value:,.10g}"


def check() -> tuple[list[Fault], int]:
    """(all faults, number of claims) of the course."""
    found, claims = [], 0
    for pattern in (*PAGES, *ALSO):
        for path in sorted(ROOT.glob(pattern)):
            text = text_of(path)
            found += faults(text, str(path.relative_to(ROOT)), all_numbers=pattern in PAGES)
            claims += len(CLAIM.findall(text))
    return found, claims


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser("claims.py", description="Recompute the numbers in the course's text.").parse_args(argv)
    found, claims = check()
    print(*found, sep="\n", end="\n" * bool(found))
    print(f"{claims} claims; {len(found)} numbers are wrong or have none")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
