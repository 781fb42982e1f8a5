"""The network a second time, as the formulas say it: NumPy in float64, one sentence pair, one time step after another.

Nothing is padded, masked or batched here. Of the torch module the twin reads the configuration and the weights, by
their names in the state dict. Vectors are (width,), sequences are lists of vectors.
"""

import numpy as np

EPS = 1e-5


def weights_of(module):
    """Name -> float64 array, of all of a module's tensors."""
    return {name: tensor.detach().double().numpy().copy() for name, tensor in module.state_dict().items()}


def within(weights, prefix):
    """The weights of a submodule, under their names in it."""
    return {name.removeprefix(f"{prefix}."): w for name, w in weights.items() if name.startswith(f"{prefix}.")}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    unnormalised = np.exp(x - x.max())
    return unnormalised / unnormalised.sum()


class Cell:
    """A recurrent cell that remembers its state; it starts at zero.

    rnn:  h' = tanh(W_i x + b_i + W_h h + b_h).
    gru:  r, z = sigmoid(...) and n = tanh(W_in x + b_in + r * (W_hn h + b_hn)); h' = (1 - z) * n + z * h.
    lstm: i, f, o = sigmoid(...) and g = tanh(...); c' = f * c + i * g; h' = o * tanh(c').
    """

    def __init__(self, kind, weights):
        self.step = {"rnn": self._rnn, "gru": self._gru, "lstm": self._lstm}[kind]
        self.w_i, self.w_h, self.b_i, self.b_h = (
            weights[f"{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        self.h = self.c = np.zeros(self.w_h.shape[1])

    def __call__(self, x):
        self.h = self.step(self.w_i @ x + self.b_i, self.w_h @ self.h + self.b_h)
        return self.h

    def _rnn(self, from_x, from_h):
        return np.tanh(from_x + from_h)

    def _gru(self, from_x, from_h):
        (r_x, z_x, n_x), (r_h, z_h, n_h) = np.split(from_x, 3), np.split(from_h, 3)
        z = sigmoid(z_x + z_h)
        n = np.tanh(n_x + sigmoid(r_x + r_h) * n_h)
        return (1 - z) * n + z * self.h

    def _lstm(self, from_x, from_h):
        i, f, g, o = np.split(from_x + from_h, 4)
        self.c = sigmoid(f) * self.c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(self.c)


def layer_norm(x, gain, bias, eps=EPS):
    """(x - mean) / (std + eps) * gain + bias, with the population's standard deviation."""
    mean = x.sum() / len(x)
    std = np.sqrt(((x - mean) ** 2).sum() / len(x))
    return (x - mean) / (std + eps) * gain + bias


def combine(config, weights, number, h, y):
    """What stands behind a recurrent layer: the shortcut around it from h to y, then the normalisation."""
    if config.shortcut != "none" and number >= config.first_residual_layer:
        if len(h) == len(y):
            y = y + h
        elif config.shortcut == "project":
            y = y + weights["shortcut.weight"] @ h
    return layer_norm(y, weights["norm.gain"], weights["norm.bias"]) if config.layer_norm else y


def recurrent(kind, weights, inputs, bidirectional=False):
    """A recurrent layer over a whole sequence: forward, or forward and backward side by side."""
    forward = Cell(kind, within(weights, "forward_rnn"))
    outputs = [forward(x) for x in inputs]
    if not bidirectional:
        return outputs
    backward = Cell(kind, within(weights, "backward_rnn"))
    from_the_end = [backward(x) for x in reversed(inputs)]
    return [np.concatenate(both) for both in zip(outputs, reversed(from_the_end), strict=True)]


def residual_layer(config, weights, number, inputs, contexts=None, bidirectional=False):
    """Layer `number` of a stack over a whole sequence, each context behind its input."""
    joined = inputs
    if contexts is not None:
        joined = [np.concatenate(both) for both in zip(inputs, contexts, strict=True)]
    outputs = recurrent(config.cell, within(weights, "rnn"), joined, bidirectional)
    return [combine(config, weights, number, h, y) for h, y in zip(inputs, outputs, strict=True)]


def encode(config, weights, embedded):
    """The encoder's outputs at each position of the source."""
    h = embedded
    for number in range(1, config.num_encoder_layers + 1):
        layer = within(weights, f"layers.{number - 1}")
        h = residual_layer(config, layer, number, h, bidirectional=number <= config.num_bidirectional_layers)
    return h


def additive_attention(weights, query, encoded):
    """score = g v/|v| . tanh(W_q q + b + W_k k); the context is the weighted sum of what was encoded."""
    v = weights["g"] * weights["v"] / np.sqrt((weights["v"] ** 2).sum())
    q = weights["query_projection.weight"] @ query + weights["query_projection.bias"]
    alpha = softmax(np.array([v @ np.tanh(q + weights["key_projection.weight"] @ k) for k in encoded]))
    return sum(a * value for a, value in zip(alpha, encoded, strict=True)), alpha


def dot_attention(weights, query, encoded, num_heads):
    """Each head: score = q . k / sqrt(width of the head), context = sum of alpha * value; contexts one behind another.

    The weights returned are the mean of the heads'.
    """
    q = weights["query_projection.weight"] @ query + weights["query_projection.bias"]
    keys = [weights["key_projection.weight"] @ k for k in encoded]
    values = [weights["value_projection.weight"] @ k + weights["value_projection.bias"] for k in encoded]
    width = len(q) // num_heads
    contexts, alphas = [], []
    for start in range(0, len(q), width):
        head = slice(start, start + width)
        alpha = softmax(np.array([q[head] @ k[head] / np.sqrt(width) for k in keys]))
        contexts.append(sum(a * value[head] for a, value in zip(alpha, values, strict=True)))
        alphas.append(alpha)
    return np.concatenate(contexts), sum(alphas) / num_heads


def attend(config, weights, query, encoded):
    """Context and attention weights of one query."""
    if config.attention == "additive":
        return additive_attention(weights, query, encoded)
    return dot_attention(weights, query, encoded, config.num_heads)


class DecoderLayer:
    """Layer `number` of the decoder, one time step at a call."""

    def __init__(self, config, weights, number):
        self.config, self.number = config, number
        self.weights = within(weights, f"layers.{number - 1}")
        self.cell = Cell(config.cell, within(self.weights, "rnn.forward_rnn"))

    def __call__(self, h, context):
        y = self.cell(np.concatenate([h, context]))
        return combine(self.config, self.weights, self.number, h, y)


def decode(config, weights, embedded, encoded):
    """The top layer's outputs at each position of the target, and the attention weights there.

    parallel: the bottom layer reads the embedding; its output asks for the context that the upper layers read.
    gnmt_v2:  the same, but the bottom layer also reads the last step's context, zeros at first.
    gnmt:     the bottom layer's output of the last step, zeros at first, asks for the context that all layers read.
    The output of a single layer gets a projection of that context added.
    """
    bottom, *upper = (DecoderLayer(config, weights, number + 1) for number in range(config.num_decoder_layers))
    attention = within(weights, "attention")
    query = np.zeros(config.decoder_sizes[0])
    context = np.zeros(config.hidden_size if config.attention == "dot" else len(encoded[0]))
    outputs, alphas = [], []
    for x in embedded:
        if config.wiring == "gnmt":
            context, alpha = attend(config, attention, query, encoded)
        query = bottom(x, [] if config.wiring == "parallel" else context)
        if config.wiring != "gnmt":
            context, alpha = attend(config, attention, query, encoded)
        h = query
        for layer in upper:
            h = layer(h, context)
        outputs.append(h if upper else h + weights["context_output.weight"] @ context)
        alphas.append(alpha)
    return outputs, alphas


def translate(config, weights, source, target_input):
    """Log-probabilities (T, V) and attention weights (T, S) of one sentence pair.

    Args:
        config: the network's.
        weights: the network's.
        source: S token ids, eos included.
        target_input: T token ids, behind bos.
    """
    scale = 0.5 * np.sqrt(config.hidden_size) if config.tie_embeddings else 1.0
    source_embedding = weights["source_embedding.weight"]
    target_embedding = source_embedding if config.share_embeddings else weights["target_embedding.weight"]
    softmax_weight = target_embedding if config.tie_embeddings else weights["output.weight"]
    encoded = encode(config, within(weights, "encoder"), [scale * source_embedding[i] for i in source])
    embedded = [scale * target_embedding[i] for i in target_input]
    outputs, alphas = decode(config, within(weights, "decoder"), embedded, encoded)
    logits = [softmax_weight @ h + weights["output.bias"] for h in outputs]
    return np.array([np.log(softmax(z)) for z in logits]), np.array(alphas)
