"""The network. Legend of shapes: B batch, S source length, T target length, H hidden, V vocabulary, K beam, L layers.

Sequences are time-major, (S, B, H) and (T, B, H): the fused LSTM kernels read and write this layout without a copy.
"""
