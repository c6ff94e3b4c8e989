"""From Hugging Face's tensor names to OpenAI's."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

# Applied in this order to each name.
_RENAMES = (
    (r"^text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^text_model\.final_layer_norm\.", "ln_final."),
    (r"^text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"^text_projection\.weight$", "text_projection"),
    (r"^vision_model\.embeddings\.class_embedding$", "visual.class_embedding"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "visual.conv1."),
    (r"^vision_model\.embeddings\.position_embedding\.weight$", "visual.positional_embedding"),
    (r"^vision_model\.pre_layrnorm\.", "visual.ln_pre."),
    (r"^vision_model\.post_layernorm\.", "visual.ln_post."),
    (r"^vision_model\.encoder\.layers\.", "visual.transformer.resblocks."),
    (r"^visual_projection\.weight$", "visual.proj"),
    (r"\.self_attn\.", ".attn."),
    (r"\.layer_norm([12])\.", r".ln_\1."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
)
_QUERY = re.compile(r"(.*\.attn\.)q_proj\.(weight|bias)")


def is_hugging_face(names: Mapping[str, Tensor]) -> bool:
    """Whether these are the tensors of a transformers `CLIPModel`."""
    return any(name.startswith(("text_model.", "vision_model.")) for name in names)


def from_hugging_face(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a transformers `CLIPModel` under OpenAI's names.

    Queries, keys and values are stacked into one matrix, and the two projections are transposed: OpenAI
    multiplies `features @ projection`, Hugging Face keeps them as linear layers.
    """
    renamed = {_rename(name): tensor for name, tensor in tensors.items() if not name.endswith("position_ids")}
    for projection in ("text_projection", "visual.proj"):
        if projection in renamed:
            renamed[projection] = renamed[projection].T.contiguous()
    for match in filter(None, map(_QUERY.fullmatch, list(renamed))):
        block, kind = match.groups()
        parts = [f"{block}{part}_proj.{kind}" for part in "qkv"]
        if all(part in renamed for part in parts):
            renamed[f"{block}in_proj_{kind}"] = torch.cat([renamed.pop(part) for part in parts])
    return renamed


def _rename(name: str) -> str:
    for pattern, replacement in _RENAMES:
        name = re.sub(pattern, replacement, name)
    return name
