// Runs a recorded launch (see abi.h) on the CPU, lane after lane, so that a compiler's sanitizers see each access. Each
// buffer is allocated at its exact size.

#include <stdio.h>
#include <stdlib.h>

#include "abi.h"
#include "shim.h"
#include "aes.h"
#include "aes_tables.h"
#include "ghash.h"
#include "chacha.h"
#include "poly1305.h"
#include "des_networks.h"
#include "des.h"
#include "des_tables.h"
#include "hash.h"
#include "packet.h"
#include "keys.h"
#include "cipher.h"
#include "cipher_tables.h"
#include "mac.h"
#include "esp.c"

struct buffer {
    u32 count;
    u32 *words;
};

enum { RAW, SLOTS, IN, OUT, ROWS, JOBS, ORDER, CIPHER_GROUPS, MAC_GROUPS, FINISH_GROUPS, TDES_GROUPS, SCRATCH, VERDICTS,
       BUFFERS };

static void fail(const char *reason) {
    fprintf(stderr, "plain: %s\n", reason);
    exit(2);
}

static u32 read_word(void) {
    u32 word;
    if (fread(&word, sizeof word, 1, stdin) != 1) fail("the input ends too early");
    return word;
}

static struct buffer read_buffer(void) {
    struct buffer b;
    b.count = read_word();
    b.words = malloc(b.count * sizeof(u32));
    if (b.words == NULL && b.count > 0) fail("no memory");
    if (fread(b.words, sizeof(u32), b.count, stdin) != b.count) fail("the input ends too early");
    return b;
}

static void write_buffer(struct buffer b) {
    if (fwrite(b.words, sizeof(u32), b.count, stdout) != b.count) fail("cannot write");
}

typedef void key_entry(const u32 *source, u32 *rows, u32 count);
typedef void packet_entry(const u32 *in, u32 *out, const u32 *rows, const u32 *jobs, const u32 *order,
                          const u32 *groups, u32 *scratch, u32 *verdicts, u32 direction);

static void run_keys(key_entry *entry, struct buffer *b, u32 source, u32 record_words) {
    u32 count = b[source].count / record_words;
    for (plain_group = 0; plain_group * ESP_LANES < count; plain_group++) {
        for (plain_lane = 0; plain_lane < ESP_LANES; plain_lane++) entry(b[source].words, b[ROWS].words, count);
    }
}

static void run_packets(packet_entry *entry, struct buffer *b, u32 groups, u32 direction) {
    for (plain_group = 0; plain_group < b[groups].count / GROUP_WORDS; plain_group++) {
        for (plain_lane = 0; plain_lane < ESP_LANES; plain_lane++) {
            entry(b[IN].words, b[OUT].words, b[ROWS].words, b[JOBS].words, b[ORDER].words, b[groups].words,
                  b[SCRATCH].words, b[VERDICTS].words, direction);
        }
    }
}

int main(void) {
    if (read_word() != PLAIN_MAGIC) fail("not a recorded launch");
    u32 direction = read_word(), stages = read_word();
    struct buffer b[BUFFERS];
    for (u32 i = 0; i < BUFFERS; i++) b[i] = read_buffer();
    if (stages & PLAIN_EXPAND) run_keys(expand_keys, b, RAW, RAW_WORDS);
    if (stages & PLAIN_CIPHER && direction == ESP_SEAL) run_packets(esp_cipher, b, CIPHER_GROUPS, direction);
    if (stages & PLAIN_MAC) run_packets(esp_mac, b, MAC_GROUPS, direction);
    if (stages & PLAIN_FINISH) run_packets(esp_finish, b, FINISH_GROUPS, direction);
    if (stages & PLAIN_CIPHER && direction == ESP_OPEN) run_packets(esp_cipher, b, CIPHER_GROUPS, direction);
    if (stages & PLAIN_TDES && direction == ESP_OPEN) run_packets(esp_tdes, b, TDES_GROUPS, direction);
    if (stages & PLAIN_WIPE) run_keys(wipe_keys, b, SLOTS, 1);
    write_buffer(b[OUT]);
    write_buffer(b[ROWS]);
    write_buffer(b[VERDICTS]);
    for (u32 i = 0; i < BUFFERS; i++) free(b[i].words);
    return 0;
}
