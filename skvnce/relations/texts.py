"""Equations as texts, and which of them say the same."""

import re
from collections import Counter

import numpy as np

_PRECISION = 1e-4, 1e-6  # relative and absolute: texts have rounded coefficients

Product = frozenset  # of (factor, exponent)
_NEGATIVE = frozenset({("", 1)})  # of logarithms: the products have unlike signs


def say_the_same(text: str, other: str) -> bool:
    """Tell whether two texts of relations do, such as "c = a + b" and "a = c - b"."""
    form, other_form = _normal_form(text), _normal_form(other)
    if not form or form.keys() != other_form.keys():
        return text == other
    return np.allclose(
        [form[key] for key in form], [other_form[key] for key in form], *_PRECISION
    )


def _normal_form(text: str) -> dict[Product, float]:
    """Return coefficients of products, whose sum is 0; none if it is no equation."""
    first, equals, second = text.partition(" = ")
    if not equals or " = " in second:
        return {}
    inverse = re.fullmatch(r"exp\((.*)\)", second)
    if inverse:
        first, second = f"log({first})", inverse[1]
    terms = Counter()
    for sign, side in ((1, first), (-1, second)):
        for term in re.split(r" (?=[+-] )", side):
            product, coef = _term(term)
            terms[product] += sign * coef
    terms = {product: coef for product, coef in terms.items() if coef}
    if len(terms) == 2:  # factors may be on either side
        terms = _of_logs(*terms.items())
    names = [product for product in terms if product and product != _NEGATIVE]
    size = terms.get(min(names, key=sorted, default=None), 1.0)
    scaled = {product: coef / size for product, coef in terms.items()}
    return scaled | ({_NEGATIVE: 1.0} if _NEGATIVE in terms else {})


def _term(text: str) -> tuple[Product, float]:
    """Read factors and a coefficient, such as "- 2 a * b / c^2"."""
    sign, number, rest = re.fullmatch(
        r"([+-]? ?)(\d[\d.]*(?:e[+-]?\d+)?(?= |$))?(.*)", text
    ).groups()
    coef = float(number or 1) * (-1 if "-" in sign else 1)
    exponents, power = Counter(), 1
    for part in re.split(r"( [*/] |(?<=^1)/)", re.sub("^ (?![*/] )", "", rest)):
        if part.strip() in ("*", "/", ""):
            power = -1 if "/" in part else 1
        elif re.fullmatch(r"\d[\d.]*", part):
            coef *= float(part) ** power
        else:
            base, _, exponent = part.partition("^")
            whole = exponent.isdigit()
            exponents[base if whole else part] += power * int(exponent if whole else 1)
    return frozenset(exponents.items()), coef


def _of_logs(term: tuple, other: tuple) -> dict[Product, float]:
    """Write that two products add up to 0 as a sum of logarithms."""
    (product, a), (divisor, b) = term, other
    exponents = Counter(dict(product))
    exponents.subtract(dict(divisor))
    terms = {
        frozenset({(f"log({name})", 1)}): power for name, power in exponents.items()
    }
    terms = {log: power for log, power in terms.items() if power}
    sign = {_NEGATIVE: 1.0} if a * b > 0 else {}
    return {**terms, frozenset(): -np.log(abs(b / a)), **sign}
