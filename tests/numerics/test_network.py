"""The whole network against its NumPy twin; teacher forcing, single steps, padding and batches must agree."""

import numpy as np
import pytest
import torch
from twin import translate, weights_of
from variants import SOURCES, TARGETS, VARIANTS, build, logits_of, teacher_forcing, tokens_of

from gnmt.config import GNMTConfig
from gnmt.data.padding import collate
from gnmt.nn.gnmt import GNMT
from gnmt.nn.loss import cross_entropy


@pytest.fixture(params=VARIANTS, name="network")
def _network(request):
    return build(request.param)


def twins(network):
    """The twin's log-probabilities and attention weights of each pair."""
    weights = weights_of(network)
    pairs = [tokens_of(*pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    return [translate(network.config, weights, *pair) for pair in pairs]


def assert_equal(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-13)


def test_the_network_equals_its_numpy_twin(network):
    found = teacher_forcing(network, SOURCES, TARGETS)
    for log_probs, (expected, _) in zip(found, twins(network), strict=True):
        assert_equal(log_probs, expected)


def test_step_by_step_equals_teacher_forcing_and_the_twins_attention(network):
    batch = collate(SOURCES, TARGETS)
    forced, expected = teacher_forcing(network, SOURCES, TARGETS), twins(network)
    memory, state = network.encode(batch.source, batch.source_lengths), None
    for t, tokens in enumerate(batch.target_input):
        log_probs, state = network.step(tokens[None], state, memory)
        for b, (length, row) in enumerate(zip(batch.source_lengths, forced, strict=True)):
            if t < len(row):
                torch.testing.assert_close(log_probs[0, b], row[t], rtol=1e-9, atol=1e-13)
                assert_equal(state.attention[b, :length], expected[b][1][t])
            assert (state.attention[b, length:] == 0).all()


def test_a_batch_equals_its_rows_alone(network):
    together = teacher_forcing(network, SOURCES, TARGETS)
    for source, target, expected in zip(SOURCES, TARGETS, together, strict=True):
        alone = teacher_forcing(network, [source], [target])[0]
        torch.testing.assert_close(alone, expected, rtol=1e-9, atol=1e-13)


def widen(tokens, steps, token):
    return torch.cat([tokens, torch.full((steps, tokens.shape[1]), token, dtype=tokens.dtype)])


def test_more_padding_of_any_id_changes_nothing(network):
    batch = collate(SOURCES, TARGETS)
    padded = batch._replace(
        source=widen(batch.source, 3, 7),
        target_input=widen(batch.target_input, 2, 9),
        target_mask=widen(batch.target_mask, 2, False),
    )
    torch.testing.assert_close(logits_of(network, padded), logits_of(network, batch), rtol=1e-9, atol=1e-13)
    memory, wider = (network.encode(b.source, b.source_lengths) for b in (batch, padded))
    log_probs, _ = network.step(batch.target_input[:1], None, memory)
    log_probs_wider, _ = network.step(batch.target_input[:1], None, wider)
    torch.testing.assert_close(log_probs, log_probs_wider, rtol=1e-9, atol=1e-13)


def test_hypotheses_of_a_sentence_share_its_memory(network):
    batch = collate(SOURCES, TARGETS)
    memory = network.encode(batch.source, batch.source_lengths)
    tokens = torch.tensor([[4, 5, 6], [7, 8, 9]])
    together, state = network.step(tokens, None, memory)
    for k in range(2):
        alone, _ = network.step(tokens[k : k + 1], None, memory)
        torch.testing.assert_close(together[k], alone[0])
    # Selecting rows (k, b) = (1, 2) and (0, 0) moves all of a state with its hypotheses.
    rows = state.select(torch.tensor([1 * 3 + 2, 0]))
    for layer, selected in zip(state.layers, rows.layers, strict=True):
        assert all(torch.equal(old[5], new[0]) for old, new in zip(layer, selected, strict=True))
    assert torch.equal(rows.feedback, state.feedback[[5, 0]])
    assert torch.equal(rows.attention, state.attention[[5, 0]])


def test_swapped_hypotheses_go_on_as_they_would_have_in_their_old_places(network):
    batch = collate(SOURCES, TARGETS)
    memory = network.encode(batch.source, batch.source_lengths)
    _, state = network.step(torch.tensor([[4, 5, 6], [7, 8, 9]]), None, memory)
    tokens = torch.tensor([[10, 11, 12], [13, 14, 15]])
    expected, _ = network.step(tokens, state, memory)
    swapped, _ = network.step(tokens.flip(0), state.select(torch.tensor([3, 4, 5, 0, 1, 2])), memory)
    torch.testing.assert_close(swapped.flip(0), expected)


def test_selected_sentences_are_translated_as_before(network):
    batch = collate(SOURCES, TARGETS)
    memory = network.encode(batch.source, batch.source_lengths)
    expected, state = network.step(batch.target_input[:1], None, memory)
    rows = torch.tensor([2, 0])
    found, selected = network.step(batch.target_input[:1, rows], None, memory.select(rows))
    torch.testing.assert_close(found, expected[:, rows])
    torch.testing.assert_close(selected.attention, state.attention[rows])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_equals_torch(smoothing):
    logits = torch.randn(300, 50, dtype=torch.float64, requires_grad=True)
    target = torch.randint(50, (300,))
    sums = cross_entropy(logits, target, smoothing)
    (3.0 * sums.smoothed).backward()
    gradient, logits.grad = logits.grad, None
    expected = torch.nn.functional.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    (3.0 * expected).backward()
    torch.testing.assert_close(sums.smoothed, expected)
    torch.testing.assert_close(sums.nats, torch.nn.functional.cross_entropy(logits, target, reduction="sum"))
    torch.testing.assert_close(gradient, logits.grad)
    assert sums.tokens == 300


@pytest.mark.parametrize("attention", ["additive", "dot"])
@pytest.mark.parametrize("wiring", ["parallel", "gnmt_v2", "gnmt"])
@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_bfloat16_training_step_is_finite_and_close(cell, wiring, attention):
    settings = {"cell": cell, "wiring": wiring, "attention": attention, "dropout": 0.0}
    network = GNMT(GNMTConfig(vocab_size=40, hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, **settings))
    batch = collate(SOURCES, TARGETS)
    losses = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            losses.append(
                cross_entropy(logits_of(network, batch), batch.target_output[batch.target_mask], 0.0).smoothed
            )
    losses[1].backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
    torch.testing.assert_close(losses[0], losses[1], rtol=0.01, atol=0.1)
