"""The glossary: in order, complete rows, and with every term that a chapter introduces as *term* (中文)."""
import re
from pathlib import Path

HERE = Path(__file__).parents[1]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")]
        for line in (HERE / "docs" / "glossary.md").read_text("utf-8").splitlines() if line.startswith("| ")][1:]
INTRODUCED = re.compile(r"\*([^*\n]+)\*\*? *\(([\u4e00-\u9fff]+)")


CHAPTERS = {source.name[:2] for source in (HERE / "notebooks" / "src").glob("*.py")}


def test_rows():
    assert len(ROWS) > 80
    for row in ROWS:
        _, _, sentence, _, chapter = row
        assert all(row), row
        assert sentence.endswith(".") and chapter in {*CHAPTERS, "–"}, row
    terms = [row[0].replace("α", "alpha").replace("β", "beta").replace("-", " ").lower() for row in ROWS]
    assert terms == sorted(set(terms))


def test_terms_of_the_chapters():
    known = " ".join(row[1] + row[2] for row in ROWS)
    for source in sorted((HERE / "notebooks" / "src").glob("*.py")):
        text = re.sub(r"\n# ?", " ", source.read_text("utf-8"))
        for term, chinese in INTRODUCED.findall(text):
            assert chinese in known, f"{source.name} introduces {term} ({chinese}); docs/glossary.md hasn't got it"
