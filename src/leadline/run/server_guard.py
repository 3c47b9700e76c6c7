"""Runs a server's command and ends it, with everything it started, when the process that wants it is gone.

A program of its own, `python server_guard.py COMMAND ...`, with the standard library alone. It waits for the end of its
standard input, which comes when Leadline closes it or is killed, whatever the signal: then SIGTERM goes to the
server's process group, and SIGKILL to what is left of it after a while. It exits with the server's own exit code.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

STOP_SECONDS = 15.0
"""The time for a server to end by itself after SIGTERM."""
LOOK_SECONDS = 0.05
NOT_STARTED = 127
"""The exit code of a command that cannot be started, as of a shell."""
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h: orphans of the server become children of this process


def main(words: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Only the end of the input counts. Not SIG_IGN, which the server would inherit.
        signal.signal(number, lambda number, frame: None)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"the command cannot be started: {words[0]}: {error.strerror}", flush=True)
        return NOT_STARTED
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    code = server.wait()
    end_group(server)
    return code if code >= 0 else 128 - code


def _end_with_input(server: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    end_group(server)


def end_group(server: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the server's group, SIGKILL to what is left of it and to orphans that left the group."""
    if _signal_group(server.pid, signal.SIGTERM):
        end = time.monotonic() + STOP_SECONDS
        while time.monotonic() < end and _signal_group(server.pid, 0):
            server.poll()
            _reap()
            time.sleep(LOOK_SECONDS)
    _signal_group(server.pid, signal.SIGKILL)
    for orphan in _children():
        if orphan != server.pid:
            _signal(orphan, signal.SIGKILL)


def _children() -> list[int]:
    """Children of this process, orphans of the server among them, where the system lists them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
            return [int(word) for word in listed.read().split()]
    except OSError:
        return []


def _reap() -> None:
    """Takes the exit status of orphans that have ended: a group with a zombie in it looks alive."""
    for pid in _children():
        try:
            if os.getpgid(pid) == pid:
                continue  # the server itself, whose status `Popen` takes
            os.waitpid(pid, os.WNOHANG)
        except (ChildProcessError, ProcessLookupError):
            continue


def _signal_group(leader: int, number: int) -> bool:
    """Whether a process of the group was there to be signalled."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
