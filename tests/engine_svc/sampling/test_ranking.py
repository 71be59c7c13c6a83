from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from engine_svc.sampling.ranking import Ranking

SOME_EQUAL = st.sampled_from([-np.inf, -3.0e38, -1.5, -1e-40, -0.0, 0.0, 1e-40, 0.5, 2.0, 3.0e38])


@given(
    values=npst.arrays(np.float32, npst.array_shapes(min_dims=2, max_dims=2, max_side=40), elements=SOME_EQUAL),
    data=st.data(),
)
def test_best_first_and_equals_by_lowest_id(
    values: np.ndarray[tuple[int, int], np.dtype[np.float32]], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, values.shape[1]))

    best, ids = Ranking(torch.from_numpy(values)).best(count)

    expected = np.argsort(-values, axis=-1, kind="stable")[:, :count]
    assert ids.tolist() == expected.tolist()
    assert best.tolist() == np.take_along_axis(values, expected, axis=-1).tolist()


def test_a_large_row_of_equals() -> None:
    ids = Ranking(torch.zeros(2, 50_000)).best(1000)[1]

    assert ids.tolist() == [list(range(1000))] * 2
