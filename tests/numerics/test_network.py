"""The whole network against its NumPy twin; teacher forcing, single steps, padding and batches must agree."""

import copy

import numpy as np
import pytest
import torch
from twin import translate, weights_of
from variants import SOURCES, TARGETS, VARIANTS, build, logits_of, teacher_forcing, tokens_of

from gnmt.config import GNMTConfig
from gnmt.data.padding import collate
from gnmt.inference.encoder import Int8Encoder
from gnmt.inference.network import InferenceNetwork
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
    model = InferenceNetwork(network)
    memory = model.encode(batch.source, batch.source_lengths)
    state = model.start(memory, 1)
    for t, tokens in enumerate(batch.target_input):
        log_probs, state, attention = model.step(tokens[:, None], state, memory)
        for b, (length, row) in enumerate(zip(batch.source_lengths, forced, strict=True)):
            if t < len(row):
                torch.testing.assert_close(log_probs[b, 0, : row.shape[1]], row[t], rtol=1e-9, atol=1e-13)
                assert_equal(attention[b, 0, :length], expected[b][1][t])
            assert (log_probs[b, 0, row.shape[1] :] == -torch.inf).all()
            assert (attention[b, 0, length:] == 0).all()


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
    model = InferenceNetwork(network)
    log_probs, wider = (
        first_step(model, model.encode(b.source, b.source_lengths), [[1]] * 3)[0] for b in (batch, padded)
    )
    torch.testing.assert_close(log_probs, wider, rtol=1e-9, atol=1e-13)


def first_step(model, memory, tokens):
    tokens = torch.tensor(tokens)
    return model.step(tokens, model.start(memory, tokens.shape[1]), memory)


def test_hypotheses_of_a_sentence_share_its_memory(network):
    batch, model = collate(SOURCES, TARGETS), InferenceNetwork(network)
    memory = model.encode(batch.source, batch.source_lengths)
    tokens = [[4, 7], [5, 8], [6, 9]]
    together, state, _ = first_step(model, memory, tokens)
    for k in range(2):
        alone, _, _ = first_step(model, memory, [[row[k]] for row in tokens])
        torch.testing.assert_close(together[:, k], alone[:, 0])
    # Selecting rows (b, k) = (2, 1) and (0, 0) moves all of a state with its hypotheses.
    rows = state.select(torch.tensor([2 * 2 + 1, 0]))
    for layer, selected in zip(state.layers, rows.layers, strict=True):
        assert all(torch.equal(old[5], new[0]) for old, new in zip(layer, selected, strict=True))
    assert torch.equal(rows.feedback, state.feedback[[5, 0]])


def test_swapped_hypotheses_go_on_as_they_would_have_in_their_old_places(network):
    batch, model = collate(SOURCES, TARGETS), InferenceNetwork(network)
    memory = model.encode(batch.source, batch.source_lengths)
    _, state, _ = first_step(model, memory, [[4, 7], [5, 8], [6, 9]])
    tokens = torch.tensor([[10, 13], [11, 14], [12, 15]])
    expected, _, _ = model.step(tokens, state, memory)
    swapped, _, _ = model.step(tokens.flip(1), state.select(torch.tensor([1, 0, 3, 2, 5, 4])), memory)
    torch.testing.assert_close(swapped.flip(1), expected)


def test_sentences_that_leave_and_join_a_batch_are_translated_as_before(network):
    batch, model = collate(SOURCES, TARGETS), InferenceNetwork(network)
    memory = model.encode(batch.source, batch.source_lengths)
    tokens = [[4], [5], [6]]
    first, state, _ = first_step(model, memory, tokens)
    second, _, _ = model.step(torch.tensor(tokens), state, memory)
    # The last two go on together with the first one anew, which is encoded alone and therefore padded otherwise.
    alone = collate(SOURCES[:1], TARGETS[:1])
    new = model.encode(alone.source, alone.source_lengths)
    memory = memory.select(torch.tensor([1, 2])).append(new)
    state = state.select(torch.tensor([1, 2])).append(model.start(new, 1))
    found, _, _ = model.step(torch.tensor([[5], [6], [4]]), state, memory)
    torch.testing.assert_close(found, torch.cat([second[1:], first[:1]]))


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 0.05), ("int8", 0.1)])
def test_a_lower_precision_is_near_exact_arithmetic(network, precision, tolerance):
    batch = collate(SOURCES, TARGETS)
    expected = first_step(
        exact := InferenceNetwork(network), exact.encode(batch.source, batch.source_lengths), [[1]] * 3
    )
    model = InferenceNetwork(copy.deepcopy(network).float(), precision)
    found = first_step(model, model.encode(batch.source, batch.source_lengths), [[1]] * 3)
    torch.testing.assert_close(found[0].double(), expected[0], rtol=0, atol=tolerance)
    torch.testing.assert_close(found[2].double(), expected[2].double(), rtol=0, atol=tolerance)


def test_an_int8_encoder_is_near_the_exact_one_in_both_directions():
    config = GNMTConfig(
        vocab_size=30, hidden_size=64, num_encoder_layers=3, num_decoder_layers=1, num_bidirectional_layers=2
    )
    network, batch = GNMT(config).eval(), collate(SOURCES, TARGETS)
    embedded, lengths = network.embed_source(batch.source), batch.source_lengths
    with torch.inference_mode():
        expected, found = network.encoder(embedded, lengths), Int8Encoder(network.encoder)(embedded, lengths)
    valid = torch.arange(len(embedded))[:, None] < lengths
    assert (found - expected)[valid].norm() < 0.02 * expected[valid].norm()


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
