from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine_svc.kernels.memory import Arena, huge_pages


def test_huge_pages_are_zeroed() -> None:
    memory = huge_pages(100)

    assert len(memory) == 100
    assert not memory.any()


@given(st.lists(st.integers(1, 5000), max_size=20))
def test_pieces_do_not_overlap_and_are_aligned_to_cache_lines(sizes: list[int]) -> None:
    arena = Arena()

    pieces = [arena.take(size) for size in sizes]

    for number, piece in enumerate(pieces):
        piece.fill_(number)
    assert [len(piece) for piece in pieces] == sizes
    assert all(piece.data_ptr() % 64 == 0 for piece in pieces)
    assert all((piece == number).all() for number, piece in enumerate(pieces))


def test_a_piece_may_be_larger_than_a_chunk() -> None:
    arena = Arena()
    small, large = arena.take(10), arena.take(65 * 1024 * 1024)

    large.fill_(1)

    assert (small == 0).all()
