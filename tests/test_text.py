"""Every phrase key has both languages with the same placeholders, and is used; a phrase keeps its key and values."""

from __future__ import annotations

import ast
import copy
import json
import pickle
import re
from pathlib import Path
from string import Formatter

import pytest

import memdiag
from memdiag import text
from memdiag.errors import MemdiagError
from memdiag.text import FOLDER, LANGUAGES, joined, phrase, phrase_of
from tests.catalogues import AREAS, CATALOGUES, MODULES

PACKAGE = Path(memdiag.__file__).parent
OF_THE_PAGE = "page"  # used by the scripts of the page (tests/render/analyze/html/test_words.py)


# remedies and sources also store keys in variables
KEY = re.compile(
    rf"(?:{'|'.join(area for area in AREAS if area.startswith(('oom_', 'remedies', 'cause', 'sources')))})\.[\w.-]+"
)


def asked_for():
    """Returns every key that the package uses: complete keys, and prefixes of composed keys."""
    whole, begun = set(), set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value):
                whole.add(node.value)
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if name in {"phrase", "LazyFix"} and node.args:
                for each in ast.walk(node.args[0]):
                    if isinstance(each, ast.JoinedStr):
                        begun.add(each.values[0].value)
                    elif (
                        isinstance(each, ast.Constant)
                        and isinstance(each.value, str)
                        and "." in each.value
                        and each.value[0] != "."
                    ):
                        whole.add(each.value)
                        begun |= {f"{each.value}.when", f"{each.value}.caveat"} if name == "LazyFix" else set()
                begun |= {
                    each.value.values[0].value
                    for each in node.keywords
                    if isinstance(each.value, ast.JoinedStr) and name == "LazyFix"
                }
    return whole - begun, begun


def blanks(template):
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


@pytest.mark.parametrize("area", CATALOGUES)
def test_every_phrase_is_there_in_every_language_with_the_same_blanks(area):
    for key, template in CATALOGUES[area].items():
        assert set(template) == set(LANGUAGES), key
        assert all(template.values()), key
        assert blanks(template["en"]) == blanks(template["zh"]), key


def test_every_key_that_is_asked_for_exists_and_every_phrase_is_asked_for():
    whole, begun = asked_for()
    begun -= {each for each in begun if "." not in each}
    known = {f"{area}.{key}" for area in AREAS if area != OF_THE_PAGE for key in text.catalogue(area)}
    assert not {key for key in whole - known if not any(key == each for each in begun)}
    assert not {key for key in known - whole if not key.startswith(tuple(begun))}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_with_texts_of_its_own_uses_each(module):
    """``texts.py`` holds the texts of all modules of its package."""
    own = MODULES[module]
    used = {
        node.value
        for path in (own.parent.rglob("*.py") if own.name == "texts.py" else [own])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for node in ast.walk(node)
        if isinstance(node, ast.Constant)
    }
    parts = {f"{key}.{part}" for key in used for part in ("when", "caveat")}
    assert not CATALOGUES[module].keys() - used - parts


def test_a_phrase_of_a_module_follows_the_language_and_stays_english_without_chinese():
    texts = {"full": {"en": "{size} is free", "zh": "空闲 {size}"}, "short": {"en": "{n:# byte|# bytes}"}}
    full, short = phrase_of(texts, "full", size="1 GiB"), phrase_of(texts, "short", n=2)
    assert (full, short) == ("1 GiB is free", "2 bytes")
    assert pickle.loads(pickle.dumps(full)).in_language("zh") == "空闲 1 GiB"
    assert joined([full, short], ", ").in_language("zh") == "空闲 1 GiB\uff0c2 bytes"


IN_THE_PROGRAM = ("recorder", "phantom/boot")  # parts that run inside the recorded program, maybe without memdiag
TYPED = re.compile(r"^pip install|^memdiag \w+ (?:\[options\] )?--")  # commands, which are the same in every language


def test_errors_and_notices_are_phrases():
    """Their texts are not written in the code: such texts would be English in Chinese output."""
    written = []
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).as_posix().startswith(IN_THE_PROGRAM):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if name not in {"MemdiagError", "RefusedFile", "say"}:
                continue
            for value in (*node.args, *(each.value for each in node.keywords)):
                calls = {getattr(each.func, "id", "") for each in ast.walk(value) if isinstance(each, ast.Call)}
                words = [
                    each.value
                    for each in ast.walk(value)
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
                if not calls & {"phrase", "joined"} and any(
                    re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}", text) for text in words
                ):
                    written += [f"{path.name}:{node.lineno}: {text}" for text in words if not TYPED.search(text)]
    assert written == []


def test_catalogues_are_written_without_repeated_keys():
    def once(pairs):
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    for area in AREAS:
        json.loads((FOLDER / f"{area}.json").read_text(encoding="utf-8"), object_pairs_hook=once)


def test_numbers_choose_singular_or_plural_and_have_separators():
    assert phrase("places.age.steps", events=12034, steps=1) == "for 12,034 events (1 step)"


def test_a_phrase_stays_a_phrase_when_it_is_copied_or_sent():
    told = joined([phrase("places.before"), phrase("places.step", step="3")], ", ")
    for same in (copy.deepcopy(told), pickle.loads(pickle.dumps(told))):
        assert same == told == "before the trace began, step 3"
        assert same.in_language("zh") == told.in_language("zh") != told


def test_the_active_language_is_what_new_phrases_are_made_in():
    english = phrase("places.before")
    with text.speaking("zh"):
        assert phrase("places.before") == english.in_language("zh") == text.shown(english)
    assert text.shown(english) == english


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "MEMDIAG_LANG": "en"}, "en"),
        ({"MEMDIAG_LANG": "zh"}, "zh"),
    ],
)
def test_the_environment_chooses_the_language(environment, expected):
    assert text.from_environment(environment) == expected


def test_an_unknown_language_is_refused():
    with pytest.raises(MemdiagError, match="English"):
        text.checked("fr")


# Positions and names of the arguments that users read.
_TEXTS = {
    "Finding": {1: "title"},
    "Evidence": {0: "what", 3: "where"},
    "Fix": {0: "title", 3: "applicability", 4: "caveat"},
}


def texts_outside_catalogues(path):
    """Yields (line, text) of English literals that a module passes to findings, evidence and fixes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        places = _TEXTS.get(getattr(node.func, "id", "")) if isinstance(node, ast.Call) else None
        if places is None:
            continue
        given = [node.args[at] for at in places if at < len(node.args)] + [
            each.value for each in node.keywords if each.arg in places.values()
        ]
        for text_ in given:
            keys = {id(part) for each in ast.walk(text_) if isinstance(each, ast.Call) for part in ast.walk(each)}
            for part in ast.walk(text_):
                if (
                    isinstance(part, ast.Constant)
                    and isinstance(part.value, str)
                    and " " in part.value.strip()
                    and id(part) not in keys
                ):
                    yield part.lineno, part.value


@pytest.mark.parametrize(
    "module",
    [path for path in sorted((PACKAGE / "analyzers").rglob("*.py")) if path.stem in AREAS],
    ids=lambda path: path.stem,
)
def test_an_analyzer_with_a_catalogue_keeps_all_its_texts_there(module):
    assert not list(texts_outside_catalogues(module))


def asked_at_import(body):
    """Yields the lines that look up phrases when a module is imported."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from asked_at_import(node.body)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            later = {id(part) for each in ast.walk(node) if isinstance(each, ast.Lambda) for part in ast.walk(each)}
            calls = (each for each in ast.walk(node) if isinstance(each, ast.Call) and id(each) not in later)
            yield from (each.lineno for each in calls if getattr(each.func, "id", "") == "phrase")


def test_no_phrase_is_made_before_the_language_is_chosen():
    found = {
        str(path): list(asked_at_import(ast.parse(path.read_text(encoding="utf-8")).body))
        for path in PACKAGE.rglob("*.py")
    }
    assert not {path: lines for path, lines in found.items() if lines}
