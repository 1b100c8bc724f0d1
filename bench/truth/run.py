"""Compares simulated cards with published peaks of real ones, and writes reports/phantom-truth.md.

    python bench/truth/run.py --work FOLDER                    # every family; those that are done are kept
    python bench/truth/run.py --work FOLDER attention --again  # one family, made anew

families.toml lists the figures and programs. FOLDER receives one Python environment for each [environment] (made with
pip), public repositories at their commits (made with git; an existing folder OWNER+NAME is used unchanged), models'
configurations, and logs. Each row is run twice; a row whose runs differ is marked. Nothing is fitted. Time and
host memory are those of the run that took more.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import report
from models import make_model

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "reports" / "phantom-truth.json"
UNITS = {"B": 1, "MiB": 1 << 20, "GiB": 1 << 30, "MB": 10**6, "GB": 10**9}


def main() -> None:
    """Runs the chosen programs, and writes results and report after each of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--again", action="store_true", help="also run what was run before")
    parser.add_argument("--more", action="store_true", help="run again, and keep what earlier runs gave")
    parser.add_argument("--runs", type=int, default=2, help="how often each row is run")
    given = parser.parse_args()
    table = tomllib.loads((HERE / "families.toml").read_text(encoding="utf-8"))
    if unknown := set(given.families) - set(table["family"]):
        parser.error(f"unknown family {', '.join(sorted(unknown))}; families: {', '.join(table['family'])}")
    done, work = _read(), given.work.resolve()
    for name in given.families or table["family"]:
        family = table["family"][name]
        for command, group in _by_command(family, name, table, work):
            before = done.get(name, {})
            if given.again or given.more or any(row["id"] not in before for row in group):
                made = _run(command, group, family, given.runs, work / "logs" / name)
                if given.more:
                    made = {each: _joined(before[each], row) if each in before else row for each, row in made.items()}
                _write(name, made, table)


def _joined(before: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with the runs of both: they are the same if all gave the same figure."""
    if row["bytes"] is None or before["bytes"] is None:
        return row
    same = before["same"] and row["same"] and before["bytes"] == row["bytes"]
    return row | {"bytes": before["bytes"], "runs": before["runs"] + row["runs"], "same": same}


def _read() -> dict[str, Any]:
    """Returns the results so far: rows by family and id."""
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return results


def _write(name: str, rows: Mapping[str, Any], table: Mapping[str, Any]) -> None:
    """Adds rows to the results, which another run may have changed, and writes the report."""
    results = _read()
    results[name] = results.get(name, {}) | rows
    ordered = {
        each: {row["id"]: results[each][row["id"]] for row in family["rows"] if row["id"] in results[each]}
        for each, family in table["family"].items()
        if each in results
    }
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    report.write(table, ordered)


def _by_command(
    family: Mapping[str, Any], name: str, table: Mapping[str, Any], work: Path
) -> Iterable[tuple[list[str], list[dict[str, Any]]]]:
    """Yields the rows that one run of a program answers."""
    python = _environment(family["environment"], table["environment"][family["environment"]], work)
    logs = work / "logs" / name
    places = {"here": HERE, "models": work / "models", "python": python, "logs": logs, "out": logs / "out.json"}
    if "checkout" in family:
        places["checkout"] = _checkout(family["checkout"], work / "checkouts")
    logs.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in family["rows"]:
        if "model" in row:
            make_model(row["model"], work / "models", str(python))
        variables = [f"{key}={value}" for key, value in row.get("variables", {}).items()]
        program = shlex.split(family["command"].format(**places, **row))
        if variables:
            program = ["env", *variables, *program]
        options = shlex.split(family.get("record", "").format(**row))
        command = [
            sys.executable,
            "-m",
            "memdiag",
            "record",
            "--quiet",
            "--phantom",
            row.get("device", family["device"]),
            *options,
            "--",
        ]
        groups.setdefault((*command, *program), []).append(row)
    for command, group in groups.items():
        yield list(command), group


def _run(
    command: list[str], rows: list[dict[str, Any]], family: Mapping[str, Any], runs: int, logs: Path
) -> dict[str, Any]:
    """Runs a program, reads the figure of each row, and says how they compare."""
    found: dict[str, list[int]] = {row["id"]: [] for row in rows}
    seconds, peak, error = 0.0, 0, ""
    for _ in range(runs):
        print("$", shlex.join(command[1:]), flush=True)
        out = logs / family.get("result", "out.json")
        out.unlink(missing_ok=True)
        status, used, output, said = _watch(command, logs, rows[0]["id"])
        seconds = max(seconds, used.ru_utime + used.ru_stime)
        peak = max(peak, used.ru_maxrss * 1024)
        if status:
            error = (said.strip().splitlines() or ["no output"])[-1]
            break
        try:
            for row in rows:
                found[row["id"]].append(_figure(row, family, output, out))
        except (OSError, KeyError, ValueError) as problem:
            error = f"no figure in the output: {problem}"
            break
    made = {}
    for row in rows:
        values = found[row["id"]]
        made[row["id"]] = {
            "published": row["published"],
            "unit": family["unit"],
            "bytes": values[0] if values else None,
            "runs": len(values),
            "same": len(set(values)) == 1,
            "seconds": round(seconds, 1),
            "host_bytes": peak,
            "error": error,
            "command": shlex.join(command[command.index("--phantom") :])
            .replace(str(logs.parents[1]), "FOLDER")
            .replace(f"{ROOT}/", ""),
        }
        print("  ", row["id"], row["published"], family["unit"], values, error, flush=True)
    return made


def _watch(command: list[str], logs: Path, name: str) -> tuple[int, resource.struct_rusage, str, str]:
    """Runs a command in ``logs``.

    Returns:
        Exit status, what it used (with its children: processor time of all, memory of the largest), standard output
        and standard error.
    """
    paths = [logs / f"{name}.{each}" for each in ("out", "err")]
    with paths[0].open("wb") as output, paths[1].open("wb") as errors:
        child = subprocess.Popen(command, cwd=logs, stdout=output, stderr=errors)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    return child.returncode, used, texts[0], texts[1]


def _figure(row: Mapping[str, Any], family: Mapping[str, Any], output: str, out: Path) -> int:
    """Returns the figure of a row, in bytes.

    Raises:
        OSError, KeyError, ValueError: The program did not give it.
    """
    pattern = row.get("figure") or family["figure"]
    if "(" in pattern:
        match = re.search(re.sub(r"\{(\w+)\}", lambda key: str(row[key[1]]), pattern), output)
        if match is None:
            raise ValueError(pattern)
        value = float(match[1])
    else:
        value = json.loads(out.read_text(encoding="utf-8"))
        for key in pattern.split("."):
            value = value[key]
    return round(value * UNITS[family.get("figure_unit", family["unit"])])


def _environment(name: str, needs: Mapping[str, Any], work: Path) -> Path:
    """Makes a Python environment with the packages that it ``needs``, unless it exists; returns its Python."""
    folder = work / "environments" / name
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *needs["packages"]], check=True)
        if "without_isolation" in needs:
            more = os.environ | needs.get("variables", {})
            subprocess.run(
                [*install, "--no-build-isolation", "--no-deps", *needs["without_isolation"]], env=more, check=True
            )
        (folder / "complete").touch()
    return python


def _checkout(name: str, folder: Path) -> Path:
    """Fetches a repository (OWNER/NAME@COMMIT), unless it exists; returns its folder."""
    repository, _, commit = name.partition("@")
    place = folder / repository.replace("/", "+")
    if not place.exists():
        unfinished = place.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        address = f"https://github.com/{repository}"
        subprocess.run(["git", "clone", "--quiet", "--filter=blob:none", address, unfinished], check=True)  # noqa: S607
        subprocess.run(["git", "-C", unfinished, "checkout", "--quiet", commit], check=True)  # noqa: S607
        unfinished.rename(place)
    return place


if __name__ == "__main__":
    main()
