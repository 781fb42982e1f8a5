"""Both attentions against the NumPy twin, and the additive one's hand-made gradient against numeric differentiation."""

import numpy as np
import pytest
import torch
from twin import additive_attention, dot_attention, weights_of

from gnmt.config import GNMTConfig
from gnmt.nn import attention
from gnmt.nn.attention import AdditiveAttention, DotProductAttention, _AdditiveScore
from gnmt.nn.gnmt import GNMT

LENGTHS = (7, 3, 1)
MODULES = {
    "additive": lambda: AdditiveAttention(4, 5, 6),
    **{f"{heads}-heads": lambda heads=heads: DotProductAttention(4, 5, 6, heads) for heads in (1, 2, 6)},
}


@pytest.fixture(params=MODULES, name="module")
def _module(request):
    module = MODULES[request.param]().double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def twins(module, query, encoded):
    if isinstance(module, AdditiveAttention):
        return additive_attention(weights_of(module), query, encoded)
    return dot_attention(weights_of(module), query, encoded, module.num_heads)


def random_inputs(dtype=torch.float64):
    """Queries (B, T, 4), encoder outputs (B, S, 5), mask (B, S)."""
    mask = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
    return torch.randn(3, 2, 4, dtype=dtype), torch.randn(3, 7, 5, dtype=dtype), mask


def test_attention_equals_the_twin(module):
    query, values, mask = random_inputs()
    context, weights = module(query, module.memory(values, mask))
    assert context.shape == (3, 2, module.context_size)
    for b, t in np.ndindex(3, 2):
        encoded = list(values[b, mask[b]].numpy())
        expected_context, expected_weights = twins(module, query[b, t].numpy(), encoded)
        np.testing.assert_allclose(context[b, t].detach(), expected_context, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(weights[b, t, mask[b]].detach(), expected_weights, rtol=1e-9, atol=1e-13)
    assert (weights.masked_select(~mask.unsqueeze(1)) == 0).all()


def test_attention_gradient_equals_numeric_differentiation(module):
    query, values, mask = random_inputs()

    def attend(query, values, *_):
        return module(query, module.memory(values, mask))

    # The check changes its inputs in place, the parameters too, so that the module need not be told of them.
    inputs = (query.requires_grad_(), values.requires_grad_(), *module.parameters())
    assert torch.autograd.gradcheck(attend, inputs, atol=1e-8, rtol=1e-6)


def test_weights_are_float32_and_the_context_keeps_its_type_in_bfloat16(module):
    query, values, mask = random_inputs()
    expected_context, expected_weights = module(query, module.memory(values, mask))
    module.bfloat16()
    context, weights = module(query.bfloat16(), module.memory(values.bfloat16(), mask))
    assert (context.dtype, weights.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2))
    torch.testing.assert_close(weights.double(), expected_weights, rtol=0.1, atol=0.1)
    torch.testing.assert_close(context.double(), expected_context, rtol=0.1, atol=0.2)


def test_the_memory_of_selected_sentences_gives_their_contexts(module):
    query, values, mask = random_inputs()
    memory, rows = module.memory(values, mask), torch.tensor([2, 0])
    for found, expected in zip(module(query[rows], memory.select(rows)), module(query, memory), strict=True):
        torch.testing.assert_close(found, expected[rows])


def test_the_length_of_v_does_not_matter():
    module, (query, values, mask) = MODULES["additive"]().double(), random_inputs()
    torch.nn.init.normal_(module.v)
    _, expected = module(query, module.memory(values, mask))
    module.v.data.mul_(3.0)
    _, found = module(query, module.memory(values, mask))
    torch.testing.assert_close(found, expected)


def test_score_gradient_equals_numeric_differentiation(monkeypatch):
    monkeypatch.setattr(attention, "_PIECE_ELEMENTS", 40)  # several pieces of unequal size
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 5, 4), (2, 3, 4), (4,))]
    assert torch.autograd.gradcheck(_AdditiveScore.apply, inputs, atol=1e-8, rtol=1e-6)


def test_the_pieces_do_not_change_the_result(monkeypatch):
    inputs = [torch.randn(2, 9, 4), torch.randn(2, 3, 4), torch.randn(4)]
    whole = _AdditiveScore.apply(*inputs)
    monkeypatch.setattr(attention, "_PIECE_ELEMENTS", 1)
    torch.testing.assert_close(_AdditiveScore.apply(*inputs), whole)


@pytest.mark.parametrize("wiring", ["parallel", "gnmt_v2", "gnmt"])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_training_keeps_no_tensor_of_every_source_and_target_position(wiring, bfloat16):
    """What is kept for the backward pass grows with T by tensors of one step: no (B, T, S, H), no copies of keys."""
    config = GNMTConfig(
        vocab_size=20, hidden_size=32, num_encoder_layers=1, num_decoder_layers=2, wiring=wiring, dropout=0.0
    )
    network, rows, source_length = GNMT(config), 2, 40
    source = torch.randint(4, 20, (source_length, rows))
    memory_size = rows * source_length * 32

    def large_tensors(steps):
        kept = set()

        def pack(tensor):
            if tensor.numel() >= memory_size and tensor.shape[-1] >= 32:
                kept.add(tensor.data_ptr())
            return tensor

        target, mask = torch.randint(4, 20, (steps, rows)), torch.ones(steps, rows, dtype=torch.bool)
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=bfloat16),
        ):
            logits = network(source, torch.full((rows,), source_length), target, mask)
        return len(kept), logits

    assert large_tensors(3)[0] == large_tensors(12)[0]
