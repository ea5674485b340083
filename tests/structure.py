"""Where the state of estimators lives: counts of a source, and today's exceptions.

`tests/test_architecture.py` compares them.  An exception may become smaller or go, and
none may be added: a fit is a function that returns values, which the class itself sets.
"""

import ast
import io
import re
import tokenize
from collections import Counter

N_ANCESTORS = 3  # of a class, that are ours, however they are stacked
# a file holds one subject, and is never split because a number says so: 300 lines, the
# limit of earlier, cut single steps of one fit into several files
N_CODE_LINES = 600  # of a file, without blank lines, comments and docstrings
ANCESTORS = {}
CODE_LINES = {}
WRITES = {}
TAKES = {  # and why
    "_binary_tables": 1,  # scikit-learn's validate_data
    "_callbacks": 1,  # scikit-learn's callbacks
    "duration": 1,  # a clone is fitted to some cells, and timed
    "_options": 1,  # its parameters are checked
    "_prediction": 1,  # the seeds of its parts are set
    "_reference_group": 1,  # a clone is fitted to other rows
    "_unused_parameters": 2,  # its parameters are compared with their defaults
    "_validation": 6,  # scikit-learn's validate_data, and what it has set
}
_NAMES = {"estimator", "imputer", "learner", "member"}  # of estimators in arguments
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


def takes(source):
    """Count functions outside of classes that take an estimator."""
    return sum(
        bool(_NAMES & {arg.arg for arg in (*one.args.args, *one.args.kwonlyargs)})
        for one in module_functions(source)
    )


def counted(root, count):
    """Count in each module of a folder; those with none are left out."""
    found = Counter({path.stem: count(path.read_text()) for path in root.glob("*.py")})
    return +found
