from __future__ import annotations

import re
from dataclasses import replace

import pytest

from memdiag.findings import Finding, Fix
from memdiag.oom.model import Judgement, LedgerEntry
from memdiag.render.lightpage import cells
from memdiag.render.look import Look
from memdiag.render.oom_terminal import render

REPORTS = ("one", "many", "bare", "nothing", "hostile")
SECTIONS = ("FRAGMENTATION  ", "how sure", "message", "Where the memory of GPU 3 was", "What to do", "Next")


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 160, 300])
@pytest.mark.parametrize("name", REPORTS)
def test_it_keeps_to_the_width(oom_samples, name, width):
    shown = render(getattr(oom_samples, name)(), Look(width=width))
    assert shown.endswith("\n")
    for line in shown.splitlines():
        assert line == line.rstrip()
        pasted = any(text in line for text in ("export ", "torch.cuda", "memdiag ", "--flag", "\\x1b"))
        assert pasted or cells(line) <= min(max(width, 60), 132), line


def test_sections_come_in_order(oom_samples):
    shown = render(oom_samples.one())
    places = [shown.index(section) for section in SECTIONS]
    assert places == sorted(places)
    assert len(shown.splitlines()) < 50


def test_the_verdict_with_its_arithmetic_and_doubts(oom_samples):
    shown = flat(render(oom_samples.one()))
    assert "in pieces that this request could not use. why 4.00 GiB is reserved but unallocated, and 2.00 GiB was asked for." in shown
    assert "Another reason." in shown
    assert "how sure high: little doubt. If not that: capacity (more needed than there is)." in shown
    assert "message PyTorch on CUDA · GPU 3 · rank 3 · process 77 · train.log:10412 " in shown


def test_the_ledger_is_drawn_to_scale_and_adds_up(oom_samples):
    shown = render(oom_samples.one(), Look(width=84))
    bar = next(line for line in shown.splitlines() if line.startswith("  █"))
    assert {glyph: bar.count(glyph) for glyph in "█▒░·?"} == {"█": 50, "▒": 20, "░": 5, "·": 3, "?": 2}
    assert "  ========== 2.00 GiB wanted\n" in shown
    parts = [float(share) for share in re.findall(r"^  \S +[\d.]+ \wiB +([\d.]+)%", shown, re.MULTILINE)]
    assert sum(parts) == pytest.approx(100, abs=0.3)
    assert re.search(r"^ +16\.00 GiB +total$", shown, re.MULTILINE)
    assert "reserved but unallocated · computed" in shown
    assert "the driver's own · inferred" in shown


@pytest.mark.parametrize(
    ("wanted", "drawn"), [(16, "== 16.00 GiB wanted ====="), (15, "== 15.00 GiB wanted ="), (40, "== 40.00 GiB wanted ==")]
)
def test_a_request_as_large_as_the_bar(oom_samples, wanted, drawn):
    line = next(line for line in render(oom_samples.one(fields={"requested_bytes": wanted << 30})).splitlines() if "==" in line)
    assert line.strip().startswith(drawn)
    assert line.endswith(">") == (wanted > 16)
    assert cells(line) <= 80


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (2 << 20, "2.00 MiB is no tensor's size: for any tensor of up to 1 MiB, PyTorch asks the driver for 2 MiB."),
        (20 << 20, "20.00 MiB is probably no tensor's size: for any tensor of 1 to 10 MiB, PyTorch asks the driver for 20 MiB."),
        (64 << 20, "64.00 MiB is the size of one tensor, the one that failed (rounded up); not what the program needs in all."),
    ],
)
def test_what_tried_to_allocate_is(oom_samples, wanted, said):
    assert said in flat(render(oom_samples.one(fields={"requested_bytes": wanted})))
    shown = flat(render(oom_samples.one(fields={"requested_bytes": wanted}, framework="jax")))
    assert "is one buffer. For a compiled step it usually holds all its temporaries together." in shown
    shown = flat(render(oom_samples.one(fields={"requested_bytes": wanted}, dialect="torch_npu_workspace")))
    assert "is one operator's scratch memory, not what the program needs in all." in shown
    shown = flat(render(oom_samples.one(fields={"requested_bytes": wanted}, framework="paddle")))
    assert "is the one request that failed, not what the program needs in all." in shown


def test_remedies_are_ranked_with_the_line_to_paste(oom_samples):
    shown = render(oom_samples.one())
    assert "    1.  Use expandable segments · torch >= 2.1\n        export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in shown
    assert "        Not with CUDA IPC.\n    2.  Pad inputs" in shown
    assert "    and 2 more remedies (--all)" in shown
    assert "Remedy 6" in render(oom_samples.one(), every=True)
    assert "MD708  The hint of the message does not help" in shown


def test_how_to_record_is_a_next_step(oom_samples):
    shown = render(oom_samples.one())
    assert "    memdiag record -- vllm serve model\n" in shown
    assert "memdiag analyze --at oom" not in shown
    assert "    memdiag oom train.log --from-trace .\n" in shown
    assert "    memdiag oom --from-trace .\n" in render(oom_samples.one(source="text", rank=None))
    assert "memdiag oom 'a b.log' --from-trace" in render(oom_samples.one(source="a b.log"))
    assert "Next" not in render(oom_samples.one(framework="jax", findings=()))
    assert "    memdiag record -- python train.py\n" in render(oom_samples.one(findings=()))


def test_moving_to_the_host_comes_after_the_recording_that_it_needs(oom_samples):
    fixes = (
        Fix("See what would fit", "record", "memdiag record -- vllm serve model\nmemdiag simulate --policy offload"),
        Fix("Record the run", "record", "memdiag record -- vllm serve model\nmemdiag analyze"),
    )
    shown = render(oom_samples.one(findings=(replace(oom_samples.FINDINGS[0], fixes=fixes),)))
    lines = [line.strip() for line in shown.splitlines() if line.startswith("    memdiag")]
    assert lines == ["memdiag record -- vllm serve model", "memdiag oom train.log --from-trace .", "memdiag simulate --policy offload"]


def test_with_a_trace_the_next_step_is_to_look_into_it(oom_samples):
    shown = render(replace(oom_samples.one(moment="--at oom"), trace="a b.pkl"))
    assert "    memdiag analyze 'a b.pkl' --at oom\n" in shown
    assert "    memdiag analyze trace.pkl\n" in render(replace(oom_samples.one(), trace="trace.pkl"))
    assert "memdiag record" not in shown


def test_a_recording_that_needs_code_is_shown_as_it_is(oom_samples):
    by_hand = Finding("MD702", "It is full", "critical", fixes=(Fix("Print what is held", "record", "print(stats())"),))
    assert "  print what is held:\n    print(stats())\n" in render(oom_samples.one(findings=(by_hand,)))


def test_more_than_four_reasons_are_shown_with_all(oom_samples):
    judgement = Judgement("capacity", "high", (), tuple(f"Reason {number}" for number in range(1, 7)))
    assert "Reason 4." in render(oom_samples.one(judgement=judgement))
    assert "Reason 5." not in render(oom_samples.one(judgement=judgement))
    assert "and 2 more reasons (--all)" in render(oom_samples.one(judgement=judgement))
    assert "Reason 6." in render(oom_samples.one(judgement=judgement), every=True)


@pytest.mark.parametrize(
    ("judgement", "fields", "said"),
    [
        (Judgement("unknown", "high"), {}, "No memory ran out: the size"),
        (Judgement("host", "low"), {}, "Perhaps the memory of the computer (RAM) ran out, perhaps a process crashed."),
        (Judgement("host", "medium"), {}, "Probably the memory of the computer (RAM) ran out"),
        (Judgement("limit", "high"), {"limit_bytes": 9, "requested_bytes": 20}, "A limit stopped the program: a share"),
        (Judgement("capacity", "low"), {}, "Perhaps the program needs more memory than is there."),
        (Judgement("limit", "low"), {}, "Perhaps a limit stopped the program"),
        (Judgement("host", "high", ("limit",)), {}, "or the part of it that this program may use"),
        (Judgement("limit", "high"), {"free_bytes": 30, "requested_bytes": 20}, "the device itself has more."),
    ],
)
def test_the_headline_says_no_more_than_is_known(oom_samples, judgement, fields, said):
    assert said in flat(render(oom_samples.one(judgement=judgement, fields=fields)))


def test_cannot_be_told_is_no_other_cause(oom_samples):
    shown = flat(render(oom_samples.one(judgement=Judgement("capacity", "medium", ("unknown", "limit"), ("So",)))))
    assert "how sure medium: likely, but not proven. If not that: limit (a limit that was set)." in shown


def test_a_bar_of_nothing_but_unknown_is_left_out(oom_samples):
    entries = (LedgerEntry("in use on the host", 9 << 30, "unknown", "printed"), LedgerEntry("total", 9 << 30, "total", "printed"))
    shown = render(oom_samples.one(ledger=entries, backend="cpu"))
    assert "??" not in shown
    assert "What the message says\n" in shown


def test_names_keep_their_letters_and_facts_begin_with_a_capital(oom_samples):
    reasons = ("cuDNN found no algorithm", "llama.cpp had no room", "torch has it", "the card is full", "hbm: too little")
    shown = flat(render(oom_samples.one(judgement=Judgement("capacity", "low", (), reasons)), every=True))
    for sentence in ("cuDNN found no algorithm.", "llama.cpp had no room.", "torch has it.", "The card is full.", "hbm: too little."):
        assert f" {sentence} " in shown
    assert "llama.cpp on Vulkan" in flat(render(oom_samples.one(framework="llama.cpp", backend="vulkan")))
    assert "Kubernetes · " in flat(render(oom_samples.one(framework="kubernetes", backend="cpu")))
    named = Fix("Load it so", caveat="Hugging Face: from_pretrained(…, low_cpu_mem_usage=True)", kind="code")
    shown = render(oom_samples.one(findings=(Finding("MD706", "It is full", "critical", fixes=(named,)),)))
    assert "        Hugging Face: from_pretrained(…, low_cpu_mem_usage=True).\n" in shown


def test_many_ranks_are_one_row(oom_samples):
    shown = render(oom_samples.many(), Look(width=100))
    assert shown.startswith("10 out-of-memory messages, ranks 0-7, 2 causes. First: rank 3, train.log:10412.\n")
    assert re.search(r"^ +9 +0-7 +fragmentation +2\.00 GiB to 9\.00 GiB +PyTorch +train\.log:10412$", shown, re.MULTILINE)
    assert shown.count("FRAGMENTATION") == 1
    assert "Left out: 2 warnings after which the program went on." in shown
    assert "Other causes\n  HOST  The kernel ended it. (train.log:20000)\n" in shown


def test_every_rank(oom_samples):
    shown = render(oom_samples.many(), every=True, top=1)
    assert [row[0] for row in re.findall(r"^ +\d+ +(\d+) +fragmentation", shown, re.MULTILINE)] == list("30124567")
    assert "more kind" not in shown
    assert "and 1 more kind (--top 2)" in render(oom_samples.many(), top=1)


def test_ten_thousand_ranks(oom_samples):
    report = oom_samples.many(10_000)
    assert " 0-9999 " in render(report)
    assert len(render(report, every=True).splitlines()) > 10_000


def test_no_sizes(oom_samples):
    shown = render(oom_samples.bare())
    assert shown.startswith("UNKNOWN")
    assert "Where the memory" not in shown
    host = render(oom_samples.OomReport((oom_samples.HOST,)))
    assert "What the message says\n  12.00 GiB  held in RAM by the killed process\n" in host
    assert "Linux on the host · process 9 · train.log:20000" in host


def test_a_ledger_without_a_total(oom_samples):
    shown = render(oom_samples.one(ledger=oom_samples.LEDGER[:-1]))
    assert "Where the memory of GPU 3 was (its size is not known)" in shown
    assert "  10.00 GiB  62.5%  allocated by PyTorch" in shown
    assert " total\n" not in shown


def test_a_trace_without_a_failure(oom_samples):
    shown = render(oom_samples.OomReport((), ("a.pkl",), trace="a.pkl"))
    assert "No request failed in the trace a.pkl. What filled it: memdiag analyze a.pkl" in flat(shown)
    assert "Tried to allocate" not in shown


def test_nothing_found(oom_samples):
    shown = render(oom_samples.nothing())
    assert shown.startswith("No out-of-memory message was found.\n")
    assert "Looked at train.log, standard input (12,000 lines, 3.00 MiB)." in shown
    assert "CUDA out of memory" in shown
    empty = render(oom_samples.OomReport((), ("train.log",)))
    assert "There is nothing in it. Did the program write to stderr?" in empty


@pytest.mark.parametrize("look", [Look(), Look(color=True), Look(unicode=False), Look(color=True, unicode=False)])
@pytest.mark.parametrize("name", REPORTS)
def test_no_control_character_of_a_log_reaches_the_terminal(oom_samples, name, look):
    shown = render(getattr(oom_samples, name)(), look)
    assert ("\x1b[" in shown) == look.color
    bare = re.sub(r"\x1b\[[\d;]+m", "", shown) if look.color else shown
    assert not {char for char in bare if char != "\n" and not char.isprintable()}
    assert look.unicode or bare.isascii()


def test_colour_changes_nothing_else(oom_samples):
    for name in REPORTS:
        report = getattr(oom_samples, name)()
        assert re.sub(r"\x1b\[[\d;]+m", "", render(report, Look(color=True))) == render(report)
