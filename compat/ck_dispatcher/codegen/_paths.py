"""Scripts and modules of this folder find those of ../python, which need the package tessera."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
