"""The tasks of a certification."""

from __future__ import annotations

from leadline.core.spec import Suite

SUITE = Suite(
    name="certify",
    summary="what engines and low-bit caches break first: keys, values, chains, lists, conversations, agent logs",
    values={
        "tasks": [
            {"name": "niah_multikey_1"},
            {"name": "niah_multivalue"},
            {"name": "vt"},
            {"name": "kv"},
            *({"name": "mrcr", "label": f"mrcr[needles={n}]", "options": {"needles": n}} for n in (2, 4, 8)),
            {"name": "aggregate"},
            {"name": "agent_log"},
        ],
        "lengths": "2k,4k,8k,16k,32k",
        "depths": 3,
        "samples": 16,
    },
)
