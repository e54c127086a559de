"""As much of vLLM's interface as the backend meets, for tests where vLLM is not installed. It was
written after vLLM's sources; what those check when something is registered is checked here, too."""
from __future__ import annotations

import enum
import inspect
import sys
import types
from typing import Any, Callable, Dict

import torch
from torch.library import infer_schema


class Op:
    """An operator of vllm.ir: providers must have its schema and as many parameters."""

    def __init__(self, native: Callable[..., Any]) -> None:
        self.native_fn, self.impls = native, {}
        self.schema = infer_schema(native, mutates_args=[])

    def register_impl(self, provider: str, *, supported: bool = True, supports_args: Any = None,
                      inplace: bool = False, batch_invariant: bool = False) -> Any:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            assert provider not in self.impls and provider not in ("native", "unfused")
            assert infer_schema(function, mutates_args=[]) == self.schema
            count = len(inspect.signature(supports_args).parameters)
            assert count == len(inspect.signature(self.native_fn).parameters)
            self.impls[provider] = (function, supports_args, supported, batch_invariant)
            return function
        return register

    def __call__(self, *arguments: Any) -> Any:
        for function, takes, supported, _ in self.impls.values():
            if supported and takes(*arguments):
                return function(*arguments)
        return self.native_fn(*arguments)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor | None, epsilon: float,
              variance_size: int | None = None) -> torch.Tensor:
    wide = x.float()
    part = wide if variance_size is None else wide[..., :variance_size]
    wide = wide * torch.rsqrt(part.square().mean(-1, keepdim=True) + epsilon)
    return wide.to(x.dtype) if weight is None else wide.to(x.dtype) * weight


def _fused_add_rms_norm(x: torch.Tensor, x_residual: torch.Tensor, weight: torch.Tensor | None,
                        epsilon: float, variance_size: int | None = None
                        ) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + x_residual
    return _rms_norm(total, weight, epsilon, variance_size), total


class Backend:
    """vllm.v1.attention.backend.AttentionBackend."""


class Impl:
    """AttentionImpl."""


class Builder:
    """AttentionMetadataBuilder."""

    def __init__(self, kv_cache_spec: Any, layer_names: Any, vllm_config: Any, device: Any) -> None:
        self.device = device


class AttentionType(str, enum.Enum):
    DECODER = "decoder"
    ENCODER_ONLY = "encoder_only"


class AttentionBackendEnum(enum.Enum):
    CUSTOM = None


def install() -> Dict[Any, str]:
    """Puts the modules where `import vllm` finds them; returns what register_backend() fills."""
    registered: Dict[Any, str] = {}
    ops = types.SimpleNamespace(rms_norm=Op(_rms_norm), fused_add_rms_norm=Op(_fused_add_rms_norm))

    def register_backend(backend: Any, class_path: str) -> None:
        registered[backend] = class_path
    contents = {
        "vllm": {"ir": types.SimpleNamespace(ops=ops)},
        "vllm.v1": {}, "vllm.v1.attention": {}, "vllm.v1.attention.backends": {},
        "vllm.v1.attention.backend": {
            "AttentionBackend": Backend, "AttentionImpl": Impl, "AttentionType": AttentionType,
            "AttentionMetadataBuilder": Builder},
        "vllm.v1.attention.backends.registry": {
            "AttentionBackendEnum": AttentionBackendEnum, "register_backend": register_backend},
    }
    for name, members in contents.items():
        module: Any = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
    return registered
