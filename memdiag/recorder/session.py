"""The recording of one process, from the import of torch to its last file."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from typing import Any

from . import config as configuration
from . import private, process, sampling
from .backends.npu import Npu
from .card_samples import CardSamples
from .devices import FirstUse, has_content, watch_devices
from .files import Place, cannot_write, write_json, write_pickle
from .forked import Fork, leaves_to_children
from .guard import contained
from .holding import Holding
from .interrupts import again_soon, end_by, held, is_in_a_call, uncollected
from .marks import MARK, NOWHERE, OUTSIDE, PHASE, STEP, UNKNOWN, Marks, Position, num_allocs
from .naming import Naming
from .optimizers import optimizers
from .other_optimizers import has_other_optimizers
from .phantom_facts import phantom_device, without_computing
from .placing import Placing
from .sample_sources import asks_driver, sources_for
from .sampling import END, OOM, START, Sampler
from .saving import SaveWrappers
from .training import Training

FORMAT = 1
_MOST_ATTEMPTS = 500  # attempts to write after a signal, 10 ms apart
_OCCASIONS = {PHASE: sampling.PHASE, STEP: sampling.STEP, MARK: sampling.MARK}
_session: Session | None = None


def current() -> Session | None:
    """Returns the recording of this process, or None."""
    return _session


@contained
def imported(module: Any) -> None:
    """Starts the recording; called when the program has imported torch or torch_npu."""
    global _session  # noqa: PLW0603 - there is one recording per process
    chosen = configuration.from_environment()
    torch = sys.modules.get("torch")
    if chosen is None or torch is None or leaves_to_children(module, imported):
        return
    if _session is None and module.__name__ == "torch":
        _session = Session(chosen, torch)
        _session.begin()
    if _session is not None:
        _session.saving.wrap(module)
    # torch.npu is missing while torch_npu is importing torch.
    if _session is not None and "torch_npu" in sys.modules and hasattr(torch, "npu"):
        _session.watch_npu()


class Session:
    """One recording."""

    def __init__(self, config: configuration.Config, torch: Any) -> None:
        self.config, self.torch = config, torch
        self.began = time.time()
        self.marks = Marks(self._position)
        self.naming = Naming(torch, self.marks, ())
        self.training = Training(torch, self.marks, self.naming, self._stepped)
        self.backends: list[Any] = []
        self._main: Any = None  # the backend whose position the marks store
        self._npu_watched = False
        self._place = Place(config.folder, config.file)
        self._lock, self._pid = threading.RLock(), os.getpid()
        self.ooms: list[dict[str, Any]] = []
        self._written: dict[str, Any] = {}
        self._at_oom, self._dump_seconds = (-1, 0), 0.0
        self.sampler = Sampler(lambda: self.training.steps, config.sample_interval)
        self._first_use = FirstUse(torch, self.sampler, self._start_samples, self._started)
        self.saving = SaveWrappers(self.sampler.take)
        self._holding = Holding(torch, self.marks, is_on=config.holders)
        self.marks.added = self._marked
        self._optimizers: list[dict[str, Any]] = []
        self._on, self._waiting = False, 0
        self._attempts = 0  # signal to handle once a step is complete, after it came at an inconvenient time
        self._writer = 0  # the thread that is writing files
        self._previous: dict[int, Any] = {}

    def begin(self) -> None:
        """Installs hooks and waits for the devices."""
        atexit.register(self.end)  # first: a profiler that is never stopped crashes the interpreter at exit
        self._fork = Fork(self._forked, self.end)
        watch_devices(self.torch, self.config.backends, self._started)
        self._first_use.count(self.config.backends)
        self.training.install()
        self._take_signals()

    def watch_npu(self) -> None:
        """Waits for the NPU, once torch_npu is imported."""
        wanted = self.config.backends
        if not self._npu_watched and (not wanted or "npu" in wanted):
            self._npu_watched = True
            Npu().watch(self.torch, self._started)
            self.training.watch_limit(self.torch.npu)

    def _started(self, backend: Any) -> None:
        """Called when the program first uses a device."""
        if self._fork.is_child and backend.name == "cpu":
            return
        if backend.name != "cpu" and not self.config.backends:
            for other in [other for other in self.backends if other.name == "cpu"]:
                other.stop()  # host allocations are not of interest when an accelerator is used
                self.backends.remove(other)
        self.backends.append(backend)
        if self.config.first_step <= self.training.steps:
            self._start(backend)
        elif hasattr(backend, "wait"):
            backend.wait()

    def _start(self, backend: Any) -> None:
        backend.start(self.config.max_events)
        if not backend.is_active:
            self._first_use.instead_of(backend)
            return
        self._on = True
        self._start_samples(backend)
        if self._main is None or self._main.name == "cpu":
            self._main = backend
            self.training.placing = None
            if not backend.has_times:
                is_quick = getattr(backend, "is_quick", False)
                self.training.placing = Placing(
                    backend.quick_position if is_quick else backend.position, is_quick=is_quick
                )
        self.naming.devices = tuple({other.name for other in self.backends}) if self.config.names else ()
        backend.on_oom(contained(lambda *numbers: self._out_of_memory(backend, *numbers)))
        if hasattr(backend, "when_idle"):
            backend.when_idle = self._catch_up
        if hasattr(backend, "follow"):
            backend.follow(lambda: self.write("ended by the program"))

    def _position(self) -> Position:
        found: Position = NOWHERE if self._main is None else self._main.position()
        return found

    def _start_samples(self, backend: Any) -> None:
        for source in sources_for(backend, lambda: self.training.steps):
            self.sampler.add(source)
        atexit.register(self.last_sample)
        self.sampler.start()

    def _marked(self, kind: int, value: int, position: Position) -> None:
        """Takes a sample at a mark, of the devices that the program has used so far."""
        if os.getpid() != self._pid:
            return
        self._first_use.look()
        if not self._on:
            return
        if self._main.name == "cpu":
            self._main.begin_pass(value if kind == PHASE else UNKNOWN)
        device, allocs, _ = position
        if allocs > 0 and device not in self.sampler.devices and asks_driver(self._main):
            self.sampler.devices.add(device)
            self.sampler.take(START)
        else:
            self.sampler.take(_OCCASIONS.get(kind, sampling.PHASE))

    @contained
    def last_sample(self) -> None:
        """Stops the timer and takes the last sample; called before the backend shuts the device down."""
        if os.getpid() == self._pid and not self.sampler.is_stopped:
            self.sampler.stop()
            self._first_use.look()
            if self._on:
                self.sampler.take(END)

    @contained
    def end(self) -> None:
        """Writes the last file and removes all hooks; safe to call twice."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self.last_sample()
            if not self.backends and not self._written:
                return
            if self._on and not self._died_of_oom():
                self.write("exit")
            self.training.remove()
            self.saving.remove()
            for backend in self.backends:
                backend.stop()
            self._on, self.backends = False, []
            for number, handler in self._previous.items():
                if signal.getsignal(number) == self._signalled:
                    signal.signal(number, handler)
            self._previous = {}

    def _died_of_oom(self) -> bool:
        """Returns whether an out-of-memory error was the last relevant event: then the file of that moment remains."""
        if configuration.FIX_VARIABLE in os.environ or self._at_oom[0] != self.training.steps:  # fix needs whole runs
            return False
        return bool(process.last_error()) or self._at_oom[1] == num_allocs(self.backends)

    def _forked(self) -> bool:
        """Called in a child of fork; returns whether it continues the recording: no device was used before."""
        global _session  # noqa: PLW0603
        self.marks.lock = threading.RLock()  # a thread that does not exist here may have held it
        if not self.backends and not self._written and not self._first_use.is_waiting:
            self._pid, self._lock = os.getpid(), threading.RLock()
            return True
        _session = None
        self._on, self.backends = False, []
        self.sampler.forget()
        self.training.remove()
        self.saving.remove()
        return False

    def _stepped(self, steps: int) -> None:
        config = self.config
        self._holding.stepped(self._on)
        if not self._on and steps == config.first_step:
            for backend in self.backends:
                self._start(backend)
            self.naming.begin(self.marks.add(PHASE, OUTSIDE))
        if config.last_step is not None and steps == config.last_step and self._on:
            self.naming.look(len(self.marks) - 1)
            self.write("window")
            self._on = False
            for backend in self.backends:
                backend.stop()
        elif config.every and self._on and steps % config.every == 0:
            self.write("every")
        for backend in self.backends:
            if hasattr(backend, "harvest"):
                backend.harvest()

    def mark(self, name: str) -> None:
        """Marks this moment with a name chosen by the program."""
        self.marks.add(MARK, self.marks.name(str(name)))

    def _out_of_memory(self, backend: Any, device: int, wanted: int, total: int, free: int) -> None:
        self.naming.unfinished_states(self.marks.out_of_memory(device))
        self.ooms.append(
            {
                "backend": backend.name,
                "device": device,
                "requested_bytes": wanted,
                "total_bytes": total,
                "free_bytes": free,
                "step": self.training.steps,
                "time": time.time(),
                "records_graph": bool(self.torch.is_grad_enabled()) and not has_other_optimizers(),
                "in_evaluation": self.training.graphs.is_evaluation,
            }
        )
        if asks_driver(backend):
            self.sampler.devices.add(device)
            self.sampler.take(OOM, card=CardSamples(backend).failed(device, total, free))
        if not self.training.steps and not self._optimizers:
            self._optimizers = optimizers(backend.name) or []
        if self._on:
            self._at_oom = (self.training.steps, num_allocs(self.backends))
            self.write("oom")

    def _take_signals(self) -> None:
        """Handles SIGUSR1 by writing a file, and SIGTERM by writing a file before the process ends."""
        if threading.current_thread() is not threading.main_thread():
            return
        for name in ("SIGTERM", "SIGUSR1"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                self._previous[number] = signal.SIG_DFL
                signal.signal(number, self._signalled)

    def _signalled(self, number: int, frame: Any) -> None:
        if self._writer == threading.get_ident():  # a file is being written: the end waits until it is complete
            self._waiting = self._waiting if number == getattr(signal, "SIGUSR1", -1) else number
            return
        if any(getattr(backend, "is_busy", False) for backend in self.backends):
            self._waiting = number  # events are being collected: a file now would lack them
            return
        if self._is_too_early(number, frame):
            return
        if number == getattr(signal, "SIGUSR1", -1):
            if any(backend.is_in_backward() for backend in self.backends if backend.name == "cpu"):
                self._waiting = number  # until the step is complete: the rest of this pass would be lost
                return
            self.write("demand")
            return
        self.write("signal")
        end_by(number)

    def _is_too_early(self, number: int, frame: Any) -> bool:
        """Returns whether stopping PyTorch's profiler now would deadlock or lose a call, which is over in a moment.

        The signal is sent again. After too many attempts, one that ends the program does so without a last file.
        """
        if not any(backend.name == "cpu" for backend in self.backends) or not is_in_a_call(frame):
            self._attempts = 0
            return False
        self._attempts += 1
        if self._attempts < _MOST_ATTEMPTS:
            again_soon(number)
        elif number != getattr(signal, "SIGUSR1", -1):
            end_by(number)
        return True

    def _catch_up(self) -> None:
        """Handles a signal that came at an inconvenient time."""
        number, self._waiting = self._waiting, 0
        if number:
            self._signalled(number, None)

    @contained
    def write(self, reason: str) -> None:
        """Writes a file for each backend with recorded events, and a status file."""
        if os.getpid() != self._pid or process.is_data_worker():
            return
        self._first_use.look()
        with self._lock, held(), uncollected():
            self._writer, began = threading.get_ident(), time.perf_counter()
            try:
                for backend in self.backends:
                    self._write_backend(backend, reason)
                self._dump_seconds += time.perf_counter() - began
                if self._written:
                    self._write_status(reason)
            finally:
                self._writer = 0
        self._catch_up()

    def _write_backend(self, backend: Any, reason: str) -> None:
        content = backend.snapshot()
        if content is None or not (has_content(content) or getattr(backend, "is_counted", False)):
            return
        known = self._written.get(backend.name)
        if getattr(backend, "taken_over", "") and known is not None and backend.num_events(content) < known["events"]:
            return  # the program has discarded the history: the earlier file remains
        try:
            path = self._place.path(process.number("RANK"))
        except OSError as error:
            cannot_write(self.config.folder, error)
            return
        without_computing(content)
        if next(iter(self._written), backend.name) != backend.name:
            path = f"{path[:-4]}.{backend.name}.pkl"
        content["memdiag"] = {
            "format": FORMAT,
            "backend": getattr(backend, "kind", backend.name),
            "torch_version": str(self.torch.__version__),
            "rank": process.number("RANK"),
            "world": process.number("WORLD_SIZE"),
            "local_rank": process.number("LOCAL_RANK"),
            "pid": self._pid,
            "argv": private.arguments(getattr(sys, "orig_argv", sys.argv)),
            "reason": reason,
            "steps": self.training.steps,
            "window": [self.config.first_step, self.config.last_step],
            "max_events": getattr(backend, "max_events", self.config.max_events),
            "has_times": backend.has_times,
            "taken_over": getattr(backend, "taken_over", ""),
            "phantom": bool(os.environ.get("MEMDIAG_PHANTOM")),
            "phantom_device": phantom_device(),
            "ooms": list(self.ooms),
            "samples": self.sampler.content(),
            "holders": self._holding.content(reason),
            "optimizers": list(self._optimizers),
            "forwards": [self.training.graphs.num_forwards, self.training.graphs.num_graphs],
            "error": process.last_error(),
            "error_is_of_code": process.last_error_is_of_code(),
            **backend.facts(),
            **self.marks.content(),
        }
        if write_pickle(path, content):
            self._written[backend.name] = {"path": path, "events": backend.num_events(content), "reason": reason}

    def _write_status(self, reason: str) -> None:
        if self.config.file:  # a separate file: the files next to it belong to the user
            return
        path = next(iter(self._written.values()))["path"]
        write_json(
            path[:-4] + ".json",
            {
                "pid": self._pid,
                "rank": process.number("RANK"),
                "reason": reason,
                "steps": self.training.steps,
                "ooms": self.ooms,
                "files": self._written,
                "seconds": time.time() - self.began,
                "seconds_in_marks": self.training.seconds,
                "seconds_in_dumps": self._dump_seconds,
                "seconds_in_samples": self.sampler.processor_seconds,
                "torch_version": str(self.torch.__version__),
                "argv": private.arguments(getattr(sys, "orig_argv", sys.argv)),
            },
        )
