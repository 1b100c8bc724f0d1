"""The comparison with published measurements has a valid table, and its report and sentences match the results."""

import json
import re
import tomllib

import pytest
from truth import report


@pytest.fixture(scope="module")
def table(root):
    return tomllib.loads((root / "bench/truth/families.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def results(root):
    return json.loads((root / "reports/phantom-truth.json").read_text(encoding="utf-8"))


def test_every_family_names_its_source_and_what_it_needs(root, table):
    programs = {path.name for path in (root / "bench/truth/programs").glob("*.py")}
    for name, family in table["family"].items():
        assert family["source"].startswith("https://"), name
        assert {"title", "hardware", "versions", "device", "command", "measure"} <= set(family), name
        assert family["environment"] in table["environment"], name
        assert family["unit"] in report.UNITS, name
        if "checkout" in family:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{7,40}", family["checkout"]), name
        assert set(re.findall(r"\{here\}/programs/(\w+\.py)", family["command"])) <= programs, name


def test_rows_are_published_figures_under_names_of_their_own(table):
    for name, family in table["family"].items():
        ids = [row["id"] for row in family["rows"]]
        assert len(set(ids)) == len(ids), name
        assert all(re.fullmatch(r"\d+(\.\d+)?", row["published"]) for row in family["rows"]), name
        assert all(isinstance(each, str) for row in family["rows"] for each in row.get("variables", {}).values()), name


def test_the_results_are_of_the_figures_in_the_table(table, results):
    for name, rows in results.items():
        published = {
            row["id"]: (row["published"], table["family"][name]["unit"]) for row in table["family"][name]["rows"]
        }
        assert {each: (row["published"], row["unit"]) for each, row in rows.items()} == {
            each: published[each] for each in rows
        }


def test_the_report_is_what_the_results_give(root, table, results):
    written = (root / "reports/phantom-truth.md").read_text(encoding="utf-8")
    assert report.text(table, results) == written


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/phantom.md"])
def test_pages_quote_the_summary(root, results, page):
    grades = [report.grade(row) for rows in results.values() for row in rows.values()]
    words = re.sub(r"\s+", " ", (root / page).read_text(encoding="utf-8"))
    assert f"{grades.count('equal')}" in words
    assert str(len(grades)) in words


@pytest.mark.parametrize(
    ("published", "measured", "expected"),
    [
        ("81.2", 81_235_284_480, "equal"),
        ("81.2", 81_251_000_000, "within 1 %"),
        ("33.61", 32_290_000_000, "beyond 1 %"),
        ("33.61", None, "failed"),
    ],
)
def test_a_row_is_equal_in_every_printed_digit_or_not(published, measured, expected):
    assert report.grade({"published": published, "unit": "GB", "bytes": measured}) == expected
