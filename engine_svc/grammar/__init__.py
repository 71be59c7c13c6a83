"""Structured output: constraints, compiled to masks over the vocabulary.

A constraint is checked and compiled outside the step loop (``compiler.py``). In the loop each sequence has its own
matcher (``matcher.py``). Its mask is a function of the sequence's output tokens alone, so preemption, chunked prefill
and prefix caching change nothing. llguidance does the parsing (https://github.com/guidance-ai/llguidance).
"""
