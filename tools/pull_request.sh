#!/usr/bin/env bash
# Compares the memory of a command at the base and at the head of a pull request: the steps of action.yml.
#
# Reads COMMAND, DEVICE, BUDGET, TOLERANCE, BASE (a commit), PULL_REQUEST (its number) and GH_TOKEN. Writes the
# comparison as Markdown to GITHUB_STEP_SUMMARY, and with a token as a comment. Exit status: that of memdiag check.
set -euo pipefail

scratch=$(mktemp -d)
trap 'git worktree remove --force "$scratch/base" 2>/dev/null || true; rm -rf "$scratch"' EXIT

record() { # DIRECTORY OUTPUT
  (cd "$1" && memdiag record --quiet ${DEVICE:+--phantom "$DEVICE"} -o "$2" -- bash -c "$COMMAND")
}

check=(memdiag check "$scratch/head-run")
[ -z "${BUDGET:-}" ] || check+=(--budget "$BUDGET")
if [ -n "${BASE:-}" ]; then
  git cat-file -e "$BASE^{commit}" 2>/dev/null || git fetch --quiet --depth 1 origin "$BASE"
  git worktree add --quiet --detach "$scratch/base" "$BASE"
  record "$scratch/base" "$scratch/base-run"
  memdiag check "$scratch/base-run" --baseline "$scratch/base.json" --update >/dev/null
  check+=(--baseline "$scratch/base.json")
  [ -z "${TOLERANCE:-}" ] || check+=(--tolerance "$TOLERANCE")
fi
record . "$scratch/head-run"

status=0
GITHUB_ACTIONS=true "${check[@]}" | tee "$scratch/check.txt" || status=$?

{
  if [ -n "${BASE:-}" ]; then
    memdiag compare "$scratch/base-run" "$scratch/head-run" --md | sed "s#$scratch/##g"
  fi
  printf '\n```text\n%s\n```\n' "$(sed "s#$scratch/##g" "$scratch/check.txt")"
} >"$scratch/summary.md"
cat "$scratch/summary.md" >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"

if [ -n "${GH_TOKEN:-}" ] && [ -n "${PULL_REQUEST:-}" ]; then
  gh pr comment "$PULL_REQUEST" --edit-last --create-if-none --body-file "$scratch/summary.md" ||
    echo "::warning title=memdiag::the comment could not be written"
fi
exit "$status"
