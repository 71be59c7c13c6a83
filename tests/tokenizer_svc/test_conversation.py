from __future__ import annotations

from tokenizer_svc.conversation import Conversation, Message, Tool, ToolCall


def test_every_character_of_the_client_counts() -> None:
    conversation = Conversation(
        messages=(
            Message("user", "ab", name="c"),
            Message("user", ("de", "f")),
            Message("assistant", None, tool_calls=(ToolCall("g", "hi", "{}"),), reasoning_content="jkl"),
            Message("tool", "ü😀", tool_call_id="m"),
        ),
        tools=(Tool("no", "pq", "{}"), Tool("r")),
        template_kwargs='{"s": 1}',
    )
    assert conversation.num_chars == 3 + 3 + 8 + 3 + 7 + 8


def test_an_empty_conversation() -> None:
    assert Conversation(()).num_chars == 0
