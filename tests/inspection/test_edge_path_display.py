from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from skvnce.inspection import EdgePathDisplay

ALPHAS = [1.0, 0.1, 0.01]


def path_of(values, n_nodes=3):
    """Return symmetric matrices that hold, per pair, its values along the path."""
    path = np.zeros((3, n_nodes, n_nodes))
    for (i, j), value in values.items():
        path[:, i, j] = path[:, j, i] = value
    return path


def learner(alphas=ALPHAS, alpha=0.1, **changes):
    path = path_of({(0, 1): [0, 0.2, 0.5], (1, 2): [0, 0, -0.3]})
    fitted = {"alphas_": np.array(alphas), "path_": path, "alpha_": alpha}
    return SimpleNamespace(**{**fitted, "nodes_": np.array(["a", "b", "c"]), **changes})


def random_learner(n_nodes, n_alphas=15):
    rng = np.random.default_rng(0)
    alphas = np.append(np.geomspace(1, 0.01, n_alphas - 1), 0)
    end = np.tril(rng.uniform(-1, 1, (n_nodes, n_nodes)), -1)
    path = np.sign(end) * np.maximum(np.abs(end) - alphas[:, None, None], 0)
    names = [f"x{i}" for i in range(n_nodes)]
    return SimpleNamespace(
        alphas_=alphas, path_=path + path.transpose(0, 2, 1), alpha_=0.1, nodes_=names
    )


def test_every_linked_pair_is_a_line_weakest_first():
    display = EdgePathDisplay.from_estimator(learner())
    weak, strong = display.lines_.get_segments()
    np.testing.assert_allclose(weak, np.column_stack([ALPHAS, [0, 0, -0.3]]))
    np.testing.assert_allclose(strong, np.column_stack([ALPHAS, [0, 0.2, 0.5]]))


def test_alpha_zero_stands_one_step_beyond_the_smallest():
    display = EdgePathDisplay.from_estimator(learner([1.0, 0.1, 0.0], alpha=0.0))
    np.testing.assert_allclose(display.lines_.get_segments()[0][:, 0], ALPHAS)
    assert [text.get_text() for text in display.ax_.get_xticklabels()][-1] == "0"
    np.testing.assert_allclose(display.alpha_line_.get_xdata(), 0.01)


def test_the_chosen_alpha_is_marked():
    display = EdgePathDisplay.from_estimator(learner())
    np.testing.assert_allclose(display.alpha_line_.get_xdata(), 0.1)
    assert EdgePathDisplay(ALPHAS, path_of({}), "abc").plot().alpha_line_ is None


def test_a_chosen_alpha_outside_the_path_is_seen():
    display = EdgePathDisplay.from_estimator(learner(alpha=10.0))
    assert display.ax_.get_xlim()[0] == 10.0


def test_the_strongest_pairs_are_named():
    display = EdgePathDisplay.from_estimator(learner())
    assert [text.get_text() for text in display.labels_] == ["a – b", "b – c"]
    assert [text.xy for text in display.labels_] == [(0.01, 0.5), (0.01, -0.3)]
    display = EdgePathDisplay.from_estimator(learner(), n_labels=1)
    assert [text.get_text() for text in display.labels_] == ["a – b"]


def test_missing_names_and_dollars_are_drawn():
    names = [float("nan"), None, "$c_1$"]
    display = EdgePathDisplay.from_estimator(learner(nodes_=names))
    written = {text.get_text() for text in display.labels_}
    assert written == {"unnamed – unnamed", "unnamed – $c_1$"}
    display.figure_.draw_without_rendering()


def test_the_numbers_of_links_stand_above():
    (above,) = EdgePathDisplay.from_estimator(learner()).ax_.child_axes
    assert [t.get_text() for t in above.get_xticklabels()] == ["0", "1", "2"]


def test_of_many_pairs_the_strongest_are_drawn():
    big = random_learner(350)
    display = EdgePathDisplay.from_estimator(big)
    ends = np.abs([segment[-1, 1] for segment in display.lines_.get_segments()])
    pairs = np.abs(big.path_[-1][np.tril_indices(350, -1)])
    np.testing.assert_allclose(ends, np.sort(pairs)[-300:])
    assert display.ax_.get_title() == "the 300 strongest of 61,075 linked pairs"
    assert len(display.labels_) == 10


def test_a_path_without_links_is_drawn_into_given_axes():
    _, ax = plt.subplots()
    display = EdgePathDisplay(ALPHAS, np.zeros((3, 1, 1)), ["a"])
    assert display.plot(ax=ax) is display
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert len(display.lines_.get_segments()) == len(display.labels_) == 0
    display.figure_.draw_without_rendering()


@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (ValueError, r"alphas must have shape \(n_alphas,\)", {"alphas_": [[1.0]]}),
        (ValueError, "single penalty", {"alphas_": [1.0]}),
        (ValueError, "alphas must fall", {"alphas_": [0.01, 0.1, 1]}),
        (ValueError, "alphas must fall", {"alphas_": [1, 0, -1]}),
        (ValueError, "alphas must be finite", {"alphas_": [1, 0.1, np.nan]}),
        (TypeError, "alphas must be numeric", {"alphas_": ["1", "0.1", "0"]}),
        (
            ValueError,
            r"here \(3, 3, 3\), got \(2, 3, 3\)",
            {"path_": np.ones((2, 3, 3))},
        ),
        (ValueError, r"here \(3, 2, 2\)", {"nodes_": ["a", "b"]}),
        (ValueError, "path must be finite", {"path_": np.full((3, 3, 3), np.nan)}),
        (ValueError, "symmetric", {"path_": np.arange(27.0).reshape(3, 3, 3)}),
        (ValueError, "alpha must be one number", {"alpha_": -1.0}),
        (ValueError, "alpha must be finite", {"alpha_": np.inf}),
        (TypeError, "alpha must be numeric", {"alpha_": "auto"}),
    ],
)
def test_what_does_not_fit_is_refused(error, message, changes):
    with pytest.raises(error, match=message):
        EdgePathDisplay.from_estimator(learner(**changes))


def test_an_estimator_without_a_path_is_refused():
    estimator = learner()
    del estimator.path_
    with pytest.raises(ValueError, match="SimpleNamespace without path_; fit it"):
        EdgePathDisplay.from_estimator(estimator)


def test_the_number_of_labels_is_checked():
    with pytest.raises(TypeError, match="n_labels must be an integer"):
        EdgePathDisplay.from_estimator(learner(), n_labels="all")
