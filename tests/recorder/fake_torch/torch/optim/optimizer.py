from types import SimpleNamespace

before, after = {}, {}


def _register(hooks, hook):
    key = len(hooks)
    hooks[key] = hook
    return SimpleNamespace(remove=lambda: hooks.pop(key, None))


def register_optimizer_step_pre_hook(hook):
    return _register(before, hook)


def register_optimizer_step_post_hook(hook):
    return _register(after, hook)
