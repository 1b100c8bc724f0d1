"""Trains a tiny model with one kind of fault, so that most of the time is start-up: small.py WAY [STEPS]."""

import contextlib
import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import torch

torch.set_num_threads(1)


def make():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)


def train(steps, pause=0.0):
    loss = torch.zeros(())
    for _ in range(steps):
        loss = model(torch.ones(3, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(pause)
    return round(loss.item(), 6)


def steps():
    print("ready", flush=True)
    print(train(number), flush=True)


def removed():
    """Replaces the folder of the run by a file."""
    folder = os.environ.get("FOLDER")
    print(train(2))
    if folder:
        shutil.rmtree(folder)
        with open(folder, "w"):
            pass
    print(train(3))


def full():
    """Limits the size of files to a few bytes, as on a full disk."""
    import resource

    print(train(2))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    print(train(5))


def filled():
    """Fills the disk after two steps."""
    print(train(2))
    with open(os.path.join(os.environ["DISK"], "filling"), "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1024)):
            pass
    print(train(3))


def locked():
    """Remounts the disk read-only after two steps, as the kernel does after a disk error."""
    print(train(2))
    command = ["mount", "-o", "remount,ro", os.environ["DISK"]]
    print(subprocess.run(command, check=False).returncode)
    print(train(3))


def end():
    print(train(3), flush=True)
    os._exit(5)


def abort():
    print(train(3), flush=True)
    os.abort()


def fork():
    print(train(2), flush=True)
    pid = os.fork()
    print(os.getpid() == pid, train(2), flush=True)
    if pid == 0:
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), train(2), flush=True)


def work(given, queue):
    queue.put((given, train(given)))


def processes(method):
    context = torch.multiprocessing.get_context(method)
    print(train(2), flush=True)
    queue = context.Queue()
    children = [context.Process(target=work, args=(given, queue)) for given in (1, 2)]
    for child in children:
        child.start()
    print(sorted(queue.get() for _ in children))
    for child in children:
        child.join()
    print([child.exitcode for child in children], train(2))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((8,), float(index))


def loader(method):
    loaded = torch.utils.data.DataLoader(Numbers(), batch_size=3, num_workers=2, multiprocessing_context=method)
    for batch in loaded:
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(round(loss.item(), 6), train(2))


def patched():
    """Replaces a function that the recorder has replaced, restores it, and removes hooks that others have set."""
    kept = torch.autograd.backward
    torch.autograd.backward = functools.wraps(kept)(functools.partial(kept))
    print(train(2))
    hooks = torch.nn.modules.module
    for name in ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_forward_hooks_always_called"):
        getattr(hooks, name, {}).clear()
    print(train(2))
    torch.autograd.backward = kept
    optimizers = sys.modules["torch.optim.optimizer"]
    optimizers._global_optimizer_pre_hooks.clear()
    print(train(2))
    optimizers._global_optimizer_post_hooks.clear()
    del hooks._global_forward_hooks_always_called
    hooks._global_forward_hooks_always_called = {}
    print(train(2))


def annotated():
    """Keeps annotations open across steps, and across the end of the program's own profile."""
    span = torch.profiler.record_function("all of it")
    with torch.profiler.record_function("around"):
        print(train(number))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            span.__enter__()
            train(2)
        train(20)
        span.__exit__(None, None, None)
        train(20)
    del span
    gc.collect()
    print(train(20), sorted((each.key, each.count) for each in profile.key_averages()))


def profiled():
    """Makes its own profiles, one with a schedule, and prints their averages and numbers of events."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    train(2)
    with torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True) as profile:
        train(3)
    train(2)
    found = [
        (each.key, each.count, each.self_cpu_memory_usage) for each in profile.key_averages(group_by_input_shape=True)
    ]
    print(len(profile.events()), sorted(found))
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    seen = []
    with torch.profiler.profile(
        activities=activities, schedule=schedule, on_trace_ready=lambda given: seen.append(len(given.events()))
    ) as profile:
        for _ in range(9):
            train(1)
            profile.step()
    print(seen, train(2))


def pestered():
    """Sends itself requests for a file (SIGUSR1) every 3 ms while it trains."""
    stop = threading.Event()

    def pester():
        while not stop.wait(0.003):
            os.kill(os.getpid(), signal.SIGUSR1)

    other = threading.Thread(target=pester)
    if "FOLDER" in os.environ:
        other.start()
    print(train(number))
    stop.set()
    if "FOLDER" in os.environ:
        other.join()


def looked_at():
    """Sends itself SIGUSR1, then SIGTERM, while PyTorch's profiler reads a module's attributes in a callback."""
    from memdiag.recorder.interrupts import is_in_profile_function

    sent = []
    kept = []  # the profiler reads the attributes once per address, so no address may repeat
    for number in (signal.SIGUSR1, signal.SIGTERM):
        wanted = [number]

        class Asked(torch.nn.Module):
            def __getattribute__(self, name, wanted=wanted):
                if name == "_parameters" and wanted and is_in_profile_function():
                    sent.append(wanted[0])
                    os.kill(os.getpid(), wanted.pop())
                return super().__getattribute__(name)

            def forward(self, x):
                return x * 2

        for _ in range(50):
            kept.append(Asked())
            kept[-1](torch.ones(4 + len(kept)))  # equal passes would need no calls
            time.sleep(0.01)
        print(sent, flush=True)
    print("not ended")


def interrupted():
    """Interrupts itself at forty moments and continues after each."""
    armed = False

    def interrupt():
        for pause in range(40):
            time.sleep(0.001 * pause)
            os.kill(os.getpid(), signal.SIGINT)

    def handle(*_):
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    other = threading.Thread(target=interrupt)
    other.start()
    while other.is_alive():
        try:
            armed = True
            train(1)
            armed = False
        except KeyboardInterrupt:
            pass
    other.join()
    print(train(number) is not None)


model, optimizer = make()
if __name__ == "__main__":
    way, number = sys.argv[1], int((sys.argv[2:] or ["3"])[0])
    if "-" in way:
        {"processes": processes, "loader": loader}[way.split("-")[0]](way.split("-")[1])
    else:
        globals()[way]()
