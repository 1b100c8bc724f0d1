"""With Chinese selected, findings contain no English sentence, and with English selected no Chinese character."""

import re

import pytest

from memdiag.text import speaking
from tests.analyzers.page_examples import examples

# Three words in a row are a sentence: names have fewer words, and settings are joined by underscores.
ENGLISH = re.compile(r"(?<![\w:])[A-Za-z]{2,}(?:[ ,;:]+[A-Za-z]{2,}){2,}(?![\w:])")
CHINESE = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")


def texts(findings):
    for finding in findings:
        yield finding.title
        for item in finding.evidence:
            yield from (item.what, item.where, item.value if isinstance(item.value, str) else "")
        for fix in finding.fixes:
            yield from (fix.title, fix.applicability, fix.caveat, fix.change.partition("# ")[2])


@pytest.mark.parametrize("code", sorted(examples()))
def test_findings_are_in_the_chosen_language(code):
    with speaking("zh"):
        assert not [text for text in texts(examples()[code]()) if ENGLISH.search(text)]
    with speaking("en"):
        assert not [text for text in texts(examples()[code]()) if CHINESE.search(text)]
