"""
What is under the ink blot?
===========================

Handwritten digits with unknown pixels. What could be there, and how certain is that?
A pixel here is a count: the number of points with ink among the 16 points of a square
on a finer grid.

*Data:* ``sklearn.datasets.load_digits``, a part of *Optical Recognition of
Handwritten Digits* by E. Alpaydin and C. Kaynak (1998), UCI Machine Learning
Repository, CC BY 4.0.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import pltf

# sphinx_gallery_thumbnail_number = 4

# %%
# Hide three pixels of ten
# ------------------------
# NaN is missing. A zero is an observation: there is no ink.

digits = load_digits().images[:500]
keep = pltf.holdout(digits, 0.3, seed=0)  # True = keep
X = np.where(keep, digits, np.nan)

# %%
# A model of parts
# ----------------
# Every image is a sum of a few parts that it shares with other images. A part is a
# picture, so its factor has two observed indices. The ELBO decides how many parts
# there are.

model = pltf.Model("X[image,y,x] = A[image,r] * P[y,x,r]", r=10)
found = pltf.select(model, X, r=range(6, 19, 3), restarts=2, criterion="bound")
found.plot()
plt.show()

# %%
# The parts, sorted by the amount of ink that they explain:

fit = found.best_fit
parts = fit.factors["P"].mean
order = fit.components(top=0).index
fig, axes = plt.subplots(2, -(-len(order) // 2), figsize=(8, 2.8), layout="constrained")
for ax, r in zip(axes.flat, order, strict=False):
    ax.imshow(parts[:, :, r], cmap="Greys")
    ax.set(xticks=[], yticks=[])
for ax in axes.flat[len(order) :]:
    ax.set_axis_off()
plt.show()

# %%
# The hidden pixels
# -----------------
# ``mean`` is the expected count of a pixel. ``interval`` is the range that should
# contain the count in nine cases of ten.

low, high = fit.interval(~keep, 0.9, counts=True)
truth = digits[~keep]
print(pltf.metrics.score(fit, digits, ~keep))
inside = np.mean((low <= truth) & (truth <= high))
print(f"{inside:.0%} of the hidden pixels lie in their 90 % intervals")

# %%
# That is not quite nine in ten: the posterior treats all entries as independent, so
# its intervals are too narrow. Some of the images: the truth, what the fit saw, and
# the result.

mean = fit.mean()
shown = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
holes = plt.get_cmap("Greys").copy()
holes.set_bad("C1", alpha=0.35)
fig, axes = plt.subplots(3, len(shown), figsize=(9, 3), layout="constrained")
for column, image in enumerate(shown):
    for ax, picture in zip(
        axes[:, column], (digits, X, np.where(keep, X, mean)), strict=True
    ):
        ax.imshow(picture[image], cmap=holes, vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
for ax, title in zip(axes[:, 0], ("truth", "seen", "filled"), strict=True):
    ax.set_ylabel(title)
plt.show()

# %%
# A new image, with its lower half under a blot
# ---------------------------------------------
# The model is not fitted again: ``fold_in`` keeps the parts and learns how much of
# each part a new image has, from the visible pixels. The standard deviation of a
# count shows where the prediction is certain.

new = load_digits().images[510:516]
blotted = new.copy()
blotted[:, 4:, :] = np.nan
guess = fit.fold_in(blotted, index="image")
mean, sd = guess.mean(), np.sqrt(guess.var(counts=True))
sd[:, :4, :] = 0  # these were seen

fig, axes = plt.subplots(4, len(new), figsize=(7.5, 5), layout="constrained")
rows = (
    ("truth", new),
    ("seen", blotted),
    ("filled", np.where(np.isnan(blotted), mean, new)),
    ("st. dev.", sd),
)
for (title, pictures), line in zip(rows, axes, strict=True):
    for ax, picture in zip(line, pictures, strict=True):
        cmap, top = ("Oranges", sd.max()) if title == "st. dev." else (holes, 16)
        ax.imshow(picture, cmap=cmap, vmin=0, vmax=top)
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(title)
plt.show()

# %%
# Some digits look alike in their upper half, and the prediction is then a blend of
# the possible digits. Draws from the posterior show the possibilities separately:
# each row is one way to fill the missing pixels, with the first image on the left.

draws = guess.sample(4, seed=1)
fig, axes = plt.subplots(4, len(new), figsize=(7.5, 5), layout="constrained")
for line, draw in zip(axes, draws, strict=True):
    for ax, picture, seen in zip(line, draw, blotted, strict=True):
        ax.imshow(
            np.where(np.isnan(seen), picture, seen), cmap="Greys", vmin=0, vmax=16
        )
        ax.set(xticks=[], yticks=[])
plt.show()
