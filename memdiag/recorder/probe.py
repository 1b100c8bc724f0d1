"""Queries a Python for ``memdiag doctor``; runs in that Python, which receives it as text.

    python -c "$(cat probe.py)" facts            prints one line of JSON
    python -c "$(cat probe.py)" allocate cuda    allocates a little, to see whether a recording sees it

It runs in a separate process, so it may initialise devices. Python 2 can run it far enough to report its version.
"""

import json
import os
import sys

BYTES = 1 << 20


def facts():
    """Returns versions, the devices torch is built for, and the visible devices."""
    found = {
        "version": sys.version.split()[0],
        "executable": sys.executable,
        "prefix": sys.prefix,
        "torch_version": None,
    }
    try:
        import torch
    except BaseException as error:  # noqa: BLE001 - a broken torch can raise anything on import
        found["torch_error"] = "%s: %s" % (type(error).__name__, error)
        return found
    found["torch_version"] = str(torch.__version__)
    found["torch_path"] = os.path.dirname(os.path.abspath(torch.__file__))
    found["cuda_build"] = getattr(torch.version, "cuda", None)
    found["hip_build"] = getattr(torch.version, "hip", None)
    found["npu_build"], found["npu_error"] = _npu()
    found["devices"], found["errors"] = {}, {}
    for backend in ("cuda", "npu"):
        part = getattr(torch, backend, None)
        try:
            count = part.device_count() if part is not None and part.is_available() else 0
            found["devices"][backend] = [str(part.get_device_name(index)) for index in range(count)]
        except Exception as error:  # noqa: BLE001 - drivers and libraries may raise anything
            found["devices"][backend] = []
            found["errors"][backend] = "%s: %s" % (type(error).__name__, error)
        get = getattr(getattr(part, "memory", None), "get_allocator_backend", None)
        found[backend + "_allocator"] = str(get()) if get is not None and found["devices"][backend] else None
    return found


def _npu():
    """Returns the version of torch_npu, or why it cannot be used."""
    try:
        import torch_npu
    except ImportError as error:
        missing = getattr(error, "name", None) == "torch_npu"
        return None, None if missing else str(error)
    except Exception as error:  # noqa: BLE001 - CANN may be missing, or of another version
        return None, "%s: %s" % (type(error).__name__, error)
    return str(torch_npu.__version__), None


def allocate(backend):
    """Allocates on a device and frees it."""
    import torch

    if backend == "npu":
        import torch_npu  # noqa: F401 - creates torch.npu
    tensor = torch.empty(BYTES, dtype=torch.uint8, device=backend)
    del tensor


def main(arguments):
    """Runs the action given by the arguments."""
    if arguments[:1] == ["allocate"]:
        allocate(arguments[1])
    else:
        sys.stdout.write("\n" + json.dumps(facts()) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
