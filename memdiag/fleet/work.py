"""The work on one file, on any engine: one function from a task to a result, both in JSON types.

Local processes and Ray call the same function, so that their results are the same. It never raises: a file that cannot
be read is a result.
"""

from __future__ import annotations

from typing import Any

from memdiag.errors import MemdiagError
from memdiag.fleet.fetch import local_copy
from memdiag.redaction import is_on, turn_on
from memdiag.render.support.json import as_json
from memdiag.text import checked, speaking

Task = dict[str, Any]
Result = dict[str, Any]
KILLED = {
    "message": "the process that read this file was killed, twice",
    "hint": "the host may have run out of memory: use fewer --workers, so that each has more",
}


def work(task: Task) -> Result:
    """Executes a task.

    Args:
        task: ``url`` (an absolute path or an address), ``name`` (its name in reports), ``redact`` (whether to redact
            traces, wherever this runs), ``lang`` (the language of texts), and ``action``: "diagnose", with an optional
            moment ``at``, "replay" with ``conf`` and ``capacity``, or "run" with the members that ``running.ran``
            takes.

    Returns:
        ``{"facts": …}``, or ``{"error": {"message", "hint"}}``.
    """
    url, name = str(task["url"]), str(task["name"])
    if task.get("redact") and not is_on():
        turn_on()  # a worker of a cluster does not have our environment
    try:
        with local_copy(url) as path:
            try:
                with speaking(checked(str(task.get("lang", "en")))):
                    return {"facts": as_json(_do(task, str(path), name))}
            except MemdiagError as error:  # the path of a temporary copy is meaningless to users
                return broken(error.message.replace(str(path), name), error.hint.replace(str(path), name))
    except MemdiagError as error:
        return broken(error.message.replace(url, name), error.hint)
    except MemoryError:
        return broken(
            f"{name}: there is not enough memory to read this file", "use fewer --workers, so that each has more memory"
        )
    except OSError as error:
        return broken(
            f"{name}: cannot be read: {error.strerror or type(error).__name__}",
            "check the file and the free space on the disk",
        )
    except Exception as error:  # noqa: BLE001 - the other files continue, whatever is wrong with this one
        return broken(
            f"{name}: internal: {type(error).__name__}: {error}",
            f"this is a bug in memdiag; memdiag analyze {name} may show more",
        )


def broken(message: str, hint: str) -> Result:
    """Returns the result of a file that cannot be read."""
    return {"error": {"message": message, "hint": hint}}


def _do(task: Task, path: str, name: str) -> dict[str, Any]:
    if task["action"] == "run":
        from memdiag.fleet.running import ran

        return dict(ran(task, path))
    from dataclasses import replace

    from memdiag.sources import load

    trace = replace(load(path), path=name)
    if task["action"] == "replay":
        from memdiag.fleet.replaying import replayed

        return replayed(trace, str(task["conf"]), task["capacity"])
    from memdiag.fleet.facts import facts_of
    from memdiag.trace.moments import DEFAULT

    return facts_of(trace, task.get("at", DEFAULT))
