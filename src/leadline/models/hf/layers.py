"""The layers of any transformers model, and hooks on its modules for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def layers_of(body: torch.nn.Module) -> torch.nn.ModuleList:
    """The longest list of modules that is not inside another: there may be more experts than layers."""
    lists: dict[str, torch.nn.ModuleList] = {}
    for name, module in body.named_modules():
        if isinstance(module, torch.nn.ModuleList) and not any(name.startswith(f"{outer}.") for outer in lists):
            lists[name] = module
    return max(lists.values(), key=len, default=torch.nn.ModuleList())


@contextmanager
def removed_after(hooks: list[Any]) -> Iterator[None]:
    """The hooks of some modules, while the block runs."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
