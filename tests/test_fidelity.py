"""The pages about the papers agree with results, with other pages and with the code."""

import json
import re
from collections import defaultdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import t as student
from scipy.stats import ttest_rel

from skvnce.graphs.problem import ALGORITHMS

ROOT = Path(__file__).parents[1]
PAGE, CODE = ROOT / "doc/fidelity.md", ROOT / "doc/paper_to_code.rst"
DECIMAL = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
PATHS = re.compile(r"(?:benchmarks|doc|skvnce|tests)/[\w/]+\.(?:jsonl|py)")
VERDICTS = {"reproduced", "partial", "different", "absent"}
FIRST = {"Rhodes": "R", "Yan": "Y", "Gutmann": "L"}
NCE = [f"imputed-nce, {name}" for name in ("mean", "noise", "uniform", "zeros")]


class Row(NamedTuple):
    """A row of the page: a figure, and what the page says of it."""

    claim: str
    command: str
    verdict: str


def rows(text):
    """Read the figures of a page; keys such as ``"4: 5"``, chapter and figure."""
    found = {}
    for part in text.split("\n## ")[1:]:
        heading = part.split("\n")[0]
        chapter = re.search(r"chapter (\d)", heading)
        key = chapter[1] if chapter else FIRST.get(heading.split()[0].strip(","))
        for line in part.splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            if (
                key
                and len(cells) == 4
                and cells[0] not in {"figure", "equation", "---"}
            ):
                found[f"{key}: {cells[0]}"] = Row(*cells[1:])
    return found


# ----------------------------------------
# What the results say: the phrases that a verdict must contain.


@cache
def results(name):
    path = ROOT / f"benchmarks/results/{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@cache
def cells(page):
    """Map the first cells of lines of tables to lists of lines, as lists of cells."""
    text = (ROOT / f"doc/benchmarks/{page}.md").read_text(encoding="utf-8")
    found = defaultdict(list)
    for line in text.splitlines():
        first, *rest = (cell.strip() for cell in line.strip("| ").split(" | "))
        found[first].append(rest)
    return found


def number(cell):
    return cell.split()[0]


def thesis(method, share, measure):
    found = [
        record[measure]
        for record in results("graph_thesis")
        if record["method"] == f"skvnce {method}, b fitted"
        and record["missing"] == share
    ]
    assert len(found) == 6
    return np.median(found)


def ahead(measure):
    """List the percentages at which VNCE is below all NCE with imputed values."""
    best = [
        f"{100 * share:.0f}"
        for share in (0.3, 0.5, 0.7, 0.8, 0.9)
        if thesis("vnce", share, measure)
        < min(thesis(method, share, measure) for method in NCE)
    ]
    return ", ".join(best) + " %"


def of_graphs():
    worse, better = (thesis(m, 0.8, "linear_mse") for m in ("vnce", NCE[2]))
    yield "R: 5.2", f"in b at {ahead('linear_mse')} missing"
    yield "R: 5.2", f"in the diagonal of K at {ahead('diagonal_mse')}"
    yield "R: 5.2", f"in the links at {ahead('link_mse')}"
    yield "R: 5.2", f"({better:.2f} against {worse:.2f})"
    auc = [
        [thesis(m, s, "auc") for s in (0.5, 0.7, 0.8, 0.9)] for m in ("vnce", NCE[0])
    ]
    (a, b, c, d), (e, f, g, h) = auc
    yield "R: 5.4", f"{a:.2f} and {e:.2f} at 50 % missing, {b:.2f} and {f:.2f} at 70 %"
    yield "R: 5.4", f"{c:.2f} and {d:.2f} against {g:.2f} and {h:.2f}"
    behind = next(
        line
        for line in cells("graph_figures")["paper: MC-MLE over VNCE"]
        if line[:3] == ["hub", "0", "50%"]
    )
    yield "R: fig. 5", f"VNCE ({behind[4]}) is slightly above MC-MLE ({behind[3]})"


def of_population():
    slopes = [number(line[2]) for line in cells("vnce_population")["slope"][:2]]
    yield "R: 4.5 = fig. 4", f"slopes {slopes[0]} and {slopes[1]}"
    yield "R: 4.4", f"at most {cells('vnce_population')['10'][-1][0]} apart"


def of_noisy_or():
    page = cells("noisy_or_synthetic")
    acp, avi = (
        next(line for line in page["1000"] if line[0] == name)
        for name in ("acp", "avi")
    )
    few = next(line for line in page["100"] if line[0] == "acp")
    # the start of a line of the table, "- | svi | ..."
    others = {line[0]: line for first in page for line in page[first] if first == "-"}
    (svi, in_paper), (lb, lb_in_paper) = (
        others[name][1:3] for name in ("svi", "lb-cdi")
    )
    text = (ROOT / "doc/benchmarks/noisy_or_synthetic.md").read_text(encoding="utf-8")
    exact = re.search(r"by enumeration: (\S+)\.", text)[1]
    values = f"({number(avi[1])} against {number(acp[1])}; the exact value is {exact})"
    yield "Y: 3a", values
    yield "Y: 3a", f"({number(svi)} and {number(lb)}; in the paper {in_paper} and "
    yield "Y: 3a", f" and {lb_in_paper}) are as good as networks of 1000 rows"
    yield "Y: 3a", f"ACP with 100 ({number(few[1])})"
    alone, worse, *_, best = page["20000"][-1]
    yield "Y: table 4", f"({number(worse)} against {number(best)}; independent columns"
    yield "Y: table 4", f"independent columns {alone})"
    titles = cells("noisy_or_titles")
    (a, b), (c, d) = (
        [number(line[1]) for line in titles[size][:2]] for size in ("5519", "2000")
    )
    yield (
        "Y: table 5",
        f"(NPMI {b} against {a}), with 2000 they are level ({d} and {c})",
    )
    yield from of_classes()


def of_classes():
    found = defaultdict(dict)
    for line in results("noisy_or_classes"):
        cell = line["causes"], line["n"]
        for score in ("accuracy", "neighbours"):
            found[(score, *cell, line["way"])][line["seed"]] = line.get(score)

    def both(score, *cell):
        acp, avi = (found[(score, *cell, way)] for way in ("acp", "avi"))
        pairs = [(acp[k], avi[k]) for k in acp.keys() & avi.keys() if acp[k]]
        return np.array(pairs).T

    for cell, (count, is_shown) in CLASSES.items():
        acp, avi = both("accuracy", *cell)
        assert len(acp) == count
        assert ((acp - avi).mean() > 0) == (cell[1] < 5000)
        assert (ttest_rel(acp, avi).pvalue < 0.05) == is_shown
        yield "Y: suppl. 3", f"{acp.mean():.1f} against {avi.mean():.1f} %"
    acp, avi = both("neighbours", 50, 250)
    assert ttest_rel(acp, avi).pvalue < 0.05
    assert len(acp) == 5
    yield "Y: suppl. 4", f"{acp.mean():.1f} % and {avi.mean():.1f} %"


def of_distances():
    """Compare imputations by figure 15: the MAE row by row, the others by seeds."""
    lines, level = defaultdict(list), set()
    for line in results("vae_tables"):
        lines[line["table"], line["method"]].append(line)

    def compared(table, names, score):
        parts = ([line[score] for line in lines[table, name]] for name in names)
        return ttest_rel(*(np.mean(p, 0) if score == "absolute" else p for p in parts))

    names = "AC-MWG'", "LAIR 4 + 1", "MWG'", "MWG", "pseudo-Gibbs"
    for table, label in (("uci_power", "POWER"), ("miniboone", "MiniBooNE")):
        for pair in product(names[:2], names[2:]):
            for score in ("energy to truth", "laplacian"):
                found = compared(table, pair, score)
                assert found.statistic < 0 or found.pvalue > 0.05
            found = compared(table, pair, "absolute")
            assert found.statistic < 0 or found.pvalue > 0.05
            if found.pvalue > 0.05:
                level.add((label, *pair))
        n_hidden = sum(lines[table, "exact"][0]["hidden"])
        means = [
            np.mean([sum(r["absolute"]) for r in lines[table, name]]) / n_hidden
            for name in names
        ]
        yield (
            "4: 15",
            "{:.3f}, {:.3f}, {:.3f}, {:.3f} and {:.3f} on ".format(*means) + label,
        )
    assert level == {("POWER", new, "MWG'") for new in names[:2]} | {
        ("MiniBooNE", "AC-MWG'", "MWG")
    }


def of_samplers():
    yield from of_distances()
    exact = [
        cells("vae_tables")[name][-3][1] for name in ("MWG'", "AC-MWG'", "LAIR 4 + 1")
    ]
    text = "MWG' ({}) is significantly ahead of AC-MWG' ({}) and LAIR ({}) on MiniBooNE"
    yield "4: 5", text.format(*map(number, exact))


def of_bounds():
    last = {
        line["method"]: np.array(line["scores"])
        for line in results("vae_bounds_long")
        if line["step"] == 156000
    }
    names = {
        "miss-siwae": "MissSIWAE",
        "miwae": "MIWAE",
        "demiss-vae": "DeMissVAE",
        "miss-svae": "MissSVAE",
        "mvae": "MVAE",
    }
    yield "5: 2", ", ".join(f"{names[key]} {last[key].mean():.2f}" for key in names)
    gain = last["miss-svae"] - last["mvae"]
    assert (gain > 0).all()
    errors = gain.mean() / (gain.std(ddof=1) / len(gain) ** 0.5)
    asked = student.ppf(0.975, len(gain) - 1)
    yield (
        "5: 2",
        f"by {errors:.1f} standard errors, where a test at 5 % asks for {asked:.1f}",
    )

    def median(study, imputer, first, second):
        one, two = (
            next(
                np.array(line["scores"])
                for line in results("vae_bounds")
                if (line["study"], line["imputer"], line["method"])
                == (study, imputer, name)
            )
            for name in (first, second)
        )
        return np.median(one - two)

    truth = median("imputations", "of the truth", "mvb-vae", "demiss-vae")
    yield "5: 5", f"three of three seeds ({truth:.2f} nats)"
    cvi, mvb = (
        median("controls", "LAIR", "demiss-vae", name)
        for name in ("cvi-vae", "mvb-vae")
    )
    yield (
        "5: 6",
        f"of CVI at five of five seeds ({cvi:.2f} nats), "
        f"of MVB at four of five ({mvb:.2f};",
    )
    fits = {
        (line["table"], line["method"]): np.array(line["rows"]).mean(1)
        for line in results("vae_likelihood")
    }
    gain = fits["uci_power", "miss-svae"] - fits["uci_power", "mvae"]
    errors = gain.mean() / (gain.std(ddof=1) / len(gain) ** 0.5)
    yield "5: 3", f"({gain.mean():.3f} nats, {errors:.1f} standard errors over masks)"
    gains = [
        (fits[table, "miwae"] - fits[table, "mvae"]).mean()
        for table in ("uci_power", "miniboone")
    ]
    yield "5: 3", "({:.2f} and {:.2f} nats)".format(*gains)


def of_vgi():
    kl = {
        (line["method"], line["sixths"]): line.get("kl") for line in results("vgi_frey")
    }
    for name, label in (
        ("VGI", ""),
        ("EM", "EM "),
        ("observed marginals", "observed marginals "),
    ):
        values = (kl[name, sixths] for sixths in (1, 3, 5))
        yield "6: 4, right", label + "{:.1f}, {:.1f} and {:.1f}".format(*values)
    of_chained = [kl["chained regressions", sixths] for sixths in (1, 3, 5)]
    text = "chained regressions, {:.1f}, {:.1f} and {:.1f}"
    yield "6: 4, right", text.format(*of_chained)
    for sixths, chained in zip((1, 3, 5), of_chained, strict=True):
        assert chained < kl["VGI", sixths]
        assert sixths == 1 or kl["Monte Carlo EM", sixths] < chained
    for name, label in (("Monte Carlo EM", ""), ("VGI", "VGI "), ("EM", "EM ")):
        values = (kl[name, sixths] for sixths in (1, 3, 5))
        yield "6: 15", label + "{:.1f}, {:.1f} and {:.1f}".format(*values)
    yield from of_networks()
    slopes = [
        number(cells("vgi_factor_analysis")[f"RMSE of the {what}, VGI"][0][-1])
        for what in ("parameters", "covariance")
    ]
    yield "6: 5", f"slopes {slopes[0]} and {slopes[1]}"
    for what in ("fitted model", "truth"):
        shares = map(number, cells("vgi_frey")[f"VGI, to the {what}"][0])
        text = "{}, {} and {} to the ".format(*shares)
        yield "6: 6", text + what.removeprefix("fitted ")
    yield from of_frey_autoencoders()
    score = {
        (
            line["table"],
            round(100 * line["fraction"]),
            line["method"],
            line["mask"],
        ): line["score"]
        for line in results("vgi_flows")
        if "mask" in line
    }
    power, few, gas = (
        np.mean([score[*cell, "VGI", m] - score[*cell, "MCEM", m] for m in range(3)])
        for cell in (("uci_power", 50), ("uci_power", 83), ("gas_turbine", 50))
    )
    yield "6: 10", f"({power:.2f} and {few:.2f} nats)"
    yield "6: 10", f"at 50 % ({gas:.2f};"
    vgi, mcem = (cells("vgi_flows")["ratio"][0][at] for at in (0, 1))
    yield "6: 12", f"{vgi} against {mcem} times the time"


def of_networks():
    """Compare standard and extended conditionals: columns of a page, and of FA-Frey."""
    page = cells("vgi_factor_analysis")
    values = np.array(
        [[float(v) for v in page[f"VGI, {how}"][0]] for how in ("shared", "extended")]
    )
    assert (abs(values[0] / values[1] - 1) < 0.01).all()
    found = {
        how: [r for r in results("vgi_frey") if r["method"] == f"VGI, {how} networks"]
        for how in ("standard", "extended")
    }
    assert [r["sixths"] for r in found["standard"]] == [1, 3, 5]
    for how, lines in found.items():
        shares = [f"{r['kl']:.1f}" for r in lines]
        yield "6: 18, 19", "{}, {} and {}".format(*shares) + f" nats with {how} ones"
        seconds = [f"{r['seconds an epoch']:.2f}" for r in lines]
        yield "6: 18, 19", "{}, {} and {} s".format(*seconds)


def of_frey_autoencoders():
    scores, costs = defaultdict(dict), defaultdict(list)
    for line in results("vgi_vae"):
        scores[line["method"], line["missing"]][line["seed"]] = line["score"]
        if "n_epochs" in line:
            costs[line["method"]].append(line["seconds"] / line["n_epochs"])

    def gain(first, second, share):
        one, two = scores[first, share], scores[second, share]
        return f"{np.mean([one[seed] - two[seed] for seed in one.keys() & two]):.2f}"

    half, few = 0.5, 0.833
    yield "6: 8", f"at 83 % missing ({float(gain('MIWAE', 'MVAE', few)):.1f} nats)"
    for name, texts in (
        ("VGI", ("three masks of three; {} and {} nats", "one mask; {} and {})")),
        ("VBGI-VAE", (None, "two masks; {} and {})")),
    ):
        for share, text in zip((few, half), texts, strict=True):
            if text:
                rivals = (gain(name, rival, share) for rival in ("MVAE", "MIWAE"))
                yield "6: 8", text.format(*rivals)
    yield "6: 8", f"at 83 % of MVAE ({gain('VBGI-VAE', 'MVAE', few)})"
    yield "6: 8", f"level there ({gain('VBGI-VAE', 'MIWAE', few)}, two masks"
    names = "VGI", "VBGI-VAE", "VBGI-VAE-M"
    for rival, of_rival in (("MIWAE", "of MIWAE with 5 draws"), ("MVAE", "of MVAE")):
        unit = np.median(costs[rival])
        times = (np.median(costs[name]) / unit for name in names)
        text = "{:.2f}, {:.2f} and {:.2f} times as long as that "
        yield "6: 9", text.format(*times) + of_rival


# causes and titles: how many fits are compared, and whether they differ significantly
CLASSES = {
    (50, 250): (12, True),
    (50, 5000): (6, True),
    (100, 250): (4, True),
    (150, 250): (4, False),
}
# the page repeats these of the papers, beside those in the columns of our pages
OF_PAPERS = {"6: 9": ["2.4, 1.6 and 1.25 times as long as one of the other methods"]}


def stated():
    """Map figures to the phrases with numbers that their rows must contain."""
    found = defaultdict(list)
    for part in (of_graphs, of_population, of_noisy_or, of_samplers, of_bounds, of_vgi):
        for key, phrase in part():
            found[key].append(phrase)
    return found


def errors(text):
    """List numbers of a page that the results do not have."""
    found, page = [], rows(text)
    phrases = stated()
    for key, row in page.items():
        said = f"{row.claim} {row.verdict}"
        for phrase in phrases[key]:
            if phrase not in said:
                found.append(f"{key}: not stated: {phrase}")
        known = " ".join([*phrases[key], *OF_PAPERS.get(key, [])])
        unknown = set(DECIMAL.findall(said)) - set(DECIMAL.findall(known))
        found += [f"{key}: from no result: {each}" for each in sorted(unknown)]
    return found + [f"no row: {key}" for key in phrases.keys() - page.keys()]


def test_numbers_are_those_of_the_results():
    assert errors(PAGE.read_text(encoding="utf-8")) == []


# ----------------------------------------
# Verdicts of two pages, and the code.


def verdict(row):
    words = re.findall(r"\w+", row.verdict)
    return next((word for word in words[:3] if word in VERDICTS), None)


def test_each_figure_has_a_verdict_and_a_command():
    found = rows(PAGE.read_text(encoding="utf-8"))
    assert len(found) > 50  # a table that is not read has no errors
    for key, row in found.items():
        assert verdict(row), key
        assert (row.command == "-") == (verdict(row) == "absent"), key


@pytest.mark.parametrize("page", ["vae_tables", "vae_omniglot"])
def test_what_a_page_denies_is_not_reproduced(page):
    """Benchmarks give verdicts of claims; "reproduced" is for those that all hold."""
    found, chapter = rows(PAGE.read_text(encoding="utf-8")), {}
    for first, lines in cells(page).items():
        for line in lines:
            if len(line) > 3 and line[-2] in {"REPRODUCED", "PARTIAL", "DIFFERENT"}:
                for figure in re.findall(r"\d+", first):
                    chapter.setdefault(f"4: {figure}", set()).add(line[-2])
    assert chapter
    chapter.pop("4: 9", None)  # the row is of the toy, the page of tables
    for key in chapter.keys() & found:
        if chapter[key] != {"REPRODUCED"}:
            assert verdict(found[key]) != "reproduced", key


def test_a_mixture_is_ahead_of_the_default_of_vgi():
    """What the pages say of the default holds in the results of equal seeds."""
    for page in ("papers", "user_guide/vgi"):
        text = (ROOT / f"doc/{page}.rst").read_text(encoding="utf-8")
        assert "smaller errors on" in text
    vgi, mixture = (
        {
            (line["table"], line["mechanism"], line["seed"]): line
            for line in results(name)
            if line["method"] == method
        }
        for name, method in (
            ("vgi_imputer", "VGIImputer"),
            ("mixture_imputer", "MixtureImputer"),
        )
    )
    assert len({table for table, *_ in vgi}) == 7
    for score in ("rmse", "crps", "fit"):
        ratios = [vgi[key][score] / mixture[key][score] for key in vgi]
        assert np.log(ratios).mean() > 0


def test_paths_of_the_pages_exist():
    for page in (PAGE, CODE):
        text = page.read_text(encoding="utf-8")
        missing = {path for path in PATHS.findall(text) if not (ROOT / path).exists()}
        assert missing == set(), page


# methods of graphs of the papers that no algorithm of the learner is
CONTROLS = (
    "imputed-nce",
    "imputed-score-matching",
    "vnce-cdi-mean",
    "vnce-lognormal-plain",
)


def test_controls_are_listed_as_not_offered():
    section = PAGE.read_text(encoding="utf-8").split("## Methods that are not offered")[
        1
    ]
    for name in CONTROLS:
        assert f'`"{name}"`' in section
        assert name not in ALGORITHMS
