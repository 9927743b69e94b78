"""Well-known models, written in the notation itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pltf.errors import PltfError, call_checked, py
from pltf.notation.model import Model

_FACTORS = "ABCDEFHIJKLMNOPQRSTUVW"  # G is the core, X the tensor
_LATENT = "pqrstuvwyz"


@call_checked
def cp(indices: Sequence[str] = ("i", "j", "k"), *, rank: int) -> Model:
    """CP (PARAFAC): every index has a factor, and all factors share the component ``r``.

    >>> import pltf
    >>> pltf.cp(("user", "place", "act"), rank=7)
    Model("X[user,place,act] = A[user,r] * B[place,r] * C[act,r]", r=7)
    """
    indices = _checked(indices, limit=len(_FACTORS))
    _check_free(indices, "r")
    factors = [f"{name}[{index},r]" for name, index in zip(_FACTORS, indices, strict=False)]
    return Model(f"X[{','.join(indices)}] = {' * '.join(factors)}", r=rank)


@call_checked
def tucker(indices: Sequence[str] = ("i", "j", "k"), *, ranks: Sequence[int]) -> Model:
    """Tucker: every index has a factor with its own latent index, and a core ``G`` connects them.

    >>> import pltf
    >>> pltf.tucker(("i", "j", "k"), ranks=(3, 2, 2))
    Model("X[i,j,k] = A[i,p] * B[j,q] * C[k,r] * G[p,q,r]", p=3, q=2, r=2)
    """
    indices = _checked(indices, limit=len(_LATENT))
    latent = _LATENT[: len(indices)]
    _check_free(indices, latent)
    if not isinstance(ranks, Sequence) or isinstance(ranks, str) or len(ranks) != len(indices):
        raise PltfError(f"{py:ranks} must have one size per index ({', '.join(indices)}), got {ranks!r}")
    factors = [f"{name}[{i},{p}]" for name, i, p in zip(_FACTORS, indices, latent, strict=False)]
    core = f"G[{','.join(latent)}]"
    text = f"X[{','.join(indices)}] = {' * '.join([*factors, core])}"
    return Model(text, **dict(zip(latent, ranks, strict=True)))


@call_checked
def nmf(indices: Sequence[str] = ("i", "j"), *, rank: int) -> Model:
    """Non-negative matrix factorization, ``W`` times ``H``.

    >>> import pltf
    >>> pltf.nmf(rank=4)
    Model("X[i,j] = W[i,r] * H[r,j]", r=4)
    """
    indices = _checked(indices, limit=2)
    _check_free(indices, "r")
    if len(indices) != 2:
        raise PltfError(f"{py:indices} must be two names, got {indices!r}")
    row, column = indices
    return Model(f"X[{row},{column}] = W[{row},r] * H[r,{column}]", r=rank)


def _checked(indices: Sequence[str], limit: int) -> tuple[str, ...]:
    names = tuple(indices) if isinstance(indices, Iterable) and not isinstance(indices, str) else ()
    if not names or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise PltfError(f"{py:indices} must be a sequence of index names such as ('i', 'j', 'k'), got {indices!r}")
    if len(names) > limit:
        raise PltfError(f"{py:indices} must be 1 to {limit} names, got {len(names)}")
    return names


def _check_free(indices: tuple[str, ...], latent: str) -> None:
    for index in indices:
        if index in set(latent):
            raise PltfError(f"index '{index}' is the name of the latent index of this model: rename it in {py:indices}")
