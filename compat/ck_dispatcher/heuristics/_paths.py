"""Scripts and modules of this folder find those of ../python, which need the package tessera."""
import pathlib
import sys

_PYTHON = str(pathlib.Path(__file__).resolve().parents[1] / "python")
if _PYTHON not in sys.path:
    sys.path.insert(0, _PYTHON)
