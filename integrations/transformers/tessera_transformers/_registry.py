"""Makes "tessera" a word of the framework's three registries."""
from __future__ import annotations

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.moe import ExpertsInterface

from ._attention import tessera_attention, tessera_mask
from ._experts import tessera_experts

NAME = "tessera"


def register() -> None:
    AttentionInterface.register(NAME, tessera_attention)
    AttentionMaskInterface.register(NAME, tessera_mask)
    ExpertsInterface.register(NAME, tessera_experts)
