"""The fake server as a command for `--serve`: `python served_process.py --port N [--settings JSON] [--child FILE]`.

It runs until it is ended. With --child it starts a process of its own first, which leaves the group if asked to, and
writes its pid to the file. With --answers N it dies after that many answers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.fake_server import FakeServer


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def command(port: int, *more: str, **settings: object) -> str:
    """What to give to --serve."""
    written = ["--settings", f"'{json.dumps(settings)}'"] if settings else []
    return " ".join([sys.executable, __file__, "--port", str(port), *written, *more])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().split()[2] != "Z"


def is_gone(pid: int) -> bool:
    """Waits for it: a signal takes its time on a busy machine."""
    end = time.monotonic() + 60
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_alive(pid)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--child", default="")
    parser.add_argument("--own-session", action="store_true")
    parser.add_argument("--answers", type=int, default=0)
    given = parser.parse_args()
    if given.child:
        waits = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(waits, start_new_session=given.own_session)
        Path(given.child).write_text(f"{os.getpid()} {child.pid}")
    with FakeServer(sockets=True, port=given.port, **json.loads(given.settings)) as server:
        print("ready", flush=True)
        while not given.answers or len(server.completions) < given.answers:
            time.sleep(0.02)
        print("out of memory in layer 7", flush=True)
        os._exit(9)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    assert threading.current_thread() is threading.main_thread()
    main()
