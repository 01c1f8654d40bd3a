"""Lines out of pieces, as they come over a connection."""

from hypothesis import given
from hypothesis import strategies as st

from harness.text import Lines


@given(st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"x", b"\n")), max_size=20))
def test_pieces_become_the_lines_of_the_whole(pieces: list[bytes]) -> None:
    lines = Lines()
    taken = [line for piece in pieces for line in lines.take(piece)]
    assert taken == b"".join(pieces).split(b"\n")[:-1]
