"""The one place that sets how kernels are compiled and where their machine code is kept.

Numba notices a change in the file of a cached function, but not in the functions it calls. So the cache folder's name
carries a fingerprint of every file that holds kernels: an edit or an upgrade starts a fresh folder, and driver and
workers that run the same code share one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numba.core.config
import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])
_KERNEL_ROOMS = ("numerics", "probability", "pruning")


@cache
def cache_folder() -> str:
    """Where compiled kernels are kept: ``NUMBA_CACHE_DIR`` if set, else a folder for this code in the user's cache."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return chosen
    package = Path(__file__).resolve().parent.parent
    fingerprint = hashlib.sha256()
    for room in _KERNEL_ROOMS:
        for source in sorted((package / room).glob("*.py")):
            fingerprint.update(source.name.encode() + source.read_bytes())
    name = f"kernels-{fingerprint.hexdigest()[:16]}"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "haply" / name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            return str(home)
    except OSError:  # a read-only home, as on some cluster nodes: compile into the temporary folder of this machine
        shared = Path(tempfile.gettempdir()) / f"haply-{os.getuid()}" / name
        shared.mkdir(parents=True, exist_ok=True)
        return str(shared)


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    settings: Any = numba.core.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = cache_folder()  # only for haply's own functions
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    finally:
        settings.CACHE_DIR = before


def kernel(function: _Function) -> _Function:
    """Compile a function over flat arrays and numbers on first use, keep it on disk, and release the GIL while it runs.

    No ``fastmath``: reassociation would break the soundness of bounds and decisions.
    """
    compiled: _Function = _compiled(function)
    return compiled


def inner(function: _Function) -> _Function:
    """A kernel that is a step inside another's loop and takes arrays: it becomes part of its caller.

    Numba counts the owners of arrays where a function is called with them; inlined, the bounds take a quarter less.
    """
    compiled: _Function = _compiled(function, forceinline=True)
    return compiled


def bare(function: _Function) -> _Function:
    """A kernel that makes no arrays, only reads and writes those it is given: numba then counts no owners of arrays.

    Where a loop hands tuples of arrays from step to step, counting takes ten times what the steps do. An array made in
    such a function would never be freed.
    """
    compiled: _Function = _compiled(function, _nrt=False)
    return compiled


def bare_fused(function: _Function) -> _Function:
    """A bare kernel whose products and sums may be one instruction with one rounding: where bounds allow for either."""
    compiled: _Function = _compiled(function, _nrt=False, fastmath={"contract"})
    return compiled


def bare_summed(function: _Function) -> _Function:
    """A bare kernel whose sum may be taken in any order, many terms at once: for values with an error, not bounds."""
    compiled: _Function = _compiled(function, _nrt=False, fastmath={"contract", "reassoc"})
    return compiled


def bare_inner(function: _Function) -> _Function:
    """A bare kernel that becomes part of its caller: handing over tuples of arrays takes longer than a short step."""
    compiled: _Function = _compiled(function, _nrt=False, forceinline=True)
    return compiled


def solid(array: Any) -> np.ndarray:
    """Doubles in one block that may be written to: views that are not would have a kernel compiled once more."""
    return np.require(array, np.float64, ["C", "W"])
