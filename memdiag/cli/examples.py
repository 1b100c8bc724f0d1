"""Examples at the end of each command's help; tasks and summaries for the list of commands."""

from __future__ import annotations

DIAGNOSE, RECORD, PREDICT, SHARE, CHECK = "Diagnose", "Record", "Predict", "Share", "Check"
TASKS = {
    "analyze": DIAGNOSE,
    "oom": DIAGNOSE,
    "view": DIAGNOSE,
    "compare": DIAGNOSE,
    "fleet": DIAGNOSE,
    "serving": DIAGNOSE,
    "explain": DIAGNOSE,
    "mcp": DIAGNOSE,
    "record": RECORD,
    "watch": RECORD,
    "devices": RECORD,
    "doctor": RECORD,
    "fit": PREDICT,
    "serve-fit": PREDICT,
    "simulate": PREDICT,
    "tune": PREDICT,
    "try": PREDICT,
    "fix": PREDICT,
    "plan": PREDICT,
    "plot": SHARE,
    "export": SHARE,
    "check": CHECK,
    "bisect": CHECK,
    "conf": CHECK,
    "lint": CHECK,
}
# First sentence of each command's help, for the list of commands.
SUMMARIES = {
    "analyze": "Explain which tensors filled the memory in a trace, and suggest fixes.",
    "oom": "Explain an out-of-memory message: its cause, what to try first, and who held the memory.",
    "view": "Browse a trace in the terminal: live tensors, memory map and findings at any event.",
    "compare": "Compare two or more traces: which memory grew, at which call site, and why.",
    "fleet": "Diagnose all ranks of a run: which ran out of memory, and which differ from the others.",
    "serving": "Show from an inference server's start-up log what fills the memory of each card.",
    "explain": "Explain a finding: its meaning, why it matters, and how to fix it.",
    "mcp": "Serve memdiag's tools to agents (Model Context Protocol over stdio).",
    "record": "Run a command and record its memory.",
    "watch": "Follow the memory of a running training, without restarting or changing it.",
    "devices": "List the simulated devices that a program can be recorded on.",
    "doctor": "Check whether memdiag can record here: find torch and devices, and make a test recording.",
    "fit": "Find which configurations of a training command fit on a device, without that device.",
    "serve-fit": "Estimate the context, requests and flags of an inference server that fit on a card.",
    "simulate": "Predict the memory of a recorded run with other allocator settings or on another device.",
    "tune": "Find the allocator settings with which a recorded run needs the least memory.",
    "try": "Rerun a recorded command with better settings, and compare prediction and result.",
    "fix": "Choose remedies for a program, apply them without editing it, and measure the result.",
    "plan": "Choose addresses for tensors with known lifetimes, so that they need little memory.",
    "plot": "Draw a trace as a PNG, SVG or PDF picture.",
    "export": "Write a trace in another tool's format.",
    "check": "Check traces against budgets and a baseline, for CI.",
    "bisect": "Find the commit or package version that raised the peak of a command.",
    "conf": "Check allocator settings such as PYTORCH_CUDA_ALLOC_CONF before a run.",
    "lint": "Find source code that wastes device memory or stalls the device.",
}
EXAMPLES = {
    "analyze": ("analyze trace.pkl", "analyze trace.pkl --full --at peak", "analyze trace.pkl --html report.html"),
    "oom": ("oom train.log", "oom logs/ --all", "oom train.log --from-trace trace.pkl"),
    "view": ("view trace.pkl", "view trace.pkl --at oom"),
    "compare": ("compare before.pkl after.pkl", "compare before.pkl after.pkl --html compare.html"),
    "fleet": ("fleet memdiag-20261121-213027/ -o study", "fleet 'run/*/rank*.pkl' --heatmap ranks.png"),
    "serving": ("serving vllm.log", "serving sglang.log --device h100-80g", "serving vllm.log --json"),
    "explain": ("explain MD201", "explain conf", "explain"),
    "mcp": ("mcp",),
    "record": (
        "record -- python train.py",
        "record -- torchrun --nproc-per-node 8 train.py",
        "record --phantom npu:910b-64g -- python train.py",
        "record --find-max 'batch=1..512' -- python train.py --batch {batch}",
    ),
    "watch": (
        "watch 12345",
        "watch 12345 --history --seconds 60 --snapshot trace.pkl",
        "watch 12345 --json",
    ),
    "devices": ("devices", "devices npu:910b-64g"),
    "doctor": ("doctor", "doctor --python ~/venvs/train"),
    "fit": (
        (
            "fit --device cuda:h100-80g,cuda:a100-40g --grid 'mbs=1..16 ckpt=none,full' -- python train.py --mbs {mbs} "
            "--recompute {ckpt}"
        ),
        (
            "fit --device npu:910b-64g --grid 'tp=1,2,4 pp=1,2 mbs=1,2,4' --world 8 -- torchrun train.py --tp {tp} "
            "--pp {pp} --mbs {mbs}"
        ),
    ),
    "serve-fit": (
        "serve-fit Llama-3.1-8B/ --device h100-80g",
        "serve-fit model/config.json --device a100-40g --engine sglang --context 32768 --kv-dtype fp8",
    ),
    "simulate": (
        "simulate trace.pkl --conf expandable_segments:True",
        "simulate trace.pkl --capacity 48GiB",
        "simulate trace.pkl --policy caching,expandable,bound --min-capacity",
    ),
    "tune": ("tune trace.pkl", "tune memdiag-20261121-213027/ --budget-seconds 120"),
    "try": ("try", "try memdiag-20261121-213027/ --conf expandable_segments:True"),
    "fix": (
        "fix --phantom cuda:a100-40g -- python train.py",
        "fix memdiag-20261121-213027/ --budget 40GiB --dry-run",
        "fix --budget 24GiB --write -- python train.py",
    ),
    "plan": ("plan trace.pkl", "plan buffers.csv --capacity 1MiB -o placed.csv"),
    "plot": ("plot trace.pkl", "plot trace.pkl --kind timeline,map -o figures/"),
    "export": ("export trace.pkl -o trace.perfetto.json.gz", "export trace.pkl --format csv --table tensors"),
    "check": (
        "check run/ --budget peak_reserved=60GiB --budget stranded=2%",
        "check run/ --baseline base.json --tolerance 2%",
    ),
    "bisect": (
        "bisect --budget 12GiB v1.0..main -- python train.py",
        "bisect --phantom cuda:h100-80g --package torch 2.9.0 2.13.0 -- python train.py",
    ),
    "conf": ("conf expandable_segments:True,max_split_size_mb:128", "conf --env", "conf --list --backend npu"),
    "lint": ("lint train.py", "lint src/ --select MD806 --fail-on warning"),
}


def epilog(command: str) -> str:
    """Returns the examples of a command in typer's format: each paragraph becomes a line."""
    return "\n\n".join(["Examples:", *(f"  memdiag {example}" for example in EXAMPLES[command])])
