"""The folder of an index: which files belong to it, and which of two builds at the same time wins.

``_haply_index.json``, the manifest, names all files of the index. A build writes files with unique names, and the
atomic replacement of the manifest is its commit. Each manifest has a generation and the id of its build. A
build commits only if the manifest is still the one it started from; otherwise it removes its own files and raises.

On a local path the check and the replacement are done under ``flock`` on ``_haply_index.lock``, so that of several
processes of one machine exactly one wins. The operating system releases the lock of a process that dies. Arrow's other
file systems (``hdfs://``, ``s3://``, ...) have neither locks nor a conditional replacement: the generation is checked
before the replacement and after it, and two builds that commit within the same moment may both report success. The
manifest is then that of the last one, complete, and the rows of the other are lost. Let one build at a time write
there.

Generation g's files stay until generation g + 2 commits, for readers that have opened g. A build deletes only files
that one of the last manifests names, or whose names have the id of one of the last builds or of a dead build: one
whose ``_haply_build-<id>``, which it locked when it began, is not locked any more.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyarrow import fs

from haply.errors import HaplyError, HaplyWarning

try:
    import fcntl
except ImportError:  # missing on Windows: treated as a file system without locks
    fcntl = None  # type: ignore[assignment]

MANIFEST, FORMAT = "_haply_index.json", 2
LOCK = "_haply_index.lock"
_READABLE = (1, FORMAT)
_BUILD, _DRAFT = "_haply_build-", f".{MANIFEST}-"
_DATA = re.compile(r"(?:part|pages)-([0-9a-f]{32})(?:-[0-9a-f]{32})?\.parquet")
_MARKED = re.compile(rf"(?:{re.escape(_BUILD)}|{re.escape(_DRAFT)})([0-9a-f]{{32}})")
_OTHERWISE = "build it again under another path, or remove the folder yourself first"
_TOLD = {"generation", "id", "previous", "column", "schema", "levels", "page_rows"}
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


# -- places ------------------------------------------------------------------------------------------------------------


def everywhere(path: str) -> str:
    """Return a path that means the same to this process, to Spark and to its workers, which may be in other folders."""
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


def system_of(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or address, and the place there."""
    system, place = fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)
    return system, place.rstrip("/") or "/"


def print_of(system: fs.FileSystem, place: str) -> tuple[int, str]:
    """Return length and a digest of the footer of a Parquet file; the footer has sizes and places of all its pages."""
    with system.open_input_file(place) as source:
        size = source.size()
        tail = source.read_at(8, size - 8) if size >= 8 else b""
        length = int.from_bytes(tail[:4], "little") + 8 if tail[4:] == b"PAR1" else 8
        footer = source.read_at(min(length, size), max(0, size - length))
    return size, hashlib.sha256(footer).hexdigest()


def refused(path: str, why: str, hint: str = "") -> HaplyError:
    """Make the error for an index that cannot be used."""
    return HaplyError(
        f"The index {path} cannot be used: {why}", expected="an index as build_index left it",
        hint=hint or f'build it again: hp.build_index(df, column, "{path}", mode="overwrite")',
    )  # fmt: skip


def _is_local(system: fs.FileSystem) -> bool:
    return isinstance(system, fs.LocalFileSystem)


# -- manifests ---------------------------------------------------------------------------------------------------------


def load_manifest(path: str) -> dict[str, Any]:
    """Load the manifest of an index, and check all files that it names."""
    system, folder = system_of(path)
    manifest = _read_manifest(path)
    if manifest is None:
        raise refused(path, f"{MANIFEST} is not there", _OTHERWISE)
    home = os.path.realpath(folder)
    for entry in (manifest["pages"], *manifest["files"]):
        name = entry["name"]
        if _is_local(system) and os.path.dirname(os.path.realpath(f"{folder}/{name}")) != home:
            raise refused(path, f"{folder}/{name} is a link that leads out of the folder")
        try:
            found = print_of(system, f"{folder}/{name}")
        except (OSError, pa.ArrowException):
            raise refused(path, f"{name} is not there, or cannot be read") from None
        if found != (entry["bytes"], entry["footer"]):
            raise refused(path, f"{name} was changed")
    return manifest


def _read_manifest(path: str) -> dict[str, Any] | None:
    """Return the manifest of a folder, if there is one; refuse it unless it is as a build wrote it."""
    system, folder = system_of(path)
    try:
        with system.open_input_stream(f"{folder}/{MANIFEST}") as source:
            manifest = json.loads(source.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise refused(path, f"{MANIFEST} cannot be read", _OTHERWISE) from None
    if not isinstance(manifest, dict) or manifest.get("checksum") != checksum_of(manifest):
        raise refused(path, f"{MANIFEST} was changed", _OTHERWISE)
    if manifest.get("format") not in _READABLE:
        found = f"it was written in format {manifest.get('format')} by another version of haply"
        raise refused(path, found, _OTHERWISE)
    try:
        names = _names(manifest)
        if manifest["format"] == 1:  # format 1 had no generations
            manifest |= {"generation": 0, "id": manifest["checksum"], "previous": None}
        elif manifest["previous"] is not None:
            names |= set(manifest["previous"]["names"])
        strange = sorted(str(name) for name in names if not (isinstance(name, str) and _DATA.fullmatch(name)))
        if missing := _TOLD - manifest.keys():
            raise KeyError(*missing)
    except (KeyError, TypeError):
        raise refused(path, f"{MANIFEST} was changed", _OTHERWISE) from None
    if strange:
        why = f"{MANIFEST} names {strange[0]!r}, which no build writes: files of an index are in its own folder"
        raise refused(path, why, _OTHERWISE)
    return manifest


def _names(manifest: dict[str, Any]) -> set[str]:
    return {manifest["pages"]["name"], *(entry["name"] for entry in manifest["files"])}


def checksum_of(manifest: dict[str, Any]) -> str:
    """Return a digest of the content of a manifest."""
    told = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


# -- builds ------------------------------------------------------------------------------------------------------------


def begin(path: str, mode: str) -> dict[str, Any] | None:
    """Return the manifest that a build starts from, if there is an index; refuse a folder that cannot hold one."""
    system, folder = system_of(path)
    kind = system.get_file_info(folder).type
    names = sorted(entry.base_name for entry in _entries(system, folder)) if kind == fs.FileType.Directory else []
    if kind == fs.FileType.NotFound or (kind == fs.FileType.Directory and _is_vacant(names)):
        return None
    if mode == "error":
        raise HaplyError(f"{path} exists already", expected="a new folder", hint='mode="overwrite" or mode="append"')
    manifest = _read_manifest(path) if MANIFEST in names else None
    if manifest is None:
        what = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise HaplyError(
            f"{path} is not an index",
            expected=f"a folder that build_index wrote, with its {MANIFEST}, or an empty one",
            found=f"a folder with {what} and without {MANIFEST}" if names else "a file",
            hint="choose another path, or remove the folder yourself",
        )
    return load_manifest(path) if mode == "append" else manifest


def _is_vacant(names: list[str]) -> bool:
    """Return whether a folder holds only files of builds that did not commit."""
    builds = {_id_in(name) for name in names if name.startswith(_BUILD)} - {None}
    return all(name == LOCK or _id_in(name) in builds for name in names)


class Build:
    """A build in progress: the manifest it started from, and the id that all its files have in their names."""

    def __init__(self, path: str, before: dict[str, Any] | None) -> None:
        self.path, self.before, self.id = path, before, uuid.uuid4().hex
        self._system, self._folder = system_of(path)
        self._written = False

    def commit(self, told: dict[str, Any]) -> None:
        """Replace the manifest, unless another build has done so since this one began."""
        self._written, before = True, self.before
        manifest = {
            "format": FORMAT,
            "generation": before["generation"] + 1 if before else 1,
            "id": self.id,
            "previous": {"id": before["id"], "names": sorted(_names(before))} if before else None,
            **told,
        }
        manifest["checksum"] = checksum_of(manifest)
        draft = f"{self._folder}/{_DRAFT}{self.id}"
        with _locked(self._system, self._folder):
            self._check_still(before["id"] if before else None)
            with self._system.open_output_stream(draft) as out:
                out.write(json.dumps(manifest, indent=1).encode())
            self._system.move(draft, f"{self._folder}/{MANIFEST}")
            self._check_still(self.id)  # without locks another build may have come first
            kept, doomed, ids = _names(manifest), set(), {self.id, *_dead_builds(self._system, self._folder)}
            if before:
                kept |= _names(before)
                ids.add(before["id"])
                if older := before["previous"]:
                    doomed.update(older["names"])
                    ids.add(older["id"])
            self._sweep(lambda name: name not in kept and (name in doomed or _id_in(name) in ids))

    def _check_still(self, known: str | None) -> None:
        now = _read_manifest(self.path)
        if (now["id"] if now else None) != known:
            raise HaplyError(
                f"Another build of the index {self.path} committed first; the rows of this build were not written",
                expected=f"generation {self.before['generation']}" if self.before else "no index yet",
                found=f"generation {now['generation']} of another build" if now else "no index any more",
                hint="read the index again, and build again if these rows are still wanted",
            )

    def withdraw(self) -> None:
        """Remove the files of this build, unless it has committed."""
        try:
            now = _read_manifest(self.path)
        except HaplyError:  # unknown which files belong to the index
            return
        if now is None or now["id"] != self.id:
            # Tasks of a failed job may still write: the claim stays, so the next build recognises files as leftovers.
            claim = "" if self._written else f"{_BUILD}{self.id}"
            self._sweep(lambda name: _id_in(name) == self.id and name != claim)

    def _sweep(self, doomed: Callable[[str], bool]) -> None:
        """Remove files by their names. Files that cannot be removed stay."""
        for entry in _entries(self._system, self._folder):
            if doomed(entry.base_name):
                with suppress(OSError):
                    self._system.delete_file(entry.path)


@contextmanager
def building(path: str, before: dict[str, Any] | None) -> Iterator[Build]:
    """Yield a build that started from this manifest; if it fails, remove its files."""
    system, folder = system_of(path)
    system.create_dir(folder, recursive=True)
    build, claim = Build(path, before), None
    if _has_locks(system):
        with _locked(system, folder):  # so that no other build takes the claim, before it is locked, for a dead one
            claim = _try_lock(f"{folder}/{_BUILD}{build.id}", os.O_CREAT | os.O_EXCL)
    try:
        yield build
    except BaseException:
        build.withdraw()
        raise
    finally:
        if claim is not None:
            os.close(claim)


def _entries(system: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    found: list[fs.FileInfo] = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return found


def _id_in(name: str) -> str | None:
    """Return the id of the build that wrote a file, by its name."""
    found = _DATA.fullmatch(name) or _MARKED.fullmatch(name)
    return found[1] if found else None


def _dead_builds(system: fs.FileSystem, folder: str) -> set[str]:
    """Return the ids of builds whose processes have ended before they could commit."""
    dead = set()
    for entry in _entries(system, folder) if _has_locks(system) else []:
        build = _id_in(entry.base_name)
        if build is not None and entry.base_name.startswith(_BUILD):
            handle = _try_lock(f"{folder}/{entry.base_name}")
            if handle is not None:
                dead.add(build)
                os.close(handle)
    return dead


def _has_locks(system: fs.FileSystem) -> bool:
    return fcntl is not None and _is_local(system)


@contextmanager
def _locked(system: fs.FileSystem, folder: str) -> Iterator[None]:
    """Hold the lock of a folder, if its file system has locks."""
    if not _has_locks(system):
        yield
        return
    handle = _open_lock(f"{folder}/{LOCK}", os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as refusal:
            if refusal.errno not in _NO_LOCKS:
                raise
            warnings.warn(
                f"The file system of {folder} has no locks: let one build at a time write there", HaplyWarning, 4
            )
        yield
    finally:
        with suppress(OSError):  # unlock explicitly: a process forked in between would keep the lock
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _try_lock(place: str, more: int = 0) -> int | None:
    """Return a handle that holds the lock of a file; None if another process holds it."""
    try:
        handle = _open_lock(place, more)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _open_lock(place: str, more: int) -> int:
    return os.open(place, os.O_RDWR | os.O_NOFOLLOW | more, 0o666)
