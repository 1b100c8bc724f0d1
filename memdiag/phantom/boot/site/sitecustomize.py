"""Runs at the start of every Python process on a simulated device.

It loads the boot code, and lets other start-up files run.
"""

import os
import sys


def _boot():
    from importlib.util import module_from_spec, spec_from_file_location

    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "world.py")
    spec = spec_from_file_location("memdiag_phantom_world", path)
    module = module_from_spec(spec)
    sys.modules["memdiag_phantom_world"] = module
    spec.loader.exec_module(module)
    module.begin()


def _hand_over():
    """Removes this folder from sys.path and runs the next sitecustomize, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != here]
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401


if sys.version_info >= (3, 9):
    try:
        _boot()
    except Exception as error:  # noqa: BLE001 - report it, and let the program continue without
        sys.stderr.write("memdiag: the phantom world could not be set up: %s: %s\n" % (type(error).__name__, error))
_hand_over()
