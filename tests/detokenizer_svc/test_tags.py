from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detokenizer_svc.tags import WHITE_SPACE, TagSearch
from tests.detokenizer_svc.given import cut_by

TAGS = ("<a>", "</a>", "<<b")
fragments = st.lists(st.sampled_from([*TAGS, "<", "/", "a", ">", "<<", " ", "\n", "x", "é"]), max_size=25).map("".join)


def search_all(pieces: list[str]) -> tuple[list[str], str]:
    """Texts and tags in turn, and the text released at the end."""
    search = TagSearch(*TAGS)
    found_all = [""]
    for piece in pieces:
        at = 0
        while at < len(piece):
            found = search.feed(piece, at)
            found_all[-1] += found.text
            if found.tag:
                found_all += [found.space, found.tag, ""]
            assert at < found.end <= len(piece)
            at = found.end
    return found_all, search.finish()


@given(fragments, st.lists(st.integers(0, 4), max_size=30))
def test_any_text_in_any_pieces(text: str, sizes: list[int]) -> None:
    found, rest = search_all(list(cut_by(text, sizes)))
    assert "".join(found) + rest == text
    *pairs, last = re.split("(" + "|".join(map(re.escape, TAGS)) + ")", text)
    before, tags = pairs[::2], pairs[1::2]
    assert found[2::3] == tags
    assert found[0:-1:3] == [part.rstrip(WHITE_SPACE) for part in before]
    assert found[-1] + rest == last


@given(fragments)
def test_only_white_space_and_partial_tags_are_held(text: str) -> None:
    rest = search_all([text])[1]
    begun = rest.lstrip(WHITE_SPACE)
    assert begun == "" or any(tag.startswith(begun) and tag != begun for tag in TAGS)


@pytest.mark.parametrize("pieces", [[" \n x <a>"], [" ", "\n", " x", " ", "<", "a>"]])
def test_white_space_after_a_tag_is_dropped_once(pieces: list[str]) -> None:
    search = TagSearch("<a>")
    search.skip_space()
    found = [search.feed(piece) for piece in pieces]
    assert "".join(step.text for step in found) == "x"
    assert found[-1].tag == "<a>"
    assert found[-1].space == " "


def test_plain_text_is_not_searched_and_its_last_white_space_is_held() -> None:
    search = TagSearch("<a>")
    assert search.feed("x <a>").tag == "<a>"
    assert search.plain(" <a>\n") == " <a>"
    found = search.feed("<a>")
    assert (found.text, found.space, found.tag) == ("", "\n", "<a>")
