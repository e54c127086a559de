"""The original's words of attention: aliases, numbers and the name of a configuration."""
from __future__ import annotations

import hashlib
import json
from typing import Any, Dict

FWD_DTYPES = ("fp32", "fp16", "bf16", "fp8", "bf8", "fp8fp16", "fp8bf16", "fp8fp32")
BWD_DTYPES = ("fp32", "fp16", "bf16")
FAMILIES = ("fwd", "fwd_pagedkv", "fwd_splitkv", "fwd_splitkv_combine", "fwd_appendkv",
            "batch_prefill", "bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")


def _type_names(prefix: str, words: Any) -> Dict[str, str]:
    """"fp8bf16" is FmhaFwdFp8Bf16."""
    return {word: prefix + "".join(part.capitalize() for part in
                                   word.replace("fp", " fp").replace("bf", " bf").split())
            for word in words}


FWD_DTYPE_MAP = _type_names("FmhaFwd", FWD_DTYPES)
BWD_DTYPE_MAP = _type_names("FmhaBwd", BWD_DTYPES)


def _aliases(**rows: str) -> Dict[str, str]:
    """Every word by itself and by its further spellings."""
    return {alias: word for word, others in rows.items() for alias in (word, *others.split())}


MASK_CANONICAL = _aliases(no="no_mask", top_left="causal t", bottom_right="b",
                          generic="window_generic g")
BIAS_CANONICAL = _aliases(no="no_bias", bias="elementwise elementwise_bias", alibi="")
QSCALE_CANONICAL = _aliases(no="no_scale", pertensor="", blockscale="", kv_blockscale="")
ROPE_CANONICAL = _aliases(none="no", inter="interleaved", half="half_rotated")
KV_MEMORY_LAYOUT_CANONICAL = _aliases(vectorized="", linear="")
KV_LOOKUP_CANONICAL = _aliases(sglang="", vllm="")


def _numbered(*words: str) -> Dict[str, int]:
    return {word: number for number, word in enumerate(words)}


MASK_TO_INT = _numbered("no", "top_left", "bottom_right", "generic")
BIAS_TO_INT = _numbered("no", "bias", "alibi")
QSCALE_TO_INT = _numbered("no", "pertensor", "blockscale", "kv_blockscale")
ROPE_TO_INT = _numbered("none", "inter", "half")
KV_MEMORY_LAYOUT_TO_INT = _numbered("vectorized", "linear")
KV_LOOKUP_TO_INT = _numbered("vllm", "sglang")


def canonical_mask(value: str) -> str:
    return MASK_CANONICAL.get(value, value)


def canonical_bias(value: str) -> str:
    return BIAS_CANONICAL.get(value, value)


def canonical_qscale(value: str) -> str:
    return QSCALE_CANONICAL.get(value, value)


def canonical_rope(value: str) -> str:
    return ROPE_CANONICAL.get(value, value)


def canonical_kv_memory_layout(value: str) -> str:
    return KV_MEMORY_LAYOUT_CANONICAL.get(value, value)


def canonical_kv_lookup(value: str) -> str:
    return KV_LOOKUP_CANONICAL.get(value, value)


# The words of a configuration's name, where each stands in the signature, and its one spelling.
_NAMED = (("family", "family", str), ("dtype", "data_type", str), ("mode", "mode", str),
          ("vlayout", "vlayout", str), ("mask", "mask", canonical_mask),
          ("bias", "bias", canonical_bias), ("qscale", "qscale", canonical_qscale),
          ("rope", "rope", canonical_rope),
          ("kv_memory", "kv_memory_layout", canonical_kv_memory_layout),
          ("kv_lookup", "kv_lookup_table", canonical_kv_lookup))


def sanitize_token(value: Any) -> str:
    """A word that can be a part of a file's name."""
    word = str(value)
    for wrong in ("::", "/", " "):
        word = word.replace(wrong, "_")
    return word


def kernel_name_from_config(config: Dict[str, Any]) -> str:
    """fmha_{family}_{type}_{mode}_h{q}x{v}_{pipeline}_{digest}: the digest is of everything that
    the configuration says, so that two that differ have two names."""
    signature, how = config["signature"], config["algorithm"]
    words = {key: sanitize_token(spelled(signature[field])) for key, field, spelled in _NAMED}
    whole = json.dumps({**words, "sig": signature, "alg": how}, sort_keys=True)
    digest = hashlib.sha1(whole.encode()).hexdigest()[:12]
    return "_".join(["fmha", words["family"], words["dtype"], words["mode"],
                     f"h{signature['hdim_q']}x{signature['hdim_v']}",
                     sanitize_token(how["pipeline"]), digest])
