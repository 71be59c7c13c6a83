"""Chat templates that use unbounded time or memory, or access the interpreter."""

from __future__ import annotations

from typing import Final

_DOUBLING: Final = "{{% set ns = namespace(x={}) %}}{{% for i in range(80) %}}{}{{% endfor %}}{{{{ ns.x | length }}}}"
_FOREVER: Final = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"


def _text(step: str) -> str:
    """A text that grows in each of 80 rounds."""
    return _DOUBLING.format("'ab'", f"{{% set ns.x = {step} %}}")


def _list(step: str) -> str:
    """A list that grows in each of 80 rounds."""
    return _DOUBLING.format("[1, 2]", f"{{% set ns.x = {step} %}}")


SLOW: Final = {
    "nested ranges": _FOREVER,
    "nested ranges that compute": _FOREVER.replace("{% endfor %}", "{% set x = i * j %}{% endfor %}", 1),
    "nested ranges in a capture": f"{{% set x %}}{_FOREVER}{{% endset %}}",
    "nested ranges in a filter": f"{{% filter upper %}}{_FOREVER}{{% endfilter %}}",
    "nested ranges behind output": "{{ messages | length }}" + _FOREVER,
    "recursive macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "macro with caller": "{% macro f(n) %}{% if n %}{% call g(n) %}{% endcall %}{% endif %}{% endmacro %}"
    "{% macro g(n) %}{{ caller() }}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(60) }}",
    "recursive loop": "{% set ns = namespace(n=0) %}{% set three = [1, 2, 3] %}"
    "{% for x in three recursive %}{% if loop.depth < 60 %}{{ loop(three) }}{% endif %}{% endfor %}",
    "loop over a product": "{% set r = range(100000) | list %}{% for x in r %}{{ '' if x in r[1:] }}{% endfor %}",
    "power": "{{ 10 ** (10 ** 8) % 7 }}",
    "power of powers": "{% set x = 7 ** 10000000 %}{{ x * x % 7 }}{{ x ** 9 % 7 }}",
    "sort of much": "{% set r = range(100000) | list %}{% for i in r %}{% set x = r | sort %}{% endfor %}",
    "sum of lists": "{% set r = range(100000) | list %}{% for i in r %}{{ '' if r | sum < 0 }}{% endfor %}",
    "unique": "{% for i in range(100000) %}{% set x = range(100000) | unique | list %}{% endfor %}",
    "replace": "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{% set y = x | replace('a', 'b') %}{% endfor %}",
    "find": "{% set x = 'a' * 10000000 %}{% for i in range(100000) %}{{ '' if x.find('ab') > 0 }}{% endfor %}",
    "wordwrap": "{{ ('a ' * 9000000) | wordwrap(1) | length }}",
    "urlize": "{{ ('www.a.b ' * 9000000) | urlize | length }}",
    "comparison": "{% set x = range(100000) | list %}{% set y = range(100000) | list %}"
    "{% for i in x %}{{ '' if x == y }}{% endfor %}",
}
"""Endless loops, or nearly."""

LARGE: Final = {
    "center": "{{ 'a' | center(10 ** 10) }}",
    "center, a method": "{{ 'a'.center(10 ** 10) }}",
    "center, by name": "{{ 'a' | center(width=10 ** 10) | length }}",
    "ljust": "{{ 'a'.ljust(10 ** 10) }}",
    "rjust": "{{ 'a'.rjust(10 ** 10) }}",
    "zfill": "{{ 'a'.zfill(10 ** 10) }}",
    "expandtabs": "{{ 'a\tb'.expandtabs(10 ** 10) }}",
    "indent": r"{{ 'a\nb' | indent(10 ** 9) }}",
    "indent, of the first line": "{{ 'a' | indent(10 ** 9, first=true) | length }}",
    "format": "{{ '%0999999999d' | format(1) }}",
    "format of a string": "{{ '%999999999s' | format(1) | length }}",
    "format with a star": "{{ '%*d' | format(999999999, 1) }}",
    "format as an operator": "{{ '%0999999999d' % 1 }}",
    "format, a method": "{{ '{:999999999}'.format(1) }}",
    "format, a nested width": "{{ '{:{}}'.format(1, 999999999) }}",
    "format_map": "{{ '{x:999999999}'.format_map({'x': 1}) }}",
    "tojson": "{{ [1] | tojson(indent=10 ** 9) }}",
    "tojson of a long separator": "{{ range(100000) | list | tojson(separators=('a' * 1000000, ':')) }}",
    "tojson of a list in a list": _list("[ns.x, ns.x]").replace("ns.x | length", "ns.x | tojson"),
    "pprint": _list("[ns.x, ns.x]").replace("ns.x | length", "ns.x | pprint"),
    "string": _list("[ns.x, ns.x]").replace("ns.x | length", "ns.x | string"),
    "text of a nested list": _list("[ns.x, ns.x]").replace("ns.x | length", "ns.x ~ ''"),
    "times": "{{ 'a' * 10 ** 10 }}",
    "times, turned round": "{{ 10 ** 10 * 'a' }}",
    "times a list": "{{ ([1] * 10 ** 9) | length }}",
    "plus": _text("ns.x + ns.x"),
    "tilde": _text("ns.x ~ ns.x"),
    "join": _text("[ns.x, ns.x] | join"),
    "join, a method": _text("ns.x.join([ns.x, ns.x])"),
    "join by a long text": "{{ range(100000) | join('a' * 1000000) | length }}",
    "replace": _text("ns.x | replace('a', 'aa') | replace('b', 'bb')"),
    "replace, a method": _text("ns.x.replace('a', 'aa').replace('b', 'bb')"),
    "replace of nothing": "{{ ('a' * 10000) | replace('', 'b' * 1000000) | length }}",
    "translate": _text("ns.x.translate({97: 'aaa', 98: 'bbb'})"),
    "translate to a long text": "{{ ('a' * 10000).translate({97: 'b' * 1000000}) | length }}",
    "upper that grows": _text("(ns.x ~ 'ß').upper() * 2"),
    "format that doubles": _text("'{0}{0}'.format(ns.x)"),
    "operator that doubles": _text("'%s%s' % (ns.x, ns.x)"),
    "capture": _DOUBLING.format("'ab'", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
    "macro": "{% macro f(n) %}{{ 'a' * 10000000 }}{{ f(n - 1) if n }}{% endmacro %}{{ f(100) | length }}",
    "call": "{% macro f() %}{{ caller() * 10000 }}{% endmacro %}{% call f() %}{{ 'a' * 1000000 }}{% endcall %}",
    "list plus list": _list("ns.x + ns.x"),
    "list of slices": _list("ns.x[:] + ns.x[:]"),
    "batch": "{{ [1] | batch(10 ** 9, 0) | list | length }}",
    "slice": "{{ [1] | slice(10 ** 9) | list | length }}",
    "list of lists": "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}"
    "{% set ns.x = [ns.x, range(100000) | list] %}{% endfor %}",
    "dict of dicts": "{% set ns = namespace(x={}) %}{% for i in range(100000) %}"
    "{% set ns.x = dict(ns.x, **{'k' ~ i: range(100000) | list}) %}{% endfor %}",
    "fromkeys": "{{ dict.fromkeys(range(10 ** 5) | list * 1000) | length }}{{ ('a' * 10 ** 10) | length }}",
    "namespace of much": "{% set ns = namespace() %}{% for i in range(100000) %}"
    "{% set ns.x = (ns.x, 'a' * 1000000 ~ i) %}{% endfor %}",
    "split": "{{ ('a ' * 100000000).split() | length }}",
    "list of a text": "{{ ('a' * 100000000) | list | length }}",
    "encode": "{{ ('ü' * 100000000).encode('utf-32') | length }}",
    "joiner": "{% set j = joiner('a' * 10 ** 10) %}{{ j() }}{{ j() }}",
    "cycler": "{% set c = cycler('a' * 10 ** 10) %}{{ c.next() }}",
    "shift": "{{ (1 * 2 ** (10 ** 11)) }}",
    "output": "{% for i in range(100000) %}{{ 'a' * 1000000 }}{% endfor %}",
    "output of many": "{% for i in range(100000) %}a{% endfor %}",
    "a constant": "{% set x = 'a' * 10 ** 10 %}",
}
"""Output larger than any prompt."""

FAULTY: Final = {
    "range": "{% for i in range(1000000000) %}{% endfor %}",
    "width beyond any memory": "{{ 'a' | center(10 ** 16) }}",
    "macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "text of a huge number": "{{ 10 ** 10000 }}",
    "negative power": "{{ 0 ** -1 }}",
    "lone surrogates": r"{{ '\ud800' }}",
    "self reference": "{{ self.__init__.__globals__ }}",
    "class": "{{ ''.__class__.__mro__[1] }}",
    "subclasses": "{{ [].__class__.__base__.__subclasses__() }}",
    "cycler": "{{ cycler.__init__.__globals__.os.system('true') }}",
    "joiner": "{{ joiner.__init__.__globals__['os'] }}",
    "format string": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "format_map": "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
    "namespace with underscores": "{% set ns = namespace(_x=1) %}",
    "namespace that changes its class": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "attr filter": "{{ ('' | attr('__class__')).mro() }}",
    "map of an attribute": "{{ ([''] | map(attribute='__class__') | first).mro() }}",
    "generator": "{{ (range(2) | map('upper')).gi_frame.f_globals }}",
    "change of the messages": "{{ messages.append(1) }}",
    "change of a message": "{{ messages[0].update(a=1) }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "extends": "{% extends 'x' %}",
    "unknown filter": "{{ 1 | system }}",
    "unknown tag": "{% system %}",
    "no end": "{% for x in messages %}",
    "many parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "many loops": "{% for x in messages %}" * 60 + "{% endfor %}" * 60,
    "many nots": "{{ " + "not " * 20_000 + "1 }}",
}
"""Refused at once, by Python or the sandbox."""
