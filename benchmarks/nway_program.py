"""The program that ``bench answers`` runs with NWAY's Python: ``FOLDER AREA RADIUS COMPLETENESS``; no haply.

It reads two catalogues with circular errors, and writes the matches of NWAY with the seconds that its program takes.
"""

import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    fits = import_module("astropy.io.fits")  # only the other Python has it
    folder, area, radius, completeness = Path(sys.argv[1]), *sys.argv[2:5]
    for name in ("left", "right"):
        given = np.load(folder / f"{name}.npz")
        columns = [fits.Column("ID", "K", array=np.arange(len(given["ra"])))]
        columns += [
            fits.Column(key, "D", array=given[field])
            for key, field in (("RA", "ra"), ("DEC", "dec"), ("ERR", "ra_error"))
        ]
        table = fits.BinTableHDU.from_columns(columns)
        table.name, table.header["SKYAREA"] = name.upper(), float(area)
        table.writeto(folder / f"{name}.fits")
    program = Path(sys.executable).parent / "nway.py"
    begun = time.perf_counter()
    subprocess.run(
        [
            sys.executable, str(program), str(folder / "left.fits"), ":ERR", str(folder / "right.fits"), ":ERR",
            "--out", str(folder / "out.fits"), "--radius", radius, "--prior-completeness", completeness,
        ],
        check=True, cwd=folder, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    with fits.open(folder / "out.fits") as opened:
        found = opened[1].data
        np.savez(
            folder / "found.npz", id=found["LEFT_ID"].astype(np.int64), p_any=found["p_any"].astype(np.float64),
            seconds=seconds,
        )  # fmt: skip
