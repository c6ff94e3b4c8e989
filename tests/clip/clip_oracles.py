"""Random models, and the file formats people keep CLIP in, written without the code under test."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedotp.clip import CLIP, ClassTable, ClipConfig, VitConfig
from fedotp.clip._config import ResNetConfig, TextConfig

if TYPE_CHECKING:
    from transformers import CLIPModel

TEXT = TextConfig(vocab_size=99, context_length=12, width=128, layers=2, heads=2, eot=98)
# Heads are 64 wide, as in every CLIP by OpenAI, so that shapes alone tell the architecture.
VIT = ClipConfig(48, VitConfig(image_size=24, patch_size=8, width=192, layers=2, heads=3), TEXT)
RESNET = ClipConfig(48, ResNetConfig(image_size=64, layers=(1, 2, 1, 1), width=8, heads=4), TEXT)
TABLE = dataclasses.replace(VIT, text=ClassTable(("cat", "dog"), "a {}", "a test"))


def randomise(module: nn.Module, seed: int = 0) -> None:
    """Every weight, bias, norm and running statistic random, none at a value that hides a mistake.

    The values are exact in half precision, so that a file in half precision holds the same model.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("running_var"):
                noise = 0.5 + noise.abs()
            elif tensor.ndim < 2:
                noise = 0.7 + 0.3 * noise
            elif "position" not in name:  # positions stay of order one, so that tokens differ
                gain = 2.5 if tensor.ndim == 4 else 0.7  # convolutions: for the image to survive the ReLUs
                noise = noise * gain * tensor[0].numel() ** -0.5
            tensor.copy_(noise.half())


def random_clip(config: ClipConfig, seed: int = 0) -> CLIP:
    model = CLIP(config).freeze()
    randomise(model, seed)
    return model


def hugging_face_clip(config: ClipConfig, seed: int = 0) -> "CLIPModel":
    """transformers' model of the same shape."""
    from transformers import CLIPConfig, CLIPModel  # takes seconds

    assert isinstance(config.vision, VitConfig)

    def tower(shape: VitConfig | TextConfig) -> dict[str, object]:
        return {
            "hidden_size": shape.width,
            "intermediate_size": 4 * shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "hidden_act": config.activation,
            "projection_dim": config.embed_dim,
        }

    vision = {"image_size": config.image_size, "patch_size": config.vision.patch_size}
    text = {
        "vocab_size": config.text.vocab_size,
        "max_position_embeddings": config.text.context_length,
        "eos_token_id": config.text.eot,
    }
    oracle = CLIPModel(
        CLIPConfig(
            text_config=tower(config.text) | text,
            vision_config=tower(config.vision) | vision,
            projection_dim=config.embed_dim,
            attn_implementation="eager",
        )
    ).eval()
    randomise(oracle, seed)
    return oracle


def openai_tensors(oracle: "CLIPModel") -> dict[str, Tensor]:
    """The tensors of transformers' model under OpenAI's names, module by module."""
    tensors = {
        "visual.class_embedding": oracle.vision_model.embeddings.class_embedding,
        "visual.conv1.weight": oracle.vision_model.embeddings.patch_embedding.weight,
        "visual.positional_embedding": oracle.vision_model.embeddings.position_embedding.weight,
        "visual.proj": oracle.visual_projection.weight.T.contiguous(),
        "token_embedding.weight": oracle.text_model.embeddings.token_embedding.weight,
        "positional_embedding": oracle.text_model.embeddings.position_embedding.weight,
        "text_projection": oracle.text_projection.weight.T.contiguous(),
        "logit_scale": oracle.logit_scale,
    }
    pairs = {
        "visual.ln_pre": oracle.vision_model.pre_layrnorm,
        "visual.ln_post": oracle.vision_model.post_layernorm,
        "ln_final": oracle.text_model.final_layer_norm,
    }
    for prefix, tower in (("visual.", oracle.vision_model), ("", oracle.text_model)):
        for i, layer in enumerate(tower.encoder.layers):
            block, attn = f"{prefix}transformer.resblocks.{i}", layer.self_attn
            stacked = (attn.q_proj, attn.k_proj, attn.v_proj)
            tensors[f"{block}.attn.in_proj_weight"] = torch.cat([part.weight for part in stacked])
            tensors[f"{block}.attn.in_proj_bias"] = torch.cat([part.bias for part in stacked])
            pairs |= {
                f"{block}.attn.out_proj": attn.out_proj,
                f"{block}.ln_1": layer.layer_norm1,
                f"{block}.ln_2": layer.layer_norm2,
                f"{block}.mlp.c_fc": layer.mlp.fc1,
                f"{block}.mlp.c_proj": layer.mlp.fc2,
            }
    for name, module in pairs.items():
        tensors |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
    return {name: tensor.detach() for name, tensor in tensors.items()}


class Holder(nn.Module):
    """A module that only keeps tensors."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def openai_holder(tensors: dict[str, Tensor], *, half: bool = False) -> Holder:
    """A tree of modules like OpenAI's: constants among the weights, matrices perhaps in half."""
    root = Holder()
    constants = {"input_resolution": torch.tensor(7), "context_length": torch.tensor(12)}
    for name, tensor in (tensors | constants).items():
        *parents, leaf = name.split(".")
        module: nn.Module = root
        for parent in parents:
            if parent not in dict(module.named_children()):
                module.add_module(parent, Holder())
            module = module.get_submodule(parent)
        if half and tensor.ndim >= 2 and "embedding" not in name:
            tensor = tensor.half()
        module.register_buffer(leaf, tensor.clone())
    return root


def write_openai(tensors: dict[str, Tensor], path: Path, *, half: bool = False) -> None:
    """A TorchScript archive like OpenAI's."""
    torch.jit.save(torch.jit.script(openai_holder(tensors, half=half)), path)


def write_open_clip(tensors: dict[str, Tensor], path: Path) -> None:
    """A safetensors file with OpenAI's names; open_clip of old also stored the causal mask."""
    stored = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(stored | {"attn_mask": torch.zeros(12, 12)}, path)


def with_heads(config: ClipConfig, vision: int, text: int) -> ClipConfig:
    """The same tensors, other heads."""
    return dataclasses.replace(
        config,
        vision=dataclasses.replace(config.vision, heads=vision),
        text=dataclasses.replace(config.text, heads=text),
    )
