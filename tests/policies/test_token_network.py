import re

import numpy as np
import pytest
import tiny_backbones
import torch

from ros_rl.errors import UserError
from ros_rl.policies.embedded_vla import EmbeddedConfig, EmbeddedVla
from ros_rl.policies.token_network import Inputs, choose
from ros_rl.policies.vla_backbone import BackboneConfig, BackboneVla

LENGTH = 6
SAID = ["push the button", "put the red block in the bowl", "push the button"]


def make_inputs(rows=3, seed=0):
    draw = np.random.default_rng(seed)
    images = torch.from_numpy(draw.integers(0, 256, (rows, 2, 32, 32, 3)).astype(np.uint8))
    return Inputs(images, torch.from_numpy(draw.normal(size=(rows, 8)).astype(np.float32)), SAID[:rows])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: tiny_backbones.make(family, tmp_path_factory.mktemp(family)) for family in ("smolvlm", "qwen2_5_vl", "paligemma")}


def make(kind, decoding, folders):
    torch.manual_seed(0)
    if kind == "embedded":
        return EmbeddedVla(EmbeddedConfig([32, 32], "words", ["push", "put", "red"], decoding, 32, 2, 2), 2, 8, 2, 3).eval()
    return BackboneVla(BackboneConfig(str(folders[kind]), [32, 32], 2, decoding), 8, 2, 3).eval()


CASES = [(kind, how) for kind in ("embedded", "smolvlm", "qwen2_5_vl", "paligemma") for how in ("parallel", "autoregressive")]


@pytest.mark.parametrize(("kind", "decoding"), CASES)
def test_what_was_decoded_has_the_probability_that_scoring_says(kind, decoding, folders):
    network, inputs = make(kind, decoding, folders), make_inputs()
    uniform = torch.from_numpy(np.random.default_rng(1).random((3, LENGTH)))
    for temperature in (1.0, 0.65):
        chosen = network.decode(inputs, temperature, uniform)
        scored = network.score(inputs, chosen.tokens, temperature)
        torch.testing.assert_close(scored.log_prob, chosen.log_prob, atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(scored.entropy, chosen.entropy, atol=2e-6, rtol=1e-5)
    assert not torch.equal(chosen.tokens[0], chosen.tokens[1])


@pytest.mark.parametrize(("kind", "decoding"), CASES)
def test_a_row_does_not_depend_on_the_others(kind, decoding, folders):
    network, inputs = make(kind, decoding, folders), make_inputs()
    tokens = torch.arange(3 * LENGTH).reshape(3, LENGTH)
    alone = network.score(inputs.rows(slice(1, 2)), tokens[1:2]).log_prob
    torch.testing.assert_close(network.score(inputs, tokens).log_prob[1:2], alone, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(("kind", "decoding"), CASES)
def test_images_state_words_and_earlier_tokens_are_read(kind, decoding, folders):
    network, inputs = make(kind, decoding, folders), make_inputs(1)
    tokens = torch.full((1, LENGTH), 100)
    with torch.no_grad():
        logits = network.logits(inputs, tokens)
        others = [
            Inputs(255 - inputs.images, inputs.state, inputs.instructions),
            Inputs(inputs.images, inputs.state + 1, inputs.instructions),
            Inputs(inputs.images, inputs.state, ["put the red block in the bowl"]),
        ]
        for other in others:
            assert (network.logits(other, tokens) - logits).abs().max() > 1e-5
        changed = tokens.clone()
        changed[0, 2] = 7
        moved = (network.logits(inputs, changed) - logits).abs().amax(-1)[0]
    # Token 2 is the context of those after it, and of none when all are decoded in parallel.
    assert moved[:3].max() < 1e-6
    assert (moved[3:] > 1e-6).all() if decoding == "autoregressive" else moved[3:].max() == 0


def test_the_log_probs_add_up_to_the_loss_that_transformers_computes():
    """`LlamaForCausalLM`'s own loss over the same sequence, its labels being the chunk."""
    network, inputs = make("embedded", "autoregressive", {}), make_inputs()
    tokens = torch.randint(0, 256, (3, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        prefix, start = network.prefix(inputs), network.first(3)
        embeds = torch.cat([prefix, start, network.embedding(tokens)], dim=1)
        labels = torch.cat([torch.full(prefix.shape[:2], -100), torch.full((3, 1), -100), tokens], dim=1)
        loss = network.as_causal_lm()(inputs_embeds=embeds, labels=labels).loss
        ours = network.score(inputs, tokens).log_prob.sum()
    assert float(-ours) == pytest.approx(float(loss) * tokens.numel(), rel=1e-5)


def test_greedy_decoding_takes_what_generate_takes():
    network, inputs = make("embedded", "autoregressive", {}), make_inputs()
    with torch.no_grad():
        embeds = torch.cat([network.prefix(inputs), network.first(3)], dim=1)
        theirs = network.as_causal_lm().generate(inputs_embeds=embeds, max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)
    assert torch.equal(network.decode(inputs).tokens, theirs)


def test_choosing_follows_the_distribution():
    logits = torch.tensor([2.0, 0.0, -1e9]).expand(1, 20_000, 3)
    uniform = torch.rand(1, 20_000, generator=torch.Generator().manual_seed(0))
    for temperature, expected in ((1.2, 0.841132), (1.0, 0.880797), (0.65, 0.955930)):  # 1/(1 + exp(-2/temperature))
        chosen = choose(logits, temperature, uniform)
        assert float((chosen.tokens == 0).float().mean()) == pytest.approx(expected, abs=0.01)
        assert float(chosen.log_prob[chosen.tokens == 0][0].exp()) == pytest.approx(expected, abs=1e-5)
        assert not (chosen.tokens == 2).any()
    assert choose(logits, 1.0, torch.full((1, 20_000), 1 - 1e-16, dtype=torch.double)).tokens.max() == 1
    assert (choose(logits, 0.0, None).tokens == 0).all()


def test_nan_is_refused():
    with pytest.raises(UserError, match="gives NaN"):
        choose(torch.full((1, 2, 4), torch.nan), 0.0, None)
    with pytest.raises(UserError, match="temperature"):
        make("embedded", "parallel", {}).decode(make_inputs(), -1.0)


@pytest.mark.parametrize(
    ("family", "marker"),
    [("smolvlm", "<image>"), ("smolvlm", "<end_of_utterance>"), ("qwen2_5_vl", "<|image_pad|>"), ("paligemma", "<image>")],
)
def test_markers_of_the_model_are_refused_in_an_instruction(family, marker, folders):
    network, inputs = make(family, "parallel", folders), make_inputs()
    with pytest.raises(UserError, match=re.escape(f"has the marker {marker}")):
        network.decode(Inputs(inputs.images[:1], inputs.state[:1], [f"push the {marker} button"]))
    network.decode(Inputs(inputs.images[:1], inputs.state[:1], ["push the image, then the <b>button</b>"]))


def test_the_default_network_is_small():
    network = EmbeddedVla(EmbeddedConfig([64, 64], words=["a"] * 100), 2, 8, 5, 8)
    assert sum(value.numel() for value in network.parameters()) < 3e6


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "lacks config.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "lacks tokenizer.json"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "safetensors; others are not read"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "cannot be read"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "llama"}'), "class 'llama'; those that are read"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(spoil, message, tmp_path):
    folder = tiny_backbones.make("paligemma", tmp_path)
    spoil(folder)
    with pytest.raises(UserError, match=message):
        BackboneVla(BackboneConfig(str(folder), [32, 32], 2), 8, 2, 3)


def test_a_folder_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="no such folder"):
        BackboneVla(BackboneConfig("/nowhere", [32, 32], 2), 8, 2, 3)
