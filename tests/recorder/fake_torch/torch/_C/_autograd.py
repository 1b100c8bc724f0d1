from types import SimpleNamespace

from . import enabled, events


def _prepare_profiler(config, activities):
    pass


def _enable_profiler(config, activities, scopes=()):
    enabled[0] = True


def _disable_profiler():
    enabled[0] = False
    tree, events[:] = list(events), []
    return SimpleNamespace(experimental_event_tree=lambda: tree)
