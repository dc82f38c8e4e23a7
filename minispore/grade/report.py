"""A grade, and how it is shown: as text, as a card in a notebook, as CSV, JSON and JUnit's XML.

nbgrader takes the points of a cell from the text of its result, so that text is a plain number.
"""
import csv
import html
import io
import json
import re
import sys
import textwrap
import xml.etree.ElementTree as xml
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

WIDTH = 110
NO_XML = re.compile("[^\t\n\r -\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


@dataclass(frozen=True)
class Result:
    """What one test found. points of worth; message: what was wrong; hint: the number of the hint that helps; printed: the end of
    what the submission printed meanwhile."""
    name: str
    about: str
    points: float
    worth: float
    message: str = ""
    hint: int = 1
    seconds: float = 0.0
    printed: str = ""

    @property
    def passed(self) -> bool:
        return self.points == self.worth


@dataclass(frozen=True, repr=False)
class Grade:
    """The grade of a submission. who: whose it is; seconds: that grading took.

    >>> Grade("e05", "reduce scatter", "", [Result("test_a", "a", 3, 3), Result("test_b", "b", 0, 7, "no")])
    3
    """
    exercise: str
    title: str
    who: str
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def points(self) -> float:
        return sum(r.points for r in self.results)

    @property
    def worth(self) -> float:
        return sum(r.worth for r in self.results)

    @property
    def passed(self) -> bool:
        """Whether all points are there."""
        return self.points == self.worth

    @property
    def failed(self) -> list[Result]:
        return [r for r in self.results if not r.passed]

    def __repr__(self):
        return f"{self.points:g}"

    def __float__(self):
        return float(self.points)

    def __str__(self):
        return text(self)

    def _repr_html_(self):
        return card(self)


def from_dict(d: dict) -> Grade:
    """The Grade that as_json wrote."""
    return Grade(d["exercise"], d["title"], d["who"], [Result(**r) for r in d["results"]], d["seconds"])


def grouped(results: list[Result]) -> list[tuple[str, list[Result]]]:
    """Failed results by message, where neighbours say the same (a file that can't be loaded fails all alike)."""
    groups = []
    for r in results:
        if groups and groups[-1][0] == r.message and r.message:
            groups[-1][1].append(r)
        else:
            groups.append((r.message, [r]))
    return groups


# ---- text --------------------------------------------------------------------------------------------

def text(grade: Grade) -> str:
    """For the terminal: a line a test, and below those that failed what was wrong and which hint to open."""
    yes, no = ("✓", "✗") if _can_print("✓✗") else ("+", "-")
    who = f" · {grade.who}" if grade.who else ""
    lines = [f"{grade.exercise} {grade.title}{who}: {grade.points:g} of {grade.worth:g} points"]
    for message, results in grouped(grade.results):
        lines += [f"  {yes if r.passed else no} {r.points:g}/{r.worth:g}  {r.about}" for r in results]
        if results[0].passed:
            continue
        lines += [textwrap.fill(line, WIDTH, initial_indent="         ", subsequent_indent="         ", break_long_words=False,
                                drop_whitespace=False, replace_whitespace=False) for line in message.splitlines()]
        if results[-1].printed.strip():
            lines += ["         it printed:", textwrap.indent(_last_lines(results[-1].printed), "           ")]
        lines += [f"         more: hint(\"{grade.exercise}\", {min(r.hint for r in results)}) in the notebook, or "
                  f"minispore grade {grade.exercise} --hint {min(r.hint for r in results)}"]
    return _clean("\n".join(lines))


def _can_print(signs: str) -> bool:
    try:
        signs.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _last_lines(printed: str, most: int = 8) -> str:
    return "\n".join(printed.strip("\n").splitlines()[-most:])


def _clean(text: str) -> str:
    """No control characters: what a submission says mustn't steer a terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "�", text)


# ---- notebook ----------------------------------------------------------------------------------------

STYLE = """
.ms-grade{font-family:system-ui,sans-serif;font-size:14px;line-height:1.45;border:1px solid #d0d7de;border-radius:10px;
 padding:12px 16px;max-width:860px;background:#fff;color:#1f2328}
.ms-grade h4{margin:0 0 8px;font-size:15px;font-weight:600}.ms-grade .of{float:right;font-variant-numeric:tabular-nums}
.ms-grade .bar{height:6px;border-radius:3px;background:#e6e8eb;margin:0 0 10px;overflow:hidden}
.ms-grade .bar i{display:block;height:100%;background:#009e73}
.ms-grade .t{display:flex;gap:8px;padding:2px 0}.ms-grade .t b{width:1.2em;text-align:center}
.ms-grade .t span{flex:1}.ms-grade .t em{font-style:normal;font-variant-numeric:tabular-nums;color:#59636e}
.ms-grade .yes b{color:#007a59}.ms-grade .no b{color:#b34700}
.ms-grade pre{white-space:pre-wrap;margin:2px 0 2px 28px;padding:6px 10px;border-left:3px solid #d55e00;background:#fdf3ec;
 color:#1f2328;font-size:12.5px;border-radius:0 6px 6px 0}
.ms-grade .hint{margin:2px 0 8px 28px;color:#59636e;font-size:13px}
.ms-grade code{background:rgba(127,127,127,.15);color:inherit;padding:1px 5px;border-radius:4px}
@media (prefers-color-scheme:dark){.ms-grade{background:#161b22;color:#e6edf3;border-color:#3d444d}
 .ms-grade .bar{background:#30363d}.ms-grade pre{background:#2b1d14;color:#e6edf3}.ms-grade .yes b{color:#3fd0a4}
 .ms-grade .no b{color:#ff9a52}.ms-grade .t em,.ms-grade .hint{color:#9aa4af}}
"""


def card(grade: Grade) -> str:
    """For a notebook: the same as an HTML card, in light and dark, with signs beside the colours."""
    def escape(s):
        return html.escape(_clean(s))
    part = 100 * grade.points / grade.worth if grade.worth else 0
    out = [f"<style>{STYLE}</style><div class='ms-grade' role='group' aria-label='{escape(grade.exercise)}: {grade.points:g} of "
           f"{grade.worth:g} points'><h4>{escape(grade.exercise.upper().replace('E0', 'E'))} · {escape(grade.title)}"
           f"<span class='of'>{grade.points:g} of {grade.worth:g} points</span></h4>"
           f"<div class='bar'><i style='width:{part:.0f}%'></i></div>"]
    for message, results in grouped(grade.results):
        for r in results:
            kind, sign, word = ("yes", "✓", "passed") if r.passed else ("no", "✗", "failed")
            out.append(f"<div class='t {kind}'><b role='img' aria-label='{word}'>{sign}</b><span>{escape(r.about)}</span>"
                       f"<em>{r.points:g}/{r.worth:g}</em></div>")
        if not results[0].passed:
            printed = f"\nit printed:\n{_last_lines(results[-1].printed)}" if results[-1].printed.strip() else ""
            out.append(f"<pre>{escape(message + printed)}</pre><div class='hint'>more: <code>hint(\"{escape(grade.exercise)}\", "
                       f"{min(r.hint for r in results)})</code></div>")
    return "".join([*out, "</div>"])


# ---- files -------------------------------------------------------------------------------------------

def as_csv(grades: Iterable[Grade]) -> str:
    """A row a submission and exercise: who, exercise, points, of, a column of failed tests, the first message.

    >>> print(as_csv([Grade("e05", "", "ann", [Result("test_a", "a", 0, 3, "=1+1 is wrong")], 0.5)]).strip())
    who,exercise,points,of,failed,message,seconds
    ann,e05,0,3,test_a,'=1+1 is wrong,0.5
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["who", "exercise", "points", "of", "failed", "message", "seconds"])
    for g in grades:
        first = one_line(g.failed[0].message) if g.failed else ""
        rows.writerow([_cell(g.who), g.exercise, f"{g.points:g}", f"{g.worth:g}", " ".join(r.name for r in g.failed),
                       _cell(first), f"{g.seconds:.1f}"])
    return out.getvalue()


def one_line(text: str, most: int = 300) -> str:
    """A text on one line, cut if it is long."""
    text = " ".join(_clean(text).split())
    return text if len(text) <= most else f"{text[:most - 2]} …"


def _cell(text: str) -> str:
    """Text that a spreadsheet doesn't take for a formula."""
    text = one_line(text)
    return f"'{text}" if text[:1] in tuple("=+-@\t") else text


def as_json(grades: Iterable[Grade]) -> str:
    """All there is to know, with sums."""
    return json.dumps([{**asdict(g), "points": g.points, "worth": g.worth} for g in grades], indent=1) + "\n"


def as_junit(grades: Iterable[Grade]) -> str:
    """JUnit's XML: a suite a submission and exercise, a case a test."""
    grades, root = list(grades), xml.Element("testsuites", name="minispore grade")
    for g in grades:
        suite = xml.SubElement(root, "testsuite", name=_xml(f"{g.who} {g.exercise}".strip()), tests=str(len(g.results)),
                               failures=str(len(g.failed)), errors="0", time=f"{g.seconds:.3f}")
        for r in g.results:
            case = xml.SubElement(suite, "testcase", classname=_xml(f"{g.who or 'submission'}.{g.exercise}"), name=r.name,
                                  time=f"{r.seconds:.3f}")
            if not r.passed:
                failure = xml.SubElement(case, "failure", message=_xml(one_line(r.message)))
                failure.text = _xml(f"{r.about}\n{r.message}\n{r.points:g} of {r.worth:g} points; hint {r.hint}")
            if r.printed:
                xml.SubElement(case, "system-out").text = _xml(r.printed)
    xml.indent(root)
    return xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """Text without the characters that XML has no way to write."""
    return NO_XML.sub("�", text)
