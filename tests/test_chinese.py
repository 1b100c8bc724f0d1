"""Chinese texts use one word per concept, spaces around Latin words and numbers, and full-width punctuation."""
# ruff: noqa: RUF001 - the tests contain full-width signs

from __future__ import annotations

import re

import pytest

from memdiag import manual, text
from memdiag.cli.main import main
from memdiag.text import joined, phrase
from memdiag.units import format_bytes
from tests.catalogues import CATALOGUES

HAN = "\u3400-\u9fff"
# Rejected words, each with the word that the catalogues use instead.
ONE_WORD = {
    "生存期": "生命周期",
    "补救": "措施",
    "录制的(?!设备|内容)": "记录的",
    "显存": "设备内存",
    "跟踪": "记录",
    "回放": "重放",
    "仿真": "模拟",
    "堆栈": "调用栈",
    "泄露": "泄漏",
    "舍入": "取整",
    "上界": "上限",
    "下界": "下限",
    "可信度": "置信度",
    "测得": "实测",
    "容许": "允许",
    "分配位置|分配点": "调用位置",
    "micro-batch": "微批次",
    "显存不足": "内存不足",
    "显卡|加速卡": "设备",
    "迭代": "训练步",
}
LABELS = {
    "fix": "措施",
    "Fix": "措施",
    "FIX": "措施",
    "lifetime": "生命周期",
    "Findings": "诊断结果",
    "findings": "诊断结果",
    "unknown": "未知",
}
# A Chinese sentence keeps ASCII signs only inside code.
WRONG_SIGN = re.compile(rf"[{HAN}][,;:!?()]|[,;:!?)](?<!\{{)[{HAN}]|[{HAN}]\.(?:\s|$)")
NO_SPACE = re.compile(rf"[{HAN}][A-Za-z0-9`$]|[A-Za-z0-9%`][{HAN}]")
NEEDLESS_SPACE = re.compile(rf"[{HAN}，。：；（）、] [{HAN}，。：；（）、]")


def chinese(area):
    """Yields (key, English, Chinese) of a catalogue; ``{count:# block|# blocks}`` is replaced by its two forms."""
    for key, template in CATALOGUES[area].items():
        yield (
            key,
            template["en"],
            re.sub(r"\{\w+:([^{}]*\|[^{}]*)\}", lambda found: found[1].replace("|", "\n"), template["zh"]),
        )


@pytest.mark.parametrize("area", CATALOGUES)
def test_a_concept_has_one_chinese_word(area):
    found = [
        (key, word, use) for key, _, words in chinese(area) for word, use in ONE_WORD.items() if re.search(word, words)
    ]
    assert not found
    assert not [(key, words) for key, english, words in chinese(area) if LABELS.get(english, words) != words]


@pytest.mark.parametrize("area", CATALOGUES)
def test_chinese_texts_have_spaces_and_full_width_signs(area):
    for key, _, words in chinese(area):
        assert not NO_SPACE.search(words), (key, words)
        assert not NEEDLESS_SPACE.search(words), (key, words)
        without_code = re.sub(r"\[MiB:.*?\]|:KiB:\S*", "", words)
        assert not WRONG_SIGN.search(without_code), (key, words)


def test_every_finding_has_a_chinese_title_and_summary(root):
    pages = [path.read_text(encoding="utf-8") for path in sorted((root / "docs/findings").glob("MD*.md"))]
    entries = [manual._CHINESE.match(page.split("\n", 1)[1]) for page in pages]
    assert all(entries)
    for words in (each[0].removeprefix("<!-- zh: ").removesuffix(" -->\n") for each in entries):
        code = re.sub(r"`[^`]*`|\w*\(\)", "X", words)
        assert not [word for word in ONE_WORD if re.search(word, words)], words
        assert not NO_SPACE.search(words), words
        assert not NEEDLESS_SPACE.search(words), words
        assert not WRONG_SIGN.search(code), words


def test_explain_shows_the_summary_and_the_headings_in_chinese(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with text.speaking("en"):
        assert main(["--lang", "zh", "explain", "MD201", "MD907"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "空闲内存所在的块小于请求",
        "含义",
        "处理方法",
        "记录开始时已有存活张量",
        "应对方法",
        "以下正文为英文",
    ):
        assert words in shown
    assert not re.search(r"^(What it means|How to fix it|What to do)$", shown, re.MULTILINE)


def test_a_value_is_set_apart_from_chinese_words_where_the_two_meet():
    with text.speaking("zh"):
        event = phrase("places.event", at=3)
        assert phrase("headline.most", moment=event, share="50%", kind="KV cache") == "事件 3 的 50% 是 KV cache。"
        assert phrase("headline.most", moment="快照", share="50%", kind="张量") == "快照的 50% 是张量。"
        assert joined(["GPU 0", "的内存", "15.11 GiB"], " ") == "GPU 0 的内存 15.11 GiB"
        # the template has a space for Latin words
        assert phrase("places.named", name="张量", place="训练步") == "训练步的张量"
        assert format_bytes(None) == "未知"
    assert format_bytes(None) == "unknown"


@pytest.mark.parametrize(("arguments", "said"), [(["analyze", "none.pkl"], "没有此文件"), (["analyze", "."], "文件夹")])
def test_errors_that_users_meet_first_are_chinese(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with text.speaking("en"):  # restores the language for other tests
        assert main(["--lang", "zh", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("错误：")
    assert said in shown
