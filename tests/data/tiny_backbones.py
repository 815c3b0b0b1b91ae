"""Folders of image-text-to-text models with random weights, as small as their classes allow, made by the `transformers` library alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["robot", "task", ":", "push", "the", "button", "put", "red", "block", "in", "bowl", "\n", "do", "it"]


def make(family: str, folder: Path) -> Path:
    """Writes a model of a family ("smolvlm", "qwen2_5_vl" or "paligemma") with its processor."""
    torch.manual_seed(0)
    {"smolvlm": _smolvlm, "qwen2_5_vl": _qwen, "paligemma": _paligemma}[family](folder)
    return folder


def _tokenizer(special: Sequence[str], **names: str) -> Any:
    words = ["<pad>", "<unk>", "<bos>", "<eos>", *special, *WORDS]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<eos>",
        additional_special_tokens=list(special),
        **names,
    )


_TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}


def _smolvlm(folder: Path) -> None:
    special = ["<fake_token_around_image>", "<global-img>", "<image>", "<end_of_utterance>", "<video>"]
    tokenizer = _tokenizer(special)
    config = transformers.SmolVLMConfig(
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        vision_config={
            "image_size": 32,
            "patch_size": 8,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
        },
        text_config={"model_type": "llama", "vocab_size": 64, "pad_token_id": 0, **_TEXT},
        pad_token_id=0,
    )
    transformers.SmolVLMForConditionalGeneration(config).save_pretrained(folder)
    images = transformers.SmolVLMImageProcessorPil(size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, do_image_splitting=False)
    _save(folder, "SmolVLMProcessor", tokenizer, images, image_seq_len=4)


def _qwen(folder: Path) -> None:
    special = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer = _tokenizer(special)
    start, end, image, video = tokenizer.convert_tokens_to_ids(special)
    config = transformers.Qwen2_5_VLConfig(
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "depth": 2,
            "num_heads": 2,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 32,
            "fullatt_block_indexes": [1],
            "out_hidden_size": 32,
        },
        text_config={
            "vocab_size": 64,
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0},
            **_TEXT,
        },
    )
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 32 * 32, "longest_edge": 32 * 32}
    )
    _save(folder, "Qwen2_5_VLProcessor", tokenizer, images)


def _paligemma(folder: Path) -> None:
    tokenizer = _tokenizer(["<image>"])
    config = transformers.PaliGemmaConfig(
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_config={
            "model_type": "siglip_vision_model",
            "image_size": 32,
            "patch_size": 16,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "projection_dim": 32,
            "vision_use_head": False,
        },
        text_config={"model_type": "gemma", "vocab_size": 2048, "head_dim": 16, **_TEXT},
        projection_dim=32,
    )
    transformers.PaliGemmaForConditionalGeneration(config).save_pretrained(folder)
    images = transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 4
    _save(folder, "PaliGemmaProcessor", tokenizer, images)


def _save(folder: Path, kind: str, tokenizer: Any, images: Any, **options: Any) -> None:
    """Writes tokenizer, image processor and the file that names the processor's class."""
    import json

    tokenizer.save_pretrained(folder)
    images.save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": kind, **options}))
