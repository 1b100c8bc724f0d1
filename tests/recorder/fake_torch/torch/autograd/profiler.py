from .._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler
