"""The release's own VllmConfig for canary cells on a Hopper GPU, made on a CPU.

Usage: `python canary_specs.py CELLS.json`, a list of cells. Prints a JSON list of what the
configuration came to. The platform is the release's CUDA one with the answers of an H200.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

_ARCHITECTURES = (
    *("LlamaForCausalLM", "DeepseekV4ForCausalLM", "DeepSeekV4MTPModel"),
    *("InklingForCausalLM", "InklingMTPModel"),
)
_EXTENSIONS = ("_C", "_C_stable_libtorch", "_qutlass_C", "_moe_C")


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A dependency that the slim environment lacks and no configuration asks anything."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] != "compressed_tensors":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        module = MagicMock(__path__=[], __spec__=spec)
        module.__name__ = spec.name
        return module

    def exec_module(self, module: Any) -> None: ...


def _become_hopper() -> None:
    """From here on the release believes that it runs on an H200."""
    import torch

    cuda: Any = torch.cuda
    for name in _EXTENSIONS:
        sys.modules.setdefault(f"vllm.{name}", types.ModuleType(f"vllm.{name}"))
    h200 = types.SimpleNamespace(
        total_memory=140 * 2**30, multi_processor_count=132, name="NVIDIA H200", major=9, minor=0
    )
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.get_device_name = lambda *_: h200.name
    cuda.get_device_properties = lambda *_: h200
    cuda.device_count = lambda: 1
    cuda.is_available = lambda: True
    torch.ops._C.cutlass_scaled_mm_supports_fp8 = lambda *_: True
    platforms: Any = importlib.import_module("vllm.platforms")
    cuda_platform: Any = importlib.import_module("vllm.platforms.cuda")
    platforms.current_platform.__class__ = cuda_platform.NonNvmlCudaPlatform


def _settled(cell: dict[str, Any]) -> dict[str, Any]:
    from vllm.engine.arg_utils import EngineArgs

    os.environ.update(cell["environment"])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(cell["model"]["config"]))
        engine = {**cell["engine"], "load_format": "dummy"}
        config: Any = EngineArgs(model=folder, **engine).create_engine_config()
    compilation, drafting = config.compilation_config, config.speculative_config
    return {
        "key": cell["key"],
        "architectures": list(config.model_config.architectures),
        "mode": compilation.cudagraph_mode.name,
        "sizes": list(compilation.cudagraph_capture_sizes or ()),
        "mrv2": bool(config.use_v2_model_runner),
        "kv_cache": config.cache_config.cache_dtype,
        "autotune": bool(config.kernel_config.enable_flashinfer_autotune),
        "quantization": config.model_config.quantization,
        "drafter": list(drafting.draft_model_config.hf_config.architectures) if drafting else [],
        "attention": getattr(config.attention_config.backend, "name", None),
    }


def main() -> None:
    cells = json.loads(Path(sys.argv[1]).read_text())
    sys.meta_path.append(_Absent())
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    for name in _ARCHITECTURES:
        registry.ModelRegistry.models[name].load_model_cls()
    settings: Any = importlib.import_module("vllm.config.vllm")
    settings.HAS_TRITON = True
    registry._run_in_subprocess = lambda inspect: inspect()
    _become_hopper()
    print(json.dumps([_settled(cell) for cell in cells]))


if __name__ == "__main__":
    main()
