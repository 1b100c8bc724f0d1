"""The texts of the page are complete in both languages, and none of them is unused."""

from __future__ import annotations

import re
from importlib.resources import files

from memdiag import vocabulary
from memdiag.render.analyze.html import SHARED, page_words
from memdiag.text import LANGUAGES, catalogue

ASSETS = files("memdiag.render.analyze.html") / "assets"
EN, ZH = (page_words(lang) for lang in LANGUAGES)
SCRIPTS = {item.name: item.read_text(encoding="utf-8") for item in ASSETS.iterdir() if item.name.endswith(".js")}


def test_both_languages_have_the_same_words():
    assert set(EN) == set(ZH)


def test_words_that_are_shared_have_no_text_of_their_own():
    assert not set(SHARED) & set(catalogue("page"))


def test_the_same_blanks_are_filled():
    blanks = [{key: set(re.findall(r"\{(\w+)[:}]", words[key])) for key in EN} for words in (EN, ZH)]
    assert blanks[0] == blanks[1]


def test_every_word_that_the_page_asks_for_is_there():
    asked = set()
    for text in SCRIPTS.values():
        asked |= set(re.findall(r'M\.t\((?:\w+ \? "[\w.-]+" : )?"([\w.-]+)"', text)) | set(
            re.findall(r'"help\.[\w-]+"', text)
        )
    asked |= set(re.findall(r'data-t(?:-\w+)?="([\w.-]+)"', (ASSETS / "page.html").read_text(encoding="utf-8")))
    assert len(asked) > 100
    assert {key.strip('"') for key in asked} <= set(EN)


def test_no_script_or_style_has_a_colour_of_its_own_for_a_concept():
    palette = {style.color for classes in vocabulary.STYLES.values() for style in classes.values()}
    for item in ASSETS.iterdir():
        if item.name.endswith((".js", ".css", ".html")):
            assert not palette & set(re.findall(r"#[0-9a-f]{6}\b", item.read_text(encoding="utf-8").lower())), item.name


def test_scripts_are_small_and_never_write_markup():
    for name, text in SCRIPTS.items():
        assert text.count("\n") <= 400, name
        assert '"use strict"' in text, name
        assert not re.search(
            (
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|fetch\(|XMLHttpRequest|"
                r"\bimport\("
            ),
            text,
        ), name


def test_the_library_is_unmodified_and_has_its_licence():
    vendor = ASSETS / "vendor"
    assert "Apache License" in (vendor / "LICENSE").read_text(encoding="utf-8")
    assert "Apache ECharts" in (vendor / "NOTICE").read_text(encoding="utf-8")
    library = (vendor / "echarts.min.js").read_text(encoding="utf-8")
    assert "</script" not in library.lower()  # the library is embedded in a script element


def test_dark_colours_are_for_screens_only():
    style = (ASSETS / "00_base.css").read_text(encoding="utf-8")
    assert "@media screen and (prefers-color-scheme: dark)" in style
    assert "@media (prefers-color-scheme" not in style
