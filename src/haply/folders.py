"""Where haply keeps files between runs, and which folders it trusts.

Compiled kernels are machine code that is loaded and run, so a folder that another user can write to must never be read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from haply.errors import advise

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def user_cache() -> Path:
    """Return the folder for files that can be made again: ``haply`` in ``XDG_CACHE_HOME`` or in ``~/.cache``.

    Raises ``RuntimeError`` if the user has no home.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG convention ignores relative paths.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "haply"


def private_folder(name: str, base: str | None = None) -> Path:
    """Return a folder that no other user can write to, made if it is not there.

    ``base`` is a folder that the user chose. Without it, or if it cannot be used, the folder is below the user's cache,
    and if that cannot be used, below ``haply-<uid>`` in the temporary folder. If none of them can be trusted, it is a
    new folder that is deleted when this process ends, and a ``HaplyWarning`` says why.
    """
    tried = []
    for place in _places(base):
        trouble = _make_private(place / name)
        if not trouble:
            return place / name
        tried.append(trouble)
    fresh = Path(tempfile.mkdtemp(prefix="haply-"))
    atexit.register(_remove_in, os.getpid(), fresh)
    advise(
        f"haply has no safe place to keep '{name}' for later processes, so each of them starts anew: "
        + "; ".join(tried)
        + ".",
        "set XDG_CACHE_HOME to a folder of your own that other users cannot write to",
    )
    return fresh


def _places(base: str | None) -> list[Path]:
    places = [Path(base).absolute()] if base else []
    with suppress(RuntimeError):  # the user has no home
        places.append(user_cache())
    return [*places, Path(tempfile.gettempdir()).absolute() / f"haply-{os.getuid()}"]


def _remove_in(process: int, folder: Path) -> None:
    """Delete a folder at the end of the process that made it; a forked worker leaves it alone."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _make_private(folder: Path) -> str:
    """Make a folder, with those above it, if it is not there; return why it cannot be used, or an empty text.

    It must belong to this user, with mode 0700. Nobody else may be able to replace it or a folder above it: these
    belong to this user or to root, and are either closed to others or sticky, as ``/tmp`` is. No link leads to it,
    except one in ``/``, where only root can write.
    """
    ours = (os.getuid(), 0)
    try:
        for part in (*reversed(folder.parents), folder):
            try:
                found = part.lstat()
            except FileNotFoundError:
                part.mkdir(mode=0o700, exist_ok=True)
                found = part.lstat()
            if stat.S_ISLNK(found.st_mode) and len(part.parts) == 2:
                found = part.stat()
            if stat.S_ISLNK(found.st_mode):
                return f"{part} is a link"
            if found.st_uid not in (ours if part != folder else ours[:1]):
                return f"{part} belongs to another user"
            if part == folder:
                if stat.S_IMODE(found.st_mode) != 0o700:
                    return f"{part} has mode {stat.S_IMODE(found.st_mode):04o} instead of 0700"
            elif found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
                return f"other users can write to {part}"
        with tempfile.TemporaryFile(dir=folder):  # a read-only home, as on some cluster nodes
            return ""
    except OSError as error:
        return f"{folder} cannot be written to ({error.strerror or error})"
