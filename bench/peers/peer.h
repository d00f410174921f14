/*
 * What a library to compare with offers to the bench of the CPU engine: one symbol, a table.
 *
 * Packets lie in memory as the engine has them: ESP header | IV | payload and trailer | ICV, without ESN. Sealing and
 * opening work in place. The explicit IV is in the packet before.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Changes with the layout of these structures. */
#define PEER_ABI 1
/* Packets of a call, at most. */
#define PEER_BATCH 512

struct peer_packet {
    void *key;
    uint8_t *esp;
    uint32_t len;
};

/* One of the library's interfaces. Both give the number of packets done: authentic ones when opening. */
struct peer_way {
    const char *name;
    size_t (*seal)(const struct peer_packet *packets, size_t count);
    size_t (*open)(const struct peer_packet *packets, size_t count);
};

struct peer_suite {
    /* Transform::name() */
    const char *name;
    /* Key material as Transform::key_material_len() has it; for one direction. */
    void *(*key_new)(const uint8_t *material, int open);
    void (*key_free)(void *key);
    /* Ends with a nameless one. */
    const struct peer_way *ways;
};

struct peer {
    uint32_t abi;
    const char *name;
    /* Ends with a nameless one. */
    const struct peer_suite *suites;
};

/* NULL if the machine lacks the instructions, or the library is not the one of the headers. */
const struct peer *peer(void);

#define PEER_INLINE static inline __attribute__((always_inline))

PEER_INLINE int peer_same(const uint8_t *a, const uint8_t *b, size_t len)
{
    uint8_t difference = 0;
    for (size_t i = 0; i < len; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

#endif
