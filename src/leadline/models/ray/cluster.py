"""GPUs or processors for the replicas of a model, on this machine or on the Ray cluster that RAY_ADDRESS names.

They are reserved with a Ray placement group of equal bundles ("slots"). A slot lies on one machine and has one or more
whole GPUs, or processors where there are no GPUs.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from leadline.core.errors import MissingExtra, ServerError, UsageError

WHERE = "--ray"
ADDRESS = "RAY_ADDRESS"
CONNECT_SECONDS = 10.0
PLACEMENT_SECONDS = 60.0
"""How long to wait for resources that other jobs hold."""
MAX_RESTARTS = 8
"""How often Ray restarts one actor whose process died. Finite, because some models kill every process they open in."""


@dataclass(frozen=True, slots=True)
class NodeResources:
    """The GPUs and processors of one machine."""

    gpus: int
    cpus: int


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """`slots` slots, each with `each` GPUs or processors."""

    slots: int
    resource: Literal["GPU", "CPU"]
    each: int

    def __str__(self) -> str:
        replicas = "1 replica" if self.slots == 1 else f"{self.slots} replicas"
        noun = ("GPU" if self.resource == "GPU" else "processor") + ("s" if self.each > 1 else "")
        return f"{replicas} through Ray, {self.each} {noun}" + (" each" if self.slots > 1 else "")


def plan_slots(nodes: Sequence[NodeResources], wanted: int, least: int = 1) -> SlotLayout:
    """Equal slots, as large as possible with each on a single machine, and with `least` GPUs or more.

    `wanted=0` is one slot for every `least` GPUs, or one for every machine where there are no GPUs.
    """
    resource: Literal["GPU", "CPU"] = "GPU" if any(node.gpus for node in nodes) else "CPU"
    least = least if resource == "GPU" else 1
    available = [node.gpus if resource == "GPU" else node.cpus for node in nodes]
    most = sum(n // least for n in available)
    slots = wanted or (most if resource == "GPU" else sum(cpus > 0 for cpus in available))
    each = max((n for n in range(least, max(available) + 1) if sum(a // n for a in available) >= slots), default=0)
    if not each or not slots:
        noun = "GPUs" if resource == "GPU" else "processors"
        if least > 1:
            what = (
                f"a replica needs {least} GPUs of one machine, and the machines have {', '.join(map(str, available))}"
            )
            what += f": room for {most}, not {slots}" if most else ""
            less = "" if most else "fewer GPUs for each (tensor_parallel_size=)"
        else:
            what = f"{slots} replicas need at least {slots} {noun}, and there are {sum(available)}"
            less = ""
        raise UsageError(
            what,
            where=WHERE,
            fix=less or f"use --ray {most} or less" + (", or 0 for as many as fit" if resource == "GPU" else ""),
        )
    return SlotLayout(slots, resource, each)


class Reservation:
    """Slots held on a cluster until `release`. Ray decides which actor runs in which slot."""

    def __init__(self, wanted: int, least: int = 1) -> None:
        """`least` is how many GPUs one replica needs."""
        self.ray = connect()
        alive = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        nodes = [NodeResources(int(has.get("GPU", 0)), int(has.get("CPU", 0))) for has in alive]
        self.layout = plan_slots(nodes, wanted, least)
        bundles = [{self.layout.resource: self.layout.each}] * self.layout.slots
        self._group = self.ray.util.placement_group(bundles, "SPREAD")
        try:
            if not self._group.wait(PLACEMENT_SECONDS):
                raise ServerError(
                    f"the cluster has no room for {self.layout}: other jobs are using it",
                    where=os.environ.get(ADDRESS, "this machine"),
                    fix="wait for them, or use --ray with a smaller number",
                )
        except BaseException:
            self.release()
            raise

    def create_actor(self, cls: type, *arguments: Any) -> Any:
        """An actor in a free slot. Ray starts it again when its process dies."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        gpus = self.layout.each if self.layout.resource == "GPU" else 0
        options = {
            "num_gpus": gpus,
            "num_cpus": 0 if gpus else self.layout.each,
            "max_restarts": MAX_RESTARTS,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(self._group),
        }
        return self.ray.remote(cls).options(**options).remote(*arguments)

    def release(self) -> None:
        """Give the slots back. Kills the actors that still run in them."""
        self.ray.util.remove_placement_group(self._group)


def connect() -> Any:
    """The ray module, connected to RAY_ADDRESS or to a local instance that ends with this process."""
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", where=WHERE) from None
    if ray.is_initialized():
        return ray
    # No usage statistics; and CUDA_VISIBLE_DEVICES stays unchanged for actors without GPUs.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    address = os.environ.get(ADDRESS)
    try:
        if address:
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if host and port.isdecimal():  # ray.init would wait for minutes for a cluster that is not there
                socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
            ray.init(address=address, **quiet)
        else:
            ray.init(address="local", include_dashboard=False, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise ServerError(
            f"Ray cannot be {'reached' if address else 'started'}: {str(error).strip().partition(chr(10))[0]}",
            where=f"{ADDRESS}={address}" if address else WHERE,
            fix="check that the cluster is up and which token it requires (RAY_AUTH_MODE, RAY_AUTH_TOKEN), or unset "
            f"{ADDRESS} to use this machine alone"
            if address
            else "see the logs in /tmp/ray/session_latest",
        ) from error
    return ray
