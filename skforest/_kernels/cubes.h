/* Sets of mixtures of two rows, and their Shapley values: see shapley.pyx.
 *
 * A cube is a set of mixtures: the players in `x` are taken from the row x, those in `z` from the
 * row z, and the others from either. The players of a pair of rows are the bits of a word. A split
 * divides a list of cubes into those that it sends left and those that it sends right. The loops
 * over cubes have no branches that depend on the players, which a processor could not predict.
 */
#ifndef SKFOREST_CUBES_H
#define SKFOREST_CUBES_H

#include "simd.h"

#define SKF_TABLED 5 /* players whose sets are the bits of a word */

typedef struct {
    uint64_t x, z;
} skf_cube;

/* A split of a pair of rows: of the sets of its n players, the set m, which holds player i if m
 * has the bit i, taken from x is sent right if `right` has the bit m. */
typedef struct {
    uint64_t right;
    uint64_t player[SKF_TABLED];
    int n;
} skf_split;

/* Bit m: the set m is without player i. */
static const uint64_t skf_without[SKF_TABLED] = {
    0x5555555555555555u, 0x3333333333333333u, 0x0F0F0F0F0F0F0F0Fu,
    0x00FF00FF00FF00FFu, 0x0000FFFF0000FFFFu,
};

SKF_INLINE uint64_t skf_all_sets(int n)
{
    return ~(uint64_t)0 >> (64 - (1 << n));
}

#define SKF_MATTERS ((uint64_t)1 << 32) /* times 1 << p: the player p of a table matters */

/* Rows z whose splits are tabulated together: an odd number of cache lines of words. */
#define SKF_ROWS_TABLED 104

/* change += weight (x - z): what a feature changes in the projections of rows z. */
SKF_KERNEL(skf_add_change, (double weight, double x, const float *z, double *change),
           (weight, x, z, change))
{
    for (int i = 0; i < SKF_ROWS_TABLED; i++)
        change[i] += weight * (x - z[i]);
}

/* A table with the bits of the players that matter. */
SKF_INLINE uint64_t skf_add_matters(uint64_t right, const int n)
{
    uint64_t matters = 0;
    for (int p = 0; p < n; p++)
        if (((right ^ (right >> (1 << p))) & skf_without[p] & skf_all_sets(n)) != 0)
            matters |= SKF_MATTERS << p;
    return right | matters;
}

SKF_INLINE void skf_tabulate_n(
    const double *gap, const double *change, const int n, uint64_t *right, double *nearest)
{
    for (int start = 0; start < SKF_ROWS_TABLED; start += 8) {
        double value[1 << SKF_TABLED][8], least[8];
        uint64_t bits[8], sides[8];
        for (int i = 0; i < 8; i++) {
            value[0][i] = gap[start + i];
            bits[i] = value[0][i] > 0;
            least[i] = fabs(value[0][i]);
        }
        for (int p = 0; p < n; p++)
            for (int m = 0; m < 1 << p; m++) {
                const int set = (1 << p) + m;
                for (int i = 0; i < 8; i++) {
                    const double at = value[m][i] + change[p * SKF_ROWS_TABLED + start + i];
                    value[set][i] = at;
                    bits[i] |= at > 0 ? (uint64_t)1 << set : 0;
                    least[i] = fabs(at) < least[i] ? fabs(at) : least[i];
                }
            }
        memcpy(sides, bits, sizeof(bits));
        for (int p = 0; p < n; p++) {
            const uint64_t own = skf_without[p] & skf_all_sets(n);
            for (int i = 0; i < 8; i++)
                bits[i] |= ((sides[i] ^ (sides[i] >> (1 << p))) & own) != 0 ? SKF_MATTERS << p : 0;
        }
        for (int i = 0; i < 8; i++) {
            right[start + i] = bits[i];
            nearest[start + i] = least[i];
        }
    }
}

/* The tables of a split for rows z: the bits `right` of skf_split, and the bit 32 + p if the
 * player p matters. gap: projections minus the threshold; change, (n, SKF_ROWS_TABLED): what each
 * player changes; nearest: the least absolute value of a mixture. */
SKF_KERNEL(skf_tabulate,
           (const double *gap, const double *change, int n, uint64_t *right, double *nearest),
           (gap, change, n, right, nearest))
{
    switch (n) {
    case 1: skf_tabulate_n(gap, change, 1, right, nearest); break;
    case 2: skf_tabulate_n(gap, change, 2, right, nearest); break;
    case 3: skf_tabulate_n(gap, change, 3, right, nearest); break;
    case 4: skf_tabulate_n(gap, change, 4, right, nearest); break;
    default: skf_tabulate_n(gap, change, SKF_TABLED, right, nearest);
    }
}

/* As skf_tabulate for more players, given the ranges of the projections minus the threshold:
 * 0 and 1 where all mixtures are on one side, and 2 elsewhere. */
SKF_UNUSED static void skf_tabulate_range(
    const double *low, const double *high, double margin, uint64_t *right)
{
    for (int i = 0; i < SKF_ROWS_TABLED; i++)
        right[i] = high[i] <= -margin ? 0 : low[i] > margin ? 1 : 2;
}

/* Fill a split from a table and its players, without those that do not matter. */
SKF_INLINE void skf_fill_split(uint64_t table, const int32_t *player, int n, skf_split *split)
{
    split->right = table & skf_all_sets(n);
    split->n = 0;
    for (int p = 0; p < n; p++) {
        if (table & SKF_MATTERS << p) {
            split->player[split->n++] = (uint64_t)player[p];
            continue;
        }
        /* The sets without it, next to each other. */
        const int i = split->n, n_left = n - (p - i) - 1;
        uint64_t rest = 0;
        for (int m = 0; m < 1 << n_left; m++)
            rest |= ((split->right >> (((m >> i) << (i + 1)) | (m & ((1 << i) - 1)))) & 1) << m;
        split->right = rest;
    }
}

/* Lists that a split divides cubes into. */
typedef struct {
    skf_cube *side[2];
    int64_t n[2];
} skf_division;

/* Divide cubes by a player: one side has it from x, the other one from z. */
SKF_INLINE void skf_divide_by_one(
    const skf_split *split, const skf_cube *cube, int64_t n, skf_division *found)
{
    const int side = split->right == 2; /* of x */
    const uint64_t p = split->player[0];
    skf_cube *of_x = found->side[side], *of_z = found->side[!side];
    int64_t n_x = 0, n_z = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t x = cube[i].x, z = cube[i].z;
        of_x[n_x].x = x | p;
        of_x[n_x].z = z;
        n_x += (z & p) == 0;
        of_z[n_z].x = x;
        of_z[n_z].z = z | p;
        n_z += (x & p) == 0;
    }
    found->n[side] = n_x;
    found->n[!side] = n_z;
}

/* Divide cubes by two players, of whom one set is on one side and three are on the other.
 *
 * A cube that has one of the players as the three have it is on the other side as a whole. Of any
 * other cube, the one side gets the cube with both as the set has them; the other one gets the
 * cubes in which the first player differs, and in which the second differs and the first does not.
 */
SKF_INLINE void skf_divide_by_two(
    const skf_split *split, const skf_cube *cube, int64_t n, skf_division *found)
{
    const uint64_t right = split->right, alone = (right & (right - 1)) == 0 ? right : right ^ 15;
    const int side = alone == right;
    const uint64_t p = split->player[0], q = split->player[1];
    const uint64_t p_x = alone & 10 ? p : 0, p_z = p ^ p_x, q_x = alone & 12 ? q : 0, q_z = q ^ q_x;
    const uint64_t both_x = p_x | q_x, both_z = p_z | q_z;
    skf_cube *one = found->side[side], *other = found->side[!side];
    int64_t n_one = 0, n_other = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t x = cube[i].x, z = cube[i].z, decided = x | z;
        const int differs = ((x & both_z) | (z & both_x)) != 0;
        const uint64_t open = (uint64_t)differs - 1; /* all bits, if it does not differ */
        one[n_one].x = x | both_x;
        one[n_one].z = z | both_z;
        n_one += !differs;
        other[n_other].x = x | (p_z & open);
        other[n_other].z = z | (p_x & open);
        n_other += differs | ((decided & p) == 0);
        other[n_other].x = x | p_x | q_z;
        other[n_other].z = z | p_z | q_x;
        n_other += !differs & ((decided & q) == 0);
    }
    found->n[side] = n_one;
    found->n[!side] = n_other;
}

/* Divide cubes by any players: the first that matters is taken from x, and then from z. */
static void skf_divide_by_many(
    const skf_split *split, const skf_cube *cube, int64_t n, skf_division *found)
{
    const uint64_t all = skf_all_sets(split->n);
    uint64_t x_of[SKF_TABLED], z_of[SKF_TABLED], possible_of[SKF_TABLED];
    int64_t n_found[2] = {0, 0};
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = cube[i].x, z = cube[i].z, possible = all;
        int top = 0;
        for (int t = 0; t < split->n; t++) {
            const uint64_t p = split->player[t];
            possible &= ~skf_without[t] | ((uint64_t)((x & p) != 0) - 1);
            possible &= skf_without[t] | ((uint64_t)((z & p) != 0) - 1);
        }
        while (1) {
            const uint64_t right = split->right & possible;
            if (right == 0 || right == possible) {
                const int side = right != 0;
                skf_cube *one = found->side[side] + n_found[side]++;
                one->x = x;
                one->z = z;
                if (top == 0)
                    break;
                top--;
                x = x_of[top];
                z = z_of[top];
                possible = possible_of[top];
                continue;
            }
            /* A decided player does not matter: only sets with it, or without it, are possible. */
            int t = 0;
            while (((right ^ (right >> (1 << t))) & possible & (possible >> (1 << t)) &
                    skf_without[t]) == 0)
                t++;
            x_of[top] = x;
            z_of[top] = z | split->player[t];
            possible_of[top++] = possible & skf_without[t];
            x |= split->player[t];
            possible &= ~skf_without[t];
        }
    }
    found->n[0] = n_found[0];
    found->n[1] = n_found[1];
}

/* Divide cubes by more players than a table has, given what they change in a projection, in
 * descending order of its absolute value, and the projection of z minus the threshold. Returns 0
 * if rounding could decide on a side, or if a list has no space. */
static int skf_divide_by_sums(
    const double *change, const uint64_t *player, int n_players, double gap, double margin,
    const skf_cube *cube, int64_t n, int64_t space, skf_division *found)
{
    uint64_t x_of[64], z_of[64];
    double low_of[64], high_of[64];
    int next_of[64];
    int64_t n_found[2] = {0, 0};
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = cube[i].x, z = cube[i].z;
        double low = gap, high = gap;
        int top = 0, next = 0;
        for (int p = 0; p < n_players; p++) {
            const int is_x = (x & player[p]) != 0, is_open = !is_x && !(z & player[p]);
            low += is_x || (is_open && change[p] < 0) ? change[p] : 0;
            high += is_x || (is_open && change[p] > 0) ? change[p] : 0;
        }
        while (1) {
            const int side = low > margin;
            if (side || high <= -margin) {
                if (n_found[side] == space)
                    return 0;
                found->side[side][n_found[side]].x = x;
                found->side[side][n_found[side]++].z = z;
                if (top == 0)
                    break;
                top--;
                x = x_of[top];
                z = z_of[top];
                low = low_of[top];
                high = high_of[top];
                next = next_of[top];
                continue;
            }
            while (next < n_players && ((x | z) & player[next]) != 0)
                next++;
            if (next == n_players)
                return 0;
            x_of[top] = x;
            z_of[top] = z | player[next];
            low_of[top] = change[next] < 0 ? low - change[next] : low;
            high_of[top] = change[next] > 0 ? high - change[next] : high;
            next_of[top++] = next + 1;
            x |= player[next];
            low = change[next] > 0 ? low + change[next] : low;
            high = change[next] < 0 ? high + change[next] : high;
            next++;
        }
    }
    found->n[0] = n_found[0];
    found->n[1] = n_found[1];
    return 1;
}

SKF_INLINE void skf_divide(
    const skf_split *split, const skf_cube *cube, int64_t n, skf_division *found)
{
    if (split->n == 1)
        skf_divide_by_one(split, cube, n, found);
    else if (split->n == 2 && split->right != 6 && split->right != 9)
        skf_divide_by_two(split, cube, n, found);
    else
        skf_divide_by_many(split, cube, n, found);
}

/* Add the values of the players, (64, n_outputs), from the cubes that a leaf takes.
 *
 * share[a * n_share + b] is (a - 1)! b! / (a + b)!; bit[p] is 1 << p. */
SKF_KERNEL(skf_add_cubes,
           (const skf_cube *cube, int64_t n, const double *share, int n_share,
            const uint64_t *bit, int n_players, const double *leaf, int n_outputs, double *part),
           (cube, n, share, n_share, bit, n_players, leaf, n_outputs, part))
{
    double weight[64];
    n_players = (n_players + 7) & ~7;
    for (int p = 0; p < n_players; p++)
        weight[p] = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t x = cube[i].x, z = cube[i].z;
#if defined(__GNUC__)
        const int a = __builtin_popcountll(x), b = __builtin_popcountll(z);
#else
        int a = 0, b = 0;
        for (int p = 0; p < n_players; p++) {
            a += (x & bit[p]) != 0;
            b += (z & bit[p]) != 0;
        }
#endif
        const double of_x = share[a * n_share + b], of_z = -share[b * n_share + a];
        for (int start = 0; start < n_players; start += 8)
            for (int p = start; p < start + 8; p++)
                weight[p] += (x & bit[p] ? of_x : 0) + (z & bit[p] ? of_z : 0);
    }
    if (n_outputs == 1)
        for (int p = 0; p < n_players; p++)
            part[p] += weight[p] * leaf[0];
    else
        for (int p = 0; p < n_players; p++)
            for (int k = 0; k < n_outputs; k++)
                part[p * n_outputs + k] += weight[p] * leaf[k];
}

#endif
