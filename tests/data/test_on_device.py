"""Arrays in the memory of a device: checked there, as arrays of the host are, and fetched when the host asks."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pltf
from pltf.data.on_device import DeviceObservation
from pltf.data.split import without
from tests.extras import TORCH
from tests.on_device import put

if not TORCH:
    pytest.skip("needs torch", allow_module_level=True)

rng = np.random.default_rng(0)
COUNTS = rng.poisson(2.0, (5, 4, 3))
HOLED = np.where(rng.random(COUNTS.shape) < 0.3, np.nan, COUNTS)
MASK = rng.random(COUNTS.shape) < 0.7
ARRAYS = {
    "counts": (COUNTS, None),
    "bytes": (COUNTS.astype(np.uint8), None),
    "shorts": (COUNTS.astype(np.int16), None),
    "links": (COUNTS > 1, None),
    "halves": (COUNTS.astype(np.float16), None),
    "fractions": (COUNTS / 3, None),
    "large": (COUNTS * 1e9, None),
    "small and large": (np.where(COUNTS > 2, 1e5, COUNTS / 7), None),
    "holes": (HOLED, None),
    "a mask": (COUNTS, MASK),
    "holes and a mask": (HOLED.astype(np.float32), MASK),
    "a mask of all": (COUNTS, np.ones_like(MASK)),
    "nothing": (np.full((2, 2), np.nan), None),
}
Put = Callable[[Any], Any]


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Put:
    return lambda array: None if array is None else put(array, monkeypatch)


def both(array: Any, mask: Any, there: Put) -> tuple[pltf.Observation, DeviceObservation]:
    on_host, on_device = pltf.observe(array, mask), pltf.observe(there(array), there(mask))
    assert isinstance(on_device, DeviceObservation)
    assert not isinstance(on_host, DeviceObservation)
    return on_host, on_device


def fetches(seen: DeviceObservation) -> bool:
    return "values" in vars(seen)


@pytest.mark.parametrize("cells", [1 << 24, 7])
@pytest.mark.parametrize("name", ARRAYS)
def test_it_knows_what_that_of_the_host_knows(
    name: str, cells: int, there: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pltf.data.on_device.BLOCK_CELLS", cells)
    here, seen = both(*ARRAYS[name], there)
    for fact in ("n_observed", "shape", "dtype_name", "n_positive", "has_missing", "largest"):
        assert getattr(seen, fact) == getattr(here, fact), fact
    assert type(seen.n_positive) is int
    assert seen.total == pytest.approx(here.total, rel=1e-15)
    assert seen.saturated == pytest.approx(here.saturated, rel=1e-12)
    assert seen.digest() == here.digest()
    every = np.argwhere(np.ones(seen.shape)).T
    np.testing.assert_array_equal(seen.values_at(every), here.values_at(every))
    assert seen.first_where(lambda x: x > 2) == here.first_where(lambda x: x > 2)
    pattern, known = seen.pattern(), here.pattern()
    np.testing.assert_array_equal(pattern.observed(every), known.observed(every))
    np.testing.assert_array_equal(pattern.positive(every), known.positive(every))
    assert not fetches(seen)
    assert isinstance(here, pltf.data.DenseObservation)
    np.testing.assert_array_equal(seen.values, here.values)
    assert seen.values is seen.values
    np.testing.assert_array_equal(seen.mask, here.mask)


@pytest.mark.parametrize(
    "wrong", [-1.0, np.inf, -np.inf, 2.0**53 + 4], ids=["negative", "infinite", "both", "more than exact"]
)
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_refused_in_the_same_words(
    wrong: float, masked: bool, there: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pltf.data.on_device.BLOCK_CELLS", 12)
    array = COUNTS.astype(np.int64 if wrong > 1 and wrong < 1e300 else float)
    array[3, 1, 2], array[4, 0, 0] = wrong, wrong
    mask = MASK.copy() if masked else None
    if mask is not None:
        mask[3, 1, 2], mask[0, 0, 0] = True, False
    messages = []
    for data, known in ((array, mask), (there(array), there(mask))):
        with pytest.raises(pltf.PltfError) as caught:
            pltf.observe(data, known, name="X")
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "(3, 1, 2)" in messages[0]


def test_what_missing_cells_hold_does_not_matter(there: Put) -> None:
    array, mask = COUNTS.astype(float), np.ones(COUNTS.shape, bool)
    array[0], mask[0] = -np.inf, False
    assert pltf.observe(there(array), there(mask)).total == COUNTS[1:].sum()


@pytest.mark.parametrize("mask", [np.ones((2, 2), bool), COUNTS, np.full(COUNTS.shape, 0.5)])
def test_masks_are_refused_in_the_same_words(mask: Any, there: Put) -> None:
    messages = []
    for data, known in ((COUNTS, mask), (there(COUNTS), there(mask)), (there(COUNTS), mask)):
        with pytest.raises(pltf.PltfError) as caught:
            pltf.observe(data, known, name="X")
        messages.append(str(caught.value))
    assert messages[0] == messages[1] == messages[2]
    assert messages[0].startswith("mask must ")


def test_masks_from_anywhere(there: Put) -> None:
    for mask in (MASK, MASK.tolist(), there(MASK), there(MASK.astype(int))):
        assert pltf.observe(there(COUNTS), mask).n_observed == MASK.sum()


def test_others_are_left_to_the_host(there: Put) -> None:
    import torch

    with pytest.raises(pltf.PltfError, match="expected real or integer numbers, got dtype complex64"):
        pltf.observe(there(np.ones((2, 2), np.complex64)), name="X")
    with pytest.raises(pltf.PltfError, match=r"a torch.Tensor could not be read"):
        pltf.observe(there(COUNTS.astype(float)).to(torch.bfloat16), name="X")
    assert pltf.observe(there(COUNTS).to_sparse()).total == COUNTS.sum()
    with pytest.raises(pltf.PltfError, match="at least one axis"):
        pltf.observe(there(3.0))


def test_names_axes_and_parts(there: Put) -> None:
    here, seen = (pltf.observe(data, MASK, dims=("i", "j", "k")) for data in (COUNTS, there(COUNTS)))
    turned, expected = seen.transposed((2, 0, 1)), here.transposed((2, 0, 1))
    assert turned.dims == ("k", "i", "j")
    assert turned.digest() == expected.digest()
    assert isinstance(turned, DeviceObservation)
    assert isinstance(seen, DeviceObservation)
    assert seen.place.partition(":")[0] == str(seen.tensor.device).partition(":")[0]
    assert turned.place == ""
    hidden = np.argwhere(MASK).T[:, :5]
    left, expected = without(seen, hidden), without(here, hidden)
    assert isinstance(left, DeviceObservation)
    assert left.digest() == expected.digest()
    assert left.dims == seen.dims
    assert not fetches(seen)


def test_it_can_be_sent_elsewhere(there: Put) -> None:
    seen = pltf.observe(there(HOLED))
    assert pickle.loads(pickle.dumps(seen)).digest() == seen.digest()


def test_other_functions_take_it(there: Put) -> None:
    np.testing.assert_array_equal(pltf.holdout(there(COUNTS), 0.3, seed=1), pltf.holdout(COUNTS, 0.3, seed=1))
    with pytest.raises(AttributeError, match="'DeviceObservation' object has no attribute 'nothing'"):
        _ = pltf.observe(there(COUNTS)).nothing  # type: ignore[attr-defined]
