from types import SimpleNamespace

ProfilerState = SimpleNamespace(KINETO=1)
RecordScope = SimpleNamespace(STATIC_RUNTIME_MODEL=9)


def ProfilerConfig(*_):  # noqa: N802
    return None


def _ExperimentalConfig(*_):  # noqa: N802
    return None
