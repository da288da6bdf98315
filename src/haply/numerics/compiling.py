"""How numba compiles haply's kernels, with less work than it takes for functions in general.

* A kernel that only other kernels call is kept as LLVM's bitcode, which becomes part of its callers and is optimised
  there. Numba would optimise it once more by itself, and turn it into machine code that nothing runs.
* Numba compiles its own functions, such as ``min``, once for each set of settings of the kernels that use them, and
  compares sets value by value whenever it looks for one. Here kernels pass on only the settings that matter to others,
  and equal sets are one object.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult, Flags, compile_result
from numba.core.runtime import rtsys

_OWN = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": False}
"""Settings of one kernel that mean nothing to the functions compiled with it."""


class _PassedOn(Flags):
    """The settings that a kernel passes on. Equal ones are one object, so that comparing them takes no time."""

    known: ClassVar[dict[str, _PassedOn]] = {}

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, _PassedOn) else bool(super().__eq__(other))

    __hash__ = Flags.__hash__

    @classmethod
    def of(cls, flags: Flags) -> _PassedOn:
        """Return what a kernel with these settings passes on."""
        made = cls(flags)
        for name, value in _OWN.items():
            setattr(made, name, value)
        return cls.known.setdefault(repr(made), made)


class _KernelFlags(Flags):
    """The settings of a kernel. Numba copies them for the functions that are compiled with it."""

    def copy(self) -> Flags:
        """Return what the kernel passes on."""
        return _PassedOn.of(self)


@cache
def _import_array_functions() -> None:
    """Import what numba imports at its first use, except SciPy's linear algebra, which takes a quarter of a second.

    Numba only tests whether SciPy is installed, and tests again where a function needs it.
    """
    algebra: Any = importlib.import_module("numba.np.linalg")
    checked, algebra.ensure_blas = algebra.ensure_blas, _assume_blas
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        algebra.ensure_blas = checked


def _assume_blas() -> None:
    pass


class KernelCompiler(Compiler):
    """Numba's compiler for a kernel that Python calls."""

    def __init__(self, *args: Any) -> None:
        _import_array_functions()
        super().__init__(*args)
        self.state.flags = _KernelFlags(self.state.flags)


class InsideCompiler(KernelCompiler):
    """Numba's compiler for a kernel that other kernels call."""

    def compile_extra(self, func: Any) -> CompileResult:
        """Compile a function into bitcode."""
        self.state.library = _Bitcode(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class _Bitcode(JITCodeLibrary):
    """A compiled function that is only linked into others: no machine code is made of it."""

    @property
    def codegen(self) -> _NoEnvironments:
        """Return what numba tells where the function's Python objects are."""
        return _NoEnvironments()

    def _optimize_final_module(self) -> None:
        """Leave the function as it is."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, bytes]:
        """Return what ``rebuilt`` takes."""
        return self.name, self._get_module_for_linking().as_bitcode()

    @classmethod
    def rebuilt(cls, codegen: Any, name: str, bitcode: bytes) -> _Bitcode:
        """Return the function that was kept."""
        library = cls(codegen, name)
        library._final_module = library._shared_module = llvm.parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


class _NoEnvironments:
    """Numba writes the place of a function's Python objects into its machine code, of which there is none here."""

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing: the function is a part of its callers."""


def rebuild_inside(target_context: Any, kept: tuple[Any, ...]) -> CompileResult:
    """Return a kernel that other kernels call from what was kept of it on disk."""
    bitcode, fndesc, environment, signature, objectmode, lifted, annotation, reload_init, referenced = kept
    for initialise in reload_init:
        initialise()
    library = _Bitcode.rebuilt(target_context.codegen(), *bitcode)
    return compile_result(
        target_context=target_context,
        typing_context=target_context.typing_context,
        library=library,
        environment=environment,
        entry_point=target_context.get_executable(library, fndesc, environment),
        fndesc=fndesc,
        type_annotation=annotation,
        signature=signature,
        objectmode=objectmode,
        lifted=lifted,
        reload_init=reload_init,
        referenced_envs=referenced,
    )


def load_alone(load: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return how a kept kernel is loaded without all that numba needs to compile one: it takes a quarter of a second.

    Machine code needs numba's functions for memory, and nothing else of its compiler.
    """

    def load_kept(signature: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        return load(signature, target_context)

    return load_kept
