#!/usr/bin/env bash
# Runs `make demo`: a training runs out of memory on a simulated accelerator; memdiag says why, and which setting would have fitted.
#
#   demo.sh PYTHON_WITH_MEMDIAG PYTHON_WITH_TORCH_NPU FOLDER
#
# The device is an Ascend NPU where torch_npu is installed, and an H100 where torch is a build for CUDA. If anything fails on the simulated
# device, the demo says why in one line and records a small GPT on the CPU; without torch it analyzes a trace from this folder.
set -euo pipefail
python=$1 npu=$2 out=$3
here=$(dirname "${BASH_SOURCE[0]}")
memdiag="$(dirname "$python")/memdiag"

say() { printf '\n## %s\n\n' "$*"; }
reports() {
  for form in md json html; do "$memdiag" analyze "$1" --output "$out/report.$form"; done
}
# Runs a command, keeps a copy of its stderr and returns its status.
keeping_errors() { { "$@" 2>&1 >&3 | tee "$out/errors.txt" >&2; } 3>&1; }

# Sets the device, the Python that trains on it and the batches that do and do not fit; fails where there is none.
choose_device() {
  if [ -x "$npu" ]; then
    device=npu:910b-64g trains=$npu batch=7 batches=4..8
  elif [ -n "$("$python" -c 'import torch; print(torch.version.cuda or "")' 2>/dev/null || true)" ]; then
    device=cuda:h100-80g trains=$python batch=12 batches=9..13
  else
    cat "${npu%/bin/python}/why" > "$out/errors.txt" 2>/dev/null || echo "$npu does not exist" > "$out/errors.txt"
    return 1
  fi
}

on_simulated_device() {
  local status=0
  choose_device || return 1
  say "A 1.1B-parameter Llama trains on a simulated device, $device, with batches of $batch"
  keeping_errors "$memdiag" record --phantom "$device" --output "$out/trace.pkl" -- \
    "$trains" "$here/train_llama.py" --batch "$batch" || status=$?
  if [ "$status" != 1 ] || [ ! -f "$out/trace.pkl" ]; then
    [ "$status" != 0 ] || echo "the training was expected to run out of memory, and did not" > "$out/errors.txt"
    return 1
  fi
  say "Why: memdiag analyze $out/trace.pkl"
  "$memdiag" analyze "$out/trace.pkl" || return 1
  reports "$out/trace.pkl" || return 1
  say "Which settings would have been better: memdiag tune $out/trace.pkl"
  keeping_errors "$memdiag" tune "$out/trace.pkl" || return 1
  say "Does the prediction hold: memdiag try $out/trace.pkl"
  keeping_errors "$memdiag" try "$out/trace.pkl" || return 1
  say "With the same settings, the largest batch that fits: memdiag record --find-max batch=$batches"
  keeping_errors "$memdiag" record --phantom "$device" --find-max "batch=$batches" --output "$out/fits" -- \
    "$trains" "$here/train_llama.py" --batch '{batch}' --steps 3
}

# Prints the reason of the last failure: the error that memdiag gives, or else the last line that was printed.
reason() {
  local line
  line=$(sed -n 's/^error: //p' "$out/errors.txt" | head -n 1)
  [ -n "$line" ] || line=$(grep -v '^ *$' "$out/errors.txt" | tail -n 1)
  echo "${line:-unknown}"
}

rm -rf "$out/trace.pkl" "$out"/memdiag-* "$out/fits" "$out/errors.txt"
mkdir -p "$out"
if on_simulated_device; then exit; fi
printf 'note: no simulated device: %s\nnote: recording a small GPT on the CPU instead\n' "$(reason)" >&2
trace=$out/trace.pkl
rm -f "$trace"
if ! keeping_errors "$memdiag" record --quiet --output "$trace" -- "$python" "$here/train.py"; then
  printf 'note: no recording: %s\nnote: analyzing a trace that comes with memdiag instead\n' "$(reason)" >&2
  trace=$here/gpt-train.pickle
fi
"$memdiag" analyze "$trace"
reports "$trace"
