"""docs/coverage.md tells what is there."""
import coverage_table


def test_the_table_is_up_to_date():
    on_disk = (coverage_table.ROOT / "docs" / "coverage.md").read_text()
    assert on_disk == coverage_table.text(), "run: python tests/coverage_table.py"


def test_the_table_knows_what_is_golden():
    text = coverage_table.text()
    assert "| `ops.BatchMatMul` | yes | yes |" in text and "| `ops.Erf` | no | yes |" in text
    assert "| `ops.Argmax` | no | none |" in text and "| `nn.BatchNorm2d` | yes | yes |" in text
