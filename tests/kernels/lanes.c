/* Compares the loops of lanes.h for 1, 4, 8 and 16 lanes, which must give the same bits.
 *
 * A processor runs one of them only. Here, the compiler emulates longer vectors.
 */
#include <stdio.h>

#include "predict/route.h"
#include "base/descent.h"
#include "base/columns.h"
#define SKF_LANES 1
#include "base/lanes.h"

enum { N_OUT = 1024, N_TABLE = 100000 };
static float out[4][N_OUT], *y, table[N_TABLE], x[N_OUT];
static int32_t seen[4][N_OUT], *marks; /* only whether they are 0 counts */
static uint8_t bytes[N_TABLE];
static int n_wrong;

static float number(void)
{
    return (float)rand() / (float)RAND_MAX * 2 - 1;
}

static void compare(const char *name, int64_t n, int64_t p)
{
    for (int w = 0; w < 4; w++)
        for (int j = 0; j < N_OUT; j++)
            seen[w][j] = seen[w][j] != 0;
    for (int w = 1; w < 4; w++)
        if (memcmp(out[0], out[w], sizeof out[0]) || memcmp(seen[0], seen[w], sizeof seen[0])) {
            printf("%s: other bits with %d floats, %d rows of %d\n", name, 2 << w, (int)n, (int)p);
            n_wrong++;
        }
    memset(out, 0, sizeof out);
    memset(seen, 0, sizeof seen);
}

/* Calls a loop for each number of lanes, whose output begins at y and at `marks`. */
#define SAME(name, ...)                                                                          \
    do {                                                                                         \
        y = out[0], marks = seen[0];                                                             \
        name##_1(__VA_ARGS__);                                                                   \
        y = out[1], marks = seen[1];                                                             \
        name##_4(__VA_ARGS__);                                                                   \
        y = out[2], marks = seen[2];                                                             \
        name##_8(__VA_ARGS__);                                                                   \
        y = out[3], marks = seen[3];                                                             \
        name##_16(__VA_ARGS__);                                                                  \
        compare(#name, n, p);                                                                    \
    } while (0)

static void check(int64_t n, int64_t p)
{
    int64_t offset[64], start[41] = {0};
    int32_t row[SKF_ROWS], group[64], direction[40], feature[400];
    float weight[400], threshold[40];
    uint32_t low[40], high[40];
    int n_groups = 0, n_terms = 0;
    for (int64_t i = 0; i < n; i++)
        offset[i] = rand() % 300 * p;
    for (int i = 0; i < SKF_ROWS; i++)
        row[i] = rand() % 100;
    for (int j = 0; n_groups < 40; j += SKF_GROUP)
        if (rand() % 4)
            group[n_groups++] = j;
    for (int k = 0; k < 40; k++) {
        direction[k] = rand() % 60; /* above 20: a mixture of up to 5 features */
        threshold[k] = number() / 2;
        low[k] = rand() % 3 ? ~0u : (uint32_t)rand() * 7919u;
        high[k] = rand() % 3 ? ~0u : (uint32_t)rand() * 7919u;
        for (int t = rand() % 6; t > 0; t--) {
            feature[n_terms] = rand() % 20;
            weight[n_terms++] = number();
        }
        start[k + 1] = n_terms;
    }
    SAME(skf_rows_loop, table, offset, n, x, p, 0, NULL, NULL, NULL, y);
    /* Features do not differ from the first row if it is the only one. */
    SAME(skf_rows_loop, table, offset, n, table + offset[0], p, 1, x + 200, y + 64, marks, y);
    SAME(skf_add_rows_loop, table, offset, n, x, p, y);
    SAME(skf_distance, table, x, p, y);
    SAME(skf_momentum_loop, (memcpy(y, x, 600 * sizeof(float)), y), y + 200, y + 400, x, p, 0.3f,
         0.2f, 0.9f, 0.1f, y + 700);
    SAME(skf_dot_loop, table, x, 3 * p, y);
    SAME(skf_gather_groups, table, group, n_groups, SKF_GROUP, x, 0.7f, &y);
    SAME(skf_gather_groups, table, group, n_groups, 1, x, 0.7f, &y);
    SAME(skf_mix_loop, table, 200, feature, weight, (int)n % 7, p, y);
    SAME(skf_dense_loop, table, 0, offset, n, x, p, y);
    SAME(skf_dense_loop, bytes, 1, offset, n, x, p, y);
    SAME(skf_project_loop, x, table, p, y);
    SAME(skf_candidates_loop, direction, threshold, 0, n, 20, start, feature, weight, table, low,
         high, (uint32_t *)y, (uint32_t *)y + SKF_BIT_ROWS);
    if (n <= SKF_ROWS)
        SAME(skf_multiply_loop, table, p, 1, n, p, table + 7, 64, 64, y, 64);
    if (n <= SKF_ROWS && p % SKF_CHAINS == 0)
        SAME(skf_dots_loop, table, p, row, x, n, p / 2 / SKF_CHAINS * SKF_CHAINS, y);
}

int main(void)
{
    for (int i = 0; i < N_TABLE; i++) {
        table[i] = number();
        bytes[i] = (uint8_t)(rand() % 256);
    }
    for (int i = 0; i < N_OUT; i++)
        x[i] = number();
    for (int64_t p = 1; p <= 100; p++)
        for (int64_t n = 1; n <= 39; n += n < 18 ? 1 : 7)
            check(n, p);
    return n_wrong > 0;
}
