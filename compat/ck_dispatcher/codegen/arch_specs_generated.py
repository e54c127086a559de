"""The limits of targets, which arch_specs_rows.py reads from Tessera's rows."""
from arch_specs_rows import *  # noqa: F401,F403
