"""Draw the rooms of the package and the imports between them: layers.svg."""

import ast
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGE = FOLDER.parents[1] / "skvnce"
ROWS = [  # from the top
    ["vgi", "predictors", "table_imputer"],
    ["graphs", "autoencoder", "mixture"],
    ["contrast", "columns", "noisy_or"],
    ["gaussian"],
    ["relations", "_imputer"],
    ["_tables"],
    ["_core"],
]
WIDTH, HEIGHT, BOX = 720, 90, (130, 36)


def imports():
    """Count the modules of each room that import from another one."""
    layers, found = {name for row in ROWS for name in row}, Counter()
    for layer in layers:
        for path in (PACKAGE / layer).rglob("*.py"):
            tree = ast.walk(ast.parse(path.read_text()))
            modules = [n.module for n in tree if isinstance(n, ast.ImportFrom)]
            named = {(name or "").removeprefix("skvnce.") for name in modules}
            others = {name.split(".")[0] for name in named} & layers - {layer}
            found.update((layer, other) for other in others)
    return found


def places():
    """Place the centres of the boxes."""
    return {
        name: (WIDTH * (k + 1) / (len(row) + 1), HEIGHT * (number + 0.5))
        for number, row in enumerate(ROWS)
        for k, name in enumerate(row)
    }


def drawing():
    """Return the drawing as SVG."""
    size = f'width="{WIDTH}" height="{HEIGHT * len(ROWS)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    at = places()
    for (layer, other), number in sorted(imports().items()):
        (x, y), (u, v) = at[layer], at[other]
        width = min(1 + number / 8, 6)
        lines.append(
            f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{u:.0f}" y2="{v:.0f}" '
            f'stroke="#9bb0c8" stroke-width="{width:.1f}"/>'
        )
        lines.append(
            f'<text x="{x + 0.4 * (u - x):.0f}" y="{y + 0.4 * (v - y):.0f}" '
            f'font-size="10" fill="#445">{number}</text>'
        )
    for name, (x, y) in at.items():
        left, top = x - BOX[0] / 2, y - BOX[1] / 2
        lines.append(
            f'<rect x="{left:.0f}" y="{top:.0f}" width="{BOX[0]}" height="{BOX[1]}" '
            'rx="5" fill="#eef3f9" stroke="#4a6785"/>'
        )
        lines.append(
            f'<text x="{x:.0f}" y="{y + 5:.0f}" font-size="14" text-anchor="middle">'
            f"{name}</text>"
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    (FOLDER / "layers.svg").write_text(drawing())
