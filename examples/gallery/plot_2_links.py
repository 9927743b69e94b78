"""
Who belongs together, and who meets whom?
=========================================

Two small social networks: eighteen women and the events that they attended, and the
characters of a novel. In the first we look for groups, in the second for hidden links.

*Data:* both come with ``networkx`` (BSD licence). The first is from A. Davis, B. B.
Gardner and M. R. Gardner, *Deep South* (1941). The second was put together by D. E.
Knuth for *The Stanford GraphBase* (1993) from V. Hugo, *Les Misérables*.
"""

import itertools

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd

import pltf

# sphinx_gallery_thumbnail_number = 1

# %%
# Eighteen women, fourteen events
# -------------------------------
# A table with one row for each attendance is sufficient. A pair without a row is an
# observed zero: she was not there.

graph = nx.davis_southern_women_graph()
women = graph.graph["top"]
attended = pd.DataFrame(graph.edges(women), columns=["woman", "event"])
attended["event"] = attended["event"].str[1:].astype(int)
attended.head(3)

# %%
# How many groups? ``pltf.nmf`` has one factor for the women and one for the events.

found = pltf.select(
    pltf.nmf(("woman", "event"), rank=2),
    attended,
    r=range(1, 6),
    restarts=5,
    criterion="bound",
)
found.summary()[["r", "best", "gap", "agree"]]

# %%
# There are two groups, but one group is only a few nats behind: 89 attendances do not
# prove much. Every restart finds the same two.

fit = found.best_fit
fit.components(top=5)

# %%
# The share of the attendances of each woman that is due to each group, sorted by this
# share:

names, events = fit.labels["woman"].names(), fit.labels["event"].names()
W, H = fit.factors["W"].mean, fit.factors["H"].mean
weight = W * H.sum(axis=1)  # expected attendances by group
share = weight / weight.sum(axis=1, keepdims=True)
first = int(np.argmax(share[names.index("Evelyn Jefferson")]))  # call hers the first
rows = np.argsort(-share[:, first])
columns = np.argsort(-(H[first] / H.sum(axis=0)))

fig, (left, right) = plt.subplots(
    1,
    2,
    figsize=(9, 5),
    layout="constrained",
    sharey=True,
    gridspec_kw={"width_ratios": [3, 2]},
)
seen = nx.bipartite.biadjacency_matrix(
    graph, names, [f"E{event}" for event in events]
).toarray()
left.imshow(seen[np.ix_(rows, columns)], cmap="Greys", aspect="auto", vmax=1.5)
left.set_yticks(range(len(names)), [names[row] for row in rows])
left.set_xticks(range(len(events)), [events[column] for column in columns])
left.set(xlabel="event", title="who was where")
right.barh(range(len(names)), share[rows, first], color="C0", label="first group")
right.barh(
    range(len(names)),
    share[rows, 1 - first],
    left=share[rows, first],
    color="C1",
    label="second group",
)
right.set(xlabel="share of her attendances", title="whose events", xlim=(0, 1))
fig.legend(
    *right.get_legend_handles_labels(),
    loc="outside upper right",
    ncols=2,
    frameon=False,
)
plt.show()

# %%
# Two circles of friends, events that belong to one of them, and a few events (7, 8,
# 9) and women in between.
#
# Seventy-seven characters
# ------------------------
# Here a link is a count: the number of chapters in which two characters appear
# together. The table has each pair in both directions. Nobody meets themselves: the
# diagonal is missing, not zero.

novel = nx.les_miserables_graph()
cast = sorted(novel)
pairs = [(a, b, data["weight"]) for a, b, data in novel.edges(data=True)]
both = pairs + [(b, a, count) for a, b, count in pairs]
together = pd.DataFrame(both, columns=["who", "whom", "chapters"])
diagonal = pd.DataFrame({"who": cast, "whom": cast})


def observed(table: pd.DataFrame, holes: pd.DataFrame) -> pltf.Observation:
    """The counts: these cells are missing, others that are not in the table zero."""
    hidden = pd.MultiIndex.from_frame(table[["who", "whom"]]).isin(
        pd.MultiIndex.from_frame(holes)
    )
    everybody = {"who": cast, "whom": cast}
    return pltf.observe(
        table[~hidden],
        dims=["who", "whom"],
        value="chapters",
        labels=everybody,
        missing=holes,
    )


# %%
# Hide a fifth of all pairs, whether they meet or not. Each pair must be hidden in
# both directions, otherwise the fit would see its value in the other direction.

rng = np.random.default_rng(0)
all_pairs = np.array(list(itertools.combinations(cast, 2)))
chosen = all_pairs[rng.random(len(all_pairs)) < 0.2]
hidden = pd.DataFrame(
    np.concatenate([chosen, chosen[:, ::-1]]), columns=["who", "whom"]
)
train = observed(together, pd.concat([diagonal, hidden]))
print(train)

# %%
# A factor can occur only once in an equation, so there is one for each side. Each
# pair is in the data twice, so cells that a search holds out would be known from
# their twins: let the ELBO choose.

model = pltf.cp(("who", "whom"), rank=6)
found = pltf.select(model, train, r=range(1, 11), restarts=5, criterion="bound")
found.plot()
plt.show()

# %%
# Now score the hidden pairs: do those that meet have larger expected counts?

fit = found.best_fit
scores = pltf.metrics.score(fit, observed(together, diagonal), hidden)
print(scores)
scores.plot()
plt.show()

# %%
# *Popularity* is a baseline that knows only how often each character appears. The
# factors also know who appears with whom, and the difference in score shows what that
# is worth. (Each pair is in the data twice, so the intervals are somewhat too
# narrow.)
#
# The most probable hidden links, each listed once: expected number of chapters,
# standard deviation of this rate, and probability of at least one chapter. Did they
# meet?

asked = pd.DataFrame(chosen, columns=["who", "whom"])
truth = together.set_index(["who", "whom"])["chapters"]
asked["mean"], asked["sd"], asked["prob"] = (
    fit.mean(asked),
    np.sqrt(fit.var(asked)),
    fit.prob(asked),
)
asked["chapters"] = [truth.get(pair, 0) for pair in map(tuple, chosen)]
asked.sort_values("prob", ascending=False).head(10).round(2)

# %%
# Most of them meet, two do not, and the rivals of the novel meet far more often than
# expected from the other people they meet.
#
# And which characters that never meet in the novel are most likely to? ``top`` finds
# them without visiting all cells.

whole = model.resized(**found.best).fit(observed(together, diagonal), restarts=5)
likely = whole.top(12, among="zero")
likely[likely["who"] < likely["whom"]].round(2)
