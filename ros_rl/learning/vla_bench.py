"""How long a chunk of action tokens takes, beside `generate()` of the transformers library on the same network, in one run."""

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from ros_rl.policies.embedded_vla import EmbeddedConfig, EmbeddedVla
from ros_rl.policies.token_network import Inputs

TICKS, JOINTS = 5, 8


def measure(batches: tuple[int, ...], turns: int, update: Callable[[], Any] = lambda: None) -> dict[str, Any]:
    """Times contestants in turns, and takes each one's median.

    `decode` is from the encoded images, joints and instruction on, which is all that `generate()` does; `act` has their encoding too.
    The networks have the default shape and random weights; those that decode one token after the other are the same network.

    Returns:
        for each batch size: milliseconds of each contestant, and how many times longer `generate()` takes than each of ours.
    """
    torch.manual_seed(0)
    parallel, chained = (
        EmbeddedVla(EmbeddedConfig([64, 64], words=["push", "the", "button"], decoding=how), 2, JOINTS, TICKS, JOINTS).eval()
        for how in ("parallel", "autoregressive")
    )
    found = {}
    for batch in batches:
        contestants = _contestants(parallel, chained, batch)
        times: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(turns + 1):
            for name, run in contestants.items():
                start = time.perf_counter()
                run()
                if turn:  # the first warms up
                    times[name].append(time.perf_counter() - start)
            update()
        found[str(batch)] = _figures({name: 1e3 * float(np.median(values)) for name, values in times.items()})
    parameters = sum(value.numel() for value in parallel.parameters())
    return {
        "batches": found,
        "tokens": TICKS * JOINTS,
        "parameters": parameters,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers")},
    }


def _contestants(parallel: EmbeddedVla, chained: EmbeddedVla, batch: int) -> dict[str, Callable[[], Any]]:
    draw = np.random.default_rng(0)
    images = torch.from_numpy(draw.integers(0, 256, (batch, 2, 64, 64, 3)).astype(np.uint8))
    inputs = Inputs(images, torch.from_numpy(draw.normal(size=(batch, JOINTS)).astype(np.float32)), ["push the button"] * batch)
    language_model = chained.as_causal_lm()
    with torch.no_grad():
        prefix = parallel.prefix(inputs)
        queries = torch.cat([prefix, parallel.first(batch)], dim=1)
        prompt = torch.cat([chained.prefix(inputs), chained.first(batch)], dim=1)

    @torch.no_grad()
    def at_once() -> torch.Tensor:
        states = parallel.trunk(inputs_embeds=queries, use_cache=False).last_hidden_state[:, -TICKS:]
        return parallel.head(states).argmax(-1)

    @torch.no_grad()
    def with_cache() -> None:
        cache = chained.trunk(inputs_embeds=prompt[:, :-1], use_cache=True).cache
        position = prompt[:, -1:]
        for _ in range(chained.length):
            token = chained.head(chained.advance(position, cache)).argmax(-1)
            position = chained.embedding(token)

    def generate() -> torch.Tensor:
        tokens: torch.Tensor = language_model.generate(inputs_embeds=prompt, max_new_tokens=chained.length, do_sample=False, pad_token_id=0)
        return tokens

    @torch.no_grad()
    def encode_and_generate() -> torch.Tensor:
        encoded = torch.cat([chained.prefix(inputs), chained.first(batch)], dim=1)
        tokens: torch.Tensor = language_model.generate(
            inputs_embeds=encoded, max_new_tokens=chained.length, do_sample=False, pad_token_id=0
        )
        return tokens

    return {
        "decode_parallel": at_once,
        "decode_cached": with_cache,
        "decode_generate": generate,
        "act_parallel": lambda: parallel.decode(inputs),
        "act_cached": lambda: chained.decode(inputs),
        "act_generate": encode_and_generate,
    }


def _figures(milliseconds: dict[str, float]) -> dict[str, Any]:
    ratios = {
        f"{what}_{how}": round(milliseconds[f"{what}_generate"] / milliseconds[f"{what}_{how}"], 2)
        for what in ("decode", "act")
        for how in ("parallel", "cached")
    }
    return {"ms": {name: round(value, 3) for name, value in milliseconds.items()}, "generate_over": ratios}
