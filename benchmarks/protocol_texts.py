"""What the page of `protocols.py` says besides its tables."""

TEXT = """\
Figures marked as reported are those of the papers, on masks of their own: single tables
move by up to 20 % from one set of masks to another. Sources: for protocol A the
repository of UnmaskingTrees (arXiv 2407.05593) with the results of ForestDiffusion
(AISTATS 2024); for protocol B tables 7 and 8 of DiffPuter (ICLR 2025, arXiv
2405.20690), as a third party quotes them, which was not checked against the paper. The
line of missForest has no measured figures: `IterativeImputer` with forests is run in
its place. All other figures are measured here, of all methods on the same masks.

Scores of protocol A are in ranges of the columns of the true table. MinMAE: for each
row the smallest L1 error of five imputations, over the number of hidden cells. AvgMAE:
the mean over the imputations; a method with one best table counts with it, ours with
`transform`. Neither is a proper score: the smallest of five rewards draws that are too
wide, the mean none at all. So there are fair CRPS (of all draws: 50 of ours, five of
rivals), RMSE (of the best table or the mean of the draws), MAE of the median of all
draws, and the coverage of intervals of 90 % where there are at least 20 draws. Energy
distance and W_train (1-Wasserstein, L1) compare five completed tables, or the only one,
with the true rows; on california the energy distance is that of 2000 rows. CPU: seconds
of fit, best table and draws, one thread, a machine that others used too.

wine_red lacks its first column, ionosphere its second, as in the papers; california
has the 20,433 rows whose number of bedrooms is known, of 20,640. Methods that have no
categories get columns of zeros and ones of a class, and all columns scaled by standard
deviation. Scores are means over the seeds named.

ForestImputer was removed: its lines, and those of the stack that had it, are of its
last version."""

GOALS_TEXT = """\
Ratios on MCAR masks: AvgMAE to that which missForest is reported to have (goal: at most
.95 in the geometric mean, 1.10 on the worst table); MinMAE to the better of those
reported of UnmaskingTrees and miceforest (at most .95 on each table and in the mean);
CRPS to the best rival that was run beside, on the seeds that both have (at most 1.02 on
each table). Rivals have ratios, too, those of CRPS to the best of the others. Of rivals
that only draw, AvgMAE is by protocol that of single draws; "MAE of the median" below is
what their draws allow. The ratio of `IterativeImputer, forests` shows how hard these
masks are beside those of the papers."""

GOALS_B_TEXT = """\
On MAR masks, rows that were learned from; to be at most what DiffPuter reports. The
tables below have KNN and `IterativeImputer` on the same masks: they show whether the
masks measured here are as hard as those of the paper. Masks differ much, by which
columns they leave complete (MixtureImputer on california: MAE .29, .29 and .38), so
that methods with unequal numbers of masks are not comparable, and a verdict asks for
the ten masks of the paper."""

MISSING_TEXT = """\
A Python rival is stopped at its limit of CPU for one table (`--limit`, 300 seconds by
default). Cases that are neither here nor counted above were not run."""

RIVALS_TEXT = """\
R's mice runs five iterations with one kind of model (pmm, cart, or rf); miceforest with
its default matching and five iterations; in new rows, whose iterations its version
6.0.5 does not count, the benchmark counts them for it. UnmaskingTrees and
ForestDiffusion learn from ten copies of each row (defaults: 50 and 100, which take
several times as long). HyperImpute runs with its defaults."""
