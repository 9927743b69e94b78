"""Predictions of hidden cells, and their scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.common import Array, Json

LEVEL = 0.9  # of the intervals of counts
ALARM = 1e-4  # a count is a surprise if the probability of one at least as large is below this


@dataclass(frozen=True)
class Predicted:
    """Predictions for each hidden cell, in the order of ``X[~keep]``."""

    score: Array  # ranks the cells
    log_prob: Array  # of the true value
    at_least: Array  # probability of a count at least as large
    at_most: Array  # probability of a count at most as large


def measured(x: Array, said: Predicted) -> Json:
    """All measures for one mask."""
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
    """Share of the counts in their central interval, ends included: above its level where counts are small."""
    outside = (1 - LEVEL) / 2
    return float(np.mean((said.at_most >= outside) & (said.at_least > outside)))


def covered(said: Predicted) -> float:
    """Coverage that equals the level if the predictive distribution is correct, also for small counts.

    A count at the end of its interval counts as the share of its probability that is inside: a zero whose probability
    is 0.99 counts 0.9 / 0.99, not 1. This is the expected coverage of randomised intervals.
    """
    low, high = 1 - said.at_least, said.at_most  # P(X < x) and P(X <= x)
    outside = (1 - LEVEL) / 2
    inside = np.minimum(high, 1 - outside) - np.maximum(low, outside)
    return float(np.mean(np.clip(inside / np.maximum(high - low, 1e-300), 0, 1)))
