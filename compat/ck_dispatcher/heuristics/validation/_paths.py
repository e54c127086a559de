"""Scripts of this folder find the modules of compat/ck_dispatcher."""
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / folder)
                for folder in ("heuristics", "python")]
