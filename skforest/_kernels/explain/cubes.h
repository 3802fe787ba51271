/* Sets of mixtures of two rows, and their Shapley values: see shapley.pyx.
 *
 * A cube is a set of mixtures of a row x with a row z of a block: the players in `x` are taken
 * from x, the players in `z` from z, and the others from either. Players are bits of a word. A
 * split divides a list of cubes, in order of their rows z, into a left list and a right list. The
 * loops over cubes have no branches that depend on players, which a processor could not predict.
 */
#ifndef SKFOREST_CUBES_H
#define SKFOREST_CUBES_H

#include "../base/simd.h"

/* The 2^6 sets of so many players are the bits of a word. */
#define SKF_TABLED 6

/* Rows z tabulated at once: sixteen times an odd number, chosen without a stored measurement;
 * `python -m benchmarks.measure.explain trees` shows the time. */
#define SKF_ROWS_TABLED 112

/* Vectors that are stored and loaded again must not cross cache lines. */
#if defined(__GNUC__)
#define SKF_ALIGNED __attribute__((aligned(64)))
#else
#define SKF_ALIGNED
#endif

typedef struct {
    uint64_t x, z;
    int64_t row; /* of the block */
} skf_cube;

/* Lists that a split divides cubes into, with space for `space` cubes each. */
typedef struct {
    skf_cube *side[2];
    int64_t n[2], space[2];
} skf_division;

/* Bit m: the set m is without player i. */
static const uint64_t skf_without[SKF_TABLED] = {
    0x5555555555555555u, 0x3333333333333333u, 0x0F0F0F0F0F0F0F0Fu,
    0x00FF00FF00FF00FFu, 0x0000FFFF0000FFFFu, 0x00000000FFFFFFFFu,
};

/* ------------------------------------------------------------------------ sides of a split */

/* change += weight (x - z), the change of the projections of rows z by a feature. */
SKF_KERNEL(skf_add_change, (float weight, float x, const float *z, int n_rows, float *change),
           (weight, x, z, n_rows, change))
{
    for (int start = 0; start < n_rows; start += 16)
        for (int i = start; i < start + 16; i++)
            change[i] += weight * (x - z[i]);
}

SKF_INLINE void skf_tabulate_n(
    const float *gap, const float *change, const int n, int n_rows, uint64_t *right,
    float *nearest)
{
    for (int start = 0; start < n_rows; start += 16) {
        SKF_ALIGNED float value[32][16], least[16];
        SKF_ALIGNED uint32_t low[16], high[16];
        for (int i = 0; i < 16; i++) {
            value[0][i] = gap[start + i];
            low[i] = value[0][i] > 0;
            high[i] = 0;
            least[i] = fabsf(value[0][i]);
        }
        for (int p = 0; p < n && p < 5; p++)
            for (int m = 0; m < 1 << p; m++) {
                const int set = (1 << p) + m;
                for (int i = 0; i < 16; i++) {
                    const float at = value[m][i] + change[p * SKF_ROWS_TABLED + start + i];
                    value[set][i] = at;
                    low[i] |= at > 0 ? (uint32_t)1 << set : 0;
                    least[i] = fabsf(at) < least[i] ? fabsf(at) : least[i];
                }
            }
        for (int m = 0; m < 32 && n == 6; m++)
            for (int i = 0; i < 16; i++) {
                const float at = value[m][i] + change[5 * SKF_ROWS_TABLED + start + i];
                high[i] |= at > 0 ? (uint32_t)1 << m : 0;
                least[i] = fabsf(at) < least[i] ? fabsf(at) : least[i];
            }
        for (int i = 0; i < 16; i++) {
            right[start + i] = low[i] | (uint64_t)high[i] << 32;
            nearest[start + i] = least[i];
        }
    }
}

/* The tables of a split for rows z: right[i] has the bit m if row i goes right with the set m of
 * the n players from x, where bit p of m is player p. gap: projections minus the threshold; change,
 * (n, SKF_ROWS_TABLED): change by each player; nearest: smallest absolute value of a mixture. */
SKF_KERNEL(skf_tabulate,
           (const float *gap, const float *change, int n, int n_rows, uint64_t *right,
            float *nearest),
           (gap, change, n, n_rows, right, nearest))
{
    switch (n) {
    case 1: skf_tabulate_n(gap, change, 1, n_rows, right, nearest); break;
    case 2: skf_tabulate_n(gap, change, 2, n_rows, right, nearest); break;
    case 3: skf_tabulate_n(gap, change, 3, n_rows, right, nearest); break;
    case 4: skf_tabulate_n(gap, change, 4, n_rows, right, nearest); break;
    case 5: skf_tabulate_n(gap, change, 5, n_rows, right, nearest); break;
    default: skf_tabulate_n(gap, change, SKF_TABLED, n_rows, right, nearest);
    }
}

/* As skf_tabulate, for a single feature; x_right: whether x is sent right. */
SKF_KERNEL(skf_compare,
           (const float *z, float threshold, int x_right, int n_rows, uint64_t *right),
           (z, threshold, x_right, n_rows, right))
{
    for (int start = 0; start < n_rows; start += 16)
        for (int i = start; i < start + 16; i++)
            right[i] = (uint64_t)(z[i] > threshold) | (uint64_t)x_right << 1;
}

/* As skf_tabulate for more players, from the ranges of the projections minus the threshold: 0 or 1
 * if all mixtures are on one side, otherwise 2. */
SKF_UNUSED static void skf_compare_range(
    const float *low, const float *high, float margin, int n_rows, uint64_t *right)
{
    for (int i = 0; i < n_rows; i++)
        right[i] = high[i] <= -margin ? 0 : low[i] > margin ? 1 : 2;
}

/* --------------------------------------------------------------------- divisions by a split */

/* Sets of players of a split: all mixtures with `x` from x and `z` from z are on one side. */
typedef struct {
    uint8_t x, z, side;
} skf_piece;

/* The pieces of all mixtures of a row z with the table `right`. */
typedef struct {
    uint64_t right;
    int32_t n;
    skf_piece piece[1 << SKF_TABLED];
} skf_pieces;

/* Number of kept pieces: all for 2 and 3 players, and 256 for each of 4, 5 and 6. */
#define SKF_KEPT (16 + 256 + 3 * 256)

/* Divide cubes by a player: one side has it from x, the other one from z. */
SKF_INLINE int skf_divide_by_one(
    const uint64_t *right, uint64_t p, const skf_cube *cube, int64_t n, skf_division *found)
{
    const int side = (right[cube[0].row] >> 1) & 1; /* of x, for all rows z */
    skf_cube *one = found->side[side], *other = found->side[!side];
    int64_t n_one = 0, n_other = 0;
    if (found->space[0] < n || found->space[1] < n)
        return 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t x = cube[i].x, z = cube[i].z;
        /* All bits, if z is on the same side, or if the player is from x already. */
        const uint64_t same =
            ((right[cube[i].row] ^ side ^ 1) & 1 ? ~(uint64_t)0 : 0) | (x & p ? ~(uint64_t)0 : 0);
        one[n_one].x = x | (p & ~same);
        one[n_one].z = z;
        one[n_one].row = cube[i].row;
        n_one += (same | (uint64_t)((z & p) == 0)) & 1;
        other[n_other].x = x;
        other[n_other].z = z | p;
        other[n_other].row = cube[i].row;
        n_other += same == 0;
    }
    found->n[side] = n_one;
    found->n[!side] = n_other;
    return 1;
}

/* Divide all mixtures of a row z: the first player that matters is taken from x, and from z. */
static void skf_find_pieces(uint64_t right, int n, skf_pieces *found)
{
    const uint64_t all = ~(uint64_t)0 >> (64 - (1 << n));
    uint64_t possible_of[SKF_TABLED + 1], possible = all;
    uint8_t x_of[SKF_TABLED + 1], z_of[SKF_TABLED + 1], x = 0, z = 0;
    int top = 0;
    found->right = right;
    found->n = 0;
    while (1) {
        const uint64_t own = right & possible;
        if (own == 0 || own == possible) {
            skf_piece *piece = found->piece + found->n++;
            piece->x = x;
            piece->z = z;
            piece->side = own != 0;
            if (top == 0)
                return;
            top--;
            x = x_of[top];
            z = z_of[top];
            possible = possible_of[top];
            continue;
        }
        int p = 0;
        while (((right ^ (right >> (1 << p))) & possible & (possible >> (1 << p)) &
                skf_without[p]) == 0)
            p++;
        x_of[top] = x;
        z_of[top] = (uint8_t)(z | 1 << p);
        possible_of[top++] = possible & skf_without[p];
        x = (uint8_t)(x | 1 << p);
        possible &= ~skf_without[p];
    }
}

SKF_INLINE const skf_pieces *skf_known_pieces(uint64_t right, const int n, skf_pieces *kept)
{
    if (n == 2)
        kept += right;
    else if (n == 3)
        kept += 16 + right;
    else
        kept += 272 + 256 * (n - 4) + ((right * 0x9E3779B97F4A7C15u) >> 56);
    if (kept->n == 0 || kept->right != right)
        skf_find_pieces(right, n, kept);
    return kept;
}

/* Divide cubes by n players. A cube has a part in each piece that agrees with its players. */
SKF_INLINE int skf_divide_n(
    const uint64_t *right, const int n_players, const uint64_t *of_set, const skf_cube *cube,
    int64_t n, skf_pieces *kept, skf_division *found)
{
    skf_cube *to[2] = {found->side[0], found->side[1]};
    const skf_cube *end = cube + n;
    while (cube < end) {
        const skf_cube *start = cube;
        const int64_t row = start->row;
        const skf_pieces *pieces = skf_known_pieces(right[row], n_players, kept);
        while (cube < end && cube->row == row)
            cube++;
        if (found->space[0] < to[0] - found->side[0] + pieces->n * (cube - start) ||
            found->space[1] < to[1] - found->side[1] + pieces->n * (cube - start))
            return 0;
        for (int k = 0; k < pieces->n; k++) {
            const uint64_t x = of_set[pieces->piece[k].x], z = of_set[pieces->piece[k].z];
            skf_cube *own = to[pieces->piece[k].side];
            for (const skf_cube *one = start; one < cube; one++) {
                own->x = one->x | x;
                own->z = one->z | z;
                own->row = row;
                own += ((one->x & z) | (one->z & x)) == 0;
            }
            to[pieces->piece[k].side] = own;
        }
    }
    found->n[0] = to[0] - found->side[0];
    found->n[1] = to[1] - found->side[1];
    return 1;
}

/* Divide cubes by a split of the players with the given bits; 0 if a list has no space. */
SKF_UNUSED static int skf_divide(
    const uint64_t *right, const uint64_t *bit, int n_players, const skf_cube *cube, int64_t n,
    skf_pieces *kept, skf_division *found)
{
    uint64_t of_set[1 << SKF_TABLED];
    if (n_players == 1)
        return skf_divide_by_one(right, bit[0], cube, n, found);
    of_set[0] = 0;
    for (int p = 0; p < n_players; p++)
        for (int m = 0; m < 1 << p; m++)
            of_set[(1 << p) + m] = of_set[m] | bit[p];
    switch (n_players) {
    case 2: return skf_divide_n(right, 2, of_set, cube, n, kept, found);
    case 3: return skf_divide_n(right, 3, of_set, cube, n, kept, found);
    default: return skf_divide_n(right, n_players, of_set, cube, n, kept, found);
    }
}

/* Divide a cube by a split with any number of players, given their changes of the projection, in
 * descending order of the absolute values, and the projection of z minus the threshold. If rounding
 * could decide, cubes of one mixture are appended to `near`. Returns 0 if a list has no space. */
SKF_UNUSED static int skf_divide_by_sums(
    const double *change, const uint64_t *bit, int n, double gap, double margin, skf_cube cube,
    skf_division *found, skf_cube *near, int32_t *n_near, int space_near)
{
    uint64_t x_of[64], z_of[64];
    double low_of[64], high_of[64], low = gap, high = gap;
    int next_of[64], top = 0, next = 0;
    *n_near = 0;
    for (int p = 0; p < n; p++) {
        const int is_x = (cube.x & bit[p]) != 0, is_open = !is_x && !(cube.z & bit[p]);
        low += is_x || (is_open && change[p] < 0) ? change[p] : 0;
        high += is_x || (is_open && change[p] > 0) ? change[p] : 0;
    }
    while (1) {
        const int side = low > margin;
        int is_done = side || high <= -margin;
        if (is_done) {
            if (found->n[side] >= found->space[side])
                return 0;
            found->side[side][found->n[side]++] = cube;
        } else {
            while (next < n && ((cube.x | cube.z) & bit[next]) != 0)
                next++;
            if (next == n) {
                if (*n_near == space_near)
                    return 0;
                near[(*n_near)++] = cube;
                is_done = 1;
            }
        }
        if (is_done) {
            if (top == 0)
                return 1;
            top--;
            cube.x = x_of[top];
            cube.z = z_of[top];
            low = low_of[top];
            high = high_of[top];
            next = next_of[top];
            continue;
        }
        x_of[top] = cube.x;
        z_of[top] = cube.z | bit[next];
        low_of[top] = change[next] < 0 ? low - change[next] : low;
        high_of[top] = change[next] > 0 ? high - change[next] : high;
        next_of[top++] = next + 1;
        cube.x |= bit[next];
        low = change[next] > 0 ? low + change[next] : low;
        high = change[next] < 0 ? high + change[next] : high;
        next++;
    }
}

/* ------------------------------------------------------------------------ values of players */

SKF_INLINE int skf_count_bits(uint64_t word)
{
#if defined(__GNUC__)
    return __builtin_popcountll(word);
#else
    int n = 0;
    for (; word; word &= word - 1)
        n++;
    return n;
#endif
}

/* Weights of the value of a leaf for each player, from the cubes that the leaf takes.
 *
 * share[a * n_share + b] is (a - 1)! b! / (a + b)!; bit[p] is 1 << p. */
SKF_KERNEL(skf_weigh_cubes,
           (const skf_cube *cube, int64_t n, const double *share, int n_share,
            const uint64_t *bit, int n_players, double *weight),
           (cube, n, share, n_share, bit, n_players, weight))
{
    for (int start = 0; start < n_players; start += 16) {
        const uint64_t *own = bit + start;
        SKF_ALIGNED double of_group[16];
        for (int p = 0; p < 16; p++)
            of_group[p] = 0;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t x = cube[i].x, z = cube[i].z;
            const int a = skf_count_bits(x), b = skf_count_bits(z);
            const double of_x = share[a * n_share + b], of_z = -share[b * n_share + a];
            SKF_SIMD()
            for (int p = 0; p < 16; p++)
                of_group[p] += (x & own[p] ? of_x : 0) + (z & own[p] ? of_z : 0);
        }
        for (int p = 0; p < 16; p++)
            weight[start + p] = of_group[p];
    }
}

#endif
