"""How the resources of a cluster are divided among replicas of a model, and the errors when they do not suffice."""

from __future__ import annotations

import pickle
import socket
import sys
from types import SimpleNamespace

import pytest

from leadline.core.errors import LengthError, MissingExtra, ServerError, UnknownName, UsageError
from leadline.core.registry import ModelName, provider
from leadline.core.spec import make_spec
from leadline.models.ray.cluster import NodeResources as Node
from leadline.models.ray.cluster import SlotLayout, connect, plan_slots
from leadline.run.plan import open_model


@pytest.mark.parametrize(
    ("nodes", "wanted", "layout"),
    [
        ([Node(8, 64)], 0, SlotLayout(8, "GPU", 1)),
        ([Node(8, 64)], 2, SlotLayout(2, "GPU", 4)),
        ([Node(8, 64)], 3, SlotLayout(3, "GPU", 2)),
        (
            [Node(3, 16), Node(3, 16)],
            3,
            SlotLayout(3, "GPU", 1),
        ),  # 2 each would leave the third in two halves
        ([Node(0, 16), Node(4, 16), Node(4, 16)], 0, SlotLayout(8, "GPU", 1)),
        ([Node(0, 2)], 2, SlotLayout(2, "CPU", 1)),
        ([Node(0, 16)], 0, SlotLayout(1, "CPU", 16)),
        ([Node(0, 16), Node(0, 8)], 0, SlotLayout(2, "CPU", 8)),
        ([Node(0, 0), Node(0, 8)], 0, SlotLayout(1, "CPU", 8)),  # a head node that runs nothing
    ],
)
def test_slots_are_equal_and_each_lies_on_one_machine(nodes: list[Node], wanted: int, layout: SlotLayout) -> None:
    assert plan_slots(nodes, wanted) == layout


@pytest.mark.parametrize(
    ("nodes", "wanted", "least", "layout"),
    [
        ([Node(8, 64)], 0, 4, SlotLayout(2, "GPU", 4)),
        ([Node(8, 64), Node(8, 64)], 3, 4, SlotLayout(3, "GPU", 4)),
        ([Node(3, 16), Node(6, 16)], 0, 2, SlotLayout(4, "GPU", 2)),
        ([Node(0, 8)], 1, 4, SlotLayout(1, "CPU", 8)),  # an engine on processors has no GPUs to share
    ],
)
def test_a_replica_that_is_spread_over_gpus_gets_as_many(
    nodes: list[Node], wanted: int, least: int, layout: SlotLayout
) -> None:
    assert plan_slots(nodes, wanted, least) == layout


def test_a_replica_that_no_machine_has_the_gpus_for_is_refused() -> None:
    with pytest.raises(UsageError, match="needs 8 GPUs of one machine, and the machines have 4, 4") as refused:
        plan_slots([Node(4, 64), Node(4, 64)], 0, 8)
    assert "tensor_parallel_size=" in refused.value.fix
    with pytest.raises(UsageError, match="room for 2, not 3") as refused:
        plan_slots([Node(4, 64), Node(4, 64)], 3, 4)
    assert "--ray 2 or less" in refused.value.fix


def test_an_engine_says_how_many_gpus_a_replica_needs() -> None:
    name = ModelName.parse("vllm:org/model?tensor_parallel_size=4&pipeline_parallel_size=2")
    assert provider(name).devices == 8
    assert provider(ModelName.parse("hf:org/model")).devices == 1


def test_too_many_replicas_are_refused_and_the_limit_is_named() -> None:
    with pytest.raises(UsageError, match="3 replicas need at least 3 GPUs, and there are 2"):
        plan_slots([Node(2, 64)], 3)
    with pytest.raises(UsageError, match="--ray 2 or less"):
        plan_slots([Node(0, 2)], 3)


def test_without_ray_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="pip install"):
        connect()


def test_an_unreachable_cluster_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))  # and is never asked
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))  # bound, and nobody listens
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{door.getsockname()[1]}")
        with pytest.raises(ServerError, match="Ray cannot be reached") as caught:
            connect()
    assert "unset RAY_ADDRESS" in caught.value.fix


def test_a_server_model_has_no_replicas() -> None:
    spec = make_spec({"model": "sim:perfect", "tasks": "niah", "lengths": "1k", "limits": {"ray": 2}})
    with pytest.raises(UsageError, match="--workers"):
        open_model(spec)


def test_limits_do_not_change_the_digest() -> None:
    values = {"model": "hf:x", "tasks": "niah", "lengths": "1k"}
    assert make_spec(values).digest == make_spec({**values, "limits": {"ray": 4}}).digest


def test_errors_can_be_pickled() -> None:
    for error in (
        MissingExtra("torch", "hf", where="hf:x"),
        UnknownName("key", "lenghts", ["lengths"], where="spec"),
        LengthError("too short", where="here", fix="more", shortest=7),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
        assert again.args == error.args
