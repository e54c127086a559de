"""What the original's FmhaRunner takes beside arrays, in the words of this one's run()."""
from __future__ import annotations

from typing import Any, Dict

from tessera import Error

FAMILIES = {"splitkv": "fwd_splitkv", "pagedkv": "fwd_pagedkv", "appendkv": "fwd_appendkv"}
ROPES = {0: "none", 1: "interleaved", 2: "half_rotated"}
LOOKUPS = {0: "sglang", 1: "vllm"}
# What has one value here, and why.
FIXED = {"perm": (1, "arrays are (batch, head, token, element)"),
         "is_v_rowmajor": (1, "V is (batch, head, token, element)"),
         "is_group_mode": (0, "all sequences of a batch are as long as the problem says"),
         "is_store_randval": (0, "dropout's numbers are not kept")}
# Kernels of a library are for all heads' lengths, layouts of pages and tiles.
WITHOUT_EFFECT = ("traits_hdim_q", "traits_hdim_v", "kv_layout", "tile_n0")


def plain(name: str, given: Dict[str, Any]) -> None:
    """Takes out what has one value, and refuses another."""
    for word, (value, why) in FIXED.items():
        if int(given.pop(word, value)) != value:
            raise Error(f"{name}: {word} must be {value}: {why}", "unsupported")
    for word in WITHOUT_EFFECT:
        given.pop(word, None)


def translated(family: Any, tokens: int, given: Dict[str, Any]) -> Any:
    """The family in Tessera's word; `given` is changed. tokens: new ones of a query."""
    found = FAMILIES.get(family, family) if isinstance(family, str) else family
    plain("run()", given)
    left, right = given.pop("window_left", -1), given.pop("window_right", -1)
    if (left, right) != (-1, -1):
        given["window"] = (left, right)
    if not given.pop("paged_kv", 1) and found != "fwd_pagedkv":
        given.pop("page_size", None)
    if "rope_type" in given:
        number = given.pop("rope_type")
        if number not in ROPES:
            raise Error(f"rope_type must be one of {', '.join(map(str, ROPES))}, got {number}")
        given["rope"] = ROPES[number]
    if isinstance(given.get("kv_lookup"), int):
        given["kv_lookup"] = LOOKUPS.get(given["kv_lookup"], given["kv_lookup"])
    if (new := given.pop("seqlen_knew", tokens)) != tokens:
        raise Error(f"seqlen_knew must be the problem's seqlen_q, {tokens}, got {new}",
                    "unsupported")
    return found
