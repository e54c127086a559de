"""What the package found on this machine."""
from __future__ import annotations

import sys
from typing import Any, Dict, List

from . import _abi, _warm
from ._checks import checked
from ._commands import command
from ._dispatcher import default_dispatcher


class Report:
    """doctor()'s findings: `facts` is a dict, `problems` a list of sentences; str() is for
    people."""

    @checked
    def __init__(self, facts: Dict[str, Any], problems: List[str]) -> None:
        self.facts = facts
        self.problems = problems

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        width = 13
        lines = [f"{name:{width}}  {value}" for name, value in self.facts.items()
                 if not isinstance(value, (dict, list))]
        for row in self.facts.get("doctor", {}).get("findings", []):
            lines.append(f"{row['what']:{width}}  {row['detail']}")
        lines += [f"{'problem':{width}}  {sentence}" for sentence in self.problems]
        return "\n".join(lines)

    __repr__ = __str__


def doctor() -> Report:
    """Looks at the installation: the library, its kernels' compilers, the warm call.

    print(tessera.doctor()) is for people; it is false where something is wrong.
    """
    problems: List[str] = []
    facts: Dict[str, Any] = {"python": sys.version.split()[0]}
    try:
        facts["library"] = str(_abi.find_library())
        facts["release"] = _abi.version()
        facts["machine"] = default_dispatcher().target["name"]
    except _abi.Error as error:
        problems.append(str(error))
    facts["warm call"] = "tessera._fast"
    if not _warm.has_fast():
        facts["warm call"] = "ctypes"
        problems.append("tessera._fast is missing, so that each call costs about 5 us more; "
                        "'pip install .' builds it")
    try:
        facts["doctor"] = command("doctor", check=False)
        problems += [f"{row['what']}: {row['detail']}" for row in facts["doctor"]["findings"]
                     if row["needed"] and not row["found"]]
    except _abi.Error as error:
        problems.append(f"the library's own doctor: {error}")
    return Report(facts, problems)
