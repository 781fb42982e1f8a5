"""The line contract."""

import gzip
import io

import pytest

from gnmt.errors import DataError
from gnmt.lines import read_blocks, read_lines, write_lines

CASES = {
    b"": [],
    b"\n": [""],
    b"a": ["a"],
    b"a\n": ["a"],
    b"a\n\n": ["a", ""],
    b"a\r\nb\r\n": ["a", "b"],
    b"a\rb\nc": ["a\rb", "c"],
    "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n".encode(): ["a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"],
    b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n": ["a", "\ufeffb"],
    b"\xef\xbb\xbf": [],
    b"\xef": None,
}


class Pieces(io.RawIOBase):
    """A stream that delivers given pieces, one a read."""

    def __init__(self, pieces):
        self._pieces = list(pieces)

    def readable(self):
        return True

    def read(self, size=-1):
        return self._pieces.pop(0) if self._pieces else b""


@pytest.mark.parametrize("data", CASES)
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_contract_for_any_size_of_reads(data, size):
    stream = Pieces(data[i : i + size] for i in range(0, len(data), size))
    if CASES[data] is None:
        with pytest.raises(DataError, match="line 1 is not UTF-8"):
            list(read_blocks(stream, "x"))
    else:
        assert [line for block in read_blocks(stream, "x") for line in block] == CASES[data]


def test_lines_are_given_as_soon_as_they_are_complete():
    blocks = read_blocks(Pieces([b"a\nb", b"c\n", b"d"]), "x")
    assert list(blocks) == [["a"], ["bc"], ["d"]]


def test_a_bad_byte_is_named_and_what_stands_before_it_is_given():
    blocks = read_blocks(Pieces([b"a\nb\n", b"c\nd\xe9\ne\n"]), "in.txt")
    assert next(blocks) == ["a", "b"]
    assert next(blocks) == ["c"]
    with pytest.raises(DataError, match=r"in\.txt: line 4 is not UTF-8 \(byte 0xE9 at offset 1"):
        next(blocks)


def test_files_plain_and_compressed(tmp_path):
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    write_lines(plain, ["x", "", "ü"])
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(read_lines(plain)) == list(read_lines(packed)) == ["x", "", "ü"]
    packed.write_bytes(gzip.compress(plain.read_bytes())[:-9])
    with pytest.raises(DataError, match="cannot read"):
        list(read_lines(packed))
    with pytest.raises(DataError, match="No such file"):
        list(read_lines(tmp_path / "missing"))
    assert not list(tmp_path.glob("*.part"))
