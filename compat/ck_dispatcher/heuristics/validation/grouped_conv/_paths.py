"""Scripts of this folder find the modules of compat/ck_dispatcher."""
import pathlib
import sys

for _folder in ("python", "heuristics"):
    _place = str(pathlib.Path(__file__).resolve().parents[3] / _folder)
    if _place not in sys.path:
        sys.path.insert(0, _place)
