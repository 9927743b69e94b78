"""Counts what goes between a device and the host, wherever the tests run: each of these waits on a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

TO_HOST = ("__bool__", "__float__", "__index__", "__int__", "cpu", "item", "nonzero", "tolist")
FROM_HOST = ("as_tensor", "from_numpy", "tensor")


class Copies(TorchFunctionMode):  # type: ignore[misc]  # PyTorch is not typed here
    """Counts them while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.to_host, self.from_host = Counter[str](), Counter[str]()

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(function, "__name__", "")
        for counter, names in ((self.to_host, TO_HOST), (self.from_host, FROM_HOST)):
            if name in names:
                counter[name] += 1
        return function(*args, **(kwargs or {}))
