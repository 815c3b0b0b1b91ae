"""Instructions as numbers: words of a small vocabulary, or the embedding of a frozen sentence encoder for language beyond it."""

import importlib.util
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ros_rl.errors import UserError
from ros_rl.policies.extras import ENCODER, check_packages

LONGEST = 500  # characters in an instruction
_MOST_WORDS = 48
SENTENCE_WIDTH = 384


def check_instruction(text: str) -> str:
    """Returns an instruction without the space around it.

    Raises:
        UserError: it is empty or longer than a person would say.
    """
    text = text.strip()
    if not text:
        raise UserError("the instruction is empty; say what to do, such as 'put the red block in the bowl'")
    if len(text) > LONGEST:
        raise UserError(f"the instruction has {len(text)} characters, at most {LONGEST} are read: '{text[:40]}…'")
    return text


def words_of(text: str) -> list[str]:
    """Returns the words of a text in lower case, without punctuation."""
    return re.findall(r"[^\W_]+", text.lower())[:_MOST_WORDS]


def vocabulary(texts: Iterable[str]) -> list[str]:
    """Returns all words of some texts in alphabetical order."""
    return sorted({word for text in texts for word in words_of(text)})


class WordEncoder(nn.Module):
    """From instructions to vectors by the words and their order; a word outside the vocabulary counts as an unknown one."""

    def __init__(self, words: Sequence[str], width: int):
        super().__init__()
        self._index = {word: number for number, word in enumerate(words, 2)}  # 0: nothing, 1: an unknown word
        self.embed = nn.Embedding(len(words) + 2, width, padding_idx=0)
        self.read = nn.GRU(width, width, batch_first=True)

    def forward(self, texts: Sequence[str]) -> torch.Tensor:
        """Returns a vector for each text, (B, width). Equal texts are read once."""
        distinct = list(dict.fromkeys(texts))
        rows = [[self._index.get(word, 1) for word in words_of(text)] or [1] for text in distinct]
        ends = torch.tensor([len(row) - 1 for row in rows])
        device = self.embed.weight.device
        indices = torch.tensor([row + [0] * (int(ends.max()) + 1 - len(row)) for row in rows], device=device)
        states, _ = self.read(self.embed(indices))
        read: torch.Tensor = states[torch.arange(len(rows), device=device), ends.to(device)]
        return read[torch.tensor([distinct.index(text) for text in texts], device=device)]


class SentenceEncoder(nn.Module):
    """From instructions to vectors by a frozen sentence encoder, of which only the map to `width` is learned and kept in a bundle."""

    def __init__(self, width: int):
        super().__init__()
        self.map = nn.Linear(SENTENCE_WIDTH, width)
        self._known: dict[str, torch.Tensor] = {}

    def forward(self, texts: Sequence[str]) -> torch.Tensor:
        """Returns a vector for each text, (B, width)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, sentence_embeddings(new), strict=True))
        read = torch.stack([self._known[text] for text in texts]).to(self.map.weight.device)
        # A unit vector of 384 numbers is small in each: at unit variance a word such as a colour makes a difference from the start.
        mapped: torch.Tensor = self.map(torch.nn.functional.layer_norm(read, (SENTENCE_WIDTH,)))
        return mapped


def sentence_embeddings(texts: Sequence[str]) -> torch.Tensor:
    """Returns unit vectors (B, 384) that are near for sentences that mean the same.

    Raises:
        UserError: the encoder's package is not installed.
    """
    tokenizer, model = _encoder()
    tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"][..., None].float()
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


@cache
def _encoder() -> tuple[Any, Any]:
    """Reads the encoder from the package's folder, without its code and without a network."""
    check_packages((ENCODER, "transformers"), "language: sentence")
    found = importlib.util.find_spec(ENCODER)
    assert found is not None and found.submodule_search_locations
    folder = Path(next(iter(found.submodule_search_locations))) / "model"
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    return tokenizer, model.eval().requires_grad_(False)
