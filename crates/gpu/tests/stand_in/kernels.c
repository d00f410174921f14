// The kernels as plain C in one form: constant-time, or with TABLES (kernels_tables.c).

#ifndef TABLES
#define FORM CONSTANT_TIME
#define FORM_PTX PTX
#define main main_constant_time
#endif
#include "../../kernels/plain.c"
#undef main

#include "form.h"

static void run(const struct entry *entry, u32 groups, u32 **p, u32 word, int lacks_lane) {
    for (plain_group = 0; plain_group < groups; plain_group++) {
        for (plain_lane = 0; plain_lane < ESP_LANES; plain_lane++) {
            if (lacks_lane && plain_lane == 8) continue;
            if (entry->keys != NULL) entry->keys(p[0], p[1], word);
            else entry->packets(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], word);
        }
    }
}

const struct form FORM = {
    .ptx = FORM_PTX,
    .entries = {{"expand_keys", 3, 0, expand_keys, NULL},
                {"wipe_keys", 3, 0, wipe_keys, NULL},
                {"esp_cipher", 9, 1, NULL, esp_cipher},
                {"esp_mac", 9, 0, NULL, esp_mac},
                {"esp_finish", 9, 0, NULL, esp_finish},
                {"esp_tdes", 9, 1, NULL, esp_tdes}},
    .run = run,
};
