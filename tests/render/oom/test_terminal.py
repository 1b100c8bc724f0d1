from __future__ import annotations

import re
from dataclasses import replace

import pytest

from memdiag.render.oom.terminal import render
from memdiag.render.support.line import cells
from memdiag.render.support.look import Look
from memdiag.results.finding import Finding, Fix
from memdiag.results.oom import Judgement, LedgerEntry
from memdiag.text import speaking

REPORTS = ("one", "many", "bare", "nothing", "hostile")
SECTIONS = (
    "FRAGMENTATION (confidence high)",
    "4.00 GiB",
    "Try first",
    "If that is not possible",
    "Memory of GPU 3 (16.00 GiB)",
    "Next",
)


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


def test_the_report_leads_with_the_action(oom_samples):
    shown = render(oom_samples.one())
    places = [shown.index(section) for section in SECTIONS]
    assert places == sorted(places)
    lines = shown.splitlines()
    assert len(lines) <= 25
    assert next(number for number, line in enumerate(lines, 1) if "Use expandable segments" in line) <= 10


def test_the_verdict_with_its_arithmetic_and_doubts(oom_samples):
    shown = flat(render(oom_samples.one()))
    assert shown.startswith(
        "FRAGMENTATION (confidence high) GPU 3, rank 3, train.log:10412 4.00 GiB is reserved but unallocated, and "
    )
    assert "was asked for. Another reason. Try first" in shown
    assert "Next most likely" not in shown
    verbose = flat(render(oom_samples.one(), verbose=True))
    assert "Another reason. Next most likely: out of capacity. Try first" in verbose
    assert "Message PyTorch on CUDA · GPU 3 · rank 3 · process 77 · train.log:10412 " in verbose
    doubtful = flat(render(oom_samples.one(judgement=Judgement("fragmentation", "medium", ("capacity",), ("So",)))))
    assert "FRAGMENTATION (confidence medium)" in doubtful
    assert "So. Next most likely: out of capacity." in doubtful


def test_the_ledger_is_drawn_to_scale_and_adds_up(oom_samples):
    brief = render(oom_samples.one(), Look(width=80))
    bars = dict(re.findall(r"^  (\S.*?)  +[\d.]+ \wiB  ([█▒░·?]+)$", brief, re.MULTILINE))
    assert {name: len(bar) for name, bar in bars.items()} == {
        "allocated by PyTorch": 24,
        "reserved but unallocated": 10,
        "process 4711": 2,
        "free": 1,
        "unknown: the driver's own": 1,
    }
    shown = render(oom_samples.one(), Look(width=84), verbose=True)
    parts = [float(share) for share in re.findall(r"[\d.]+ \wiB +([\d.]+)%  [█▒░·?]", shown)]
    assert sum(parts) == pytest.approx(100, abs=0.3)
    assert re.search(r"^  total +16\.00 GiB$", shown, re.MULTILINE)
    assert re.search(r"^  failed request +2\.00 GiB +12\.5%  ==$", shown, re.MULTILINE)
    assert "reserved but unallocated (computed)" in flat(shown)
    assert "the driver's own (inferred)" in flat(shown)


@pytest.mark.parametrize(("wanted", "end"), [(16, "="), (15, "="), (40, "=>")])
def test_a_request_as_large_as_the_device(oom_samples, wanted, end):
    shown = render(oom_samples.one(fields={"requested_bytes": wanted << 30}), verbose=True)
    line = next(line for line in shown.splitlines() if "==" in line)
    assert line.strip().startswith("failed request")
    assert line.endswith("=" + end)
    assert cells(line) <= 80


def test_many_other_processes_are_added_up(oom_samples):
    others = tuple(LedgerEntry(f"process {pid}", pid << 20, "other processes", "printed") for pid in range(1, 6))
    report = oom_samples.one(ledger=(*oom_samples.LEDGER[:2], *others, oom_samples.LEDGER[-1]))
    shown = render(report)
    assert re.search(r"process 4 +4\.00 MiB.*\n  process 5 +5\.00 MiB.*\n  3 more processes +6\.00 MiB", shown)
    assert "process 1 " in render(report, verbose=True)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            2 << 20,
            (
                "2.00 MiB is not the size of a tensor: PyTorch requests 2 MiB from the driver for any tensor of up to "
                "1 MiB."
            ),
        ),
        (
            20 << 20,
            (
                "20.00 MiB is probably not the size of a tensor: PyTorch requests 20 MiB from the driver for any "
                "tensor of 1 to 10 MiB."
            ),
        ),
        (64 << 20, "64.00 MiB is the size of the failed allocation (rounded up), not the program's total."),
    ],
)
def test_what_tried_to_allocate_is(oom_samples, wanted, said):
    assert said in flat(render(oom_samples.one(fields={"requested_bytes": wanted}), verbose=True))
    shown = flat(render(oom_samples.one(fields={"requested_bytes": wanted}, framework="jax"), verbose=True))
    assert (
        "is the size of one buffer. For a compiled step, that buffer usually contains all temporaries of the step."
        in shown
    )
    shown = flat(
        render(oom_samples.one(fields={"requested_bytes": wanted}, dialect="torch_npu_workspace"), verbose=True)
    )
    assert "is the workspace of one operator, not the program's total." in shown
    shown = flat(render(oom_samples.one(fields={"requested_bytes": wanted}, framework="paddle"), verbose=True))
    assert "is the failed request, not the program's total." in shown


def test_remedies_are_ranked_with_the_line_to_paste(oom_samples):
    shown = render(oom_samples.one())
    assert (
        "Try first\n  Use expandable segments.\n    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in shown
    )
    assert (
        "    torch >= 2.1. Not with CUDA IPC.\nIf that is not possible\n  Pad inputs to a few sizes (every backend)\n"
        in shown
    )
    assert "Not worth trying\n  The hint of the message does not help.\n" in shown
    assert "More with --verbose: 3 remedies, the whole account." in shown
    assert "Remedy 6" not in shown
    assert "Remedy 6" in render(oom_samples.one(), verbose=True)
    assert "Remedy 6" in render(oom_samples.one(), every=True)


def test_the_remedy_for_another_cause_is_named_as_such(oom_samples):
    other = Finding(
        "MD703", "5.00 GiB is held by others", "info", fixes=(Fix("End the other processes", "code", "nvidia-smi"),)
    )
    shown = render(oom_samples.one(findings=(*oom_samples.FINDINGS[:1], other)))
    assert "If the cause is other processes\n  End the other processes\n    nvidia-smi\n" in shown


def test_general_remedies_after_those_of_a_trace_are_alternatives(oom_samples):
    special = Finding("MD201", "Fragments", "critical", fixes=(Fix("Pin the blocks together", "code"),))
    shown = render(oom_samples.one(findings=(special, *oom_samples.FINDINGS[:1])))
    assert (
        "Try first\n  Pin the blocks together.\nIf that is not possible\n  Use expandable segments (torch >= 2.1)\n"
        in shown
    )


def test_alternatives_make_way_for_the_rest_of_a_long_report(oom_samples):
    long = replace(
        oom_samples.FINDINGS[0], fixes=tuple(Fix(f"Remedy {number}", "code", "a\nb") for number in range(1, 6))
    )
    shown = render(oom_samples.one(findings=(long,)))
    assert len(shown.splitlines()) <= 25
    assert "Remedy 2" in shown
    assert "Remedy 3" not in shown
    assert "More with --verbose: 3 remedies" in shown


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
    shown = render(oom_samples.one(findings=(replace(oom_samples.FINDINGS[0], fixes=fixes),)), verbose=True)
    lines = [line.strip() for line in shown.splitlines() if line.startswith("    memdiag")]
    assert lines == [
        "memdiag record -- vllm serve model",
        "memdiag oom train.log --from-trace .",
        "memdiag simulate --policy offload",
    ]
    brief = render(oom_samples.one(findings=(replace(oom_samples.FINDINGS[0], fixes=fixes),)))
    assert "memdiag simulate" not in brief
    assert "1 further step" in brief


def test_with_a_trace_the_next_step_is_to_look_into_it(oom_samples):
    shown = render(replace(oom_samples.one(moment="--at oom"), trace="a b.pkl"))
    assert "    memdiag analyze 'a b.pkl' --at oom\n" in shown
    assert "    memdiag analyze trace.pkl\n" in render(replace(oom_samples.one(), trace="trace.pkl"))
    assert "memdiag record" not in shown


def test_a_recording_that_needs_code_is_shown_as_it_is(oom_samples):
    by_hand = Finding("MD702", "It is full", "critical", fixes=(Fix("Print what is held", "record", "print(stats())"),))
    assert "Next: print what is held\n    print(stats())\n" in render(oom_samples.one(findings=(by_hand,)))


def test_reasons_that_do_not_fit_are_shown_with_verbose(oom_samples):
    judgement = Judgement(
        "capacity", "high", (), tuple(f"Reason {number} {'of some length ' * 5}" for number in range(1, 8))
    )
    shown = render(oom_samples.one(judgement=judgement))
    assert "Reason 2" in shown
    assert "Reason 7" not in shown
    assert re.search(r"\d reasons, the whole account\.", shown)
    assert "Reason 7" in render(oom_samples.one(judgement=judgement), verbose=True)
    assert "Reason 6" in render(replace(oom_samples.one(judgement=judgement), trace="a.pkl"))


@pytest.mark.parametrize(
    ("judgement", "fields", "said"),
    [
        (Judgement("unknown", "high"), {}, "NO MEMORY SHORTAGE (confidence high)"),
        (Judgement("unknown", "high"), {}, "No memory ran out: the requested size"),
        (Judgement("host", "low"), {}, "may have run out, or a process may have crashed."),
        (Judgement("host", "medium"), {}, "Host memory (RAM) probably ran out"),
        (
            Judgement("limit", "high"),
            {"limit_bytes": 9, "requested_bytes": 20},
            "A limit stopped the allocation: a memory fraction",
        ),
        (Judgement("capacity", "low"), {}, "OUT OF CAPACITY (confidence low)"),
        (Judgement("host", "high", ("limit",)), {}, "or this program's share of it"),
        (Judgement("limit", "high"), {"free_bytes": 30, "requested_bytes": 20}, "the device has more memory."),
    ],
)
def test_the_headline_says_no_more_than_is_known(oom_samples, judgement, fields, said):
    assert said in flat(render(oom_samples.one(judgement=judgement, fields=fields)))


def test_cannot_be_told_is_no_other_cause(oom_samples):
    shown = flat(render(oom_samples.one(judgement=Judgement("capacity", "medium", ("unknown", "limit"), ("So",)))))
    assert "So. Next most likely: limit reached." in shown


def test_a_bar_of_nothing_but_unknown_is_left_out(oom_samples):
    entries = (
        LedgerEntry("in use on the host", 9 << 30, "unknown", "printed"),
        LedgerEntry("total", 9 << 30, "total", "printed"),
    )
    shown = render(oom_samples.one(ledger=entries, backend="cpu"))
    assert "??" not in shown
    assert "Memory of" not in shown


def test_names_keep_their_letters_and_facts_begin_with_a_capital(oom_samples):
    reasons = (
        "cuDNN found no algorithm",
        "llama.cpp had no room",
        "torch has it",
        "the card is full",
        "hbm: too little",
    )
    shown = flat(render(oom_samples.one(judgement=Judgement("capacity", "low", (), reasons)), verbose=True))
    for sentence in (
        "cuDNN found no algorithm.",
        "llama.cpp had no room.",
        "torch has it.",
        "The card is full.",
        "hbm: too little.",
    ):
        assert f" {sentence} " in shown
    assert "llama.cpp on Vulkan" in flat(
        render(oom_samples.one(framework="llama.cpp", program="", backend="vulkan"), verbose=True)
    )
    assert "Kubernetes · " in flat(
        render(oom_samples.one(program="Kubernetes", framework="kubernetes", backend="cpu"), verbose=True)
    )
    named = Fix("Load it so", caveat="Hugging Face: from_pretrained(…, low_cpu_mem_usage=True)", kind="code")
    shown = render(oom_samples.one(findings=(Finding("MD706", "It is full", "critical", fixes=(named,)),)))
    assert "    Hugging Face: from_pretrained(…, low_cpu_mem_usage=True).\n" in shown


def test_many_ranks_are_one_row(oom_samples):
    shown = render(oom_samples.many(), Look(width=100))
    assert shown.startswith("FRAGMENTATION (confidence high)  GPU 3, 8 ranks, first: rank 3, train.log:10412\n")
    assert "10 messages, ranks 0-7, 2 causes\n" in shown
    assert re.search(
        r"^ +9 +0-7 +fragmentation +2\.00 GiB to 9\.00 GiB +PyTorch +train\.log:10412$", shown, re.MULTILINE
    )
    assert shown.count("FRAGMENTATION") == 1
    assert "Not shown: 2 warnings after which the program continued." in shown
    assert "Other causes\n  HOST RAM  The kernel ended it. (train.log:20000)\n" in shown


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
    assert shown.startswith("UNKNOWN CAUSE (confidence low)\nThe message does not show the cause.\n")
    assert "Memory of" not in shown
    host = render(oom_samples.OomReport((oom_samples.HOST,)), verbose=True)
    assert "Sizes in the message\n  12.00 GiB  resident memory of the killed process\n" in host
    assert "Linux on the host · process 9 · train.log:20000" in host


def test_a_ledger_without_a_total(oom_samples):
    shown = render(oom_samples.one(ledger=oom_samples.LEDGER[:-1]))
    assert "Memory of GPU 3 (total unknown)" in shown
    assert re.search(r"  allocated by PyTorch +10\.00 GiB  █", shown)
    assert "  total " not in shown


def test_a_trace_without_a_failure(oom_samples):
    shown = render(oom_samples.OomReport((), ("a.pkl",), trace="a.pkl"))
    assert "No allocation failed in the trace a.pkl. To see what filled the memory: memdiag analyze a.pkl" in flat(
        shown
    )
    assert "Tried to allocate" not in shown


def test_the_heading_counts_repeated_messages_as_the_table_does(oom_samples):
    (message,) = oom_samples.one().messages
    messages = (replace(message, rank=None), replace(message, rank=None, count=3, source="b.log"))
    shown = flat(render(replace(oom_samples.one(), messages=messages)))
    assert "GPU 3, 4 messages, first: train.log:10412" in shown


def test_nothing_found(oom_samples):
    shown = render(oom_samples.nothing())
    assert shown.startswith("No out-of-memory message was found.\n")
    assert "Read train.log, standard input (12,000 lines, 3.00 MiB)." in shown
    assert "CUDA out of memory" in shown
    empty = render(oom_samples.OomReport((), ("train.log",)))
    assert "The input is empty. If the program writes to stderr," in empty


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


def test_a_report_in_chinese_keeps_its_columns(oom_samples):
    with speaking("zh"):
        shown = render(oom_samples.one())
    assert shown.startswith("内存碎片化")
    for word in ("首先尝试", "如果不可行", "不必尝试", "内存账目", "下一步"):
        assert word in shown
    assert all(cells(line) <= 80 for line in shown.splitlines())
