"""What a tool says of hidden cells, and how well that holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.common import Array, Json

LEVEL = 0.9  # of the intervals of counts
ALARM = 1e-4  # a count whose probability of being exceeded or met is below this is a surprise


@dataclass(frozen=True)
class Predicted:
    """Of each hidden cell, in the order of ``X[~keep]``."""

    score: Array  # by which cells are ranked
    log_prob: Array  # of what it holds
    at_least: Array  # probability of a count at least as large
    at_most: Array  # and of one at most as large


def measured(x: Array, said: Predicted) -> Json:
    """All measures of one mask, each a number."""
    return {
        "cells": x.size,
        "log_likelihood": float(said.log_prob.mean()),
        "log_likelihood_se": float(said.log_prob.std(ddof=1) / np.sqrt(x.size)),
        "auc": float(roc_auc_score(x > 0, said.score)),
        "ap": float(average_precision_score(x > 0, said.score)),
        "covered": covered(said),
        "held": held(said),
        "alarms": float(np.mean(said.at_least < ALARM)),
    }


def held(said: Predicted) -> float:
    """Share of the counts inside their central interval, ends included: more than its level where counts are small."""
    outside = (1 - LEVEL) / 2
    return float(np.mean((said.at_most >= outside) & (said.at_least > outside)))


def covered(said: Predicted) -> float:
    """Coverage that is the level itself if the predictive distribution is right, for small counts too.

    A count at the end of its interval is inside with the share of its probability that is: a cell that is zero with
    probability 0.99 counts 0.9 / 0.99 if it is zero, not 1. This is the expected coverage of randomised intervals.
    """
    low, high = 1 - said.at_least, said.at_most  # P(X < x) and P(X <= x)
    outside = (1 - LEVEL) / 2
    inside = np.minimum(high, 1 - outside) - np.maximum(low, outside)
    return float(np.mean(np.clip(inside / np.maximum(high - low, 1e-300), 0, 1)))
