"""Pages of classes: parameters in groups, long sections folded.

It changes what the pages show, and no docstring: `help` prints sections in full.  The
classes are those with a file in ``doc/class_pages``, which the template includes.
"""

from html import escape
from pathlib import Path

from docutils import nodes

CLASSES = {path.stem for path in (Path(__file__).parents[1] / "class_pages").iterdir()}
MANY = 9  # parameters, from which on they are grouped
SHOWN = 6  # names of attributes, before they are unfolded

#: The parameters of all classes; those of the last group concern few tables.
GROUPS = {
    "model": (
        *("algorithm", "alpha", "alphas", "binarize", "classifier", "cv", "derived"),
        *("calibration_cv", "conditionals", "criterion", "dropout", "estimator"),
        *("estimators", "fit_linear"),
        *("gamma", "hidden_layer_sizes", "imputer", "interactions", "likelihood"),
        *("marginals", "max_samples", "model"),
        *("n_components", "n_estimators", "n_posterior_components", "noise"),
        *("noise_ratio", "posterior", "predictors", "regressor", "ridge"),
        *("ridge_linear", "rtol", "sampler", "selection", "shrinkage", "sums"),
        "weight",
    ),
    "columns and missing values": (
        *("strategy", "min_value", "max_value", "on_misfit", "missing_values"),
        *("keep_empty_features", "add_indicator", "relations"),
    ),
    "computing": (
        *("init", "max_iter", "n_chains", "n_completions", "n_draws"),
        *("n_importance_samples",),
        *("n_init", "n_jobs", "n_parameter_draws", "n_steps", "n_subsamples"),
        *("n_training_draws", "random_state", "solver", "tol", "verbose"),
    ),
    "some tables only": ("categorical_features", "handle_unknown", "groups"),
}
FOLDED = "some tables only"


def fold(summary, content):
    """Return nodes that show their content after a click, or when it is searched."""
    start = f'<details class="fold"><summary>{summary}</summary>'
    raw = [nodes.raw("", text, format="html") for text in (start, "</details>")]
    return [raw[0], *content, raw[1]]


def names(item):
    """Return the names in the term of a definition, such as ``min, max : float``."""
    return [name.strip() for name in item[0].astext().split(" : ")[0].split(",")]


def group_of(item):
    """Return the group of a parameter."""
    [group] = [group for group, members in GROUPS.items() if names(item)[0] in members]
    return group


def make_field(title, content):
    """Return a field of a list."""
    return nodes.field("", nodes.field_name("", title), nodes.field_body("", *content))


def codes(found, most=None):
    """Write names as code, in HTML; of many, the first ones and how many follow."""
    shown = ", ".join(f"<code>{escape(name)}</code>" for name in found[:most])
    rest = len(found[most:]) if most else 0
    return f"{shown} and {rest} more" if rest else shown


def group_parameters(field):
    """Return fields, one for each group of parameters."""
    [items] = field[1].children
    if len([name for item in items for name in names(item)]) < MANY:
        return [field]
    fields = []
    for group in GROUPS:
        chosen = [item for item in items if group_of(item) == group]
        if chosen:
            content = [nodes.definition_list("", *chosen)]
            if group == FOLDED:
                found = [name for item in chosen for name in names(item)]
                content = fold(codes(found), content)
            fields.append(make_field(f"Parameters ({group})", content))
    return fields


def fold_attributes(field):
    """Return the field of attributes, folded, with its first names shown."""
    found = [name for items in field[1] for item in items for name in names(item)]
    return [make_field("Attributes", fold(codes(found, SHOWN), field[1].children))]


CHANGES = {"Parameters": group_parameters, "Attributes": fold_attributes}


def arrange(content):
    """Change the description of a class in place."""
    old, new = content.children, []
    while old:
        node, *old = old
        if isinstance(node, nodes.field_list):
            fields = []
            for field in node:
                change = CHANGES.get(field[0].astext(), lambda field: [field])
                fields += change(field)
            node = nodes.field_list("", *fields)
        if isinstance(node, nodes.rubric) and node.astext() == "Notes":
            ends = (nodes.rubric, nodes.field_list)
            is_end = [isinstance(one, ends) for one in old]
            n = is_end.index(True) if any(is_end) else len(old)
            new += fold("Notes", old[:n])
            old = old[n:]
            continue
        new.append(node)
    content.children = []
    content.extend(new)


def transform(app, domain, objtype, content):
    """Arrange the description of a class on a page of its own."""
    name = app.env.docname.rpartition("/")[2].removeprefix("skvnce.")
    if objtype == "class" and name in CLASSES:
        arrange(content)


def setup(app):
    """Connect to Sphinx."""
    app.connect("object-description-transform", transform)
    return {"parallel_read_safe": True}
