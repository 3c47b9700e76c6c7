"""What asking a server costs the asker: CPU seconds, peak memory, wall time, for small prompts and for huge ones.

    python benchmarks/server_requests.py            both sections
    python benchmarks/server_requests.py --clients  HTTP libraries, asked from threads, beside asyncio + aiohttp
    python benchmarks/server_requests.py --run      a whole `leadline run` beside the bare asyncio + aiohttp loop and,
                                                    where --peers PYTHON has them, beside inspect_ai and lm-eval

The server is the tests' fake one, in a process of its own, answering 20 ms after a request has arrived; its work
counts to nobody. Each contender is a fresh process, measured by the system (wait4): start-up and imports are in it.
`leadline run` also builds the documents, scores and stores; it draws nothing here, as the others do not. Ratios are to
the bare loop of the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.fake_server import FakeServerProcess, Faults

DELAY_SECONDS = 0.02
Asker = Callable[[str], Any]


@dataclass(frozen=True)
class Load:
    """Prompts of one size, and how many are in flight."""

    label: str
    prompts: int
    characters: int
    workers: int
    max_cpu_seconds: float
    max_megabytes: float


LOADS = (
    Load("2,000 prompts of ~1k tokens, 64 in flight", 2000, 4_300, 64, 4.5, 150.0),
    Load("200 prompts of ~128k tokens (550 KB), 16 in flight", 200, 550_000, 16, 4.0, 200.0),
)


@dataclass(frozen=True)
class Cost:
    cpu_seconds: float
    megabytes: float
    wall_seconds: float

    def __str__(self) -> str:
        return f"{self.cpu_seconds:6.2f} CPU s  {self.megabytes:5.0f} MB  {self.wall_seconds:6.2f} s"


def measured(command: list[str]) -> Cost:
    """The cost of a command in its own process. Its output is shown only when it fails.

    Bytecode is kept, as that of an installed package is: where it may not be, compiling takes 2 CPU seconds.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)}\nfailed ({process.returncode}):\n{said.read().decode()[-4000:]}")
    megabytes = usage.ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)
    return Cost(usage.ru_utime + usage.ru_stime, megabytes, time.perf_counter() - began)


# --- contenders: HTTP libraries in threads ------------------------------------------------------


def body_of(text: str) -> dict[str, Any]:
    return {"model": "fake", "messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}


def with_leadline(url: str, workers: int) -> Asker:
    import msgspec

    from leadline.models.openai.http import HttpClient

    client = HttpClient(url)
    return lambda text: msgspec.json.decode(
        client.post(f"{url}/chat/completions", msgspec.json.encode(body_of(text))).body
    )


def with_http_client(url: str, workers: int) -> Asker:
    import http.client

    import msgspec

    place, own = urlsplit(url), threading.local()

    def ask(text: str) -> Any:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(place.hostname or "", place.port)
        body = msgspec.json.encode(body_of(text))
        own.connection.request("POST", f"{place.path}/chat/completions", body, {"Content-Type": "application/json"})
        return msgspec.json.decode(own.connection.getresponse().read())

    return ask


def with_urllib3(url: str, workers: int) -> Asker:
    import msgspec
    import urllib3

    pool, headers = urllib3.PoolManager(maxsize=workers, retries=False), {"Content-Type": "application/json"}

    def ask(text: str) -> Any:
        body = msgspec.json.encode(body_of(text))
        return msgspec.json.decode(pool.request("POST", f"{url}/chat/completions", body=body, headers=headers).data)

    return ask


def with_requests(url: str, workers: int) -> Asker:
    import requests  # type: ignore[import-untyped,unused-ignore]

    session = requests.Session()
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=workers))
    return lambda text: session.post(f"{url}/chat/completions", json=body_of(text)).json()


def with_httpx(url: str, workers: int) -> Asker:
    import httpx

    client = httpx.Client(limits=httpx.Limits(max_connections=workers, max_keepalive_connections=workers), timeout=60)
    return lambda text: client.post(f"{url}/chat/completions", json=body_of(text)).json()


THREADED: dict[str, Callable[[str, int], Asker]] = {
    "leadline's client": with_leadline,
    "http.client": with_http_client,
    "urllib3": with_urllib3,
    "requests": with_requests,
    "httpx": with_httpx,
}
BARE = "asyncio + aiohttp"
PACKAGES = {"urllib3": "urllib3", "requests": "requests", "httpx": "httpx", BARE: "aiohttp"}


PEERS = {"inspect_ai": "with_inspect.py", "lm_eval": "with_lm_eval.py"}


def ask_from_threads(make: Callable[[str, int], Asker], url: str, load: Load) -> None:
    ask, texts, guard = make(url, load.workers), prompts(load), threading.Lock()

    def work() -> None:
        while True:
            with guard:
                text = next(texts, None)
            if text is None:
                return
            assert ask(text)["choices"]

    threads = [threading.Thread(target=work) for _ in range(load.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def ask_from_a_loop(url: str, load: Load) -> None:
    """The minimum for a Python program: no documents, no scores, no records."""
    import aiohttp

    texts = prompts(load)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=load.workers)) as session:

        async def work() -> None:
            for text in texts:
                async with session.post(f"{url}/chat/completions", json=body_of(text)) as reply:
                    assert (await reply.json())["choices"]

        await asyncio.gather(*[work() for _ in range(load.workers)])


def prompts(load: Load) -> Iterator[str]:
    filler = "word " * (load.characters // 5)
    return (f"{number} {filler}" for number in range(load.prompts))


# --- sections -----------------------------------------------------------------------------------


def compare_clients(repeats: int) -> None:
    print("HTTP clients: the same requests, nothing else")
    for load in LOADS:
        print(f"\n{load.label}; answered after {DELAY_SECONDS * 1000:.0f} ms")
        costs = {name: best_of(repeats, load, _child(name, load)) for name in (BARE, *THREADED) if installed(name)}
        show(costs)


def compare_runs(repeats: int, peers: str) -> None:
    print("A whole run: documents built, asked, scored and stored, start-up included")
    for load in LOADS:
        print(f"\n{load.label}; answered after {DELAY_SECONDS * 1000:.0f} ms")
        costs = {BARE: best_of(repeats, load, _child(BARE, load))} if installed(BARE) else {}
        for name, script in PEERS.items():
            if has_package(peers, name):
                with tempfile.TemporaryDirectory() as folder:
                    costs[name] = best_of(1, load, _peer(peers, script, load, folder))
        with tempfile.TemporaryDirectory() as folder:
            ours = costs["leadline run"] = best_of(repeats, load, _run(Path(folder), load))
        show(costs)
        kept = ours.cpu_seconds <= load.max_cpu_seconds and ours.megabytes <= load.max_megabytes
        verdict = "reached" if kept else "NOT reached"
        print(f"  at most {load.max_cpu_seconds:g} CPU s and {load.max_megabytes:g} MB: {verdict}")


def installed(name: str) -> bool:
    return importlib.util.find_spec(PACKAGES.get(name, "leadline")) is not None


def has_package(python: str, name: str) -> bool:
    check = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", check]).returncode == 0


def _peer(python: str, script: str, load: Load, folder: str) -> Callable[[str], list[str]]:
    path = str(Path(__file__).parent / "peers" / script)
    return lambda url: [python, path, url, str(load.prompts), str(load.characters), str(load.workers), folder]


def _child(name: str, load: Load) -> Callable[[str], list[str]]:
    number = str(LOADS.index(load))
    return lambda url: [sys.executable, __file__, "--contender", name, "--url", url, "--load", number]


def _run(folder: Path, load: Load) -> Callable[[str], list[str]]:
    program = [sys.executable, "-c", "from leadline.cli.main import main; main()", "run", "niah"]
    grid = ["--lengths", str(load.characters), "--depths", "1", "--samples", str(load.prompts)]
    numbers = itertools.count()

    def command(url: str) -> list[str]:
        model = f"openai:fake?base_url={url}&tokenizer=bytes"
        out = str(folder / str(next(numbers)))
        flags = ["--workers", str(load.workers), "--out", out, "--json", "--no-figure"]
        return [*program, "--model", model, *grid, *flags]

    return command


def best_of(repeats: int, load: Load, command: Callable[[str], list[str]]) -> Cost:
    """The lowest of several runs, since other work on the machine can only add."""
    costs = []
    for _ in range(repeats):
        with FakeServerProcess(Faults(delay_seconds=DELAY_SECONDS)) as server:
            costs.append(measured(command(server.base_url)))
            answered = sum(r.tokens > load.characters * 0.9 for r in server.completions)
            assert answered == load.prompts, f"{answered} of {load.prompts} prompts arrived whole"
    return min(costs, key=lambda cost: cost.cpu_seconds)


def show(costs: dict[str, Cost]) -> None:
    bare = costs.get(BARE)
    for name, cost in costs.items():
        ratio = ""
        if bare is not None and name != BARE:
            cpu, memory = cost.cpu_seconds / bare.cpu_seconds, cost.megabytes / bare.megabytes
            speed = bare.wall_seconds / cost.wall_seconds
            ratio = f"   {cpu:5.2f} x CPU, {memory:5.2f} x memory, {speed:5.2f} x throughput"
        print(f"  {name:18}  {cost}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable, help="an interpreter that has the peers")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--load", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.contender == BARE:
        asyncio.run(ask_from_a_loop(chosen.url, LOADS[chosen.load]))
    elif chosen.contender:
        ask_from_threads(THREADED[chosen.contender], chosen.url, LOADS[chosen.load])
    else:
        if chosen.clients or not chosen.run:
            compare_clients(chosen.repeats)
        if chosen.run or not chosen.clients:
            print()
            compare_runs(chosen.repeats, chosen.peers)


if __name__ == "__main__":
    main()
