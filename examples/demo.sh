#!/usr/bin/env bash
# What `make demo` shows: a training runs out of memory on an Ascend 64 GB card that is not there; why; and what would have fitted.
#
#   demo.sh PYTHON_WITH_MEMDIAG PYTHON_WITH_TORCH_NPU FOLDER
#
# Where torch_npu cannot be installed, or there is no C compiler, a small GPT is recorded on the CPU instead.
set -euo pipefail
python=$1 npu=$2 out=$3
here=$(dirname "${BASH_SOURCE[0]}")
memdiag="$(dirname "$python")/memdiag"
device=npu:910b-64g

say() { printf '\n## %s\n\n' "$*"; }
reports() {
  for form in md json html; do "$memdiag" analyze "$out/trace.pkl" --output "$out/report.$form"; done
}

rm -rf "$out/trace.pkl" "$out"/memdiag-* "$out/fits"
mkdir -p "$out"

# Why there is no phantom NPU here; empty: there is one.
why=
[ -x "$npu" ] || why=$(cat "${npu%/bin/python}/why" 2>/dev/null || echo "$npu is not there")
[ -n "$why" ] || [ -n "${CC:-}" ] || command -v cc gcc clang >/dev/null ||
  why="phantom devices are compiled on first use, and there is no C compiler (apt-get install gcc)"
if [ -n "$why" ]; then
  printf 'note: no phantom NPU here: %s\nnote: recording a small GPT on the CPU instead\n' "$why" >&2
  "$memdiag" record --quiet --output "$out/trace.pkl" -- "$python" "$here/train.py"
  "$memdiag" analyze "$out/trace.pkl"
  reports
  exit
fi

say "A Llama of 1.1 billion parameters trains on $device, which is not there, with batches of 7"
status=0
"$memdiag" record --phantom $device --output "$out/trace.pkl" -- "$npu" "$here/train_llama.py" --batch 7 || status=$?
if [ "$status" != 1 ] || [ ! -f "$out/trace.pkl" ]; then
  echo "error: the recording was to end with an out-of-memory error (status 1), and ended with status $status" >&2
  exit 1
fi
say "Why: memdiag analyze $out/trace.pkl"
"$memdiag" analyze "$out/trace.pkl"
reports
say "Which settings would have been better: memdiag tune $out/trace.pkl"
"$memdiag" tune "$out/trace.pkl"
say "Do they keep the promise: memdiag try $out/trace.pkl"
"$memdiag" try "$out/trace.pkl"
say "And without another setting, how large a batch: memdiag record --find-max batch=4..8"
"$memdiag" record --phantom $device --find-max batch=4..8 --output "$out/fits" -- "$npu" "$here/train_llama.py" --batch '{batch}' --steps 3
