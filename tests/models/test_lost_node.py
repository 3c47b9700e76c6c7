"""A Ray cluster of two nodes on this machine, one of which is lost in the middle of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402

from leadline.core.spec import make_spec  # noqa: E402
from leadline.models.ray.cluster import Reservation  # noqa: E402
from leadline.models.ray.model import replicas_of  # noqa: E402
from leadline.run.measure import measure_spec  # noqa: E402
from leadline.store.runs import read_records  # noqa: E402
from support import mortal_model  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("default")]

GRID = {"model": "sim:perfect", "tasks": "niah", "lengths": "1k,2k", "depths": 3, "samples": 2, "reading": "shared"}
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


@pytest.fixture
def cluster() -> Iterator[Any]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": QUICK})
    ray.init(address=made.address, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(mortal_model)
    yield made
    ray.shutdown()
    made.shutdown()  # type: ignore[no-untyped-call,unused-ignore]


def test_a_run_that_loses_a_node_in_the_middle_ends_complete(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    slots = Reservation(2)
    (tmp_path / f"hold-{node.node_id}").touch()  # the replica there never answers

    def lose() -> None:
        while not (tmp_path / "held").exists():
            time.sleep(0.1)
        cluster.remove_node(node, allow_graceful=False)  # kills its raylet

    losing = threading.Thread(target=lose, daemon=True)
    losing.start()
    opener = partial(mortal_model.MortalModel, tmp_path)
    opened = partial(replicas_of, opener, slots, 2)
    totals = measure_spec(make_spec(GRID), tmp_path / "run", open_model=lambda spec: opened()).run.totals
    losing.join(timeout=60)
    assert (tmp_path / "held").exists()
    assert (totals.done, totals.failed) == (12, 0)
    assert len({record.cell.key for record in read_records(tmp_path / "run")}) == 12
    assert len(list(tmp_path.glob("asked-*"))) == 1  # only the other node's replica answered
    slots.release()
