from types import SimpleNamespace

from . import profiler

ProfilerActivity = SimpleNamespace(CPU=0)


def backward(tensors):
    pass


def grad(tensors):
    pass
