// A form of the kernels as the stand-in runs them. kernels.c makes each: constant-time, and with tables.

#include <stddef.h>
#include <stdint.h>

struct entry {
    const char *name;
    uint32_t arguments;
    int is_cipher;
    // It is one of these.
    void (*keys)(const uint32_t *source, uint32_t *rows, uint32_t count);
    void (*packets)(const uint32_t *in, uint32_t *out, const uint32_t *rows, const uint32_t *jobs, const uint32_t *order,
                    const uint32_t *groups, uint32_t *scratch, uint32_t *verdicts, uint32_t direction);
};

#define ENTRIES_COUNT 6

struct form {
    // The file with the text that a host gives the driver for this form.
    const char *ptx;
    struct entry entries[ENTRIES_COUNT];
    // Runs work-groups over buffers and a word. A lane is left out if `lacks_lane` says so.
    void (*run)(const struct entry *entry, uint32_t groups, uint32_t **buffers, uint32_t word, int lacks_lane);
};

extern const struct form CONSTANT_TIME, WITH_TABLES;
