// A stand-in for libcuda.so.1, for tests without a GPU: the calls of CUDA's driver that the host uses, over the memory
// of the CPU. Each stream is a thread, so that nothing is done when a call returns. Kernels run as plain C.
//
// What a driver would refuse gets the driver's error. What a driver would not notice, and what would harm, ends the
// process. Memory of the device has addresses of its own, and lies before a page that cannot be read or written.
//
// CUDA_TRIAL in the environment names a fault, with the number of the call that has it: see `is_fault`.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../kernels/abi.h"
#include "form.h"

typedef uint32_t u32;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
};

enum kind { CONTEXT = 1, MODULE, FUNCTION, STREAM, EVENT };

struct object {
    enum kind kind;
    int gone;
    struct object *next, *context;
    // A context has an error that all calls return from then on, and says whether a kernel has run.
    int error, used;
    // A module is a form of the kernels, and a function is one of its kernels.
    const struct form *form;
    const struct entry *entry;
    // A stream has work that waits, and may be at work.
    struct operation *first, *last;
    int busy;
    // An event counts how often a stream was to reach it, and how often one has. It may have the time of the last one.
    u32 recorded, reached;
    int has_time;
    struct timespec time;
};

struct memory {
    struct memory *next;
    struct object *context;
    uint64_t address;
    char *bytes;
    size_t size;
    int pinned, gone, registered;
};

#define ARGUMENTS_MAX 9

enum what { COPY, SET, LAUNCH, RECORD, CALL };

struct operation {
    struct operation *next;
    enum what what;
    uint64_t to, from;
    size_t size;
    u32 word;
    const struct form *form;
    const struct entry *entry;
    u32 groups;
    uint64_t arguments[ARGUMENTS_MAX];
    struct object *event;
    void (*function)(void *);
    void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
// The lane's number is a global variable of the kernels, so that one kernel runs at a time.
static pthread_mutex_t kernel_lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static struct memory *memories;
static int initialized, hangs;
static __thread struct object *current;
static __thread int in_host_function;

static void end(const char *why) {
    fprintf(stderr, "stand-in: %s\n", why);
    abort();
}

// Counts a call. Tells whether it is the one that has the fault: the n-th of "name@n", or each of "name".
static int is_fault(const char *name, u32 *count) {
    const char *trial = getenv("CUDA_TRIAL");
    size_t length = strlen(name);
    *count += 1;
    if (trial == NULL || strncmp(trial, name, length) != 0) return 0;
    if (trial[length] == '@') return (u32)atoi(trial + length + 1) == *count;
    return trial[length] == 0;
}

static struct object *find(const void *handle, enum kind kind) {
    for (struct object *o = objects; o != NULL; o = o->next) {
        int is_there = !o->gone && (o->context == NULL || !o->context->gone);
        if (o == handle && o->kind == kind && is_there) return o;
    }
    return NULL;
}

static struct object *make(enum kind kind) {
    struct object *o = calloc(1, sizeof *o);
    if (o == NULL) end("no memory");
    o->kind = kind;
    o->context = kind == CONTEXT ? NULL : current;
    o->next = objects;
    objects = o;
    return o;
}

// Memory that holds these bytes, of the host's if it is pinned.
static char *reach(uint64_t address, size_t size, int pinned) {
    for (struct memory *m = memories; m != NULL; m = m->next) {
        uint64_t offset = address - m->address;
        int is_inside = address >= m->address && offset <= m->size && size <= m->size - offset;
        if (!m->gone && m->pinned == pinned && is_inside) return m->bytes + offset;
    }
    return NULL;
}

static char *reach_any(uint64_t address, size_t size) {
    char *bytes = reach(address, size, 0);
    return bytes != NULL ? bytes : reach(address, size, 1);
}

static struct memory *take(size_t size, int pinned) {
    static uint64_t next_address = 0x700000000000;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    char *pages = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, whole, PROT_READ | PROT_WRITE) != 0) end("no memory");
    struct memory *m = calloc(1, sizeof *m);
    if (m == NULL) end("no memory");
    m->bytes = pages + page + whole - size;
    m->size = size;
    m->pinned = pinned;
    m->context = current;
    m->address = pinned ? (uint64_t)(uintptr_t)m->bytes : next_address;
    m->next = memories;
    memories = m;
    if (!pinned) next_address += whole + (1 << 20);
    memset(m->bytes, 0xa5, size);
    return m;
}

// ---------------------------------------------------------------------------- the device at work

static void run(const struct operation *o, u32 **buffers) {
    static u32 ciphers;
    int lacks_lane = o->entry->is_cipher && is_fault("wrong-lane", &ciphers);
    o->form->run(o->entry, o->groups, buffers, (u32)o->arguments[o->entry->arguments - 1], lacks_lane);
}

static void launch(struct object *stream, const struct operation *o) {
    static u32 launches, skipped;
    u32 *arguments[ARGUMENTS_MAX] = {0};
    int fails = 0, skips;
    pthread_mutex_lock(&kernel_lock);
    pthread_mutex_lock(&lock);
    stream->context->used = 1;
    for (u32 i = 0; i + 1 < o->entry->arguments; i++) {
        arguments[i] = (u32 *)(void *)reach(o->arguments[i], 4, 0);
        fails |= arguments[i] == NULL;
    }
    skips = is_fault("skip", &skipped);
    if (is_fault("sticky", &launches)) fails = 1;
    launches--;
    if (is_fault("hang", &launches)) {
        hangs = 1;
        while (1) pthread_cond_wait(&changed, &lock);
    }
    if (fails) stream->context->error = ILLEGAL_ADDRESS;
    pthread_mutex_unlock(&lock);
    if (!fails && !skips) run(o, arguments);
    pthread_mutex_unlock(&kernel_lock);
}

static void work(struct object *stream, struct operation *o) {
    char *to, *from;
    switch (o->what) {
    case COPY:
    case SET:
        pthread_mutex_lock(&lock);
        to = reach_any(o->to, o->size);
        from = o->what == COPY ? reach_any(o->from, o->size) : to;
        pthread_mutex_unlock(&lock);
        if (to == NULL || from == NULL) end("memory is freed while the device uses it");
        if (o->what == COPY) memmove(to, from, o->size);
        for (size_t i = 0; o->what == SET && i < o->size; i += 4) memcpy(to + i, &o->word, 4);
        break;
    case LAUNCH: launch(stream, o); break;
    case RECORD:
        pthread_mutex_lock(&lock);
        o->event->reached++;
        clock_gettime(CLOCK_MONOTONIC, &o->event->time);
        pthread_mutex_unlock(&lock);
        break;
    case CALL:
        in_host_function = 1;
        o->function(o->data);
        in_host_function = 0;
        break;
    }
}

static void *serve(void *argument) {
    struct object *stream = argument;
    pthread_mutex_lock(&lock);
    while (1) {
        while (stream->first == NULL) pthread_cond_wait(&changed, &lock);
        struct operation *o = stream->first;
        stream->first = o->next;
        stream->busy = 1;
        int error = stream->context->error;
        pthread_mutex_unlock(&lock);
        // After an error nothing is done any more.
        if (error == SUCCESS) work(stream, o);
        free(o);
        pthread_mutex_lock(&lock);
        stream->busy = 0;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

// ---------------------------------------------------------------------------- calls

static int leave(int code) {
    pthread_mutex_unlock(&lock);
    return code;
}

// What each call does first. It returns with the lock held.
static int enter(void) {
    if (in_host_function) end("a host function makes a call of the driver");
    pthread_mutex_lock(&lock);
    if (!initialized) return NOT_INITIALIZED;
    if (current == NULL || current->gone) return INVALID_CONTEXT;
    return current->error;
}

// Gives a stream something to do. The lock is held.
static int enqueue(void *handle, struct operation wanted) {
    struct object *stream = find(handle, STREAM);
    if (stream == NULL || stream->context != current) return INVALID_HANDLE;
    struct operation *o = malloc(sizeof *o);
    if (o == NULL) end("no memory");
    *o = wanted;
    o->next = NULL;
    if (stream->first == NULL) stream->first = o;
    else stream->last->next = o;
    stream->last = o;
    pthread_cond_broadcast(&changed);
    return SUCCESS;
}

int cuGetErrorName(int error, const char **text) {
    static __thread char name[40];
    snprintf(name, sizeof name, "TRIAL_ERROR_%d", error);
    *text = name;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    (void)error;
    *text = NULL;
    return INVALID_VALUE;
}

int cuInit(unsigned flags) {
    u32 count = 0;
    if (flags != 0) return INVALID_VALUE;
    if (is_fault("no-device", &count)) return NO_DEVICE;
    if (is_fault("broken", &count)) return 999;
    initialized = 1;
    return SUCCESS;
}

int cuDeviceGetCount(int *count) {
    *count = 2;
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal + 40;
    return ordinal >= 0 && ordinal < 2 ? SUCCESS : INVALID_DEVICE;
}

static int is_device(int device) { return device == 40 || device == 41; }

int cuDeviceGetName(char *name, int length, int device) {
    if (!is_device(device)) return INVALID_DEVICE;
    u32 count = 0;
    const char *part = is_fault("part", &count) ? " MIG 1g.5gb" : "";
    snprintf(name, (size_t)length, "Stand-in %d%s", device - 40, part);
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    u32 count = 0;
    if (!is_device(device)) return INVALID_DEVICE;
    switch (attribute) {
    // Major and minor number of the compute capability.
    case 75: *value = 7; return SUCCESS;
    case 76: *value = is_fault("old-device", &count) ? 0 : 5; return SUCCESS;
    // Integrated, and shared by MPS, which not every driver knows.
    case 18: *value = is_fault("integrated", &count); return is_fault("no-answer", &count) ? INVALID_VALUE : SUCCESS;
    case 133: *value = 1; return is_fault("mps", &count) ? SUCCESS : INVALID_VALUE;
    default: return INVALID_VALUE;
    }
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    pthread_mutex_lock(&lock);
    if (!initialized) return leave(NOT_INITIALIZED);
    if (!is_device(device) || flags > 0x1f) return leave(INVALID_DEVICE);
    current = NULL;
    *context = current = make(CONTEXT);
    return leave(SUCCESS);
}

int cuCtxSetCurrent(void *context) {
    if (in_host_function) end("a host function makes a call of the driver");
    pthread_mutex_lock(&lock);
    struct object *found = find(context, CONTEXT);
    if (found == NULL) return leave(INVALID_CONTEXT);
    current = found;
    return leave(found->error);
}

int cuCtxDestroy_v2(void *context) {
    int code = enter();
    struct object *gone = find(context, CONTEXT);
    if (gone == NULL) return leave(INVALID_CONTEXT);
    if (code != SUCCESS || gone->error != SUCCESS || hangs) end("a context is freed after an error");
    for (struct object *o = objects; o != NULL; o = o->next) {
        if (o->kind != STREAM || o->context != gone) continue;
        while (o->first != NULL || o->busy) pthread_cond_wait(&changed, &lock);
    }
    for (struct memory *m = memories; m != NULL; m = m->next) {
        if (m->context != gone || m->gone) continue;
        m->gone = 1;
        // The program's own memory stays as it is.
        if (m->registered) continue;
        for (size_t i = 0; gone->used && i < m->size; i++) {
            if (m->bytes[i] != 0) end("a context's memory is freed with content");
        }
        mprotect((void *)((uintptr_t)m->bytes & ~(uintptr_t)4095), m->size, PROT_NONE);
    }
    gone->gone = 1;
    current = NULL;
    return leave(SUCCESS);
}

// Tells whether a text is that of a form.
static int is_of(const char *image, const struct form *form) {
    static char text[4 << 20];
    FILE *file = fopen(form->ptx, "rb");
    if (file == NULL) end("the kernels' PTX is not there");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return strcmp(image, text) == 0;
}

int cuModuleLoadDataEx(void **module, const char *image, unsigned count, const int *options, void **values) {
    u32 calls = 0;
    int code = enter();
    if (code != SUCCESS) return leave(code);
    const struct form *form = NULL;
    if (is_of(image, &CONSTANT_TIME)) form = &CONSTANT_TIME;
    else if (is_of(image, &WITH_TABLES)) form = &WITH_TABLES;
    if (form == NULL || is_fault("refuse-kernels", &calls)) {
        // CU_JIT_ERROR_LOG_BUFFER and its size.
        if (count == 2 && options[0] == 5 && options[1] == 6) {
            snprintf(values[0], (size_t)(uintptr_t)values[1], "ptxas: the trial wants it");
        }
        return leave(INVALID_PTX);
    }
    struct object *made = make(MODULE);
    made->form = form;
    *module = made;
    return leave(SUCCESS);
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    struct object *of = find(module, MODULE);
    if (of == NULL) return leave(INVALID_HANDLE);
    for (size_t i = 0; i < ENTRIES_COUNT; i++) {
        if (strcmp(of->form->entries[i].name, name) == 0) {
            struct object *made = make(FUNCTION);
            made->form = of->form;
            made->entry = &of->form->entries[i];
            *function = made;
            return leave(SUCCESS);
        }
    }
    return leave(NOT_FOUND);
}

int cuMemAlloc_v2(uint64_t *address, size_t size) {
    static u32 calls;
    int code = enter();
    if (code != SUCCESS) return leave(code);
    if (size == 0) return leave(INVALID_VALUE);
    if (is_fault("no-memory", &calls)) return leave(OUT_OF_MEMORY);
    *address = take(size, 0)->address;
    return leave(SUCCESS);
}

int cuMemHostAlloc(void **bytes, size_t size, unsigned flags) {
    static u32 calls;
    int code = enter();
    if (code != SUCCESS) return leave(code);
    if (size == 0 || flags > 7) return leave(INVALID_VALUE);
    if (is_fault("no-pinned", &calls)) return leave(OUT_OF_MEMORY);
    *bytes = take(size, 1)->bytes;
    return leave(SUCCESS);
}

int cuMemHostRegister_v2(void *bytes, size_t size, unsigned flags) {
    static u32 calls;
    int code = enter();
    if (code != SUCCESS) return leave(code);
    if (size == 0 || flags > 15 || ((uintptr_t)bytes | size) % 4096 != 0) return leave(INVALID_VALUE);
    if (is_fault("no-register", &calls)) return leave(OUT_OF_MEMORY);
    struct memory *m = calloc(1, sizeof *m);
    if (m == NULL) end("no memory");
    *m = (struct memory){.next = memories, .context = current, .address = (uint64_t)(uintptr_t)bytes, .bytes = bytes,
                         .size = size, .pinned = 1, .registered = 1};
    memories = m;
    return leave(SUCCESS);
}

static int copy(uint64_t to, int to_pinned, uint64_t from, int from_pinned, size_t size, void *stream) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    char *there = reach(to, size, to_pinned), *here = reach(from, size, from_pinned);
    if ((there == NULL && to_pinned) || (here == NULL && from_pinned)) end("a copy that would wait: not pinned");
    if (there == NULL || here == NULL || size == 0) return leave(INVALID_VALUE);
    return leave(enqueue(stream, (struct operation){.what = COPY, .to = to, .from = from, .size = size}));
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    return copy(to, 0, (uint64_t)(uintptr_t)from, 1, size, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
    return copy((uint64_t)(uintptr_t)to, 1, from, 0, size, stream);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    return copy(to, 0, from, 0, size, stream);
}

int cuMemsetD32Async(uint64_t to, unsigned word, size_t count, void *stream) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    if (reach(to, 4 * count, 0) == NULL || to % 4 != 0) return leave(INVALID_VALUE);
    return leave(enqueue(stream, (struct operation){.what = SET, .to = to, .size = 4 * count, .word = word}));
}

int cuStreamCreate(void **stream, unsigned flags) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    if (flags > 1) return leave(INVALID_VALUE);
    struct object *made = make(STREAM);
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, made) != 0) end("no thread");
    pthread_detach(thread);
    *stream = made;
    return leave(SUCCESS);
}

int cuStreamSynchronize(void *handle) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    struct object *stream = find(handle, STREAM);
    if (stream == NULL) return leave(INVALID_HANDLE);
    while (stream->first != NULL || stream->busy) pthread_cond_wait(&changed, &lock);
    return leave(stream->context->error);
}

int cuEventCreate(void **event, unsigned flags) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    if (flags > 7) return leave(INVALID_VALUE);
    struct object *made = make(EVENT);
    // Not CU_EVENT_DISABLE_TIMING.
    made->has_time = (flags & 2) == 0;
    *event = made;
    return leave(SUCCESS);
}

int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    struct object *a = find(from, EVENT), *b = find(to, EVENT);
    if (a == NULL || b == NULL || !a->has_time || !b->has_time || a->recorded == 0 || b->recorded == 0) {
        return leave(INVALID_HANDLE);
    }
    if (a->recorded != a->reached || b->recorded != b->reached) return leave(NOT_READY);
    double seconds = (double)(b->time.tv_sec - a->time.tv_sec), ns = (double)(b->time.tv_nsec - a->time.tv_nsec);
    *milliseconds = (float)(seconds * 1e3 + ns / 1e6);
    return leave(SUCCESS);
}

int cuEventRecord(void *handle, void *stream) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    struct object *event = find(handle, EVENT);
    if (event == NULL) return leave(INVALID_HANDLE);
    code = enqueue(stream, (struct operation){.what = RECORD, .event = event});
    event->recorded += code == SUCCESS;
    return leave(code);
}

int cuEventQuery(void *handle) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    struct object *event = find(handle, EVENT);
    if (event == NULL) return leave(INVALID_HANDLE);
    return leave(event->recorded == event->reached ? SUCCESS : NOT_READY);
}

int cuEventSynchronize(void *handle) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    struct object *event = find(handle, EVENT);
    if (event == NULL) return leave(INVALID_HANDLE);
    while (event->recorded != event->reached && event->context->error == SUCCESS) pthread_cond_wait(&changed, &lock);
    return leave(event->context->error);
}

int cuLaunchKernel(void *handle, unsigned x, unsigned y, unsigned z, unsigned lanes, unsigned lanes_y,
                   unsigned lanes_z, unsigned shared, void *stream, void **arguments, void **extra) {
    static u32 calls;
    int code = enter();
    if (code != SUCCESS) return leave(code);
    struct object *function = find(handle, FUNCTION);
    if (function == NULL) return leave(INVALID_HANDLE);
    if (x == 0 || y != 1 || z != 1 || lanes_y != 1 || lanes_z != 1 || shared != 0) return leave(INVALID_VALUE);
    // The kernels are made for so many lanes (launch bounds).
    if (lanes != ESP_LANES || arguments == NULL || extra != NULL) return leave(INVALID_VALUE);
    if (is_fault("refuse-launch", &calls)) return leave(LAUNCH_OUT_OF_RESOURCES);
    struct operation o = {.what = LAUNCH, .form = function->form, .entry = function->entry, .groups = x};
    for (u32 i = 0; i < function->entry->arguments; i++) {
        if (arguments[i] == NULL) end("a kernel gets too few arguments");
        // The last one is a word, and the others are addresses.
        memcpy(&o.arguments[i], arguments[i], i + 1 < function->entry->arguments ? 8 : 4);
    }
    if (arguments[function->entry->arguments] != NULL) end("a kernel gets too many arguments");
    return leave(enqueue(stream, o));
}

#ifndef OLD_DRIVER
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    int code = enter();
    if (code != SUCCESS) return leave(code);
    if (function == NULL) return leave(INVALID_VALUE);
    return leave(enqueue(stream, (struct operation){.what = CALL, .function = function, .data = data}));
}
#endif

// Tells the test at the end how many contexts nobody has freed, and whether keys are in one whose kernels have not run.
__attribute__((destructor)) static void count_contexts(void) {
    u32 left = 0;
    size_t bytes = 0;
    for (struct object *o = objects; o != NULL; o = o->next) left += o->kind == CONTEXT && !o->gone;
    for (struct memory *m = memories; m != NULL; m = m->next) {
        if (m->gone || m->pinned || m->context->gone || m->context->used) continue;
        for (size_t i = 0; i < m->size; i++) bytes += m->bytes[i] != 0;
    }
    fprintf(stderr, "stand-in: %u contexts are left\n", left);
    if (bytes != 0) fprintf(stderr, "stand-in: %zu bytes of keys are left\n", bytes);
}
