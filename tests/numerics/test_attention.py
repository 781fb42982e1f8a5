"""The attention against the formula written out, and its hand-made gradient against numeric differentiation."""

import torch

from gnmt.nn import attention
from gnmt.nn.attention import AdditiveAttention, _AdditiveScore


def test_attention_equals_the_written_formula():
    module = AdditiveAttention(4, 5, 6)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    query, values = torch.randn(3, 2, 4), torch.randn(3, 7, 5)
    mask = torch.arange(7) < torch.tensor([[7], [3], [1]])
    context, weights = module(query, module.memory(values, mask))
    v = module.g * module.v / module.v.norm()
    for b in range(3):
        for t in range(2):
            hidden = torch.tanh(module.query_projection(query[b, t]) + module.key_projection(values[b]))
            expected = (hidden @ v)[mask[b]].softmax(0)
            torch.testing.assert_close(weights[b, t, mask[b]], expected)
            torch.testing.assert_close(context[b, t], expected @ values[b, mask[b]])
    assert (weights.masked_select(~mask.unsqueeze(1)) == 0).all()


def test_score_gradient_equals_numeric_differentiation(monkeypatch):
    monkeypatch.setattr(attention, "_PIECE_ELEMENTS", 40)  # several pieces of unequal size
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 5, 4), (2, 3, 4), (4,))]
    assert torch.autograd.gradcheck(_AdditiveScore.apply, inputs, atol=1e-8, rtol=1e-6)


def test_the_pieces_do_not_change_the_result(monkeypatch):
    inputs = [torch.randn(2, 9, 4), torch.randn(2, 3, 4), torch.randn(4)]
    whole = _AdditiveScore.apply(*inputs)
    monkeypatch.setattr(attention, "_PIECE_ELEMENTS", 1)
    torch.testing.assert_close(_AdditiveScore.apply(*inputs), whole)
