"""Kernels that several processes compile and keep in one folder: each process gets the machine code it asked for."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numba.core import event, types
from numba.core.errors import TypingError

from haply.numerics import jit
from haply.numerics.jit import KernelFiles, bare_summed, inner, kernel
from haply.numerics.normal import normal_cdf
from haply.numerics.turns import Turns

TWO_KERNELS = """
import os
import numpy as np
from haply.numerics.jit import compilations, kernel

@kernel
def ascending(values):
    values.sort()
    return values

@kernel
def order(values):
    return np.argsort(values)

def begin(*asked):
    child = os.fork()
    if not child:
        found = [function(np.array([3.0, 1.0, 2.0])).tolist() for function in asked]
        told = [one for one in compilations() if one.kernel.endswith(("ascending", "order"))]
        print(found, sum(one.compiled for one in told), sum(one.loaded for one in told), flush=True)
        os._exit(0)
    return child

for at_once in ([(ascending,), (ascending,)], [(order,)], [(order, ascending)]):
    for child in [begin(*asked) for asked in at_once]:
        os.waitpid(child, 0)
"""


def test_kernels_of_several_processes_do_not_take_the_place_of_each_other(tmp_path: Path) -> None:
    """``sort`` and ``argsort`` share an inner name: numba tells them apart by a number of the process.

    Of two processes that need the same kernel at once, one compiles it.
    """
    script = tmp_path / "two_kernels.py"
    script.write_text(TWO_KERNELS)
    done = subprocess.run(
        [sys.executable, str(script)], env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    *at_once, second, both = done.stdout.splitlines()
    assert sorted(at_once) == ["[[1.0, 2.0, 3.0]] 0 1", "[[1.0, 2.0, 3.0]] 1 0"]
    assert second == "[[1, 2, 0]] 1 0"
    assert both == "[[1, 2, 0], [1.0, 2.0, 3.0]] 0 2"


def test_a_forked_process_numbers_its_functions_anew() -> None:
    code = """
import gc
import os
import haply.numerics.jit
from numba.core.bytecode import FunctionIdentity
read, write = os.pipe()
if not os.fork():
    os.write(write, str(next(FunctionIdentity._unique_ids)).encode())
    os._exit(0)
os.wait()
print(abs(int(os.read(read, 99)) - next(FunctionIdentity._unique_ids)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10**6


def key(*kinds: types.Type) -> tuple:
    return kinds, ("machine",), ("code", "closure")


def test_specialisations_written_at_once_are_kept_apart(tmp_path: Path) -> None:
    """Two processes, of which neither has seen what the other writes."""
    one, other = (KernelFiles(str(tmp_path), "kernel", "stamp") for _ in range(2))
    assert one.load(key(types.int64)) is None
    assert other.load(key(types.float64)) is None
    one.save(key(types.int64), "for integers")
    other.save(key(types.float64), "for doubles")
    for files in (one, other):
        assert files.load(key(types.int64)) == "for integers"
        assert files.load(key(types.float64)) == "for doubles"
    assert KernelFiles(str(tmp_path), "kernel", "another stamp").load(key(types.int64)) is None


def test_a_file_is_used_for_its_own_types_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelFiles, "name_of", lambda self, key: "one-name-for-all")
    files = KernelFiles(str(tmp_path), "kernel", "stamp")
    files.save(key(types.int64), "for integers")
    assert files.load(key(types.int64)) == "for integers"
    assert files.load(key(types.float64)) is None
    for damaged in (b"", b"not a pickle", pickle.dumps("another thing")):
        (tmp_path / "one-name-for-all").write_bytes(damaged)
        assert files.load(key(types.int64)) is None


def test_kernels_are_kept_in_such_files() -> None:
    @kernel
    def doubled(value):
        return 2 * value

    assert isinstance(doubled._cache._cache_file, KernelFiles)
    assert doubled(np.int64(4)) == 8
    assert doubled(4.5) == 9.0


def test_a_kernel_is_handed_to_numba_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "cache_folder", lambda: str(tmp_path))  # nothing is there to be loaded

    @kernel
    def doubled(x: float) -> float:
        """Double a number."""
        return 2.0 * x

    @kernel
    def twice_doubled(x: float) -> float:
        return doubled(doubled(x))

    asked = cast(Any, doubled)
    assert not asked._dispatchers
    assert (asked.__name__, asked.__doc__) == ("doubled", "Double a number.")
    assert twice_doubled(1.5) == 6.0
    assert not asked.overloads  # compiled into the other, with no entry from Python
    assert asked(4.0) == asked.py_func(4.0) == 8.0
    assert len(asked.overloads) == 1


def inside(asked: Any) -> Any:
    """Return numba's object for a kernel where other kernels call it."""
    return asked._dispatchers[True]


def test_no_machine_code_is_made_of_a_kernel_inside_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "cache_folder", lambda: str(tmp_path))

    def squared(x: float) -> float:
        return x * x

    first, second = kernel(squared), kernel(squared)

    @kernel
    def sum_of_squares(x: float, y: float) -> float:
        return first(x) + first(y)

    @kernel
    def difference_of_squares(x: float, y: float) -> float:
        return second(x) - second(y)

    assert sum_of_squares(3.0, 4.0) == 25.0
    (compiled,) = inside(first).overloads.values()
    assert compiled.library._get_module_for_linking().get_function(compiled.fndesc.mangled_name)
    assert not compiled.library._codegen._engine.is_symbol_defined(compiled.fndesc.mangled_name)
    assert difference_of_squares(4.0, 3.0) == 7.0
    assert sum(inside(second).stats.cache_hits.values()) == 1, "read from the disk, where the first is kept"


def test_a_kernel_has_its_own_rounding_wherever_it_is_compiled_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba would pass on the settings of the first kernel that a kernel is compiled into, and keep it so for all."""
    monkeypatch.setattr(jit, "cache_folder", lambda: str(tmp_path))

    @kernel
    def product(x: float, y: float) -> float:
        return x * y

    @bare_summed
    def summed(x: float, y: float) -> float:
        return product(x, y) + x

    @inner
    def joined(x: float, y: float) -> float:
        return product(x, y) - x

    @kernel
    def outer(x: float, y: float) -> float:
        return joined(summed(x, y), y)

    assert outer(2.0, 3.0) == 16.0
    for asked, options in ((product, False), (summed, True)):
        (compiled,) = inside(asked).overloads.values()
        text = str(compiled.library._get_module_for_linking().get_function(compiled.fndesc.mangled_name))
        assert "fmul" in text or asked is summed
        assert ("reassoc" in text) is options
        assert "alwaysinline" not in text


def test_no_garbage_is_collected_while_numba_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "cache_folder", lambda: str(tmp_path))
    seen = []

    class Watch(event.Listener):
        def on_start(self, event: event.Event) -> None:
            seen.append(gc.isenabled())

        on_end = on_start

    @kernel
    def halved(x: float) -> float:
        return x / 2.0

    with event.install_listener("numba:compile", Watch()):
        assert halved(3.0) == 1.5
    assert seen[0] is False
    assert gc.isenabled()


def test_kernels_travel_by_their_names() -> None:
    assert pickle.loads(pickle.dumps(normal_cdf)) is normal_cdf


def test_threads_share_a_kernel() -> None:
    @kernel
    def plus_one(x: float) -> float:
        return x + 1.0

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: cast(Any, plus_one).dispatcher, range(64)))
    assert all(one is found[0] for one in found)


TAKE_A_TURN = """
import sys
from pathlib import Path
from haply.numerics.turns import Turns
turns = Turns()
turns.take(Path(sys.argv[1]), "kernel")
print("taken", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the turn for a kernel, until it ends."""
    command = [sys.executable, "-c", TAKE_A_TURN, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "taken\n"
        yield running
        running.kill()


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.communicate])
def test_a_turn_ends_with_its_process(other: subprocess.Popen[str], tmp_path: Path, end: Any) -> None:
    turns, waits = Turns(), []
    assert turns.take(tmp_path, "another kernel", lambda: waits.append("in vain"))
    with ThreadPoolExecutor(1) as thread, turns.given_back():
        taken = thread.submit(turns.take, tmp_path, "kernel", lambda: waits.append("begun"))
        with pytest.raises(TimeoutError):
            taken.result(timeout=0.1)
        end(other)
        assert taken.result(timeout=30)
    assert waits == ["begun"]


def test_who_waited_in_vain_waits_no_more(other: subprocess.Popen[str], tmp_path: Path) -> None:
    turns, waits = Turns(patience=0.1), []
    assert turns.take(tmp_path, "kernel", lambda: waits.append("begun")), "it is looked for once more"
    for _ in range(2):
        assert not turns.take(tmp_path, "kernel", lambda: waits.append("begun"))
    assert waits == ["begun"]
    assert not Turns().take(tmp_path / "no folder", "kernel")


def test_a_turn_is_given_back_after_a_kernel_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "cache_folder", lambda: str(tmp_path))

    @kernel
    def called(x: float) -> float:
        return x + 1.0

    @kernel
    def wrong(x: float) -> str:
        return called(x) + "text"  # type: ignore[operator, return-value]

    with pytest.raises(TypingError):
        wrong(1.0)
    assert jit._TURNS._held == []
    assert called(1.0) == 2.0
