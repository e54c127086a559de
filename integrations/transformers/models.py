"""Small models with random weights, for the tests and the bench script."""
from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import torch
import transformers

# hidden, intermediate, layers, heads, heads of keys, vocabulary
SMALL = (64, 112, 2, 4, 2, 97)


def _common(sizes: Tuple[int, ...]) -> Dict[str, Any]:
    hidden, intermediate, layers, heads, heads_kv, vocabulary = sizes
    return dict(hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=heads_kv, vocab_size=vocabulary,
                max_position_embeddings=2048, initializer_range=0.2, pad_token_id=0,
                bos_token_id=None, eos_token_id=None)


def llama(sizes: Tuple[int, ...] = SMALL, **more: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**_common(sizes), **more))


def qwen3(sizes: Tuple[int, ...] = SMALL, **more: Any) -> Any:
    """The second half of the layers sees a window of 6 keys."""
    config = transformers.Qwen3Config(**_common(sizes), head_dim=sizes[0] // sizes[3],
                                      use_sliding_window=True, sliding_window=6,
                                      max_window_layers=sizes[2] // 2, **more)
    return transformers.Qwen3ForCausalLM(config)


def mixtral(sizes: Tuple[int, ...] = SMALL, **more: Any) -> Any:
    options = {"num_local_experts": 4, "num_experts_per_tok": 2, **more}
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**_common(sizes), **options))


def gpt_oss(sizes: Tuple[int, ...] = SMALL, **more: Any) -> Any:
    """With sinks, windows in each second layer, and experts with biases and transposed weights."""
    config = transformers.GptOssConfig(
        **_common(sizes), head_dim=sizes[0] // sizes[3], sliding_window=6, num_local_experts=4,
        num_experts_per_tok=2, **more)
    return transformers.GptOssForCausalLM(config)


def vit(sizes: Tuple[int, ...] = SMALL, **more: Any) -> Any:
    config = transformers.ViTConfig(
        hidden_size=sizes[0], intermediate_size=sizes[1], num_hidden_layers=sizes[2],
        num_attention_heads=sizes[3], image_size=48, patch_size=8, num_labels=10,
        initializer_range=0.2, **more)
    return transformers.ViTForImageClassification(config)


TEXT: Dict[str, Callable[..., Any]] = {"llama": llama, "qwen3": qwen3, "mixtral": mixtral}


def made(make: Callable[..., Any], seed: int, dtype: torch.dtype = torch.float32,
         sizes: Tuple[int, ...] = SMALL, **more: Any) -> Any:
    """The model in eval mode, with the framework's own attention and experts."""
    torch.manual_seed(seed)
    model = make(sizes, **more).eval().requires_grad_(False).to(dtype)
    model.set_attn_implementation("eager")
    if any(hasattr(module, "_is_expert_parallel") for module in model.modules()):
        model.set_experts_implementation("eager")
    for parameter in model.parameters():  # norms and biases, which begin as ones and zeros
        if parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model
