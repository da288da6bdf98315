"""Set how kernels are compiled and where their machine code is kept; no other module does.

Numba notices a change in the file of a cached function, but not in the functions it calls. So the cache folder's name
carries a fingerprint of every file that holds kernels: an edit or an upgrade starts a fresh folder. All processes that
run the same code share one folder, wherever the code lies, in a folder or in a zip.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import importlib.resources
import itertools
import os
import pickle
import secrets
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache, update_wrapper
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numba
import numba.core.config
import numpy as np
from numba.core import event, types
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import IndexDataCacheFile, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock

from haply.folders import private_folder
from haply.numerics.compiling import InsideCompiler, KernelCompiler, load_alone, rebuild_inside
from haply.numerics.turns import Turns

_Function = TypeVar("_Function", bound=Callable[..., Any])
_KERNEL_ROOMS = ("numerics", "probability", "pruning")
_UNLESS_ASKED = {"fastmath": False, "forceinline": False, "_nrt": True}
"""Settings that a kernel would else take from the first kernel that it is compiled into, and keep for all others."""


@cache
def cache_folder() -> str:
    """Return where compiled kernels are kept: a private folder in ``NUMBA_CACHE_DIR`` if set, else in the user's cache.

    Numba unpickles what it finds there, so only a folder that other users cannot write to is used.
    """
    return str(private_folder(f"kernels-{fingerprint()[:16]}", os.environ.get("NUMBA_CACHE_DIR")))


@cache
def fingerprint() -> str:
    """Return a hash of all sources that hold kernels, as they were loaded: from a folder or a zip."""
    found, package = hashlib.sha256(), importlib.resources.files("haply")
    for room in _KERNEL_ROOMS:
        sources = dict(_sources(package / room, room))
        if not sources:
            raise RuntimeError(f"the package haply has no sources in {room}")
        for name in sorted(sources):
            found.update(f"{name} ".encode() + sources[name].read_bytes())
    return found.hexdigest()


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    """Yield all sources below a folder, by their paths."""
    for file in folder.iterdir():
        path = f"{name}/{file.name}"
        if file.is_dir():
            yield from _sources(file, path) if file.name != "__pycache__" else ()
        elif file.name.endswith((".py", ".pyc")):
            yield path, file


class KernelLocator(_CacheLocator):
    """Tells numba where to keep a kernel: by its module and line below the cache folder."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._path = str(Path(cache_folder()) / function.__module__)
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        """Return the folder of the function's module."""
        return self._path

    def get_source_stamp(self) -> str:
        """Return a stamp that must be unchanged for a kept kernel to be used."""
        return fingerprint()

    def get_disambiguator(self) -> str:
        """Return text that distinguishes functions of one name in one module."""
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> KernelLocator:
        """Return the locator of a function, for numba."""
        locator = cls(py_func)
        _make_folder(locator._path)
        return locator


class KernelFiles(IndexDataCacheFile):
    """Keeps each specialisation of a kernel in a file of its own, named by its types.

    Numba numbers the files of a function and keeps the numbers in an index that it reads and writes without a lock. Two
    processes that compile a kernel for different types at once may give both the same number; the index then leads to
    machine code for other types. Here a file holds the types that it is for, and is only used for them.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write a specialisation, in one step."""
        self._save_data(self.name_of(key), (key, data))

    def load(self, key: Any) -> Any:
        """Return the specialisation for these types, or None."""
        try:
            found = self._load_data(self.name_of(key))
        except (OSError, EOFError, pickle.UnpicklingError):  # no such file, or a damaged one
            return None
        return found[1] if isinstance(found, tuple) and len(found) == 2 and found[0] == key else None

    def name_of(self, key: Any) -> str:
        """Return the name of the file for these types."""
        text = f"{self._version} {self._source_stamp} {key}"
        return str(self._data_name(int(hashlib.sha256(text.encode()).hexdigest()[:16], 16)))


def _number_functions_apart() -> None:
    """Make the names of compiled functions differ from those that other processes give.

    Numba distinguishes functions of one name by a number that each process counts from 1, and keeps the number with the
    machine code. Two processes may give `array.sort` and `np.argsort` the same number, as both have the name
    `run_quicksort1`; a third process that loads both would run one in place of the other. (This happened: a kernel did
    not sort its values.) So each process begins at a number of its own.
    """
    numbers: Any = FunctionIdentity
    numbers._unique_ids = itertools.count(secrets.randbits(56))


_number_functions_apart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_functions_apart)


@cache
def _make_folder(path: str) -> None:
    """Make the folder of a module once: numba would write a file for each function, to test whether it can."""
    Path(path).mkdir(exist_ok=True)


class _Compiling(event.Listener):
    """Counts the seconds that numba takes for each kernel, and prints once a process that it compiles kernels of haply.

    A kernel's seconds are its own, without those of the kernels that it calls and that are compiled with it. They are
    processor time, which other work on the machine changes less. Numba compiles one kernel at a time, so no two threads
    get here at once. Python's garbage collector is off meanwhile: it would take 6% of the time and find little.
    """

    def __init__(self) -> None:
        self.told = False
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.compiled: Counter[str] = Counter()
        self.waited = 0.0
        self._since = 0.0
        self._collects = False
        self._begun: list[float] = []
        self._inside: list[float] = []

    def on_start(self, event: event.Event) -> None:
        """Print a message at the first kernel, and begin to count."""
        self.tell(event.data["dispatcher"])
        if not self._begun:
            self._since, self._collects = time.perf_counter(), gc.isenabled()
            gc.disable()
        self._begun.append(time.thread_time())
        self._inside.append(0.0)

    def tell(self, dispatcher: Any) -> None:
        """Print the message, if it was not printed before."""
        if not self.told and dispatcher.py_func.__module__.startswith("haply."):
            self.told = True
            print(
                f"haply: compiling the kernels that are needed here; later runs load them from {cache_folder()}",
                file=sys.stderr,
                flush=True,
            )

    def add_wait(self, seconds: float) -> None:
        """Count a wait for another process that compiles a kernel, unless it is part of one that is counted."""
        if not self._begun:
            self.waited += seconds

    def on_end(self, event: event.Event) -> None:
        """Add the counted seconds to the kernel, and subtract them from those of its caller."""
        taken = time.thread_time() - self._begun.pop()
        name = _name(event.data["dispatcher"])
        self.seconds[name] += taken - self._inside.pop()
        self.compiled[name] += 1
        if self._inside:
            self._inside[-1] += taken
        else:
            self.waited += time.perf_counter() - self._since
            if self._collects:
                gc.enable()


_COMPILING = _Compiling()
event.register("numba:compile", _COMPILING)


def _name(dispatcher: Any) -> str:
    return f"{dispatcher.py_func.__module__.removeprefix('haply.')}.{dispatcher.py_func.__name__}"


def compile_silently() -> None:
    """Print nothing about kernels that are compiled from now on: for Spark workers, whose driver has printed it."""
    _COMPILING.told = True


def seconds_compiling() -> float:
    """Return how long this process has waited for numba's compiler."""
    return _COMPILING.waited


class Compilation(NamedTuple):
    """What one kernel cost in this process: it is compiled once for each combination of types that it is called with.

    ``seconds`` is the processor time of its own compilation, without that of the kernels that it calls. A
    specialisation that was loaded from the disk took none.
    """

    kernel: str
    compiled: int
    loaded: int
    seconds: float


def compilations() -> list[Compilation]:
    """Return all kernels that this process has compiled or loaded, the slowest first."""
    loaded: Counter[str] = Counter()
    for dispatcher in Kernel.used:
        loaded[_name(dispatcher)] += sum(dispatcher.stats.cache_hits.values())
    compiled, seconds = _COMPILING.compiled, _COMPILING.seconds
    found = [Compilation(name, compiled[name], loaded[name], seconds[name]) for name in loaded.keys() | compiled.keys()]
    used = [one for one in found if one.compiled or one.loaded]
    return sorted(used, key=lambda one: (-one.seconds, one.kernel))


class Kernel:
    """A function that numba compiles, passed to numba when it is first called or compiled into another kernel.

    There are hundreds of kernels and a query uses a few dozen of them: passing all to numba would take a fifth of a
    second of each process. ``dispatcher`` answers everything that numba asks of its own kind of function. A kernel that
    is compiled into another has an object of its own: it needs no entry from Python, which takes a tenth of the time to
    compile.
    """

    used: ClassVar[list[Any]] = []
    _one_at_a_time: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._function, self._options = function, options
        self._dispatchers: dict[bool, Any] = {}

    @property
    def dispatcher(self) -> Any:
        """Numba's object for the function when Python calls it."""
        return self._dispatcher(inside=False)

    @property
    def _numba_type_(self) -> Any:
        """Return the type that numba gives the function when another kernel calls it."""
        return self._dispatcher(inside=True)._numba_type_

    def _dispatcher(self, inside: bool) -> Any:
        if inside not in self._dispatchers:
            with Kernel._one_at_a_time:
                if inside not in self._dispatchers:
                    made = _compiled(self._function, inside, self._options)
                    Kernel.used.append(made)
                    self._dispatchers[inside] = made
        return self._dispatchers[inside]

    def __call__(self, *args: Any) -> Any:
        return self.dispatcher(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_dispatchers" not in self.__dict__:  # not complete yet, or asked by a library
            raise AttributeError(name)
        return getattr(self.dispatcher, name)

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = self._function.__qualname__
        return (Kernel, (self._function, self._options)) if "<locals>" in name else name


def _compiled(function: Callable[..., Any], inside: bool, options: dict[str, Any]) -> Any:
    """Return numba's object for a function that Python calls, or that is compiled into other kernels."""
    settings: Any = numba.core.config
    before = settings.CACHE_LOCATOR_CLASSES
    settings.CACHE_LOCATOR_CLASSES = f"{__name__}.KernelLocator"  # only for haply's own functions
    try:
        # By default numba compiles a wrapper for calls from C: nothing makes such calls, and each wrapper takes time.
        options = _UNLESS_ASKED | options | {"no_cfunc_wrapper": True, "no_cpython_wrapper": inside}
        compiler = InsideCompiler if inside else KernelCompiler
        dispatcher: Any = numba.njit(**options, cache=True, nogil=True, error_model="numpy", pipeline_class=compiler)(
            function
        )
    finally:
        settings.CACHE_LOCATOR_CLASSES = before
    kept = dispatcher._cache
    kind = "inside" if inside else "called"
    if inside:
        kept._impl.rebuild = rebuild_inside
    kept._cache_file = KernelFiles(kept.cache_path, f"{kept._impl.filename_base}-{kind}", fingerprint())
    kept.load_overload = _load_or_take_turn(dispatcher, load_alone(kept._load_overload))
    dispatcher.compile = _in_turn(dispatcher.compile)
    dispatcher.get_call_template = _for_plain_types(dispatcher.get_call_template)
    return dispatcher


_TURNS = Turns()


def _load_or_take_turn(dispatcher: Any, load: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return how a kernel is loaded that another process may be compiling: it is waited for."""
    kept = dispatcher._cache
    folder = Path(kept.cache_path)

    def load_or_wait(signature: Any, target_context: Any) -> Any:
        found = load(signature, target_context)
        if found is None:
            name = kept._cache_file.name_of(kept._index_key(signature, target_context.codegen()))
            begun = time.perf_counter()
            if _TURNS.take(folder.parent, f"{folder.name}/{name}", lambda: _COMPILING.tell(dispatcher)):
                _COMPILING.add_wait(time.perf_counter() - begun)
                found = load(signature, target_context)
        return found

    return load_or_wait


def _in_turn(compile_kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return how a kernel is compiled: when it is kept on the disk, or was refused, others have their turn."""

    def compile_and_give_back(signature: Any) -> Any:
        with global_compiler_lock, _TURNS.given_back():  # one thread at a time, as numba compiles
            return compile_kernel(signature)

    return compile_and_give_back


def _made(function: _Function, **options: Any) -> _Function:
    made: Any = Kernel(function, options)
    return cast(_Function, made)


def _for_plain_types(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Return how numba finds the version of a kernel that another kernel calls: one version for all values of a type.

    By itself numba compiles a kernel once more for each constant that it is called with, and for each width of
    integers. The machine code is no better: LLVM inserts constants when it inlines a kernel into its caller.
    """

    def resolve_plain(args: Any, kws: Any) -> Any:
        return resolve(tuple(map(_plain, args)), {name: _plain(kind) for name, kind in kws.items()})

    return resolve_plain


def _plain(kind: Any) -> Any:
    kind = types.unliteral(kind)
    return types.int64 if kind in (types.int8, types.int16, types.int32) else kind


def kernel(function: _Function) -> _Function:
    """Compile a function over flat arrays and numbers on first use, keep it on disk, and release the GIL while it runs.

    No ``fastmath``: reassociation would break the soundness of bounds and decisions.
    """
    return _made(function)


def inner(function: _Function) -> _Function:
    """Compile a kernel that is a step inside another's loop and takes arrays: it is inlined into its caller.

    Numba counts the references to arrays where a function is called with them; inlined, the bounds take a quarter less
    time.
    """
    return _made(function, forceinline=True)


def bare(function: _Function) -> _Function:
    """Compile a kernel that makes no arrays, only reads and writes given ones: numba then counts no references.

    Where a loop passes tuples of arrays from step to step, counting takes ten times as long as the steps. An array made
    in such a function would never be freed.
    """
    return _made(function, _nrt=False)


def bare_fused(function: _Function) -> _Function:
    """Compile a bare kernel in which a product and a sum may be one instruction with one rounding, as bounds allow."""
    return _made(function, _nrt=False, fastmath={"contract"})


def bare_summed(function: _Function) -> _Function:
    """Compile a bare kernel whose sum may be taken in any order, many terms at once: for values, not for bounds."""
    return _made(function, _nrt=False, fastmath={"contract", "reassoc"})


def bare_inner(function: _Function) -> _Function:
    """Compile a bare kernel that is inlined into its caller: passing tuples of arrays costs more than a short step."""
    return _made(function, _nrt=False, forceinline=True)


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to, as those of Arrow: so a kernel is compiled for one kind of view."""
    view = array.view()
    view.flags.writeable = False
    return view


def solid(array: Any) -> np.ndarray:
    """Return doubles as a contiguous, writable array: for other views a kernel would be compiled once more."""
    return np.require(array, np.float64, ["C", "W"])
