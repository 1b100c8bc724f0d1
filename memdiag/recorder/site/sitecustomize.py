"""Runs at the start of every Python process below ``memdiag record``.

It waits for torch, and lets the user's own sitecustomize run.

Until torch is imported, nothing of memdiag is loaded: a process that never imports it has only one more finder on
sys.meta_path. It is written for every version of Python, even those too old to be recorded: tools that run under one
must not be affected.
"""

import os
import sys

_ENGINE = "vllm.v1.utils"  # starts and stops the processes of vLLM


class _Watch(object):
    """A finder that finds nothing itself: it lets the others find a module, and calls back after its execution.

    A search for a module does not mean that it is imported (``importlib.util.find_spec("torch")``), so it waits until
    the module is executed.
    """

    def __init__(self, then):
        self._then = then
        self._asking = False

    def find_spec(self, name, path=None, target=None):
        if name not in self._then or self._asking:
            return None
        self._asking = True
        try:
            for finder in list(sys.meta_path):
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec = None if find is None else find(name, path, target)
                if spec is not None:
                    self._follow(name, spec.loader)
                    return spec
        finally:
            self._asking = False
        return None

    def _follow(self, name, loader):
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module):
            execute(module)
            try:
                del loader.exec_module  # as if it had never been there
            except AttributeError:
                pass
            self._done(name, module)

        if hasattr(exec_module.__code__, "replace"):  # otherwise it would appear in the traceback of a failing import
            exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")
        try:
            loader.exec_module = exec_module
        except AttributeError:
            sys.stderr.write("memdiag: " + name + " is loaded in a way that cannot be followed: nothing is recorded\n")

    def _done(self, name, module):
        then = self._then.pop(name, None)
        if not self._then and self in sys.meta_path:
            sys.meta_path.remove(self)
        if then is not None:
            then(module)


def _recorder(part):
    """Loads a part of the recorder by its path: memdiag itself may not be installed for this Python."""
    from importlib import import_module

    name = "memdiag_recorder"
    if name not in sys.modules:
        from importlib.util import module_from_spec, spec_from_file_location

        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        spec = spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return import_module(name + "." + part)


def _begin(module):
    try:
        if sys.version_info < (3, 9):
            raise RuntimeError("this is Python %d.%d, and recording needs 3.9 or later" % sys.version_info[:2])
        if module.__name__ == _ENGINE:
            return _recorder("forked").give_time(module)
        if os.environ.get("MEMDIAG_RECORD"):
            _recorder("session").imported(module)
            _recorder("presence").imported(module)
        if os.environ.get("MEMDIAG_FIX"):
            _recorder("fixing").imported(module)
        if os.environ.get("MEMDIAG_ARM"):
            _recorder("watching.arming").arm()
    except Exception as error:  # noqa: BLE001 - the program must continue whatever happens here
        why = "%s: %s" % (type(error).__name__, error)
        try:
            sys.stderr.write("memdiag: nothing is recorded: " + why + "\n")
        except Exception:  # noqa: BLE001, S110 - stderr may be closed
            pass
        _leave_word(why)


def _leave_word(why):
    """Leaves the reason for memdiag record to repeat (see ``presence``, which cannot in this case)."""
    try:
        import json

        folder = os.path.join(_folder(), ".processes")
        if not os.path.isdir(folder):
            os.makedirs(folder)
        with open(os.path.join(folder, "%d.json" % os.getpid()), "w") as file:
            file.write(json.dumps({"pid": os.getpid(), "said": [why], "ended": 0}))
    except (IndexError, KeyError, ValueError, OSError):
        pass


def _folder():
    """Returns the folder of the run."""
    text = os.environ["MEMDIAG_RECORD"]
    if "\\" in text:
        import json

        return json.loads(text)["folder"]
    return text.split('"folder":"', 1)[1].split('"', 1)[0]  # json takes as long to import as all the rest of this file


def _touch():
    """Leaves a marker of the first Python process of a run: without one, this file was not run."""
    try:
        path = os.path.join(_folder(), ".python")
        if not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    except (IndexError, KeyError, ValueError, OSError):
        pass


def _hand_over():
    """Removes this folder from sys.path and runs the next sitecustomize, if there is one.

    ``site`` handles its exceptions as usual, including a missing module.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != here]
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401


if os.environ.get("MEMDIAG_RECORD") or os.environ.get("MEMDIAG_ARM"):
    if os.environ.get("MEMDIAG_RECORD"):
        _touch()
    _modules = dict.fromkeys(
        ("torch", "torch_npu", "torch.distributed.checkpoint.state_dict_saver", "safetensors.torch", _ENGINE), _begin
    )
    for _name in [_name for _name in ("torch", "torch_npu") if _name in sys.modules]:  # imported from a .pth file
        _modules.pop(_name)(sys.modules[_name])
    if _modules and sys.version_info >= (3, 4):
        sys.meta_path.insert(0, _Watch(_modules))
_hand_over()
