"""How a cluster is shared out among copies of a model, and what is said when it cannot be."""

from __future__ import annotations

import pickle
import socket
import sys
from types import SimpleNamespace

import pytest

from leadline.core.errors import LengthError, MissingExtra, ServerError, UnknownName, UsageError
from leadline.core.spec import make_spec
from leadline.models.ray.cluster import Node, Share, share_out, start
from leadline.run.plan import open_model


@pytest.mark.parametrize(
    ("nodes", "wanted", "share"),
    [
        ([Node(8, 64)], 0, Share(8, "GPU", 1)),
        ([Node(8, 64)], 2, Share(2, "GPU", 4)),
        ([Node(8, 64)], 3, Share(3, "GPU", 2)),
        ([Node(3, 16), Node(3, 16)], 3, Share(3, "GPU", 1)),  # 2 each would leave the third in two halves
        ([Node(0, 16), Node(4, 16), Node(4, 16)], 0, Share(8, "GPU", 1)),
        ([Node(0, 2)], 2, Share(2, "CPU", 1)),
        ([Node(0, 16)], 0, Share(1, "CPU", 16)),
        ([Node(0, 16), Node(0, 8)], 0, Share(2, "CPU", 8)),
    ],
)
def test_places_are_alike_and_each_lies_on_one_machine(nodes: list[Node], wanted: int, share: Share) -> None:
    assert share_out(nodes, wanted) == share


def test_more_copies_than_there_is_room_for_are_refused_with_how_many_there_is() -> None:
    with pytest.raises(UsageError, match="3 copies need as many GPUs, and there are 2"):
        share_out([Node(2, 64)], 3)
    with pytest.raises(UsageError, match="--ray 2 or less"):
        share_out([Node(0, 2)], 3)


def test_without_ray_the_pip_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="pip install"):
        start()


def test_a_cluster_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))  # and is never asked
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))  # bound, and nobody listens
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{door.getsockname()[1]}")
        with pytest.raises(ServerError, match="Ray cannot be reached") as caught:
            start()
    assert "unset RAY_ADDRESS" in caught.value.fix


def test_a_server_is_not_copied() -> None:
    spec = make_spec({"model": "sim:perfect", "tasks": "niah", "lengths": "1k", "limits": {"ray": 2}})
    with pytest.raises(UsageError, match="--workers"):
        open_model(spec)


def test_limits_are_no_part_of_what_a_run_is() -> None:
    values = {"model": "hf:x", "tasks": "niah", "lengths": "1k"}
    assert make_spec(values).digest == make_spec({**values, "limits": {"ray": 4}}).digest


def test_errors_come_whole_from_another_process() -> None:
    for error in (
        MissingExtra("torch", "hf", where="hf:x"),
        UnknownName("key", "lenghts", ["lengths"], where="spec"),
        LengthError("too short", where="here", fix="more", floor=7),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
        assert again.args == error.args
