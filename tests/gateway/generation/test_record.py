from __future__ import annotations

from gateway.api.chat.wire import wire_usage
from gateway.generation.events import Chunk, EngineStats, Finish, Head
from gateway.generation.prompt import Prompt, ReasoningState
from gateway.generation.record import RequestRecord


def chunk(index: int, tokens: int) -> Chunk:
    return Chunk(index, [1] * tokens, None, "", False)


def record(choices: int = 2) -> RequestRecord:
    made = RequestRecord("req_1", request_received_at=100.0)
    made.begin(choices)
    return made


def test_token_counts_while_running_and_at_the_end() -> None:
    made = record()
    made.note_chunks([chunk(0, 2), chunk(1, 3)], 101.0)
    assert made.completion_tokens == 5
    made.note_finish(0, Finish("stop", 1, 1))
    made.note_chunks([chunk(0, 4), chunk(1, 1)], 102.0)
    assert made.completion_tokens == 1 + 4
    made.note_finish(1, Finish("length", 4, 2))
    assert wire_usage(made) == {
        "prompt_tokens": 0,
        "completion_tokens": 5,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def test_times_between_outputs() -> None:
    made = record()
    assert made.note_chunks([chunk(0, 1)], 101.0) is None
    assert made.note_chunks([chunk(0, 1)], 101.5) == 0.5
    assert made.note_chunks([chunk(0, 1)], 101.25) == 0.0  # The clock was set back.
    assert made.first_chunk_at == 101.0


def test_log_fields() -> None:
    made = record(1)
    made.note_prompt(Prompt([1, 2, 3], [], ReasoningState.CLOSED, "v1", 100.1, 100.2, ["speed"]))
    made.note_head(Head(3, 2, -5))
    made.note_stats(EngineStats(100.3, 100.4, 100.5, 100.6, 1))
    assert made.ignored == ("chat_template_kwargs.speed",)
    made.ignored = tuple(f"field{number}" for number in range(1000))
    made.finished_at = 101.5
    fields = made.log_fields()
    assert fields["seconds"] == 1.5
    assert (fields["prompt_tokens"], fields["cached_tokens"], fields["seed"]) == (3, 2, -5)
    assert (fields["rendered_at"], fields["queue_enter_at"], fields["preemptions"]) == (100.1, 100.3, 1)
    assert len(fields["ignored"]) < 20
    assert "error_code" not in fields
    assert "request_id" not in fields  # Every line has it already.


def test_log_line_is_bounded() -> None:
    made = record(1)
    made.model_name = "m" * 1_000_000
    made.ignored = ("x" * 1_000_000,) * 1000
    assert len(str(made.log_fields())) < 4096
