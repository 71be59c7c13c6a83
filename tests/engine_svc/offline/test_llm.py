"""The offline API on a tiny model. tests/numerics/test_smollm2.py has real weights."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from engine_svc import LLM, SamplingParams
from engine_svc.engine import Engine
from engine_svc.offline.answer import Output
from engine_svc.offline.generator import Generator
from engine_svc.output import Loads
from tests.engine_svc import tiny

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
SEEDED = SamplingParams(seed=5, max_tokens=6, ignore_eos=True)
PROMPTS = ["The sea", "Once upon a time, in a house by the", "x"]
QUESTION = {"role": "user", "content": "Why is the sky blue?"}


def ids_of(outputs: list[Output]) -> list[list[int]]:
    return [output["token_ids"] for output in outputs]


def engine_of(llm: LLM) -> Engine:
    assert isinstance(llm._model, Generator)
    return llm._model._engine


def is_idle(llm: LLM) -> bool:
    """Whether no request or block is left of any call."""
    engine = engine_of(llm)
    engine.step()
    return engine.loads == Loads(0, 0, 128) and not engine.take_outputs()


def test_an_output_has_text_and_token_ids(llm: LLM) -> None:
    (output,) = llm.generate(["The sea"], GREEDY, use_tqdm=False)

    assert len(output["token_ids"]) == 6
    assert output["text"] == llm.get_tokenizer().decode(output["token_ids"], skip_special_tokens=True)
    assert output["finish_reason"] == "length"
    assert output["choices"] == [{key: output[key] for key in ("text", "token_ids", "finish_reason")}]


def test_text_and_its_ids_are_the_same_prompt(llm: LLM) -> None:
    ids = [llm.get_tokenizer().encode(prompt) for prompt in PROMPTS]
    assert llm.generate(ids, GREEDY) == llm.generate(PROMPTS, GREEDY)


def test_one_prompt_needs_no_list(llm: LLM) -> None:
    (of_text,) = llm.generate("The sea", GREEDY)
    (of_ids,) = llm.generate(llm.get_tokenizer().encode("The sea"), GREEDY)
    assert of_text == of_ids


def test_no_prompts_no_outputs(llm: LLM) -> None:
    assert llm.generate([], GREEDY) == []
    assert llm.generate([], []) == []
    assert llm.chat([], GREEDY) == []


def test_outputs_are_in_the_order_of_the_prompts(llm: LLM) -> None:
    """More prompts than ``max_num_seqs``, and the first ones take longest."""
    lengths = [25, 20, 15, 12, 9, 6, 3, 2, 1]
    params = [replace(GREEDY, max_tokens=length) for length in lengths]

    outputs = llm.generate([[100 + length] * 5 for length in lengths], params)

    assert [len(output["token_ids"]) for output in outputs] == lengths


def test_outputs_do_not_depend_on_the_batch(llm: LLM) -> None:
    params = [GREEDY, SamplingParams(seed=7, max_tokens=8), SamplingParams(seed=7, max_tokens=8, top_p=0.9)]
    alone = [llm.generate([prompt], one) for prompt, one in zip(PROMPTS, params, strict=True)]
    assert llm.generate(PROMPTS, params) == [output for outputs in alone for output in outputs]


def test_without_params_there_are_64_tokens(llm: LLM) -> None:
    (output,) = llm.generate(["The sea"])
    assert len(output["token_ids"]) == 64 or output["finish_reason"] == "stop"


def test_a_seed_repeats_and_no_seed_does_not(llm: LLM) -> None:
    seeded, free = SamplingParams(seed=1, max_tokens=20), SamplingParams(max_tokens=20)
    assert llm.generate(["x", "x"], seeded) == llm.generate(["x", "x"], seeded)
    first, second = llm.generate(["x", "x"], free)
    assert first != second


def test_several_choices(llm: LLM) -> None:
    (output,) = llm.generate(["The sea"], SamplingParams(n=3, seed=1, max_tokens=5))
    assert len({tuple(choice["token_ids"]) for choice in output["choices"]}) == 3
    assert output["token_ids"] == output["choices"][0]["token_ids"]


def test_log_probabilities(llm: LLM) -> None:
    (plain,), (output,) = llm.generate("x", GREEDY), llm.generate("x", replace(GREEDY, logprobs=3))
    assert "logprobs" not in plain
    for token_id, logprobs in zip(output["token_ids"], output["logprobs"], strict=True):
        assert next(iter(logprobs)) == token_id
        assert sorted(logprobs.values(), reverse=True) == list(logprobs.values())
        assert len(logprobs) == 3
        assert all(value < 0 for value in logprobs.values())


def test_log_probabilities_of_the_prompt(llm: LLM) -> None:
    prompt = [300, 400, 500]
    (output,) = llm.generate([prompt], replace(GREEDY, prompt_logprobs=2, n=2))
    (alone,) = llm.generate([prompt[:2]], replace(GREEDY, logprobs=20, max_tokens=1))
    first, *others = output["prompt_logprobs"]
    assert first is None
    assert [next(iter(one or {})) for one in others] == prompt[1:]
    assert all(len(one or {}) == 3 for one in others)
    assert list(others[1] or {})[1:] == list(alone["logprobs"][0])[:2]


def test_the_token_that_ends_it_is_among_the_ids_but_not_in_the_text(llm: LLM) -> None:
    (whole,) = llm.generate("The sea", SEEDED)
    assert len(set(whole["token_ids"])) == 6
    (output,) = llm.generate("The sea", replace(SEEDED, stop_token_ids=whole["token_ids"][2:3]))
    assert output["token_ids"] == whole["token_ids"][:3]
    assert output["text"] == llm.get_tokenizer().decode(whole["token_ids"][:2])
    assert output["finish_reason"] == "stop"


def test_a_stop_string_across_tokens_ends_the_text_before_it(llm: LLM) -> None:
    (whole,) = llm.generate("The sea", replace(SEEDED, logprobs=0))
    first, second = (llm.get_tokenizer().decode(whole["token_ids"][:count]) for count in (1, 2))
    stop = first[-1] + second[len(first)]

    (output,) = llm.generate("The sea", replace(SEEDED, logprobs=0, stop=["never said", stop]))

    assert output["text"] == whole["text"].partition(stop)[0]
    assert output["token_ids"] == whole["token_ids"][:2]
    assert output["logprobs"] == whole["logprobs"][:2]
    assert output["finish_reason"] == "stop"
    assert is_idle(llm)


def test_each_choice_stops_at_its_own_stop_string(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=3, max_tokens=12, ignore_eos=True)
    (whole,) = llm.generate("x", params)
    texts = [choice["text"] for choice in whole["choices"]]
    stop = next(text[5:8] for text in texts if sum(text[5:8] in other for other in texts) == 1)

    (output,) = llm.generate("x", replace(params, stop=stop))

    assert [choice["text"] for choice in output["choices"]] == [text.partition(stop)[0] for text in texts]
    assert [choice["finish_reason"] for choice in output["choices"]].count("stop") == 1


def test_an_output_is_as_constrained(llm: LLM) -> None:
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    params = SamplingParams(seed=1, max_tokens=200)
    constrained = [
        replace(params, json_schema=schema),
        replace(params, json_schema=json.dumps(schema)),
        replace(params, choice=["red", "green"]),
        replace(params, regex="[a-c]{3}"),
        replace(params, grammar='start: "yes" | "no"'),
        params,
    ]

    outputs = llm.generate(["x"] * len(constrained), constrained)

    texts = [output["text"] for output in outputs]
    assert json.loads(texts[0])["sure"] in (True, False)
    assert texts[1] == texts[0]
    assert texts[2] in ("red", "green")
    assert re.fullmatch("[a-c]{3}", texts[3])
    assert texts[4] in ("yes", "no")
    assert [output["finish_reason"] for output in outputs[:5]] == ["stop"] * 5
    assert outputs[5:] == llm.generate("x", params)


@pytest.mark.parametrize(
    ("kind", "value"), [("regex", "("), ("json_schema", "{"), ("json_schema", {"type": "hat"}), ("grammar", "nothing")]
)
def test_a_bad_constraint_is_named(llm: LLM, kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"prompt 1: .*{kind}"):
        llm.generate(["x", "y"], [GREEDY, replace(GREEDY, **{kind: value})])
    assert is_idle(llm)


def test_max_tokens_none_takes_the_rest_of_the_context(llm: LLM) -> None:
    (output,) = llm.generate([[5] * 250], replace(GREEDY, max_tokens=None))
    assert len(output["token_ids"]) == 6


def test_a_chat_is_what_the_template_writes(llm: LLM) -> None:
    tokenizer = llm.get_tokenizer()
    prompt = tokenizer.apply_chat_template([QUESTION], add_generation_prompt=True, tokenize=False)
    assert prompt.endswith("<|im_start|>assistant\n")
    assert llm.chat([QUESTION], GREEDY) == llm.generate([prompt], GREEDY)


def test_many_chats(llm: LLM) -> None:
    other = {"role": "user", "content": "x"}
    assert llm.chat([[QUESTION], [other]], GREEDY) == llm.chat([QUESTION], GREEDY) + llm.chat([other], GREEDY)


def test_options_of_the_template(llm: LLM) -> None:
    template = "{{ messages[0].content }}{{ greeting }}{% if add_generation_prompt %}!{% endif %}"
    options: dict[str, Any] = {"chat_template": template, "chat_template_kwargs": {"greeting": " hello"}}
    expected = [llm.generate(text, GREEDY) for text in ("The sea hello!", "The sea hello")]
    messages = [{"role": "user", "content": "The sea"}]
    assert llm.chat(messages, GREEDY, **options) == expected[0]
    assert llm.chat(messages, GREEDY, **options, add_generation_prompt=False) == expected[1]


def test_a_final_message_is_continued(llm: LLM) -> None:
    begun = [QUESTION, {"role": "assistant", "content": "The sky"}]
    prompt = llm.get_tokenizer().apply_chat_template([QUESTION], add_generation_prompt=True, tokenize=False)
    assert llm.chat(begun, GREEDY, continue_final_message=True) == llm.generate(prompt + "The sky", GREEDY)


def test_a_template_cannot_reach_the_interpreter(llm: LLM) -> None:
    with pytest.raises(ValueError, match=r"the chat template cannot be used: .*SecurityError in line 1"):
        llm.chat([QUESTION], GREEDY, chat_template="{{ ().__class__.__base__.__subclasses__() }}")


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        (["x", ""], GREEDY, r"prompt 1: .*empty"),
        ([[]], GREEDY, r"prompt 0: .*empty"),
        ([[5], [49152]], GREEDY, r"prompt 1: .*49152"),
        ([[5, -1]], GREEDY, r"prompt 0: .*-1"),
        ([[5] * 256], GREEDY, r"prompt 0: .*256 .*256"),
        ([[5] * 300], GREEDY, r"prompt 0: .*256 .*300"),
        ([[5] * 200], SamplingParams(max_tokens=100), r"256 .*200, so max_tokens must be at most 56, not 100"),
        ([[5]], SamplingParams(stop_token_ids=[49152]), r"prompt 0: stop_token_ids: .*49152"),
        (["x", "y"], [GREEDY], "sampling_params must be one, or one for each of the 2 prompts, not 1"),
    ],
)
def test_a_bad_value_is_named_and_nothing_is_computed(llm: LLM, prompts: Any, params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate(prompts, params)
    assert is_idle(llm)


@pytest.mark.parametrize("prompt", [{"prompt": "x"}, 5.0, None, [1.5]])
def test_an_invalid_prompt_is_a_type_error(llm: LLM, prompt: Any) -> None:
    with pytest.raises(TypeError):
        llm.generate([prompt], GREEDY)


def test_a_generation_model_does_not_embed(llm: LLM) -> None:
    with pytest.raises(ValueError, match='task="embed"'):
        llm.embed("x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size must be 1, not 2"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"max_model_len": 257}, "max_model_len must be between 1 and 256"),
        ({"dtype": "float8"}, "dtype"),
        ({"max_num_seqs": 9, "max_num_batched_tokens": 8}, "max_num_batched_tokens"),
        ({"simulated_step_ms": 1.0}, "simulated_step_ms"),
    ],
)
def test_a_bad_setting_is_a_value_error(tiny_folder: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LLM(tiny_folder, **options)


@pytest.mark.parametrize("name", ["max_modle_len", "port", "log_level", "max_waiting", "gpu_memory_utilization"])
def test_an_unknown_setting_is_a_type_error(tiny_folder: str, name: str) -> None:
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{name}'.*max_model_len"):
        LLM(tiny_folder, **{name: 1})  # type: ignore[arg-type]  # any of them could be the one that is a bool


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        LLM(tmp_path / "nothing")


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    folder = tiny.save(tiny.random_model(tiny.llama()), tmp_path)
    with pytest.raises(ValueError, match="cannot load a tokenizer"):
        LLM(folder, num_blocks=4)


def test_the_simulated_model_is_for_services() -> None:
    with pytest.raises(ValueError, match="simulated"):
        LLM("simulated")


def test_settings_may_stand_in_the_environment(tiny_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_MAX_MODEL_LEN", "32")
    monkeypatch.setenv("ENGINE_NUM_BLOCKS", "4")
    with pytest.raises(ValueError, match="32 tokens"):
        LLM(tiny_folder).generate([[5] * 32])


def at_step(llm: LLM, monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[], object]) -> None:
    """Run ``action`` at the start of this step."""
    runner = engine_of(llm)._runner
    real, counted = runner.execute, iter(range(1_000_000))

    def execute(batch: Any) -> Any:
        if next(counted) == number:
            action()
        return real(batch)

    monkeypatch.setattr(runner, "execute", execute)


def test_ctrl_c_leaves_it_usable(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = llm.generate(PROMPTS, GREEDY)
    at_step(llm, monkeypatch, 2, lambda: os.kill(os.getpid(), signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPTS, replace(GREEDY, max_tokens=50))

    assert is_idle(llm)
    assert llm.generate(PROMPTS, GREEDY) == expected


def test_a_step_that_fails_is_an_error_and_leaves_it_usable(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise FloatingPointError("no luck")

    expected = llm.generate(PROMPTS, GREEDY)
    at_step(llm, monkeypatch, 2, fail)

    with pytest.raises(RuntimeError, match="could not be computed"):
        llm.generate(PROMPTS, GREEDY)

    assert is_idle(llm)
    assert llm.generate(PROMPTS, GREEDY) == expected


def test_logs_do_not_go_where_the_program_writes(
    tiny_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    structlog.reset_defaults()
    try:
        llm = LLM(tiny_folder, num_blocks=8)
        at_step(llm, monkeypatch, 0, lambda: 1 / 0)
        with pytest.raises(RuntimeError):
            llm.generate("x", use_tqdm=False)
    finally:
        structlog.configure(**before)
    shown = capsys.readouterr()
    assert "ZeroDivisionError" in shown.err
    assert shown.out == ""


def test_calls_from_threads_are_serialised(llm: LLM) -> None:
    found: dict[str, list[Output]] = {}
    threads = [
        threading.Thread(target=lambda prompt=prompt: found.update({prompt: llm.generate(prompt, GREEDY)}))
        for prompt in PROMPTS
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[prompt][0] for prompt in PROMPTS] == llm.generate(PROMPTS, GREEDY)


def test_progress_is_shown_unless_it_is_not_wanted(llm: LLM) -> None:
    with redirect_stderr(io.StringIO()) as shown:
        llm.generate(PROMPTS, GREEDY)
    with redirect_stderr(io.StringIO()) as silent:
        llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    assert "3/3" in shown.getvalue()
    assert "tokens/s" in shown.getvalue()
    assert silent.getvalue() == ""
