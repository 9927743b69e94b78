"""Triton kernels over the entries of factors: each reads its arrays once. Float64, one program per block and lane.

Lanes are problems of the same size that are solved at once, one after the other in every array; ``n`` is the number of
entries of a lane, and numbers that are read from arrays are one per lane. Each docstring states the result in the
notation of ``arrays.py``, the plain implementation. Sums are returned as one number per program, to be added in order.
"""
# Triton reads the source of these functions, and does not support Python type hints.
# mypy: ignore-errors
# Annotations of arguments are Triton types and must stay objects: an unannotated number would be float32.

import triton
import triton.language as tl

from pltf.inference.algebra.arrays import NEWTON_SETTLED, NEWTON_STEPS

BLOCK = 1024  # entries per program
WARPS = 16  # two entries per thread: with more, registers spill
MOST_ROWS = 7  # of a stack: two per L-BFGS pair, and the residual
STEPS, SETTLED = tl.constexpr(NEWTON_STEPS), tl.constexpr(NEWTON_SETTLED)


@triton.jit
def _here(n, BLOCK: tl.constexpr):
    own = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return tl.program_id(1) * n + own, own < n


@triton.jit
def _program():
    return tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)


@triton.jit
def _psi_parts(x):
    """(y, b, rho), as in ``arrays.py``: digamma(x) = log(y) + b."""
    y = x + 10.0
    w = 1.0 / y
    rho, slope = x * w, x * 0.0 + 1.0
    for k in tl.static_range(1, 10):
        u = (x + k) * w
        slope = slope * u + rho
        rho = rho * u
    v = w * w
    series = v * (1.0 / 12)
    series = v * (series - 691.0 / 32760)
    series = v * (series + 1.0 / 132)
    series = v * (series - 1.0 / 240)
    series = v * (series + 1.0 / 252)
    series = v * (series - 1.0 / 120)
    series = w * (series + 1.0 / 12)
    return y, -w * (0.5 + series) - w * slope / rho, rho


@triton.jit
def _stirling(y):
    w = 1.0 / y
    v = w * w
    series = v * (1.0 / 156)
    series = v * (series - 691.0 / 360360)
    series = v * (series + 1.0 / 1188)
    series = v * (series - 1.0 / 1680)
    series = v * (series + 1.0 / 1260)
    series = v * (series - 1.0 / 360)
    return w * (series + 1.0 / 12)


@triton.jit
def scales(C, exposure, D, E, rate, n, BLOCK: tl.constexpr):
    """D = 1 / (rate + exposure); E = C*D. The rate is an array of one number, as learned ones stay on the device."""
    at, inside = _here(n, BLOCK)
    d = 1.0 / (tl.load(exposure + at, mask=inside, other=1.0) + tl.load(rate + tl.program_id(1)))
    tl.store(D + at, d, mask=inside)
    tl.store(E + at, tl.load(C + at, mask=inside, other=0.0) * d, mask=inside)


@triton.jit
def geomean_kl(C, D, L, sums, rate, A: tl.float64, log_norm: tl.float64, n, BLOCK: tl.constexpr):
    """L = exp(digamma(C)) * D; the sum of KL( Gamma(C, scale D) || Gamma(A, A/B = rate) ), with the rate as above."""
    at, inside = _here(n, BLOCK)
    c, d = tl.load(C + at, mask=inside, other=1.0), tl.load(D + at, mask=inside, other=1.0)
    y, b, rho = _psi_parts(c)
    own = tl.log(rho * tl.sqrt(y)) + (c * b + 10.0) - _stirling(y) - 0.9189385332046727  # log(2 pi) / 2
    scaled = d * tl.load(rate + tl.program_id(1))
    kl = own - (tl.log(scaled * y) + b) * A + log_norm + c * scaled
    tl.store(L + at, y * tl.exp(b) * d, mask=inside)
    tl.store(sums + _program(), tl.sum(tl.where(inside, kl, 0.0), axis=0))


@triton.jit
def newton_sums(C, exposure, left, slope, A: tl.float64, B: tl.float64, n, BLOCK: tl.constexpr):
    """Sums of A*C*p and of A*C*p*p*exposure, with p = 1/(A + B*exposure)."""
    at, inside = _here(n, BLOCK)
    c, seen = tl.load(C + at, mask=inside, other=0.0), tl.load(exposure + at, mask=inside, other=0.0)
    p = 1.0 / (A + B * seen)
    part = A * c * p
    tl.store(left + _program(), tl.sum(part, axis=0))
    tl.store(slope + _program(), tl.sum(part * p * seen, axis=0))


@triton.jit
def best_means(C, exposure, shapes, means, least: tl.float64, most: tl.float64, n, BLOCK: tl.constexpr):
    """Newton's method for the mean of each group of n entries, in place, as ``arrays.newton``; a program per group."""
    own = tl.program_id(0).to(tl.int64) * n
    A, B = tl.load(shapes + tl.program_id(0)), tl.load(means + tl.program_id(0))
    change, step = B * 0.0 + 1.0, 0
    while (change > SETTLED) & (step < STEPS):
        left, slope = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
        for first in range(0, n, BLOCK):
            at = first + tl.arange(0, BLOCK)
            c = tl.load(C + own + at, mask=at < n, other=0.0)
            seen = tl.load(exposure + own + at, mask=at < n, other=0.0)
            p = 1.0 / (A + B * seen)
            left += A * c * p
            slope += A * c * p * p * seen
        sum_left, sum_slope = tl.sum(left, axis=0), tl.sum(slope, axis=0)
        moves = sum_slope > 0
        new = B + (sum_left / (A * n) - 1.0) * sum_left / tl.where(moves, sum_slope, 1.0)
        new = tl.minimum(tl.maximum(tl.maximum(new, B / 100.0), least), most)
        change = tl.where(moves, tl.abs(new - B) / B, 0.0)
        B = tl.where(moves, new, B)
        step += 1
    tl.store(means + tl.program_id(0), B)


@triton.jit
def stretch(old, new, eta, out, noise: tl.float64, n, BLOCK: tl.constexpr):
    """old * (new/old)**eta; new where either is zero, and where it differs by no more than noise.

    Numbers that change between iterations, such as eta, are arrays of one number: a recording reads them anew.
    """
    at, inside = _here(n, BLOCK)
    a, b = tl.load(old + at, mask=inside, other=1.0), tl.load(new + at, mask=inside, other=1.0)
    both = (a > 0) & (b > 0)
    step = tl.log(tl.where(both, b, 1.0) / tl.where(both, a, 1.0))
    moves = both & (tl.abs(b - a) > noise * a)
    tl.store(
        out + at,
        tl.where(moves, a * tl.exp(tl.load(eta + tl.program_id(1)) * tl.where(moves, step, 0.0)), b),
        mask=inside,
    )


@triton.jit
def log_ratio(a, b, out, n, BLOCK: tl.constexpr):
    """log(a / b); 0 where either is zero."""
    at, inside = _here(n, BLOCK)
    x, y = tl.load(a + at, mask=inside, other=1.0), tl.load(b + at, mask=inside, other=1.0)
    both = (x > 0) & (y > 0)
    tl.store(out + at, tl.log(tl.where(both, x, 1.0) / tl.where(both, y, 1.0)), mask=inside)


@triton.jit
def move(old, plain, step, length, out, n, BLOCK: tl.constexpr):
    """old * exp(length*step); plain where it or old is zero, or the step is NaN."""
    at, inside = _here(n, BLOCK)
    a, b = tl.load(old + at, mask=inside, other=0.0), tl.load(plain + at, mask=inside, other=0.0)
    by = tl.load(step + at, mask=inside, other=0.0)
    far = a * tl.exp(tl.load(length + tl.program_id(1)) * by)
    tl.store(out + at, tl.where((a > 0) & (b > 0) & (by == by), far, b), mask=inside)


@triton.jit
def gram(r0, r1, r2, r3, r4, r5, r6, weight, sums, n, K: tl.constexpr, BLOCK: tl.constexpr):
    """Inner products of K rows with weights: sums[program, i*K + j] for j <= i."""
    at, inside = _here(n, BLOCK)
    w = tl.load(weight + at, mask=inside, other=0.0)
    rows = (r0, r1, r2, r3, r4, r5, r6)
    for i in tl.static_range(K):
        a = tl.load(rows[i] + at, mask=inside, other=0.0) * w
        for j in tl.static_range(i + 1):
            product = a * tl.load(rows[j] + at, mask=inside, other=0.0)
            tl.store(sums + _program() * K * K + i * K + j, tl.sum(product, axis=0))


@triton.jit
def combine(r0, r1, r2, r3, r4, r5, r6, shares, out, longest: tl.float64, n, K: tl.constexpr, BLOCK: tl.constexpr):
    """Linear combination of K rows, clipped to +-longest; rows with share 0 are ignored, and NaN stays NaN."""
    at, inside = _here(n, BLOCK)
    rows = (r0, r1, r2, r3, r4, r5, r6)
    far = tl.zeros((BLOCK,), tl.float64)
    for i in tl.static_range(K):
        share = tl.load(shares + tl.program_id(1) * K + i)
        far += tl.where(share != 0, share * tl.load(rows[i] + at, mask=inside, other=0.0), 0.0)
    tl.store(out + at, tl.where(far == far, tl.minimum(tl.maximum(far, -longest), longest), far), mask=inside)


@triton.jit
def _element(vector, i, n):
    """Number n of a vector."""
    return tl.sum(tl.where(i == n, vector, 0.0), axis=0)


@triton.jit
def two_loops(G, shares, curved: tl.float64, K: tl.constexpr, WIDTH: tl.constexpr):
    """Coefficients of the L-BFGS step, as ``host.lbfgs_coefficients``; NaN without curvature. Reads G for j <= i."""
    i, j = tl.arange(0, WIDTH)[:, None], tl.arange(0, WIDTH)[None, :]
    n = tl.arange(0, WIDTH)
    PAIRS: tl.constexpr = K // 2
    G += tl.program_id(0) * K * K
    lower = tl.load(G + i * K + j, mask=(i < K) & (j <= i), other=0.0)
    full = lower + tl.trans(tl.where(j < i, lower, 0.0))
    own = tl.sum(tl.where(i == j, full, 0.0), axis=1)
    across = tl.sum(tl.where(j == i + PAIRS, full, 0.0), axis=1)  # s.y of each pair
    above = tl.sum(tl.where(i == j + PAIRS, own[:, None], 0.0), axis=0)  # y.y
    good = (n < PAIRS) & (curved * above < across) & (across < float("inf")) & (tl.abs(own) < float("inf"))
    kept = tl.where(good, 1.0, 0.0).to(tl.float64)
    across, above = tl.where(good, across, 1.0), tl.where(good, above, 1.0)
    lifted = tl.sum(tl.where(j == i + PAIRS, kept[:, None], 0.0), axis=0)
    used = kept + lifted + tl.where(n == K - 1, 1.0, 0.0)
    both = (used[:, None] > 0) & (used[None, :] > 0)
    full = tl.where(both, full, 0.0)
    finite = tl.sum(tl.sum((tl.abs(full) < float("inf")).to(tl.int32), axis=1), axis=0) == WIDTH * WIDTH
    q = tl.where(n == K - 1, -1.0, 0.0).to(tl.float64)
    along, scale = q * 0.0, tl.sum(q, axis=0) * 0.0
    for back in tl.static_range(PAIRS):
        p = PAIRS - 1 - back
        inner = tl.sum(tl.sum(tl.where(i == p, full, 0.0), axis=0) * q, axis=0)
        a = inner / _element(across, n, p)  # 0 if the pair is not kept
        along = tl.where(n == p, a, along)
        q -= tl.where(n == p + PAIRS, a, 0.0)
        own_scale = _element(across, n, p) / _element(above, n, p)
        scale = tl.where((scale == 0.0) & (_element(kept, n, p) > 0), own_scale, scale)
    q *= scale
    for p in tl.static_range(PAIRS):
        inner = tl.sum(tl.sum(tl.where(i == p + PAIRS, full, 0.0), axis=0) * q, axis=0)
        b = _element(along, n, p) - inner / _element(across, n, p)
        q += tl.where((n == p) & (kept > 0), b, 0.0)
    known = finite & (tl.sum(kept, axis=0) > 0)
    tl.store(shares + tl.program_id(0) * K + n, tl.where(known, q, float("nan")), mask=n < K)


@triton.jit
def _gain(a, b, log_s, real):
    """Sum of a*log s - b*s over the factors."""
    return tl.sum(tl.where(real, a * log_s - b * tl.exp(log_s), 0.0), axis=0)


@triton.jit
def _times(basis, t, FACTORS: tl.constexpr, SIZE: tl.constexpr, F: tl.constexpr, M: tl.constexpr):
    """basis @ t, of t (M, WIDTH)."""
    n, p = tl.arange(0, F)[:, None], tl.arange(0, M)[:, None]
    product = tl.zeros((F, t.shape[1]), tl.float64)
    for k in tl.static_range(SIZE):
        part = tl.sum(tl.where(p == k, t, 0.0), axis=0)
        product += tl.load(basis + n * SIZE + k, mask=n < FACTORS, other=0.0) * part[None, :]
    return product


@triton.jit
def _times_transposed(basis, v, FACTORS: tl.constexpr, SIZE: tl.constexpr, F: tl.constexpr, M: tl.constexpr):
    """basis.T @ v, of v (F, WIDTH)."""
    n, p = tl.arange(0, F)[:, None], tl.arange(0, M)[:, None]
    product = tl.zeros((M, v.shape[1]), tl.float64)
    for k in tl.static_range(FACTORS):
        part = tl.sum(tl.where(n == k, v, 0.0), axis=0)
        product += tl.load(basis + k * SIZE + p, mask=p < SIZE, other=0.0) * part[None, :]
    return product


@triton.jit
def _newton_step(basis, weight, g, FACTORS: tl.constexpr, SIZE: tl.constexpr, F: tl.constexpr, M: tl.constexpr):
    """solve(basis.T @ diag(weight) @ basis, g) by elimination; the matrix is positive definite, so without pivoting."""
    n, p = tl.arange(0, F)[:, None], tl.arange(0, M)
    row_of, column_of = p[:, None, None], p[None, :, None]
    H = tl.zeros((M, M, g.shape[1]), tl.float64)
    H += tl.where((row_of == column_of) & (row_of >= SIZE), 1.0, 0.0)
    for k in tl.static_range(FACTORS):
        part = tl.sum(tl.where(n == k, weight, 0.0), axis=0)
        left = tl.load(basis + k * SIZE + row_of, mask=row_of < SIZE, other=0.0)
        right = tl.load(basis + k * SIZE + column_of, mask=column_of < SIZE, other=0.0)
        H += left * right * part[None, None, :]
    for k in tl.static_range(SIZE):
        row = tl.sum(tl.where(row_of == k, H, 0.0), axis=0)
        column = tl.sum(tl.where(column_of == k, H, 0.0), axis=1)
        pivot = tl.sum(tl.where(p[:, None] == k, row, 0.0), axis=0)
        ratio = tl.where(p[:, None] == k, 0.0, column / pivot[None, :])
        g -= ratio * tl.sum(tl.where(p[:, None] == k, g, 0.0), axis=0)[None, :]
        H -= ratio[:, None, :] * row[None, :, :]
    return g / tl.sum(tl.where(row_of == column_of, H, 0.0), axis=1)


@triton.jit
def balance(
    alpha, beta, basis, out, settled: tl.float64, width, FACTORS: tl.constexpr, SIZE: tl.constexpr,
    F: tl.constexpr, M: tl.constexpr, STEPS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The scales s of ``newton.maximize``, a thread for each position of an index; arrays are (FACTORS, width).

    Loops end by the maximum of whole numbers. A sum of floats across threads may be rounded differently in each,
    and threads of a warp that leave a loop at different times stop the kernel with an illegal instruction.
    """
    at = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)[None, :]
    n = tl.arange(0, F)[:, None]
    real = (n < FACTORS) & (at < width)
    a, b = tl.load(alpha + n * width + at, mask=real, other=1.0), tl.load(beta + n * width + at, mask=real, other=1.0)
    bounded = tl.min(((b > 0) & (b < float("inf"))).to(tl.int32), axis=0) == 1
    b = tl.where(bounded[None, :], b, 1.0)
    total = tl.sum(tl.where(real, a, 0.0), axis=0)
    nearest = _times_transposed(basis, tl.log(a / b), FACTORS, SIZE, F, M)
    near = _times(basis, nearest, FACTORS, SIZE, F, M)
    here = tl.where((_gain(a, b, near, real) > _gain(a, b, near * 0.0, real))[None, :], near, 0.0)
    goes, step = bounded & (total > 0), 0
    while (tl.max(goes.to(tl.int32), axis=0) > 0) & (step < STEPS):
        weight = b * tl.exp(here)
        g = _times_transposed(basis, tl.where(real, a - weight, 0.0), FACTORS, SIZE, F, M)
        move = _newton_step(basis, weight, g, FACTORS, SIZE, F, M)
        change = _times(basis, move, FACTORS, SIZE, F, M)
        value, length = _gain(a, b, here, real), total * 0.0 + 1.0
        falls, tries = goes & (_gain(a, b, here + change, real) < value), 0
        while (tl.max(falls.to(tl.int32), axis=0) > 0) & (tries < 60):
            length = tl.where(falls, length * 0.5, length)
            falls = falls & (_gain(a, b, here + length[None, :] * change, real) < value)
            tries += 1
        here += tl.where(goes & (falls == 0), length, 0.0)[None, :] * change
        goes = goes & (tl.sum(g * move, axis=0) > settled * total)
        step += 1
    tl.store(out + n * width + at, tl.where(bounded[None, :], tl.exp(here), 1.0), mask=real)


@triton.jit
def scale_along(E, D, s, new_E, new_D, inner, width, n, BLOCK: tl.constexpr):
    """Both arrays times s along the axis of ``width`` positions; ``inner`` entries follow each other at a position."""
    at, inside = _here(n, BLOCK)
    position = (at // inner) % width  # a lane has whole runs of positions
    by = tl.load(s + tl.program_id(1) * width + position, mask=inside, other=1.0)
    tl.store(new_E + at, tl.load(E + at, mask=inside, other=0.0) * by, mask=inside)
    tl.store(new_D + at, tl.load(D + at, mask=inside, other=0.0) * by, mask=inside)
