"""
====================================
Hidden causes: pictures and topics
====================================

`NoisyOr` explains binary columns by causes that are present or absent.  First we look
for eight patterns that are superposed in small pictures, half of whose pixels are
missing; then for topics in the titles of a conference.
"""

# %%
# Pictures with half of the pixels missing
# ----------------------------------------
# Each picture has each of eight patterns with probability 1/8, and a pixel of a pattern
# that is present is on with probability 0.8.  We hide half of all pixels.

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.feature_extraction.text import CountVectorizer

from skvnce import NoisyOr
from skvnce.datasets import load_neurips_titles, make_binary_patterns
from skvnce.missingness import hide, mcar

pictures = make_binary_patterns(500, random_state=0)
X = hide(pictures.data, mcar(pictures.data, 0.5, random_state=0))
model = NoisyOr(n_components=8, random_state=0).fit(X)

# %%
# The true patterns, the learned causes that match them, and rows of X, with missing
# pixels in orange.  Missing pixels do not make causes paler: they are left out, not
# taken as zeros.

overlap = pictures.components @ model.components_.T
overlap /= np.linalg.norm(model.components_, axis=1)
_, order = linear_sum_assignment(-overlap)
figure, axes = plt.subplots(3, 8, figsize=(10, 4), layout="constrained")
rows = (pictures.components, model.components_[order], X[:8])
for line, images in zip(axes, rows, strict=True):
    for axis, image in zip(line, images, strict=True):
        axis.set_facecolor("tab:orange")  # missing
        axis.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
for line, label in zip(axes, ("true", "learned", "rows of X"), strict=True):
    line[0].set_ylabel(label)
plt.show()

# %%
# The posterior finds the patterns of a picture from the pixels that are left.

found = model.transform(X)[:, order] > 0.5
print(f"correct patterns: {(found == pictures.causes).mean():.1%}")
print(f"by saying none everywhere: {(pictures.causes == 0).mean():.1%}")

# %%
# Topics of titles
# ----------------
# The titles of NeurIPS up to 2016 as a sparse table of titles by words.  A title may
# have several topics, or none.  Rare words are left out, and "learning", "neural" and
# the like, which are in more than one of 25 titles.

text, years = load_neurips_titles(return_X_y=True)
vectorizer = CountVectorizer(binary=True, stop_words="english", min_df=5, max_df=0.04)
titles = vectorizer.fit_transform(text[years <= 2016]).astype(float)
print(f"{titles.shape[0]} titles, {titles.shape[1]} words, {titles.nnz} ones")
topics = NoisyOr(n_components=20, max_iter=30, random_state=0).fit(titles)

# %%
# The words that each topic switches on most likely, the most common topics first.

terms = topics.top_terms(8, vectorizer.get_feature_names_out())
for topic in np.argsort(-topics.prior_):
    print(f"{topics.prior_[topic]:4.0%} of titles  {' '.join(terms[topic])}")
