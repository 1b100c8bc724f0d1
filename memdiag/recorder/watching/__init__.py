"""The part of ``memdiag watch`` that runs inside the watched process: an agent that answers over a socket.

The agent is a thread. It enters the process in one of two ways: ``memdiag.arm()`` (or ``MEMDIAG_ARM=1``) waits for a
watcher at a socket in a private folder, or a debugger runs ``boot`` in a process that was started without memdiag. It
leaves when the watcher says so or disappears, and then removes its hooks, its history and its modules.
"""
