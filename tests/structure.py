"""Counts of a source, for the rules of `tests/test_architecture.py`."""

import ast
import io
import re
import tokenize

N_ANCESTORS = 4  # of a class, that are ours, however they are stacked
# a file holds one subject, and is never split because a number says so: 300 lines, the
# limit of earlier, cut single steps of one fit into several files
N_CODE_LINES = 600  # of a file, without blank lines, comments and docstrings
_OF_VARS = r"(vars\(\w+\)|\w+\.__dict__)\.(update|pop|clear|setdefault)$"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def ancestors(cls):
    """List all ancestors of a class that are ours."""
    return [one for one in cls.__mro__[1:] if one.__module__.startswith("skvnce.")]


def code_lines(source):
    """Count the lines that hold code."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        line
        for token in tokens
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)


def module_functions(source):
    """List the functions of a module that are in no class."""
    body = ast.parse(source).body
    return [node for node in body if isinstance(node, ast.FunctionDef)]


def written(function):
    """List the attributes of objects that a function sets or deletes."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in {"setattr", "delattr"} or re.match(_OF_VARS, called):
                yield ast.unparse(node)


def writes(source):
    """Count the attributes that functions outside of classes set or delete."""
    return sum(len([*written(one)]) for one in module_functions(source))
