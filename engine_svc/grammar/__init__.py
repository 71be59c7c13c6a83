"""Constrained output: what a request may ask for, compiled to masks over the vocabulary.

A constraint is checked and compiled outside the step loop (``compiler.py``). In the loop each sequence has a matcher of
its own (``matcher.py``), whose mask is a function of the sequence's output tokens and of nothing else, so preemption,
chunks and the cache change nothing. llguidance does the parsing (https://github.com/guidance-ai/llguidance).
"""
