"""Places for copies of a model: on this machine, or on the Ray cluster that RAY_ADDRESS names.

A place is a share of one machine, held for as long as the fleet is there: one or more whole GPUs where there are any,
else processors. All places of a fleet are alike.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from leadline.core.errors import MissingExtra, ServerError, UsageError

WHERE = "--ray"
ADDRESS = "RAY_ADDRESS"
KNOCKING_SECONDS = 10.0
PLACING_SECONDS = 60.0
"""How long others may take to give back what they hold of the cluster."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a machine has."""

    gpus: int
    processors: int


@dataclass(frozen=True, slots=True)
class Share:
    """So many places, each with `each` of a kind."""

    places: int
    kind: Literal["GPU", "CPU"]
    each: int

    @property
    def words(self) -> str:
        copies = "1 copy" if self.places == 1 else f"{self.places} copies"
        noun = ("GPU" if self.kind == "GPU" else "processor") + ("s" if self.each > 1 else "")
        return f"{copies} through Ray, {self.each} {noun}" + (" each" if self.places > 1 else "")


def share_out(nodes: Sequence[Node], wanted: int) -> Share:
    """Places of one size, as large as lets all of them lie on single machines.

    0 is one for every GPU; where there are none, one for every machine.
    """
    kind: Literal["GPU", "CPU"] = "GPU" if any(node.gpus for node in nodes) else "CPU"
    have = [node.gpus if kind == "GPU" else node.processors for node in nodes]
    places = wanted or (sum(have) if kind == "GPU" else len(nodes))
    each = max((n for n in range(1, max(have) + 1) if sum(h // n for h in have) >= places), default=0)
    if not each:
        noun = "GPUs" if kind == "GPU" else "processors"
        raise UsageError(
            f"{places} copies need as many {noun}, and there are {sum(have)}",
            where=WHERE,
            fix=f"use --ray {sum(have)} or less" + (", or 0 for one a GPU" if kind == "GPU" else ""),
        )
    return Share(places, kind, each)


class Fleet:
    """Places held on a cluster until they are given back."""

    def __init__(self, wanted: int) -> None:
        self.ray = start()
        self.share = share_out(_nodes(self.ray), wanted)
        self._group = self.ray.util.placement_group([{self.share.kind: self.share.each}] * self.places, "SPREAD")
        self._free = list(range(self.places))
        self._guard = threading.Lock()
        try:
            if not self._group.wait(PLACING_SECONDS):
                raise ServerError(
                    f"the cluster has no room for {self.share.words}: others are using it",
                    where=os.environ.get(ADDRESS, "this machine"),
                    fix="wait for them, or use --ray with a smaller number",
                )
        except BaseException:
            self.close()
            raise

    @property
    def places(self) -> int:
        return self.share.places

    def take(self, count: int) -> list[int]:
        """So many places that nobody has."""
        with self._guard:
            if count > len(self._free):
                raise UsageError(f"{count} places are wanted and {len(self._free)} are free", where=WHERE)
            taken, self._free = self._free[:count], self._free[count:]
            return taken

    def give_back(self, places: Sequence[int]) -> None:
        with self._guard:
            self._free.extend(places)

    def settle(self, cls: type, place: int) -> Any:
        """An actor of a class in a place."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        gpus = self.share.each if self.share.kind == "GPU" else 0
        there = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
        made = self.ray.remote(cls).options(
            num_gpus=gpus, num_cpus=0 if gpus else self.share.each, scheduling_strategy=there
        )
        return made.remote()

    def close(self) -> None:
        """Whoever still lives in a place dies with it."""
        self.ray.util.remove_placement_group(self._group)


def start() -> Any:
    """Ray, connected. The part of it that this process started ends with this process."""
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", where=WHERE) from None
    if ray.is_initialized():
        return ray
    # Nothing is reported to anyone, and what a machine without GPUs shows to its programs stays as it is.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    address = os.environ.get(ADDRESS)
    try:
        if address:
            _knock(address)
            ray.init(address=address, **quiet)
        else:
            ray.init(address="local", include_dashboard=False, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise ServerError(
            f"Ray cannot be {'reached' if address else 'started'}: {str(error).strip().partition(chr(10))[0]}",
            where=f"{ADDRESS}={address}" if address else WHERE,
            fix="see that the cluster is up and which token it wants (RAY_AUTH_MODE, RAY_AUTH_TOKEN), or unset "
            f"{ADDRESS} to use this machine alone"
            if address
            else "see the logs in /tmp/ray/session_latest",
        ) from error
    return ray


def _knock(address: str) -> None:
    """Whether anyone is there at all: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), KNOCKING_SECONDS).close()


def _nodes(ray: Any) -> list[Node]:
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(int(has.get("GPU", 0)), int(has.get("CPU", 0))) for has in alive]
