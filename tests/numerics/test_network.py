"""The whole network: teacher forcing, single steps, padding and batches must agree."""

import pytest
import torch

from gnmt.config import GNMTConfig
from gnmt.data.padding import collate
from gnmt.nn.gnmt import GNMT
from gnmt.nn.loss import cross_entropy

SOURCES = [[5, 6, 7, 8, 9], [10], [11, 12, 13]]
TARGETS = [[20, 21], [22, 23, 24, 25, 26, 27], [28]]

VARIANTS = {
    "default": {},
    "untied": {"tie_embeddings": False},
    "plain": {"layer_norm": False, "first_residual_layer": 9},
    "all_bidirectional": {"num_bidirectional_layers": 3, "first_residual_layer": 1},
    "unidirectional": {"num_bidirectional_layers": 0, "first_residual_layer": 2},
}


@pytest.fixture(params=VARIANTS, name="network")
def _network(request):
    settings = {"hidden_size": 12, "num_encoder_layers": 3, "num_decoder_layers": 3, "first_residual_layer": 2}
    config = GNMTConfig(vocab_size=40, init_range=0.4, **{**settings, **VARIANTS[request.param]})
    return GNMT(config).double().eval()


def forward(network, sources, targets):
    """Log-probabilities of each row's target positions: a list of (T_b, V)."""
    batch = collate(sources, targets)
    logits = network(batch.source, batch.source_lengths, batch.target_input, batch.target_mask)
    grid = logits.new_zeros(*batch.target_mask.shape, logits.shape[-1])
    grid[batch.target_mask] = logits.log_softmax(-1)
    return [grid[: len(target) + 1, b] for b, target in enumerate(targets)]


def test_teacher_forcing_equals_step_by_step(network):
    batch = collate(SOURCES, TARGETS)
    expected = forward(network, SOURCES, TARGETS)
    memory, state = network.encode(batch.source, batch.source_lengths), None
    for t, tokens in enumerate(batch.target_input):
        log_probs, state = network.step(tokens[None], state, memory)
        for b, row in enumerate(expected):
            if t < len(row):
                torch.testing.assert_close(log_probs[0, b], row[t])


def test_a_batch_equals_its_rows_alone(network):
    together = forward(network, SOURCES, TARGETS)
    for source, target, expected in zip(SOURCES, TARGETS, together, strict=True):
        torch.testing.assert_close(forward(network, [source], [target])[0], expected)


def test_more_padding_changes_nothing(network):
    batch = collate(SOURCES, TARGETS)
    padded = torch.cat([batch.source, torch.full((4, 3), 7)])  # any id may stand in padding
    memory, wider = (network.encode(source, batch.source_lengths) for source in (batch.source, padded))
    log_probs, _ = network.step(batch.target_input[:1], None, memory)
    log_probs_wider, _ = network.step(batch.target_input[:1], None, wider)
    torch.testing.assert_close(log_probs, log_probs_wider)


def test_hypotheses_of_a_sentence_share_its_memory(network):
    batch = collate(SOURCES, TARGETS)
    memory = network.encode(batch.source, batch.source_lengths)
    tokens = torch.tensor([[4, 5, 6], [7, 8, 9]])
    together, state = network.step(tokens, None, memory)
    for k in range(2):
        alone, _ = network.step(tokens[k : k + 1], None, memory)
        torch.testing.assert_close(together[k], alone[0])
    # Selecting rows (k, b) = (1, 2) and (0, 0) moves states and attention with their hypotheses.
    rows = state.select(torch.tensor([1 * 3 + 2, 0]))
    for layer, selected in zip(state.layers, rows.layers, strict=True):
        assert all(torch.equal(old[5], new[0]) for old, new in zip(layer, selected, strict=True))
    assert torch.equal(rows.attention[1], state.attention[0])


def test_gradients_equal_numeric_differentiation(network):
    batch = collate(SOURCES, TARGETS)

    def loss():
        logits = network(batch.source, batch.source_lengths, batch.target_input, batch.target_mask)
        return cross_entropy(logits, batch.target_output[batch.target_mask], 0.1).smoothed

    network.train()
    for module in network.modules():
        if hasattr(module, "probability"):
            module.probability = 0.0
    loss().backward()
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for parameter in network.parameters():
        i = int(torch.randint(parameter.numel(), (1,), generator=generator))
        flat, step = parameter.data.view(-1), 1e-5
        original = float(flat[i])
        values = []
        for offset in (step, -step):
            flat[i] = original + offset
            with torch.no_grad():
                values.append(float(loss()))
        flat[i] = original
        numeric = (values[0] - values[1]) / (2 * step)
        exact = float(parameter.grad.view(-1)[i])
        worst = max(worst, abs(numeric - exact) / max(1.0, abs(exact)))
    assert worst < 1e-6


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


def test_bfloat16_training_step_is_finite_and_close():
    torch.manual_seed(0)
    network = GNMT(GNMTConfig(vocab_size=40, hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0))
    batch = collate(SOURCES, TARGETS)
    losses = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = network(batch.source, batch.source_lengths, batch.target_input, batch.target_mask)
            losses.append(cross_entropy(logits, batch.target_output[batch.target_mask], 0.0).smoothed)
    losses[1].backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
    torch.testing.assert_close(losses[0], losses[1], rtol=0.01, atol=0.1)
