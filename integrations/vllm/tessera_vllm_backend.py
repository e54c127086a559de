"""The attention backend: vLLM's classes over tessera_vllm's functions. Importing it needs vLLM.

vLLM finds it by register(), which a plug-in of vLLM's group "vllm.general_plugins" may call:

    [project.entry-points."vllm.general_plugins"]
    tessera = "tessera_vllm_backend:register"
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

import tessera_vllm
import torch
from vllm import ir
from vllm.v1.attention.backend import (AttentionBackend, AttentionImpl, AttentionMetadataBuilder,
                                       AttentionType)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

Tensor = torch.Tensor


@dataclass
class TesseraMetadata:
    """What a batch's layers share."""

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: Tensor
    max_seq_len: int
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    causal: bool


class TesseraMetadataBuilder(AttentionMetadataBuilder):
    def __init__(self, kv_cache_spec: Any, layer_names: List[str], vllm_config: Any,
                 device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: Any,
              fast_build: bool = False) -> TesseraMetadata:
        given = common_attn_metadata
        if not isinstance(given.causal, bool):
            raise NotImplementedError("Tessera's backend takes causal as one truth value for all "
                                      "sequences of a batch, and got a tensor of them")
        return TesseraMetadata(given.num_actual_tokens, given.max_query_len, given.query_start_loc,
                               given.max_seq_len, given.seq_lens, given.block_table_tensor,
                               given.slot_mapping, given.causal)


class TesseraImpl(AttentionImpl):
    def __init__(self, num_heads: int, head_size: int, scale: float,
                 num_kv_heads: Optional[int] = None, alibi_slopes: Optional[List[float]] = None,
                 sliding_window: Optional[int] = None, kv_cache_dtype: str = "auto",
                 logits_soft_cap: Optional[float] = None, attn_type: str = AttentionType.DECODER,
                 kv_sharing_target_layer_name: Optional[str] = None,
                 sinks: Optional[Tensor] = None) -> None:
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError("Tessera's backend runs decoders, and the layer's type is "
                                      f"{attn_type}")
        if kv_cache_dtype not in TesseraBackend.supported_kv_cache_dtypes:
            raise NotImplementedError("Tessera's backend has caches of the model's type, and "
                                      f"{kv_cache_dtype} was asked for")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.slopes = None if alibi_slopes is None else torch.tensor(alibi_slopes,
                                                                     dtype=torch.float32)
        self.sliding_window = sliding_window
        self.soft_cap = float(logits_soft_cap or 0.0)
        self.shares_cache = kv_sharing_target_layer_name is not None
        self.sinks = sinks

    def forward(self, layer: Any, query: Tensor, key: Optional[Tensor], value: Optional[Tensor],
                kv_cache: Tensor, attn_metadata: Optional[TesseraMetadata],
                output: Optional[Tensor] = None, output_scale: Optional[Tensor] = None,
                output_block_scale: Optional[Tensor] = None) -> Tensor:
        """query: (tokens, heads, head size). Writes the new keys and values, then attends."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("Tessera's backend writes no quantized output")
        if output is None:
            output = torch.empty_like(query)
        if attn_metadata is None:  # vLLM measures the memory of an empty run
            return output.zero_()
        caches = tessera_vllm.caches_of(kv_cache)
        if not self.shares_cache and key is not None and value is not None:
            tessera_vllm.write_pages(key, value, caches, attn_metadata.slot_mapping)
        tokens = attn_metadata.num_actual_tokens
        found = self._attended(query[:tokens], caches, attn_metadata)
        output[:tokens].copy_(found.view_as(output[:tokens]))
        return output

    def _attended(self, query: Tensor, caches: Any, of: TesseraMetadata) -> Tensor:
        if self.slopes is not None and self.slopes.device != query.device:
            self.slopes = self.slopes.to(query.device)
        window = tessera_vllm.window_of(self.sliding_window, of.causal)
        return tessera_vllm.attend(
            query, caches, of.query_start_loc, of.seq_lens, of.block_table, of.max_query_len,
            of.max_seq_len, self.scale, of.causal, window, self.soft_cap, self.slopes, self.sinks)


class TesseraBackend(AttentionBackend):
    accept_output_buffer = True
    forward_includes_kv_cache_update = True
    supported_dtypes = list(tessera_vllm.TYPES)
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16"]

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type:
        return TesseraImpl

    @staticmethod
    def get_builder_cls() -> type:
        return TesseraMetadataBuilder

    @staticmethod
    def get_kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int,
                           cache_dtype_str: str = "auto") -> Tuple[int, ...]:
        """Versions before 0.33 ask for it."""
        return 2, num_blocks, block_size, num_kv_heads, head_size

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return 0 < head_size <= tessera_vllm.LONGEST_HEAD

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        """With packed sequences and the longest length, which vLLM gives."""
        return True

    @staticmethod
    def use_cascade_attention(*_: Any, **__: Any) -> bool:
        return False


def register() -> Tuple[str, ...]:
    """Registers the operators and the backend, which `--attention-backend CUSTOM` then names."""
    register_backend(AttentionBackendEnum.CUSTOM, f"{__name__}.TesseraBackend")
    return tessera_vllm.register_ir(ir.ops)
